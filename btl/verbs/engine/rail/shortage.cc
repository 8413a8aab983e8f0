// SPDX-License-Identifier: BSD-3-Clause
//
// shortage.cc: see shortage.h.
#include "btl/verbs/engine/rail/shortage.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>

#include "common/clock.h"
#include "btl/verbs/engine/port/address.h"
#include "btl/verbs/engine/datagram/packet_text.h"
#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {

void note_shortage(Endpoint& endpoint, Object object, int error, bool there, uint64_t now) {
  Shortage& shortage = endpoint.shortage();
  if (shortage.tries == 0 || time_since(shortage.last_ns, now) > kResourceQuietNs) {
    shortage = Shortage{};
    shortage.since_ns = now;
  }
  // What this side cannot make says more than what the peer says of its own.
  const bool own_known = shortage.tries != 0 && !shortage.there;
  if (!there || !own_known) {
    shortage.object = object;
    shortage.error = error;
    shortage.there = there;
  }
  ++shortage.tries;
  shortage.last_ns = now;
}

void resource_unaddressed(Endpoint& endpoint, const Address& address) {
  const Shortage& shortage = endpoint.shortage();
  if (shortage.object == Object::kAddressHandle && !shortage.there && shortage.seen == address.failures)
    return;
  Port& port = *endpoint.port;
  ++port.resources().failures[static_cast<size_t>(Object::kAddressHandle)];
  note_shortage(endpoint, Object::kAddressHandle, address.error, false, port.env().now_ns());
  endpoint.shortage().seen = address.failures;
  port.need_service();
}

void resource_text(const Shortage& shortage, char* text, size_t size) {
  const char* who = shortage.there ? "the peer cannot" : "cannot";
  const char* name = errno_name(shortage.error);
  if (name != nullptr) {
    snprintf(text, size, "%s %s: %s", who, object_verb(shortage.object), name);
  } else {
    snprintf(text, size, "%s %s: errno %d", who, object_verb(shortage.object), shortage.error);
  }
}

namespace {

void memory_remedy(uint64_t bytes, char* text, size_t size) {
  if (bytes == UINT64_MAX) {
    snprintf(text, size,
             "Locked memory is not limited for this process (ulimit -l): the device or the node has no more. "
             "Lower btl_verbs_receive_queue_depth, btl_verbs_send_queue_depth or btl_verbs_max_send_size, or "
             "run fewer processes on the node.");
    return;
  }
  snprintf(text, size,
           "The limit of locked memory (ulimit -l) is %" PRIu64
           " KiB: raise it on every node, or lower btl_verbs_receive_queue_depth, btl_verbs_send_queue_depth "
           "or btl_verbs_max_send_size.",
           bytes / 1024);
}

}  // namespace

void resource_remedy(const Shortage& shortage, uint64_t bytes, char* text, size_t size) {
  if (shortage.there) {
    snprintf(text, size, "What helps is said by that process, on the standard error of its node.");
    return;
  }
  switch (shortage.object) {
    case Object::kMemory:
      return memory_remedy(bytes, text, size);
    case Object::kCompletionQueue:
      snprintf(text, size,
               "The device has a limit of completion queues and of their entries (max_cq and max_cqe of "
               "\"ibv_devinfo -v\"), and each takes locked memory (ulimit -l): lower "
               "btl_verbs_send_queue_depth or btl_verbs_cq_size, or run fewer processes on the node.");
      return;
    case Object::kQueuePair:
      snprintf(text, size,
               "The device has a limit of queue pairs (max_qp of \"ibv_devinfo -v\"), and each takes locked "
               "memory (ulimit -l): run fewer processes on the node, or lower btl_verbs_send_queue_depth.");
      return;
    case Object::kQueuePairState:
    case Object::kAddressHandle:
      snprintf(text, size,
               "The peer's address may not be reachable from this port: check its network (VLAN, subnet, "
               "cable) and btl_verbs_gid_index, or leave the port out with btl_verbs_if_exclude.");
      return;
    case Object::kBuffers:
      snprintf(text, size,
               "The node or its container has no memory left: run fewer processes on it, or lower "
               "btl_verbs_send_queue_depth.");
      return;
    case Object::kNone:
      break;
  }
  text[0] = '\0';
}

}  // namespace bfo::engine
