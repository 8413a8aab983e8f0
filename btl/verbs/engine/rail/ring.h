// SPDX-License-Identifier: BSD-3-Clause
//
// ring.h: the queue pairs of an endpoint, and its send queue as this side keeps it. send.h, rdma.h and
// qp_command.h act on them.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/base/frag.h"
#include "btl/verbs/engine/base/memory.h"
#include "btl/verbs/engine/device/verbs_api.h"
#include "btl/verbs/engine/device/gids.h"
#include "btl/verbs/engine/device/qp.h"

namespace bfo::engine {

class Port;
struct Endpoint;
struct QpCommand;

/// One posted work request. Its payload, if it has no fragment, lies in the slot memory of the same index.
struct SendSlot {
  Frag* frag;        ///< nullptr: payload in the slot, or control
  uint64_t send_no;  ///< SENDs: position among the SENDs of this epoch, from 1; others: 0
  uint32_t length;
  Kind kind;
  uint8_t tag;
  bool in_slot;  ///< the payload lies in the slot memory of this index
};
static_assert(sizeof(SendSlot) == 24);

/// The send queue as this side sees it: slots [tail, head) are with the device. An unsignaled slot is freed
/// when a later signaled completion retires it: a reliable connection reports success in the order of
/// posting.
struct SendRing {
  Port* port = nullptr;          ///< of the endpoint: the send path keeps one pointer, this ring's
  Endpoint* endpoint = nullptr;  ///< for the end of a refused post
  ibv_qp* qp = nullptr;
  SendSlot* slots = nullptr;
  char* memory = nullptr;     ///< depth * slot_bytes, registered
  uint64_t head = 0;          ///< work requests posted
  uint64_t tail = 0;          ///< work requests retired by a success
  uint64_t signaled_end = 0;  ///< one past the last signaled work request
  uint32_t mask = 0;          ///< depth - 1, depth a power of two
  uint32_t limit = 0;         ///< slots usable for data; the rest is kept for control
  uint32_t lkey = 0;
  uint32_t slot_bytes = 0;
  uint32_t max_inline = 0;
  uint32_t since_signal = 0;
  uint64_t sends_posted = 0;  ///< SENDs given to the device in this epoch
  uint64_t sends_acked = 0;   ///< of these, retired by a success
};

/// Storage of a ring, reused by later epochs.
struct RingStore {
  Array<SendSlot> slots;
  char* memory = nullptr;
  uint32_t lkey = 0;
};

/// Why no epoch follows the current one.
struct LastEpoch {
  bool device_dead = false;
  bool not_destroyed = false;  ///< the device lives, and has refused to destroy the queue pair
  bool leaving = false;        ///< this process goes away in order (leave.h)

  bool unusable() const { return device_dead || not_destroyed; }
};

/// The queue pairs of an endpoint's current attempt or epoch, with what they were made with. While a command
/// is under way (qp_command.h) they are its own.
struct QueuePairs {
  Qp data;
  Qp probe;
  ibv_cq* send_cq = nullptr;
  uint32_t reserved = 0;  ///< completion queue entries
  uint32_t data_psn = 0;
  uint32_t probe_psn = 0;
  uint8_t own_gid = kNoGid;      ///< index of the port's address that the last ones were connected with
  LastEpoch last;                ///< why no others follow
  QpCommand* command = nullptr;  ///< under way on them
};

}  // namespace bfo::engine
