// SPDX-License-Identifier: BSD-3-Clause
//
// exposure.h: how long the buffer of a send that is read (rget.h) stays exposed after a rail was lost. A READ
// request may be under way in the fabric after the receiver's half of the connection is gone, and the
// sender's half would still serve it.
#pragma once

#include "pml/bfo/xfer/moves/transfers.h"

namespace bfo::xfer {

template <class P>
struct Exposure {
  using E = Transfers<P>;
  using SendRequest = typename P::SendRequest;
  using RecvRequest = typename P::RecvRequest;

  /// No READ of `epoch` can be executed any more. A READ request may be under way in the fabric after this
  /// process's half of the connection is gone, so the peer's half must be closed, too. A peer that was
  /// declared failed takes its exposure back itself (recall). This half must be fenced, because it stores the
  /// data. The peer's half counts as closed even if its device cannot be fenced, because nobody stores what
  /// it may still fetch.
  static bool over(const Rail<P>& rail, uint32_t epoch) {
    return epoch <= rail.closed_epoch && (epoch <= rail.peer_closed_epoch || rail.peer->standing.failed());
  }

  /// The peer's half of `rail` is closed, or the peer has failed: READs that failed on it are over.
  static void reads_over(E& e, Rail<P>& rail) {
    for (RecvRequest* r = rail.peer->live_recvs.front(); r;) {
      RecvRequest* const next = rail.peer->live_recvs.next(r);
      bool any = false;
      for (LedgerEntry<P>* l = r->xfer.rndv->ledger; l;) {
        LedgerEntry<P>* const after = l->next;
        if (l->grant == 0 && l->dead && l->rail == &rail && over(rail, l->epoch)) {
          e.ledgers_.remove(r->xfer.rndv->ledger, l);
          any = true;
        }
        l = after;
      }
      if (any) e.recv_check(*r);
      r = next;
    }
  }

  /// The sender ends with an error: only a fence keeps the receiver from reading its exposed buffer.
  static void recall(E& e, SendRequest& r) {
    auto& x = r.xfer;
    Peer<P>& p = *x.proc->peer;
    for (unsigned i = 0; i < p.n_rails; ++i) {
      Rail<P>& rail = p.rails[i];
      if (!(x.rndv->exposed & (1u << i)) || !rail.limits.failover) continue;
      if (rail.name.epoch <= rail.closed_epoch) continue;
      e.ledgers_.hold_until_fenced(r, rail, rail.name.epoch, 0, x.length);
    }
    x.rndv->exposed = 0;
  }
};

}  // namespace bfo::xfer
