// SPDX-License-Identifier: BSD-3-Clause
//
// handshakes.cc: see handshakes.h.
#include "btl/verbs/engine/connect/handshakes.h"

#include <algorithm>

#include "common/clock.h"
#include "btl/verbs/engine/connect/liveness.h"
#include "btl/verbs/engine/rail/port.h"
#include "btl/verbs/engine/watchdog/verdict.h"

namespace bfo::engine {
namespace {

/// A handshake packet has had no answer for long. With more processes than processors each is away for most
/// of the time, and all would begin all of their handshakes: repeating those is then all they do. So only
/// time counts in which this process could hear an answer, up to a bound by the clock on the wall.
bool answer_is_slow(const Endpoint& endpoint, uint64_t now) {
  const auto present = static_cast<uint32_t>(endpoint.port->presence().present_ns() / 1'000'000);
  return present - endpoint.effort->phase_present_ms >= kSlowAnswerNs / 1'000'000 ||
         time_since(endpoint.effort->phase_since_ns, now) >= kSlowestAnswerNs;
}

/// A handshake of this process that takes the port's time.
bool under_way(const Endpoint& endpoint, uint64_t now) {
  switch (endpoint.phase) {
    case Phase::kMaking:
      return endpoint.initiator;
    case Phase::kBinding:
    case Phase::kProbing:
      return true;
    case Phase::kSoliciting:
    case Phase::kRequesting:
      return !answer_is_slow(endpoint, now);
    default:
      return false;
  }
}

bool may_begin(const Endpoint& endpoint, uint64_t now) {
  if (!endpoint.connect_wanted || endpoint.peer.left || endpoint.effort->command != nullptr) return false;
  if (endpoint.phase == Phase::kIdle) return true;
  return endpoint.phase == Phase::kClosed && (endpoint.skip_backoff || now >= endpoint.effort->timer.due_ns);
}

/// A number that changes when a message to or from the peer moves over another rail.
uint64_t moved_elsewhere(const Endpoint& endpoint) {
  const Host& host = endpoint.port->host();
  Endpoint* rails[kMostRails];
  const int count = host.rails(host.ctx, endpoint.peer.name, rails, kMostRails);
  uint64_t moved = 0;
  for (int i = 0; i < count; ++i) {
    const Endpoint& rail = *rails[i];
    if (rail.port == nullptr || rail.port == endpoint.port) continue;
    const Guard guard(rail.port->lock());
    moved += rail.ended_before + rail.effort->ring.head + rail.queued.size() + rail.delivered;
  }
  return moved;
}

/// Messages have no other way when no other rail is up: then those that wait may be kept above.
Need need_seen(Endpoint& endpoint, uint64_t now) {
  const Host& host = endpoint.port->host();
  if (!host.other_rail_up(host.ctx, endpoint)) return Need::kWaits;
  if (host.rails == nullptr) return Need::kTalks;  // nobody can tell
  const uint64_t moved = moved_elsewhere(endpoint);
  if (moved != endpoint.effort->need.moved_elsewhere) endpoint.effort->need.talked_ns = now;
  endpoint.effort->need.moved_elsewhere = moved;
  const bool talks =
      endpoint.effort->need.talked_ns != 0 && time_since(endpoint.effort->need.talked_ns, now) < kTalkNs;
  return talks ? Need::kTalks : Need::kNone;
}

}  // namespace

void need_look(Endpoint& endpoint, uint64_t now) {
  if (now < endpoint.effort->need.next_look_ns) return;
  const bool active = endpoint.port->state() == PortState::kActive;
  endpoint.effort->need.next_look_ns = now + (active ? kLookNs : kDownLookNs);
  endpoint.effort->need.seen = need_seen(endpoint, now);
  if (now >= endpoint.effort->need.peer_until_ns) endpoint.effort->need.peer = Need::kNone;
}

void need_begin(Endpoint& endpoint, uint64_t now) {
  const Host& host = endpoint.port->host();
  if (host.rails != nullptr) endpoint.effort->need.moved_elsewhere = moved_elsewhere(endpoint);
  endpoint.effort->need.talked_ns = 0;
  endpoint.effort->need.peer = Need::kNone;
  endpoint.effort->need.next_look_ns = 0;
  need_look(endpoint, now);
}

void need_heard(Endpoint& endpoint, uint8_t said, uint64_t now) {
  endpoint.effort->need.peer = static_cast<Need>(std::min(said, static_cast<uint8_t>(Need::kWaits)));
  endpoint.effort->need.peer_until_ns = now + kTalkNs;
  need_look(endpoint, now);
}

Need own_need(const Endpoint& endpoint) {
  return endpoint.asked || !endpoint.queued.empty() ? Need::kWaits : endpoint.effort->need.seen;
}

Need need_of(const Endpoint& endpoint) {
  return std::max(own_need(endpoint), endpoint.effort->need.peer);
}

void handshakes_count(Port& port, uint64_t now) {
  Handshakes& all = port.handshakes();
  all.begun = all.answered = all.urgent = all.talking = 0;
  for (Endpoint* endpoint = port.endpoints(); endpoint != nullptr; endpoint = endpoint->next) {
    if (is_up(endpoint->phase)) continue;
    if (under_way(*endpoint, now)) ++all.begun;
    if (endpoint->phase == Phase::kMaking && !endpoint->initiator) ++all.answered;
    if (endpoint->connect_wanted && endpoint->has_effort()) need_look(*endpoint, now);
    if (!may_begin(*endpoint, now)) continue;
    const Need need = need_of(*endpoint);
    all.urgent += need == Need::kWaits;
    all.talking += need == Need::kTalks;
  }
}

bool handshake_begins(const Endpoint& endpoint, uint64_t now) {
  Handshakes& all = endpoint.port->handshakes();
  const Need need = need_of(endpoint);
  if (resource_waits(endpoint, now)) return false;
  if (need == Need::kWaits) {
    if (all.begun >= kHandshakes) return false;
    if (all.urgent != 0) --all.urgent;
    ++all.begun;
    return true;
  }
  if (all.begun + all.urgent >= kHandshakes || now < all.next_unhurried_ns) return false;
  if (need == Need::kTalks) {
    if (all.talking != 0) --all.talking;
  } else {
    if (all.talking != 0 || now < all.next_idle_ns) return false;
    all.next_idle_ns = now + kIdleNs;
  }
  all.next_unhurried_ns = now + kUnhurriedNs;
  ++all.begun;
  return true;
}

/// A REQ that answers our SOLICIT has its place already. One that must wait is asked for again by a SOLICIT,
/// in its turn.
bool handshake_answered(Endpoint& endpoint, uint64_t now) {
  Port& port = *endpoint.port;
  Handshakes& all = port.handshakes();
  if (resource_waits(endpoint, now)) return false;
  if (all.answered >= kHandshakes) {
    port.need_service();  // they are counted again
    return false;
  }
  const bool invited = endpoint.phase == Phase::kSoliciting && !answer_is_slow(endpoint, now);
  if (need_of(endpoint) == Need::kNone && !invited) {
    if (now < all.next_idle_ns) {
      endpoint.connect_wanted = endpoint.skip_backoff = true;
      port.need_service();
      return false;
    }
    all.next_idle_ns = now + kIdleNs;
  }
  ++all.answered;
  return true;
}

void handshake_pause(Endpoint& endpoint, uint32_t attempts, uint64_t now) {
  const Config& config = endpoint.port->config();
  const uint64_t most = config.retry_max_ns * (need_of(endpoint) == Need::kNone ? kIdlePauses : 1);
  const uint64_t base = std::min(most, config.retry_min_ns << std::min(attempts, 16u));
  endpoint.effort->need.slow = base > config.retry_max_ns;
  endpoint.effort->timer.due_ns = now + base / 2 + endpoint.port->env().random() % (base + 1);
}

void handshake_wake(Endpoint& endpoint, uint64_t now) {
  if (!endpoint.effort->need.slow || need_of(endpoint) == Need::kNone) return;
  endpoint.effort->need.slow = false;
  endpoint.effort->timer.attempts = 0;
  endpoint.effort->timer.due_ns = now;
  liveness_ask_soon(endpoint, now);
}

}  // namespace bfo::engine
