// SPDX-License-Identifier: BSD-3-Clause
//
// first_connection.cc: see first_connection.h.
#include "btl/verbs/engine/rail/first_connection.h"

#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {

void waits_from(Endpoint& endpoint, uint64_t now) {
  endpoint.first_connection().begin(now, endpoint.port->run_time().ran_ns());
}

void cm_connect(Endpoint& endpoint) {
  if (endpoint.peer.left || endpoint.last().leaving || endpoint.phase == Phase::kGone ||
      endpoint.phase == Phase::kUnusable)
    return;
  endpoint.port->need_service();
  if (!endpoint.make_resources()) return;  // give_up_for_memory() follows, if anything waits
  // The bound on a first connection counts from the first fragment that waits for it.
  if (!endpoint.connect_wanted || endpoint.queued.empty())
    waits_from(endpoint, endpoint.port->env().now_ns());
  endpoint.connect_wanted = true;
  endpoint.skip_backoff = true;
  endpoint.asked = true;
}

}  // namespace bfo::engine
