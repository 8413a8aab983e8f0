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

/// A rail that this side may end without a loss: nothing is under way on it, and its peer has another one.
/// Only the initiator decides so: if both sides did, each about another rail, none would be left.
bool is_spare(Endpoint& rail) {
  if (!rail.initiator || rail.phase != Phase::kUp || rail.ending().asked) return false;
  if (rail.peer.left || rail.last().leaving || !other_rail_up(rail)) return false;
  if (rail.user.load(std::memory_order_acquire) == nullptr) return false;  // nobody would tell the peer
  const Guard guard(rail.port->lock());
  ring_mark(rail);  // without a signal its last work would never be known to have ended
  return outstanding(rail) == 0;
}

/// Not `except`.
Endpoint* spare_rail(const Endpoint& except) {
  for (Endpoint* rail = except.port->endpoints(); rail != nullptr; rail = rail->next) {
    if (rail != &except && is_spare(*rail)) return rail;
  }
  return nullptr;
}

/// The packet that the attempt answers says that the peer has made what it could not make before.
bool peer_has_its_part(const Endpoint& endpoint) {
  switch (endpoint.phase) {
    case Phase::kMaking:
      return !endpoint.initiator;
    case Phase::kReplied:
    case Phase::kBinding:
    case Phase::kProbing:
      return true;
    default:
      return false;
  }
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

bool can_ask(const Endpoint& rail, const Endpoint& needy) {
  return &rail != &needy && is_up(rail.phase) && !rail.ending().asked && !rail.peer.left &&
         !rail.last().leaving;
}

void ask_back(Endpoint& rail, Object object, int error) {
  Shortage& shortage = rail.shortage();
  shortage.object = object;
  shortage.error = error;
  cm_refuse(rail);
  shortage = Shortage{};
}

/// In REFUSE of an epoch that is up, for the errno: nothing is to be given back.
constexpr int kOnlyTold = 0;

/// So many are asked at a time. One rail is missing, and each that hears it gives one back: if all were
/// asked, the rails of the whole job would come and go.
constexpr uint32_t kAsked = 4;

/// Asks some of the peers, others each time; `second`: of those that can give back a rail of this process.
/// Returns how many could be asked.
uint32_t ask_some(Endpoint& needy, bool second, Object object, int error) {
  const auto may = [&needy, second](Endpoint& rail) {
    return can_ask(rail, needy) && (!second || (!rail.initiator && other_rail_up(rail)));
  };
  uint32_t count = 0;
  for (Endpoint* rail = needy.port->endpoints(); rail != nullptr; rail = rail->next) count += may(*rail);
  if (count == 0) return 0;
  uint32_t& next = needy.port->resources().ask_next;
  const uint32_t begin = next % count;
  next = begin + kAsked;
  uint32_t at = 0;
  for (Endpoint* rail = needy.port->endpoints(); rail != nullptr; rail = rail->next) {
    if (may(*rail) && (at++ + count - begin) % count < kAsked) ask_back(*rail, object, error);
  }
  return count;
}

/// Who knows that queue pairs are short begins no second rail: the others would take what is given back.
void tell_others(Endpoint& needy, Object object, uint64_t now) {
  constexpr uint64_t kPauseNs = kShortNs / 10;
  uint64_t& next = needy.port->resources().tell_ns;
  if (now < next) return;
  next = now + kPauseNs;
  for (Endpoint* rail = needy.port->endpoints(); rail != nullptr; rail = rail->next) {
    if (can_ask(*rail, needy)) ask_back(*rail, object, kOnlyTold);
  }
}

/// A device is shared with other processes: if none has a second rail to this one, the peers may have some to
/// each other.
void ask_others(Endpoint& needy, Object object, int error, uint64_t now) {
  // They may have reasons to keep those: now and then the others are asked all the same.
  const bool second = needy.shortage().tries % 4 != 0;
  if (!second || ask_some(needy, true, object, error) == 0) ask_some(needy, false, object, error);
  tell_others(needy, object, now);
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
  ask_others(endpoint, object, error, now);
}

/// Queue pairs are short, and the peer has another rail.
bool goes_without(const Endpoint& endpoint, uint64_t now) {
  return now < endpoint.port->resources().short_until_ns && other_rail_up(const_cast<Endpoint&>(endpoint));
}

}  // namespace

bool resource_waits(const Endpoint& endpoint, uint64_t now) {
  const ResourceCounts& counts = endpoint.port->resources();
  if (!goes_without(endpoint, now)) return false;
  // What is lacking is said when one of them has tried often enough.
  const Shortage& shortage = endpoint.shortage();
  return counts.speaker != endpoint.peer.name || shortage.tries == 0 || shortage.reported;
}

bool resource_give_back(Endpoint& endpoint, uint64_t now) {
  if (!goes_without(endpoint, now)) return false;
  // The one that is to say what is lacking goes on trying. It has its part now, and its peer has time to make
  // its own; but one that is short, too, does not answer.
  const bool tries = !resource_waits(endpoint, now);
  const uint64_t limit = endpoint.port->config().connect_timeout_ns;
  if (tries && time_since(endpoint.times().phase_since_ns, now) < limit) return false;
  note_shortage(endpoint, Object::kQueuePair, ENOMEM, tries, now);
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
  if (packet.data_psn == kOnlyTold) return;
  Endpoint* const spare = is_spare(endpoint) ? &endpoint : spare_rail(endpoint);
  if (spare != nullptr) give_back(*spare);
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
  if (shortage.there) return !peer_has_its_part(endpoint);
  if (shortage.object == Object::kAddressHandle) return !cm_can_send(endpoint);
  // A control thread that is making the queue pairs has not said yet whether it can.
  return endpoint.phase != Phase::kMaking && !endpoint.qps().data.exists();
}

}  // namespace bfo::engine
