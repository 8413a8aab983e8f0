// SPDX-License-Identifier: BSD-3-Clause
//
// handshakes.cc: see handshakes.h.
#include "btl/verbs/engine/handshakes.h"

#include "common/clock.h"
#include "btl/verbs/engine/port.h"

namespace bfo::engine {
namespace {

/// A handshake of this process that takes the port's time.
bool under_way(const Endpoint& endpoint, uint64_t now) {
  switch (endpoint.phase) {
    case Phase::kMaking:
      return endpoint.initiator;
    case Phase::kBinding:
    case Phase::kProbing:
      return true;
    case Phase::kKnocking:
    case Phase::kRequesting:
      return time_since(endpoint.phase_since_ns, now) < kSlowAnswerNs;
    default:
      return false;
  }
}

bool may_begin(const Endpoint& endpoint, uint64_t now) {
  if (!endpoint.wanted || endpoint.peer_left || endpoint.command != nullptr) return false;
  if (endpoint.phase == Phase::kIdle) return true;
  return endpoint.phase == Phase::kClosed && (endpoint.hurry || now >= endpoint.timer_ns);
}

/// Messages wait for it, here or above: there they have no other way when no other rail is up.
bool urgent(const Endpoint& endpoint) {
  if (endpoint.asked || !endpoint.parked.empty()) return true;
  const Host& host = endpoint.port->host();
  return !host.other_rail_up(host.ctx, const_cast<Endpoint&>(endpoint));
}

}  // namespace

void handshakes_count(Port& port, uint64_t now) {
  Handshakes& all = port.handshakes();
  all.begun = all.answered = all.urgent = 0;
  for (const Endpoint* endpoint = port.endpoints(); endpoint != nullptr; endpoint = endpoint->next) {
    if (is_up(endpoint->phase)) continue;
    if (under_way(*endpoint, now)) ++all.begun;
    if (endpoint->phase == Phase::kMaking && !endpoint->initiator) ++all.answered;
    if (may_begin(*endpoint, now) && urgent(*endpoint)) ++all.urgent;
  }
}

bool handshake_begins(const Endpoint& endpoint, uint64_t now) {
  Handshakes& all = endpoint.port->handshakes();
  if (urgent(endpoint)) {
    if (all.begun >= kHandshakes) return false;
    if (all.urgent != 0) --all.urgent;
  } else {
    if (all.begun + all.urgent >= kHandshakes || now < all.next_unhurried_ns) return false;
    all.next_unhurried_ns = now + kUnhurriedNs;
  }
  ++all.begun;
  return true;
}

bool handshake_answered(const Endpoint& endpoint) {
  Port& port = *endpoint.port;
  if (port.handshakes().answered >= kHandshakes) {
    port.need_attention();  // they are counted again
    return false;
  }
  ++port.handshakes().answered;
  return true;
}

}  // namespace bfo::engine
