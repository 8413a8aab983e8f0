// SPDX-License-Identifier: BSD-3-Clause
//
// handshakes.cc: see handshakes.h.
#include "btl/verbs/engine/connect/handshakes.h"

#include <algorithm>

#include "common/clock.h"
#include "btl/verbs/engine/connect/ping.h"
#include "btl/verbs/engine/rail/port.h"
#include "btl/verbs/engine/connect/resource.h"

namespace bfo::engine {
namespace {

/// A handshake packet has had no answer for long. With more processes than processors each is away for most
/// of the time, and all would begin all of their handshakes: repeating those is then all they do. So only
/// time counts in which this process could hear an answer, up to a bound by the clock on the wall.
bool answer_is_slow(const Endpoint& endpoint, uint64_t now) {
  const auto ran = static_cast<uint32_t>(endpoint.port->run_time().ran_ns() / 1'000'000);
  return ran - endpoint.times().phase_ran_ms >= kSlowAnswerNs / 1'000'000 ||
         time_since(endpoint.times().phase_since_ns, now) >= kSlowestAnswerNs;
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
  if (!endpoint.connect_wanted || endpoint.peer.left || endpoint.qps().command != nullptr) return false;
  if (endpoint.phase == Phase::kIdle) return true;
  return endpoint.phase == Phase::kClosed && (endpoint.skip_backoff || now >= endpoint.timer().due_ns);
}

}  // namespace

void handshakes_count(Port& port, uint64_t now) {
  Handshakes& all = port.handshakes();
  all.begun = all.answered = all.urgent = all.talking = 0;
  for (Endpoint* endpoint = port.endpoints(); endpoint != nullptr; endpoint = endpoint->next) {
    if (is_up(endpoint->phase)) continue;
    if (under_way(*endpoint, now)) ++all.begun;
    if (endpoint->phase == Phase::kMaking && !endpoint->initiator) ++all.answered;
    if (endpoint->connect_wanted && endpoint->has_resources()) need_look(*endpoint, now);
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

void handshake_wake(Endpoint& endpoint, uint64_t now) {
  if (!endpoint.need().slow || need_of(endpoint) == Need::kNone) return;
  endpoint.need().slow = false;
  endpoint.timer().attempts = 0;
  endpoint.timer().due_ns = now;
  ping_soon(endpoint, now);
}

}  // namespace bfo::engine
