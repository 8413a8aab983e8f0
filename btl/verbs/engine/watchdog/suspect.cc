// SPDX-License-Identifier: BSD-3-Clause
//
// suspect.cc: see suspect.h.
#include "btl/verbs/engine/watchdog/suspect.h"

#include <cstdio>

#include "btl/verbs/engine/rail/port.h"
#include "btl/verbs/engine/send/rdma.h"
#include "btl/verbs/engine/send/send.h"
#include "btl/verbs/engine/watchdog/verdict.h"

namespace bfo::engine {
namespace {

constexpr uint64_t path_probe_id(uint32_t epoch) {
  return work_id(WorkKind::kProbe, uint64_t{epoch} << 1 | 1);
}

}  // namespace

void suspect(Endpoint& endpoint, const char* why, uint64_t now) {
  Port& port = *endpoint.port;
  if (!port.failover() || port.config().suspect_ns == 0) return;
  {
    const Guard guard(port.lock());
    if (endpoint.phase != Phase::kUp || endpoint.ending().asked) return;
    endpoint.phase = Phase::kSuspect;
    endpoint.watch().moved(endpoint.ring().tail);  // what completed before proves nothing
    endpoint.watch().suspected_ns = now;
    ring_test(endpoint);
  }
  report_suspect(endpoint, why, now);
}

void report_suspect(Endpoint& endpoint, const char* why, uint64_t now) {
  const Host& host = endpoint.port->host();
  bfo_rail_event_t event = make_event(endpoint, BFO_CAUSE_NONE, 0, 0, now);
  snprintf(event.text, sizeof event.text, "%s", why);
  host.rail_suspect(host.ctx, endpoint, event);
  if (!endpoint.watch().probe_done()) send_path_probe(endpoint);
  verdict_step(endpoint, now);
}

void send_path_probe(Endpoint& endpoint) {
  Watch& watch = endpoint.watch();
  if (!watch.can_probe()) return;
  if (post_bare(endpoint, endpoint.qps().probe.ib(), path_probe_id(endpoint.epoch)) == 0)
    watch.probe = PathProbe::kUnderWay;
}

}  // namespace bfo::engine
