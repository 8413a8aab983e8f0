// SPDX-License-Identifier: BSD-3-Clause
//
// pings.cc: see pings.h.
#include "btl/verbs/engine/rail/pings.h"

#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {

uint64_t ping_pause_ns(const Port& port) {
  return port.config().peer_timeout_ns / kPings;
}

void set_pinged(Endpoint& endpoint, Pinged state) {
  const bool reported = endpoint.pings().state == Pinged::kAnswers;
  const bool answers = state == Pinged::kAnswers;
  endpoint.pings().state = state;
  if (reported == answers) return;
  const Host& host = endpoint.port->host();
  host.peer_answers(host.ctx, endpoint, answers);
}

void ping_end(Endpoint& endpoint) {
  if (!endpoint.has_resources()) return;
  endpoint.pings().unanswered = 0;
  set_pinged(endpoint, Pinged::kUnknown);
}

}  // namespace bfo::engine
