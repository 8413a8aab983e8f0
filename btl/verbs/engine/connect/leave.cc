// SPDX-License-Identifier: BSD-3-Clause
//
// leave.cc: see leave.h.
#include "btl/verbs/engine/connect/leave.h"

#include <algorithm>

#include "btl/verbs/engine/connect/attempt.h"
#include "btl/verbs/engine/connect/cm.h"
#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {
namespace {

/// An epoch that the peer may use.
bool in_use(const Endpoint& endpoint) {
  return is_up(endpoint.phase) || endpoint.phase == Phase::kReplied;
}

}  // namespace

void leave_begin(Endpoint& endpoint) {
  if (endpoint.last().leaving) return;
  endpoint.connect_wanted = false;
  if (!endpoint.has_resources()) return;  // nothing has begun
  endpoint.last().leaving = true;
  endpoint.timer().attempts = 0;
  endpoint.timer().due_ns = 0;
  endpoint.port->need_service();
}

bool leave_pending(const Endpoint& endpoint) {
  return in_use(endpoint) && !endpoint.peer.left && endpoint.port->state() == PortState::kActive;
}

void leave_step(Endpoint& endpoint, uint64_t now) {
  // A peer that runs its progress answers at once; one that waits for a processor must not find its receive
  // buffers full of copies.
  constexpr uint64_t kFirstPauseNs = 20'000'000;
  constexpr uint32_t kMostDoublings = 5;
  Port& port = *endpoint.port;
  if (endpoint.peer.left) return;
  if (is_attempt(endpoint.phase)) {
    attempt_drop(endpoint, now);
    return cm_bye(endpoint);
  }
  Timer& timer = endpoint.timer();
  if (!in_use(endpoint) || now < timer.due_ns) return;
  if (!port.cm_qp().can_send()) return port.need_service();  // it has other peers to tell, too
  cm_bye(endpoint);
  timer.due_ns = now + (kFirstPauseNs << std::min(timer.attempts++, kMostDoublings));
}

}  // namespace bfo::engine
