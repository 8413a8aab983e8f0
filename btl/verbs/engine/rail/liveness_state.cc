// SPDX-License-Identifier: BSD-3-Clause
//
// liveness_state.cc: see liveness_state.h.
#include "btl/verbs/engine/rail/liveness_state.h"

#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {

uint64_t liveness_pause_ns(const Port& port) {
  return port.config().peer_timeout_ns / kPings;
}

void set_liveness(Endpoint& endpoint, Liveness liveness) {
  const bool reported = endpoint.effort->liveness.state == Liveness::kAnswers;
  const bool answers = liveness == Liveness::kAnswers;
  endpoint.effort->liveness.state = liveness;
  if (reported == answers) return;
  const Host& host = endpoint.port->host();
  host.peer_answers(host.ctx, endpoint, answers);
}

void liveness_unknown(Endpoint& endpoint) {
  if (!endpoint.has_effort()) return;
  endpoint.effort->liveness.unanswered = 0;
  set_liveness(endpoint, Liveness::kUnknown);
}

}  // namespace bfo::engine
