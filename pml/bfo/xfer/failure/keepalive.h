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

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

/// Does a request wait for `p`, without anything under way that would show its death?
template <class P>
bool awaits(const Peer<P>& p) {
  if (!p.live_sends.empty() || !p.live_recvs.empty()) return true;
  for (Proc<P>* q = p.procs.front(); q; q = p.procs.next(q))
    if (!q->posted.empty() || !q->stalled.empty()) return true;
  return false;
}

template <class P>
void Engine<P>::keep_alive() {
  Entry entry(*this);
  if (entry.nested()) return;
  wildcards_.watch_all([this](CommT& c, std::int32_t rank) -> PeerT* {
    ProcT* const q = matching_.proc_at(c, rank);
    return q ? matching_.peer_of(*q) : nullptr;
  });
  for (PeerT* p = base_.peers.front(); p; p = p->next) {
    const bool waits = p->watch.take_due(awaits(*p));
    if (!waits || p->standing.failed() || p->choice.empty()) continue;
    if (!p->rails[0].limits.failover) continue;
    ProcT* via = p->procs.front();  // the rank with the lowest context id that both processes share
    for (ProcT* q = via; q; q = p->procs.next(q))
      if (q->comm->ctx < via->comm->ctx) via = q;
    if (via) ping(*p, *via);
  }
}

/// Send SEQSYNC: any message would do.
template <class P>
void Engine<P>::ping(PeerT& p, ProcT& via) {
  if (!p.backlog.nothing_stored()) return;  // that shows it as well
  const core::SeqSyncHdr h = via.window_question();
  for (unsigned i = 0; i < p.choice.size(); ++i) {
    RailT& rail = p.choice[i];
    if (p.backlog.pinging(rail.index)) continue;
    Frag* const f = rails_.send_stored(p, &h, sizeof h, &rail, rail.name.epoch);
    if (!f) break;
    f->xfer.grant = kPing + rail.index;
    p.backlog.ping_begins(rail.index);
  }
  flush(p);
}

}  // namespace bfo::xfer
