// SPDX-License-Identifier: BSD-3-Clause
//
// peer_failure.h: a peer is declared failed, or a device that cannot be fenced is. Every request concerned
// ends with an error, through its gate, and the peer is notified.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include "common/clock.h"
#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

/// Does anything that only `p` can end wait here, receives from any source left out?
template <class P>
bool has_work(const Peer<P>& p) {
  if (!p.live_sends.empty() || !p.live_recvs.empty() || !p.backlog.ready_sends.empty() ||
      !p.backlog.nothing_stored() || !p.backlog.syncs.empty() || !p.backlog.unnamed.empty() ||
      p.watch.probed())
    return true;
  for (Proc<P>* q = p.procs.front(); q; q = p.procs.next(q))
    if (!q->posted.empty() || !q->stalled.empty()) return true;
  return false;
}

/// Messages that have to be sent to `p` or received from it, and receives that only it can match. For
/// reports: it walks the queues.
template <class P>
[[gnu::cold]] std::uint64_t waiting_messages(const Peer<P>& p) {
  std::uint64_t n =
      std::uint64_t{length_of(p.live_sends)} + length_of(p.live_recvs) + length_of(p.backlog.unnamed);
  for (auto* r = p.backlog.ready_sends.front(); r; r = p.backlog.ready_sends.next(r))
    n += r->xfer.protocol == Protocol::kEager;
  p.backlog.each_stored([&n](const void* bytes, std::size_t) {
    n += *static_cast<const std::uint8_t*>(bytes) == static_cast<std::uint8_t>(core::MsgType::kMatch);
  });
  for (Proc<P>* q = p.procs.front(); q; q = p.procs.next(q))
    n += length_of(q->posted) + length_of(q->stalled);
  return n;
}

