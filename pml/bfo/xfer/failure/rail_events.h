// SPDX-License-Identifier: BSD-3-Clause
//
// rail_events.h: the rails of each peer: which are usable, what the peer is notified of when one dies, and
// what happens when it is fenced.
//
// The epoch is the unit of death: every notice names one, and a notice about an older epoch is ignored (H19).
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <algorithm>
#include <new>

#include "common/failover_btl.h"
#include "pml/bfo/xfer/engine.h"
#include "pml/bfo/xfer/rails/limits.h"

namespace bfo::xfer {

template <class P>
Peer<P>* Engine<P>::peer_add(const typename P::PeerHandle& handle, std::uint64_t key, bool own) {
  Entry entry(*this);
  // The first rail's record comes with it: a peer without any rail could not be notified that it is declared
  // failed.
  static_assert(alignof(RailT) <= alignof(PeerT));
  void* const memory = base_.port.alloc(sizeof(PeerT) + sizeof(RailT));
  if (!memory) return nullptr;
  auto* p = ::new (memory) PeerT;
  p->handle = handle;
  p->choice.set_key(key);
  p->own = own;
  base_.peers.add(*p);
  return p;
}

/// An eager message that a rail hands back is sent unchanged over another rail, so every rail must take it.
/// Returns the longest one that a blocking send offers to any of them.
template <class P>
std::size_t share_eager_limit(Peer<P>& p) {
  std::size_t least = SIZE_MAX;
  for (unsigned i = 0; i < p.n_rails; ++i) least = std::min(least, p.rails[i].limits.post_limit);
  std::size_t longest = 0;
  p.eager_limit = 0;
  for (unsigned i = 0; i < p.n_rails; ++i) {
    RailLimits& l = p.rails[i].limits;
    l.eager_limit = std::min(l.eager_limit, least);
    l.inline_limit = std::min(l.inline_limit, l.eager_limit);
    l.blocking_limit = std::min(l.blocking_limit, least);
    p.eager_limit = std::max(p.eager_limit, l.eager_limit);
    longest = std::max(longest, l.blocking_limit);
  }
  return longest;
}

/// The limit of all rails becomes at least `limit`.
template <class P>
void Engine<P>::raise(std::atomic<std::size_t>& longest, std::size_t limit) {
  const std::size_t now = longest.load(std::memory_order_relaxed);
  if (now == kNoRail || limit > now) longest.store(limit, std::memory_order_relaxed);
}

template <class P>
Rail<P>* Engine<P>::rail_add(PeerT* p, const typename P::RailHandle& handle, const RailLimits& limits) {
  Entry entry(*this);
  if (p->n_rails == kMaxRails) return nullptr;
  void* const memory = p->n_rails == 0 ? static_cast<void*>(p + 1) : base_.port.alloc(sizeof(RailT));
  if (!memory) {
    base_.failing.no_memory(
        *p,
        sizeof(RailT));  // the messages over it could not be distinguished from a stranger's
    return nullptr;
  }
  RailT& r = *::new (memory) RailT;
  p->rails.at[p->n_rails] = &r;
  r.handle = handle;
  r.limits = keepable(limits);
  if (r.limits.weight == 0) r.limits.weight = 1;
  r.peer = p;
  r.index = p->n_rails++;
  const std::size_t longest = share_eager_limit(*p);
  raise(longest_eager_, p->eager_limit);
  raise(longest_blocking_, std::max(p->eager_limit, longest));
  return &r;
}

template <class P>
void Engine<P>::rail_begin(RailT* rail, RailState state, RailName name) {
  Entry entry(*this);
  RailT& r = *rail;
  PeerT& p = *r.peer;
  r.state = state;
  r.name = name;
  if (state == RailState::kUp || state == RailState::kSuspect) r.up_epoch = name.epoch;
  rebuild(p);
  base_.failing.met(r);
  // Messages may have come over the rail before this process had a record of the peer. An epoch that closed
  // meanwhile is reported again, because the peer waits for that report (H5).
  if (r.limits.failover && name.epoch != 0 && r.up_epoch == 0) base_.port.fence(r.handle, name.epoch - 1);
}

/// Is there a way to `p`? A rail that is being connected is one only at the first contact: to a peer whose
/// rails were lost it may be as dead as they are.
template <class P>
bool has_way(const Peer<P>& p) {
  bool lost = false;
  for (unsigned i = 0; i < p.n_rails; ++i) lost = lost || p.rails[i].up_epoch != 0;
  return p.rails_up() != 0 || (!p.choice.empty() && !lost);
}

/// A rail has changed its state.
template <class P>
void Engine<P>::rebuild(PeerT& p) {
  if (p.standing.failed()) return;  // no rail of it is used any more
  p.choice.rebuild(p.rails, p.n_rails);
  rails_changed(p);
  if (!p.choice.empty()) base_.activate(p);
  if (has_way(p)) {
    p.standing.set_reachable();
    return;
  }
  // Also if the peer never had a rail up here: its rails may have died before its record was made.
  if (!p.standing.unreachable()) {
    p.standing.set_unreachable(base_.port.now_ns());
    p.watch.forget_probe();
    base_.set_timer(p);
  }
}

template <class P>
void Engine<P>::on_rail_up(RailT* rail, const RailEvent& ev) {
  Entry entry(*this);
  PeerT& p = *rail->peer;
  if (ev.name.epoch < rail->name.epoch || ev.name.epoch <= rail->closed_epoch)
    return;  // older than what is known
  rail->name = ev.name;
  rail->up_epoch = ev.name.epoch;
  rail->state = RailState::kUp;
  rail->late = base_.port.reads_in_time(kUnsure);
  if (ev.name.epoch > rail->peer_closed_epoch + 1) {  // both sides have one epoch at a time
    rail->peer_closed_epoch = ev.name.epoch - 1;
    Exposure<P>::reads_over(*this, *rail);
  }
  rail->peer_alive = false;
  rebuild(p);
  if (!p.standing.failed()) base_.records.up(*rail, ev);
  if (p.standing.notice_pending()) [[unlikely]]
    notify_lost(p);
  // The first rail that comes up starts the connection of the others.
  for (unsigned i = 0; i < p.n_rails; ++i)
    if (p.rails[i].state == RailState::kIdle && p.rails[i].limits.failover)
      base_.port.connect(p.rails[i].handle);
  if (!entry.nested())
    flush(p);
  else
    base_.activate(p);
}

template <class P>
void Engine<P>::on_rail_suspect(RailT* rail, const RailEvent& ev) {
  Entry entry(*this);
  if (!(ev.name == rail->name) || rail->state != RailState::kUp) return;
  rail->state = RailState::kSuspect;
  rail->late = kLate;
  ++base_.counters.suspicions;
  rebuild(*rail->peer);
  base_.activate(*rail->peer);
}

/// A BTL without the failover contract acknowledges nothing and keeps no copy. If nothing had been sent over
/// the rail, the peer has one rail less. Otherwise it is unknown what is missing, and the pair ends with an
/// error on both sides: never silent, never a hang (H4). Such a BTL cannot prove either that it does not
/// access granted memory any more (H12).
template <class P>
[[gnu::cold]] void Engine<P>::on_rail_broken(RailT* rail, const RailEvent& ev, bool may_have_lost) {
  Entry entry(*this);
  PeerT& p = *rail->peer;
  if (rail->state == RailState::kUnusable) return;
  RailEvent here = ev;
  here.name = rail->name;
  on_rail_down(rail, here);
  on_rail_closed(rail, here, FenceResult::kUnfenceable, 0);
  rail->down_pending = rail->closed_pending = false;  // the peer's own BTL reports it
  bool hope = false;
  for (unsigned i = 0; i < p.n_rails; ++i) hope = hope || p.rails[i].state != RailState::kUnusable;
  if (may_have_lost || !hope) {
    if (may_have_lost && !p.standing.failed()) {
      PeerLoss loss = p.standing.loss();
      loss.outcome = Outcome::kMessageLost;
      p.standing.set_loss(loss);
    }
    declare_failed(p);
    p.standing.set_notice_pending(true);
    notify_lost(p);
  }
}

template <class P>
void Engine<P>::on_peer_alive(RailT* rail, bool alive) {
  Entry entry(*this);
  rail->peer_alive = alive;
  // The wait before the peer showed life, or while it does, does not count.
  rail->peer->standing.heard(base_.port.now_ns());
}

/// What ends a rail of a process that has left in order is no failure: BYE may have come over another rail
/// only.
template <class P>
RailEvent without_blame(const Peer<P>& p, const RailEvent& ev) {
  RailEvent out = ev;
  if (!p.standing.finalized() || ev.left) return out;
  out.left = true;
  out.cause = BFO_CAUSE_SHUTDOWN;
  return out;
}

template <class P>
void Engine<P>::on_rail_down(RailT* rail, const RailEvent& reported) {
  Entry entry(*this);
  PeerT& p = *rail->peer;
  const RailEvent ev = without_blame(p, reported);
  if (ev.name.epoch < rail->name.epoch) return;
  if (rail->state == RailState::kDown && rail->dead == ev.name) return;
  base_.records.report(*rail);  // the record of its previous loss
  rail->name = ev.name;
  rail->peer_alive = false;
  if (ev.late) {
    rail->state = RailState::kClosed;  // it was not up: nothing of it is dead, and the peer is told nothing
  } else {
    rail->state = RailState::kDown;
    rail->dead = ev.name;
    rail->dead_cause = ev.cause;
    rail->down_pending = ev.name.conn != 0 && !ev.left;
    rail->closed_pending = false;
  }
  if (!ev.late && !ev.left && !ev.given_back) ++base_.counters.rails_lost;
  if (ev.left) [[unlikely]] {
    // One rail is enough: a process sends BYE when it has nothing left to send or receive.
    p.standing.set_finalized();
    rails_.drop_stored(p);
    drop_syncs(p);
  }
  rebuild(p);

  base_.activate(p);
  base_.set_timer(p);
  base_.records.open(*rail, ev);
}

template <class P>
void Engine<P>::on_rail_closed(RailT* rail, const RailEvent& reported, FenceResult result,
                               std::uint64_t delivered) {
  Entry entry(*this);
  PeerT& p = *rail->peer;
  const RailEvent ev = without_blame(p, reported);
  if (ev.name.epoch > rail->closed_epoch && result == FenceResult::kFenced)
    rail->closed_epoch = ev.name.epoch;
  if (rail->name.epoch <= ev.name.epoch && rail->state != RailState::kUnusable) {
    rail->state = result == FenceResult::kFenced ? RailState::kClosed : RailState::kUnusable;
    rail->unfenceable = result != FenceResult::kFenced;
    rail->unfenceable_ns = base_.port.now_ns();
    rail->dead = ev.name;
    rail->dead_delivered = delivered;
    rail->closed_pending = ev.name.conn != 0 && !ev.left && !ev.late;
    rebuild(p);
  }
  base_.records.close(*rail, ev);
  rail_left(*rail, ev.name.epoch, result == FenceResult::kFenced);
  base_.activate(p);
  base_.set_timer(p);
}

/// Epoch `epoch` of `rail` is over. If it is fenced, no access of it is possible any more, and its ledger
/// entries leave. Whatever was sent or is expected on it may be lost, so all pending control messages are
/// sent again (H11).
template <class P>
void Engine<P>::rail_left(RailT& rail, std::uint32_t epoch, bool fenced) {
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
      x.rndv->unfenced = static_cast<std::uint16_t>(x.rndv->unfenced & ~(1u << rail.index));
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

/// Send the pending RAILDOWN and EPOCHCLOSED over any usable rail.
template <class P>
void Engine<P>::rail_notices(PeerT& p) {
  for (unsigned i = 0; i < p.n_rails; ++i) {
    RailT& r = p.rails[i];
    if (!(r.down_pending || r.closed_pending)) continue;
    core::RailHdr h{
        static_cast<std::uint8_t>(MsgType::kRailDown), 0, 0, r.dead.conn, r.dead.epoch, r.dead_cause, 0};
    if (r.down_pending) {
      r.down_pending = false;
      rails_.send_stored(p, &h, sizeof h);
    }
    if (r.closed_pending) {
      r.closed_pending = false;
      h.type = static_cast<std::uint8_t>(MsgType::kEpochClosed);
      h.delivered = r.dead_delivered;
      rails_.send_stored(p, &h, sizeof h);
    }
  }
}

/// A peer may report only its own connections with this process.
template <class P>
void Engine<P>::on_rail_message(const Arrival& a, MsgType type, Bytes in) {
  core::RailHdr h;
  if (!core::decode(type, in, h) || h.conn == 0) {
    ++base_.counters.malformed;
    return;
  }
  RailT* const r = base_.peers.rail_of(a.rail, h.conn);
  if (!r) {
    ++base_.counters.stale;
    return;
  }
  // The epoch may not be up here yet: a notice can overtake the first message, and it is sent only once.
  const RailName name{h.conn, h.epoch};
  if (type == MsgType::kRailDown) {
    if (r->name.conn == h.conn) base_.port.peer_down(r->handle, name, h.cause);
    return;
  }
  if (h.epoch > r->peer_closed_epoch) {
    r->peer_closed_epoch = h.epoch;
    Exposure<P>::reads_over(*this, *r);
  }
  base_.port.peer_closed(r->handle, name, h.delivered);
}

}  // namespace bfo::xfer
