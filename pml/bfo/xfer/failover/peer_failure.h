// SPDX-License-Identifier: BSD-3-Clause
//
// peer_failure.h: a peer is declared failed, or a device that cannot be fenced is. Every request concerned
// ends with an error, through its gate, and the peer is notified.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include "common/clock.h"
#include "pml/bfo/xfer/failover/failover.h"
#include "pml/bfo/xfer/rails/judge.h"

namespace bfo::xfer {

/// Does anything that only `p` can end wait here, receives from any source left out?
template <class P>
bool Failover<P>::has_work(const PeerT& p) {
  return Moves<P>::any(p) || !p.backlog.nothing_stored() || p.watch.probed() || Matching<P>::any_posted(p);
}

/// The peer has declared this process failed: the messages that this process expects from it will not come.
template <class P>
void Failover<P>::on_peer_lost(const Arrival& a, Bytes in) {
  core::RailHdr h;
  if (!core::decode(core::MsgType::kPeerLost, in, h) || h.conn == 0) {
    ++base_.counters.malformed;
    return;
  }
  const PeerLoss loss = h.cause == core::kCauseNoMemory ? PeerLoss{Outcome::kNoMemory, h.delivered, true}
                                                        : PeerLoss{Outcome::kMessageLost};
  const RailT* const rail = base_.peers.rail_of(a.rail, h.conn);
  // a peer that has no record here yet
  if (!rail && !a.rail && a.epoch != 0 && base_.failing.keep(a.epoch, h.conn, loss)) return;
  if (!rail) {
    ++base_.counters.malformed;
    return;
  }
  PeerT& p = *rail->peer;
  if (p.standing.failed()) return;
  p.standing.set_loss(loss);
  p.standing.set_declared_by_peer();
  declare_failed(p);
}

template <class P>
void Failover<P>::gap_lost(PeerT& p) {
  if (!p.standing.failed())
    p.standing.set_loss(PeerLoss{Outcome::kMessageLost});  // never silent, never a hang (H4)
  declare_failed(p);
  p.standing.set_notice_pending(true);
  notify_lost(p);
}

/// A peer that was declared failed may wait for messages that will not come. It is notified once, as soon as
/// a rail is up (H11).
template <class P>
[[gnu::cold]] void Failover<P>::notify_lost(PeerT& p) {
  if (p.standing.finalized()) p.standing.set_notice_pending(false);
  for (unsigned i = 0; i < p.n_rails && p.standing.notice_pending(); ++i) {
    RailT& rail = p.rails[i];
    if (rail.name.conn == 0 || (rail.state != RailState::kUp && rail.state != RailState::kSuspect)) continue;
    Frag* const f = base_.port.frag_alloc();
    if (!f) break;
    core::RailHdr h{
        static_cast<uint8_t>(core::MsgType::kPeerLost), 0, 0, rail.name.conn, rail.name.epoch, 0, 0};
    if (p.standing.loss().outcome == Outcome::kNoMemory) {
      h.cause = core::kCauseNoMemory;
      h.delivered = p.standing.loss().bytes;
    }
    static_assert(sizeof h <= sizeof f->xfer.stored);  // needs no memory
    const Post post = rails_.post_notice(rail, *f, &h, sizeof h);
    if (taken(post)) p.standing.set_notice_pending(false);
    if (post == Post::kAccepted) return;
    base_.port.frag_free(*f);
  }
  if (p.standing.notice_pending()) base_.set_timer(p);
}

/// End every request with this peer with an error, each through its gate. With `loss`, also end the receives
/// from MPI_ANY_SOURCE on its communicators.
template <class P>
[[gnu::cold]] void Failover<P>::declare_failed(PeerT& p, bool loss) {
  if (p.standing.failed()) return;
  p.standing.set_failed(base_.port.now_ns());
  p.choice.clear();
  p.completions.clear();
  ++base_.counters.peers_lost;
  const Outcome outcome = p.standing.loss().outcome;
  // Its rails may be gone before anybody reports them as down.
  for (unsigned i = 0; i < p.n_rails; ++i) {
    not_degraded(base_, p.rails[i]);
    free_degraded(base_, p.rails[i]);
  }
  rails_.drop_stored(p);
  moves_.give_up(p);
  matching_.fail_posted(p, outcome);
  if (loss) wildcards_.peer_failed(p);
  base_.records.report(p, true, moves_);
  FailoverEvent e;
  e.what = outcome == Outcome::kMessageLost ? "message_lost"
           : outcome == Outcome::kNoMemory  ? "no_memory"
                                            : "peer_lost";
  e.peer = &p.handle;
  e.down_ns = base_.port.now_ns();
  base_.port.emit(e);
  base_.port.peer_failed(p.handle, p.standing.loss());
}

/// Declares failed what Failing has noted.
template <class P>
[[gnu::cold]] void Failover<P>::fail_scheduled() {
  base_.exit_work.forget_failures();
  for (PeerT* p = base_.peers.front(); p; p = p->next) {
    if (!p->standing.failing() || p->standing.failed()) continue;
    declare_failed(*p);
    p->standing.set_notice_pending(!p->standing.declared_by_peer());
    notify_lost(*p);
  }
}

/// Work waits, and no rail to `p` is usable.
template <class P>
[[gnu::cold]] void Failover<P>::tell_no_rail(PeerT& p, uint64_t now_ns) {
  p.standing.word_given(now_ns);
  FailoverEvent e;
  e.what = "no_rail";
  e.peer = &p.handle;
  e.down_ns = e.evidence_ns = p.standing.unreachable_since_ns();
  e.waited_ns = time_since(e.down_ns, now_ns);
  e.messages_waiting = Moves<P>::waiting(p) + Matching<P>::posted(p);
  base_.port.emit(e);
}

/// Park time passes only while no rail to the peer is up, at the first contact none that is being connected
/// either, and while nothing shows that the peer's process is alive. A process that computes outside MPI
/// answers no handshake for any length of time (H15). True: what waits for `p` is to be posted.
template <class P>
bool Failover<P>::look(PeerT& p, uint64_t now_ns) {
  if (p.standing.notice_pending()) notify_lost(p);
  base_.records.report(p, false, moves_);
  const bool posts = moves_.poll_for_frags(p);
  bool alive = false;
  for (unsigned i = 0; i < p.n_rails; ++i) {
    RailT& rail = p.rails[i];
    if (FailoverRecords<P>::needs_clock(rail) || rail.unfenceable) base_.set_timer(p);
    if (rail.unfenceable && time_since(rail.unfenceable_ns, now_ns) >= base_.config.park_timeout_ns) {
      rail.unfenceable = false;
      moves_.fail_unfenceable(rail);
    }
    alive = alive || rail.peer_alive;
  }
  if (!p.standing.unreachable()) return posts;
  base_.set_timer(p);
  const bool over = !alive && p.standing.park_time_over(now_ns, base_.config.park_timeout_ns);
  if (!over && !p.standing.word_due(now_ns, alive)) return posts;
  if (!has_work(p) && !wildcards_.wait_for(p)) return posts;
  if (!over) {
    if (!p.standing.finalized()) tell_no_rail(p, now_ns);
    return posts;
  }
  declare_failed(p);
  p.standing.set_notice_pending(true);
  notify_lost(p);
  return posts;
}

}  // namespace bfo::xfer
