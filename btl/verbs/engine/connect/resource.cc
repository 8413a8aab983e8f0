// SPDX-License-Identifier: BSD-3-Clause
//
// resource.cc: see resource.h.
#include "btl/verbs/engine/connect/resource.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>

#include "common/clock.h"
#include "btl/verbs/engine/connect/attempt.h"
#include "btl/verbs/engine/connect/ping.h"
#include "btl/verbs/engine/send/cm_send.h"
#include "btl/verbs/engine/drain/drain.h"
#include "btl/verbs/engine/rail/port.h"
#include "btl/verbs/engine/send/send.h"

namespace bfo::engine {
namespace {

bool other_rail_up(Endpoint& endpoint) {
  const Host& host = endpoint.port->host();
  return host.other_rail_up(host.ctx, endpoint);
}

/// A rail that can end without a loss: nothing is under way on it, and its peer has another one.
/// Not `except`.
Endpoint* spare_rail(const Endpoint& except) {
  for (Endpoint* rail = except.port->endpoints(); rail != nullptr; rail = rail->next) {
    if (rail == &except || rail->phase != Phase::kUp || rail->ending().asked) continue;
    if (rail->peer.left || rail->last().leaving || outstanding(*rail) != 0) continue;
    if (other_rail_up(*rail)) return rail;
  }
  return nullptr;
}

bool is_shared(Object object) {
  return object == Object::kQueuePair || object == Object::kCompletionQueue;
}

/// From now on, and for a while, no second rail begins on the port.
void begin_short(Port& port, uint64_t now) {
  ResourceCounts& counts = port.resources();
  if (now >= counts.short_until_ns) counts.speaker = 0;
  counts.short_until_ns = now + kShortNs;
}

void give_back(Endpoint& spare) {
  ++spare.port->resources().given_back;
  close_order(spare, spare.epoch, BFO_CAUSE_GIVEN_BACK, 0, 0);
}

/// A device is shared with other processes: the peers that `needy` does not mean may have second rails to
/// them.
void ask_others(const Endpoint& needy, Object object, int error) {
  for (Endpoint* rail = needy.port->endpoints(); rail != nullptr; rail = rail->next) {
    if (rail == &needy || !is_up(rail->phase) || rail->peer.left || rail->last().leaving) continue;
    Shortage& shortage = rail->shortage();
    shortage.object = object;
    shortage.error = error;
    cm_refuse(*rail);
    shortage = Shortage{};
  }
}

/// A queue pair cannot be had for `endpoint`, here or at its peer.
void share_out(Endpoint& endpoint, Object object, int error, uint64_t now) {
  Port& port = *endpoint.port;
  if (!is_shared(object) || !port.failover()) return;
  begin_short(port, now);
  if (other_rail_up(endpoint)) {
    uint64_t& speaker = port.resources().speaker;
    if (speaker == 0) speaker = endpoint.peer.name;
    return;
  }
  if (Endpoint* const spare = spare_rail(endpoint); spare != nullptr) return give_back(*spare);
  ask_others(endpoint, object, error);
}

}  // namespace

bool resource_waits(const Endpoint& endpoint, uint64_t now) {
  const ResourceCounts& counts = endpoint.port->resources();
  if (now >= counts.short_until_ns) return false;
  // What is lacking is said when one of them has tried often enough.
  const Shortage& shortage = endpoint.shortage();
  if (counts.speaker == endpoint.peer.name && shortage.tries != 0 && !shortage.reported) return false;
  return other_rail_up(const_cast<Endpoint&>(endpoint));
}

bool resource_give_back(Endpoint& endpoint, uint64_t now) {
  if (!resource_waits(endpoint, now)) return false;
  note_shortage(endpoint, Object::kQueuePair, ENOMEM, false, now);
  ++endpoint.port->resources().given_back;
  attempt_drop(endpoint, now);
  cm_send(endpoint, PacketType::kRefuse, endpoint.epoch + 1);  // it may have made its part
  return true;
}

void resource_failed(Endpoint& endpoint, Object object, int error) {
  Port& port = *endpoint.port;
  ++port.resources().failures[static_cast<size_t>(object)];
  note_shortage(endpoint, object, error, false, port.env().now_ns());
  share_out(endpoint, object, error, port.env().now_ns());
  port.need_service();  // the next try has its time, and its bound
  cm_refuse(endpoint);
}

void resource_refused(Endpoint& endpoint, const Packet& packet, uint64_t now) {
  ++endpoint.port->resources().refused_by_peers;
  ping_refused(endpoint, now);
  const Object object = packet.data_qpn < kObjects ? static_cast<Object>(packet.data_qpn) : Object::kNone;
  note_shortage(endpoint, object, static_cast<int>(packet.data_psn), true, now);
  share_out(endpoint, object, static_cast<int>(packet.data_psn), now);
  endpoint.port->need_service();
}

void resource_short(Endpoint& endpoint, const Packet& packet, uint64_t now) {
  Port& port = *endpoint.port;
  if (packet.data_qpn >= kObjects || !is_shared(static_cast<Object>(packet.data_qpn)) || !port.failover())
    return;
  begin_short(port, now);
  if (Endpoint* const spare = spare_rail(endpoint); spare != nullptr) give_back(*spare);
}

void resource_made(Endpoint& endpoint) {
  endpoint.shortage() = Shortage{};
}

bool resource_exhausted(const Endpoint& endpoint, uint64_t now) {
  const Shortage& shortage = endpoint.shortage();
  // The process that misses something speaks first: it alone knows what helps, and this one may end the job.
  const uint64_t limit = endpoint.port->config().connect_timeout_ns;
  return shortage.tries >= kResourceTries && time_since(shortage.last_ns, now) <= kResourceQuietNs &&
         time_since(shortage.since_ns, now) > (shortage.there ? limit + limit / 2 + kReportFirstNs : limit);
}

bool resource_stops(const Endpoint& endpoint) {
  const Shortage& shortage = endpoint.shortage();
  if (shortage.there) return true;
  if (shortage.object == Object::kAddressHandle) return !cm_can_send(endpoint);
  // A control thread that is making the queue pairs has not said yet whether it can.
  return endpoint.phase != Phase::kMaking && !endpoint.qps().data.exists();
}

}  // namespace bfo::engine
