// SPDX-License-Identifier: BSD-3-Clause
//
// trace_plan.h: gives the port what was planned, with the loads of all rails of the peer (plan_trace.h).
#pragma once

#include "pml/bfo/xfer/base/base.h"
#include "pml/bfo/xfer/moves/plan.h"

namespace bfo::xfer {

template <class P>
[[gnu::cold, gnu::noinline]] void trace_plan(Base<P>& base, const Peer<P>& p, PlanTrace::What what,
                                             const Moving& m, const Rail<P>* rail, uint64_t size) {
  PlanTrace t;
  t.what = what;
  t.rail = rail ? rail->index : -1;
  t.size = size;
  t.length = m.length;
  t.left = m.left;
  t.bytes_out = m.bytes_out;
  t.pieces_out = m.pieces_out;
  t.uneven = p.choice.uneven();
  for (unsigned i = 0; i < p.n_rails; ++i) {
    const Rail<P>& r = p.rails[i];
    const auto e = p.choice.estimate_now(r);
    t.rails[t.n_rails++] = {r.index, r.late,      r.limits.weight,  r.inflight_bytes,
                            e.basis, e.cost.rate, e.cost.latency_ns};
  }
  base.port.trace_plan(p.handle, t);
}

}  // namespace bfo::xfer