/// The device of `rail` could not be fenced during the park time (H12). Requests whose buffers it can still
/// reach end with an error, their memory stays registered, and the contents of these buffers are undefined.
template <class P>
[[gnu::cold]] void Engine<P>::fail_unfenceable(RailT& rail) {
  PeerT& p = *rail.peer;
  rail.unfenceable = false;
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
      x.rndv->unfenced = static_cast<std::uint16_t>(x.rndv->unfenced & ~(1u << rail.index));
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

/// The peer has declared this process failed: the messages that this process expects from it will not come.
template <class P>
void Engine<P>::on_peer_lost(const Arrival& a, Bytes in) {
  core::RailHdr h;
  if (!core::decode(MsgType::kPeerLost, in, h) || h.conn == 0) {
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
void Engine<P>::on_gap_lost(RailT* rail, RailName, std::uint64_t lost) {
  Entry entry(*this);
  if (lost == 0) return;
  PeerT& p = *rail->peer;
  if (!p.standing.failed())
    p.standing.set_loss(PeerLoss{Outcome::kMessageLost});  // never silent, never a hang (H4)
  declare_failed(p);
  p.standing.set_notice_pending(true);
  notify_lost(p);
}

/// A peer that was declared failed may wait for messages that will not come. It is notified once, as soon as
/// a rail is up (H11).
template <class P>
[[gnu::cold]] void Engine<P>::notify_lost(PeerT& p) {
  if (p.standing.finalized()) p.standing.set_notice_pending(false);
  for (unsigned i = 0; i < p.n_rails && p.standing.notice_pending(); ++i) {
    RailT& rail = p.rails[i];
    if (rail.name.conn == 0 || (rail.state != RailState::kUp && rail.state != RailState::kSuspect)) continue;
    Frag* const f = base_.port.frag_alloc();
    if (!f) break;
    core::RailHdr h{
        static_cast<std::uint8_t>(MsgType::kPeerLost), 0, 0, rail.name.conn, rail.name.epoch, 0, 0};
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

template <class P>
void Engine<P>::peer_lost(PeerT* p, bool finalized) {
  Entry entry(*this);
  declare_failed(*p, !finalized);
}

template <class P>
void Engine<P>::peer_refuse(PeerT* p) {
  Entry entry(*this);
  base_.failing.refused(*p);
}

/// End every request with this peer with an error, each through its gate. With `loss`, also end the receives
/// from MPI_ANY_SOURCE on its communicators.
template <class P>
[[gnu::cold]] void Engine<P>::declare_failed(PeerT& p, bool loss) {
  if (p.standing.failed()) return;
  p.standing.set_failed();
  p.choice.clear();
  p.completions.clear();
  ++base_.counters.peers_lost;
  const Outcome outcome = p.standing.loss().outcome;
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
  rails_.drop_stored(p);
  p.backlog.again = {};
  drop_syncs(p);
  for (ProcT* q = p.procs.front(); q; q = p.procs.next(q)) {
    while (SendRequest* r = q->stalled.pop_front()) base_.finish_send(*r, outcome);
  }
  matching_.fail_posted(p, outcome);
  if (loss) wildcards_.peer_failed(p);
  base_.records.report(p, true);
  FailoverEvent e;
  e.what = outcome == Outcome::kMessageLost ? "message_lost"
           : outcome == Outcome::kNoMemory  ? "no_memory"
                                            : "peer_lost";
  e.peer = &p.handle;
  e.down_ns = base_.port.now_ns();
  base_.port.emit(e);
  base_.port.peer_failed(p.handle, p.standing.loss());
}

template <class P>
void Engine<P>::on_message_unstored(RailT* rail, std::size_t size) {
  Entry entry(*this);
  base_.failing.no_memory(rail, 0, size);
}

/// Declares failed what Failing has noted.
template <class P>
[[gnu::cold]] void Engine<P>::fail_scheduled() {
  base_.exit_work.forget_failures();
  for (PeerT* p = base_.peers.front(); p; p = p->next) {
    if (!p->standing.failing() || p->standing.failed()) continue;
    declare_failed(*p);
    p->standing.set_notice_pending(!p->standing.declared_by_peer());
    notify_lost(*p);
  }
}

template <class P>
void Engine<P>::tell_losses(PeerT* p) {
  Entry entry(*this);
  base_.records.report(*p, true);
}

template <class P>
bool Engine<P>::losses_open() {
  Entry entry(*this);
  for (PeerT* p = base_.peers.front(); p; p = p->next)
    if (FailoverRecords<P>::any_open(*p)) return true;
  return false;
}

/// Work waits, and no rail to `p` is usable.
template <class P>
[[gnu::cold]] void Engine<P>::tell_no_rail(PeerT& p, std::uint64_t now_ns) {
  p.standing.word_given(now_ns);
  FailoverEvent e;
  e.what = "no_rail";
  e.peer = &p.handle;
  e.down_ns = e.evidence_ns = p.standing.unreachable_since_ns();
  e.waited_ns = time_since(e.down_ns, now_ns);
  e.messages_waiting = waiting_messages(p);
  base_.port.emit(e);
}

/// Park time passes only while no rail to the peer is up, at the first contact none that is being connected
/// either, and while nothing shows that the peer's process is alive. A process that computes outside MPI
/// answers no handshake for any length of time (H15).
template <class P>
void Engine<P>::check_unreachable(PeerT& p, std::uint64_t now_ns) {
  if (p.standing.notice_pending()) notify_lost(p);
  base_.records.report(p, false);
  RestartMessages<P>::poll_for_frags(*this, p);
  bool alive = false;
  for (unsigned i = 0; i < p.n_rails; ++i) {
    RailT& rail = p.rails[i];
    if (FailoverRecords<P>::needs_clock(rail) || rail.unfenceable) base_.set_timer(p);
    if (rail.unfenceable && time_since(rail.unfenceable_ns, now_ns) >= base_.config.park_timeout_ns)
      fail_unfenceable(rail);
    alive = alive || rail.peer_alive;
  }
  if (!p.standing.unreachable()) return;
  base_.set_timer(p);
  const bool over = !alive && p.standing.park_time_over(now_ns, base_.config.park_timeout_ns);
  if (!over && !p.standing.word_due(now_ns, alive)) return;
  if (!has_work(p) && !wildcards_.wait_for(p)) return;
  if (!over) {
    if (!p.standing.finalized()) tell_no_rail(p, now_ns);
    return;
  }
  declare_failed(p);
  p.standing.set_notice_pending(true);
  notify_lost(p);
}

}  // namespace bfo::xfer
