// SPDX-License-Identifier: BSD-3-Clause
//
// keepalive.h: noticing the death of a peer that owes us something while we have nothing under way to it: a
// posted receive, a probe, an exposed buffer waiting for its FIN. A process that died takes its queue pairs
// with it, but only a message sent to them shows that. So about once a second each such peer gets one
// harmless message. It needs no peer CPU to be acknowledged: a peer that computes for hours is not dead
// (H15). What follows its failure is the ordinary loss of a rail; after the park time the requests end with
// an error. A receive or probe from MPI_ANY_SOURCE waits for every member of its communicator (wildcard.h).
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

template <class P>
void Engine<P>::keep_alive() {
  Entry entry(*this);
  if (entry.nested()) return;
  for (PeerT* p = peers_; p; p = p->next) {
    p->asked_via = nullptr;
    p->awaited = !p->live_sends.empty() || !p->live_recvs.empty() || p->probed;
    p->probed = false;
  }
  for (CommT** page : comm_pages_)
    for (unsigned i = 0; page && i < kCommPage; ++i)
      for (std::int32_t k = 0; page[i] && k < page[i]->size; ++k) {
        ProcT* const q = page[i]->procs[k];
        if (!q || (!q->peer && (q->posted.empty() || !peer_of(*q)))) continue;
        if (!q->peer->asked_via) q->peer->asked_via = q;  // the lowest context both have
        if (!q->posted.empty() || !q->stalled.empty()) q->peer->awaited = true;
      }
  watch_wildcards();
  for (PeerT* p = peers_; p; p = p->next) {
    if (!p->awaited || !p->asked_via || p->lost || p->parked || p->pinging || p->n_eager == 0) continue;
    if (p->rails[0].limits.failover) ping(*p, *p->asked_via);
  }
}

/// Ask for the sequence window: a question both sides may ask at any time.
template <class P>
void Engine<P>::ping(PeerT& p, ProcT& via) {
  const core::SeqSyncHdr h = window_question(via);
  Frag* const f = send_raw(p, &h, sizeof h);
  if (!f) return;
  f->xfer.grant = kPing;
  p.pinging = true;
  flush(p);
}

}  // namespace bfo::xfer
