// SPDX-License-Identifier: BSD-3-Clause
//
// losses.h: what the end of a rail's epoch, of a device or of a peer means for the requests that are under
// way.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include "pml/bfo/xfer/moves/transfers.h"

namespace bfo::xfer {

/// Epoch `epoch` of `rail` is over. If it is fenced, no access of it is possible any more, and its ledger
/// entries leave. Whatever was sent or is expected on it may be lost, so all pending control messages are
/// sent again (H11).
template <class P>
void Transfers<P>::rail_left(RailT& rail, uint32_t epoch, bool fenced) {
  PeerT& p = *rail.peer;
  for (SendRequest* r = p.live_sends.front(); r;) {
    SendRequest* const next = p.live_sends.next(r);
    auto& x = r->xfer;
    for (LedgerT* e = x.rndv->ledger; e;) {
      LedgerT* const after = e->next;
      if (fenced && e->rail == &rail && e->epoch <= epoch) ledgers_.remove(x.rndv->ledger, e);
      e = after;
    }
    if (fenced && epoch >= rail.name.epoch)
      x.rndv->unfenced = static_cast<uint16_t>(x.rndv->unfenced & ~(1u << rail.index));
    send_event(*r, SendEvent::kRailClosed);
    send_check(*r);
    r = next;
  }
  for (RecvRequest* r = p.live_recvs.front(); r;) {
    RecvRequest* const next = p.live_recvs.next(r);
    auto& x = r->xfer;
    bool unused = false;
    for (LedgerT* e = x.rndv->ledger; e;) {
      LedgerT* const after = e->next;
      if (fenced && e->rail == &rail && e->epoch <= epoch && e->grant == 0 &&
          !Exposure<P>::over(rail, e->epoch)) {
        e->dead = true;  // its request may still reach the peer
      } else if (fenced && e->rail == &rail && e->epoch <= epoch &&
                 !(x.phase == RecvPhase::kReceiving && Rput<P>::displaced(*e))) {
        if (e->fin) {
          // FIN came over another rail; now its bytes are in place (H9)
          arrived(*r, e->begin, e->end, false);
        } else if (e->grant != 0 && !e->sent()) {
          x.rndv->todo.add(e->begin, e->end);  // the sender never had it, and this round has ended
        } else if (e->grant != 0) {
          x.rndv->doubtful.add(e->begin, e->end);
          unused = true;
        }
        ledgers_.remove(x.rndv->ledger, e);
      }
      e = after;
    }
    recv_event(*r, unused ? RecvEvent::kAsk : RecvEvent::kRailClosed);
    if (x.phase != RecvPhase::kIdle) recv_check(*r);
    r = next;
  }
}

/// The device of `rail` could not be fenced during the park time (H12). Requests whose buffers it can still
/// reach end with an error, their memory stays registered, and the contents of these buffers are undefined.
/// Giving up takes the outcome from what is known of the peer, which may be none: a send, which ends no
/// sooner than in send_check(), gets its own behind that. A receive may end inside the event, and has it
/// before; where the event takes the peer's instead, that is an error all the same.
template <class P>
[[gnu::cold]] void Transfers<P>::fail_unfenceable(RailT& rail) {
  PeerT& p = *rail.peer;
  const auto drop = [&](auto& x) {
    bool any = false;
    for (LedgerT* e = x.rndv->ledger; e;) {
      LedgerT* const next = e->next;
      if (e->rail == &rail) {
        ledgers_.remove(x.rndv->ledger, e);
        any = true;
      }
      e = next;
    }
    if constexpr (requires { x.rndv->unfenced; }) {
      any = any || (x.rndv->unfenced >> rail.index & 1);
      x.rndv->unfenced = static_cast<uint16_t>(x.rndv->unfenced & ~(1u << rail.index));
    }
    if (any) {
      x.rndv->reg = {};
      x.rndv->registered = Registered::kAll;  // it is not registered again
    }
    return any;
  };
  for (SendRequest* r = p.live_sends.front(); r;) {
    SendRequest* const next = p.live_sends.next(r);
    if (drop(r->xfer)) {
      send_event(*r, SendEvent::kGiveUp);
      r->xfer.outcome = Outcome::kPeerLost;
      send_check(*r);
    }
    r = next;
  }
  for (RecvRequest* r = p.live_recvs.front(); r;) {
    RecvRequest* const next = p.live_recvs.next(r);
    if (drop(r->xfer)) {
      r->xfer.status.outcome = Outcome::kPeerLost;
      recv_event(*r, RecvEvent::kGiveUp);
      if (r->xfer.phase != RecvPhase::kIdle) recv_check(*r);
    }
    r = next;
  }
}

/// Every request with `p` ends with the error of its loss, each through its gate.
template <class P>
[[gnu::cold]] void Transfers<P>::give_up(PeerT& p) {
  const Outcome outcome = p.standing.loss().outcome;
  p.first_contact.give_up(rails_.patience());
  for (SendRequest* r = p.live_sends.front(); r;) {
    SendRequest* const next = p.live_sends.next(r);
    send_event(*r, SendEvent::kGiveUp);
    r = next;
  }
  for (RecvRequest* r = p.live_recvs.front(); r;) {
    RecvRequest* const next = p.live_recvs.next(r);
    recv_event(*r, RecvEvent::kGiveUp);
    r = next;
  }
  for (unsigned i = 0; i < p.n_rails; ++i) Exposure<P>::reads_over(*this, p.rails[i]);
  for (SendRequest* r = p.backlog.ready_sends.front(); r;) {
    SendRequest* const next = p.backlog.ready_sends.next(r);
    if (r->xfer.protocol == Protocol::kEager) {
      p.backlog.ready_sends.remove(r);
      base_.finish_send(*r, outcome);
    }
    r = next;
  }
  while (SendRequest* r = p.backlog.unnamed.pop_front()) base_.finish_send(*r, outcome);
  p.backlog.again = {};
  drop_syncs(p);
  for (ProcT* q = p.procs.front(); q; q = p.procs.next(q))
    while (SendRequest* r = q->stalled.pop_front()) base_.finish_send(*r, outcome);
}

/// Does a request with `p` wait for anything?
template <class P>
bool Transfers<P>::any(const PeerT& p) {
  if (awaits(p)) return true;
  return !p.backlog.ready_sends.empty() || !p.backlog.syncs.empty() || !p.backlog.unnamed.empty();
}

/// Does a request wait for `p`, without anything under way that would show its death?
template <class P>
bool Transfers<P>::awaits(const PeerT& p) {
  if (!p.live_sends.empty() || !p.live_recvs.empty()) return true;
  for (ProcT* q = p.procs.front(); q; q = p.procs.next(q))
    if (!q->stalled.empty()) return true;
  return false;
}

/// Messages that have to be sent to `p`, or received from it in a rendezvous. For reports: it walks the
/// queues.
template <class P>
[[gnu::cold]] uint64_t Transfers<P>::waiting(const PeerT& p) {
  uint64_t n = uint64_t{length_of(p.live_sends)} + length_of(p.live_recvs) + length_of(p.backlog.unnamed);
  for (auto* r = p.backlog.ready_sends.front(); r; r = p.backlog.ready_sends.next(r))
    n += r->xfer.protocol == Protocol::kEager;
  p.backlog.each_stored([&n](const void* bytes, size_t) {
    n += *static_cast<const uint8_t*>(bytes) == static_cast<uint8_t>(core::MsgType::kMatch);
  });
  for (ProcT* q = p.procs.front(); q; q = p.procs.next(q)) n += length_of(q->stalled);
  return n;
}

}  // namespace bfo::xfer
