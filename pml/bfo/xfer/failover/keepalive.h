// SPDX-License-Identifier: BSD-3-Clause
//
// keepalive.h: notices the death of a peer that this process waits for while it has nothing under way to it:
// a posted receive, a probe, an exposed buffer that waits for its FIN. When a process dies its queue pairs
// die with it, but only a message sent to them shows that. So about once a second each such peer gets one
// harmless message over each of its rails: when all of them have died, the last loss is known as soon as the
// first. The peer's device acknowledges it without the peer's CPU, so a peer that computes for hours is not
// taken for dead (H15). If the message fails, the rail is lost as usual, and the requests end with an error
// after the park time. A receive or probe from MPI_ANY_SOURCE waits for every member of its communicator
// (wildcard.h).
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include "pml/bfo/xfer/failover/failover.h"

namespace bfo::xfer {

/// Whom wildcards wait for is watched from now on.
template <class P>
void Failover<P>::watch_wildcards() {
  wildcards_.watch_all([this](CommT& c, int32_t rank) -> PeerT* {
    ProcT* const q = matching_.proc_at(c, rank);
    return q ? matching_.peer_of(*q) : nullptr;
  });
}

/// Asks `p` for a sign of life, if something waits for it. True: what waits for it is to be posted.
template <class P>
bool Failover<P>::keep_alive(PeerT& p) {
  const bool waits = p.watch.take_due(Moves<P>::awaits(p) || Matching<P>::any_posted(p));
  if (!waits || p.standing.failed() || p.choice.empty() || !p.rails[0].limits.failover) return false;
  ProcT* via = p.procs.front();  // the rank with the lowest context id that both processes share
  for (ProcT* q = via; q; q = p.procs.next(q))
    if (q->comm->ctx < via->comm->ctx) via = q;
  return via && ping(p, *via);
}

/// Send SEQSYNC: any message would do.
template <class P>
bool Failover<P>::ping(PeerT& p, ProcT& via) {
  if (!p.backlog.nothing_stored()) return false;  // that shows it as well
  const core::SeqSyncHdr h = via.window_question();
  for (unsigned i = 0; i < p.choice.size(); ++i) {
    RailT& rail = p.choice[i];
    if (p.backlog.pinging(rail.index)) continue;
    Frag* const f = rails_.send_stored(p, &h, sizeof h, &rail, rail.name.epoch);
    if (!f) break;
    f->xfer.grant = kPing + rail.index;
    p.backlog.ping_begins(rail.index);
  }
  return true;
}

}  // namespace bfo::xfer
