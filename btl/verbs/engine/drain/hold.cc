// SPDX-License-Identifier: BSD-3-Clause
//
// hold.cc: see hold.h.
#include "btl/verbs/engine/drain/hold.h"

#include <algorithm>

#include "btl/verbs/engine/drain/drain.h"
#include "btl/verbs/engine/rail/port.h"
#include "btl/verbs/engine/send/cm_send.h"
#include "btl/verbs/engine/send/send.h"

namespace bfo::engine {
namespace {

/// RAILDOWN has not been heard for a while, or had no rail that took it: the peer's port is told.
void tell(Endpoint& endpoint, uint64_t now) {
  constexpr uint64_t kFirstNs = 100'000'000;
  if (now - endpoint.times().phase_since_ns < kFirstNs << std::min(endpoint.timer().attempts, 8u)) return;
  ++endpoint.timer().attempts;
  cm_send(endpoint, PacketType::kRefuse, endpoint.epoch + 1);
}

}  // namespace

void hold_begin(Endpoint& endpoint, uint64_t now) {
  endpoint.drain().held = true;
  endpoint.timer().due_ns = now + kHeldMostNs;
  endpoint.timer().attempts = 0;
  const Guard guard(endpoint.port->lock());
  ring_mark_last(endpoint);
}

bool hold_ends(Endpoint& endpoint, uint64_t now) {
  Port& port = *endpoint.port;
  const Host& host = port.host();
  bool over = now >= endpoint.timer().due_ns || port.state() != PortState::kActive ||
              !host.other_rail_up(host.ctx, endpoint);  // nobody could tell the peer
  {
    const Guard guard(port.lock());
    over = over || endpoint.drain().no_hold || endpoint.last().leaving || endpoint.peer.left;
    if (!over && endpoint.ring().head != endpoint.ring().tail) return false;
  }
  if (!over) {
    return_queued(endpoint);
    over = endpoint.ending().cause != BFO_CAUSE_GIVEN_BACK;  // the peer knows
    if (!over) tell(endpoint, now);
  }
  if (over) endpoint.drain().held = false;
  return over;
}

bool is_held(const Endpoint& endpoint) {
  return endpoint.phase == Phase::kDraining && endpoint.drain().held;
}

}  // namespace bfo::engine
