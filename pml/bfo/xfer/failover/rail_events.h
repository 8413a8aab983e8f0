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
#include "pml/bfo/xfer/failover/failover.h"
#include "pml/bfo/xfer/rails/judge.h"
#include "pml/bfo/xfer/rails/limits.h"

namespace bfo::xfer {

template <class P>
void Failover<P>::begin(RailT& r, RailState state, RailName name) {
  PeerT& p = *r.peer;
  r.state = state;
  r.name = name;
  if (state == RailState::kUp || state == RailState::kSuspect) {
    r.up_epoch = name.epoch;
    p.first_contact.met(base_.port.now_ns());
  }
  rebuild(p);
  base_.failing.met(r);
  // Messages may have come over the rail before this process had a record of the peer. An epoch that closed
  // meanwhile is reported again, because the peer waits for that report (H5).
  if (r.limits.failover && (name.epoch > 1 || (name.epoch == 1 && r.up_epoch == 0)))
    base_.port.fence(r.handle, name.epoch - 1);
  if (r.limits.failover) early_.take(base_.port, name.conn, [&](const core::RailHdr& h) { notice(r, h); });
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
void Failover<P>::rebuild(PeerT& p) {
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
void Failover<P>::up(RailT* rail, const RailEvent& ev) {
  PeerT& p = *rail->peer;
  if (ev.name.epoch < rail->name.epoch || ev.name.epoch <= rail->closed_epoch)
    return;  // older than what is known
  // A suspect rail that moves again is the same connection: what is known of it holds.
  if (!(rail->usable(ev.name.epoch) && rail->up_epoch == ev.name.epoch)) {
    rail->late = base_.port.reads_in_time(kUnsure);
    rail->goodput.reset();
    rail->short_time = ShortTime();
    rail->message_time = MessageTime();
    not_degraded(base_, *rail);
  }
  rail->name = ev.name;
  rail->up_epoch = ev.name.epoch;
  rail->state = RailState::kUp;
  p.first_contact.met(base_.port.now_ns());
  if (ev.name.epoch > rail->peer_closed_epoch + 1) {  // both sides have one epoch at a time
    rail->peer_closed_epoch = ev.name.epoch - 1;
    moves_.reads_over(*rail);
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
  base_.activate(p);
}

template <class P>
void Failover<P>::suspect(RailT* rail, const RailEvent& ev) {
  if (!(ev.name == rail->name) || rail->state != RailState::kUp) return;
  rail->state = RailState::kSuspect;
  if (rail->late == 0) rail->goodput.timed_from(base_.port.now_ns());
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
[[gnu::cold]] void Failover<P>::broken(RailT* rail, const RailEvent& ev, bool may_have_lost) {
  PeerT& p = *rail->peer;
  if (rail->state == RailState::kUnusable) return;
  RailEvent here = ev;
  here.name = rail->name;
  down(rail, here);
  closed(rail, here, FenceResult::kUnfenceable, 0);
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
void Failover<P>::peer_alive(RailT* rail, bool alive) {
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
void Failover<P>::down(RailT* rail, const RailEvent& reported) {
  PeerT& p = *rail->peer;
  const RailEvent ev = without_blame(p, reported);
  if (ev.name.epoch < rail->name.epoch) return;
  if (rail->state == RailState::kDown && rail->dead == ev.name) return;
  base_.records.report(*rail, moves_);  // the record of its previous loss
  not_degraded(base_, *rail);
  rail->name = ev.name;
  rail->peer_alive = false;
  rails_.weighing().ports.forget(rail->limits.port);
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
    moves_.drop_syncs(p);
  }
  rebuild(p);

  base_.activate(p);
  base_.set_timer(p);
  base_.records.open(*rail, ev);
}

template <class P>
void Failover<P>::closed(RailT* rail, const RailEvent& reported, FenceResult result, uint64_t delivered) {
  PeerT& p = *rail->peer;
  const RailEvent ev = without_blame(p, reported);
  if (ev.name.epoch > rail->closed_epoch && result == FenceResult::kFenced)
    rail->closed_epoch = ev.name.epoch;
  const bool given_up = rail->state == RailState::kUnusable;
  if (rail->name.epoch <= ev.name.epoch && !given_up) {
    rail->state = result == FenceResult::kFenced ? RailState::kClosed : RailState::kUnusable;
    rail->unfenceable = result != FenceResult::kFenced;
    rail->unfenceable_ns = base_.port.now_ns();
    rebuild(p);
  }
  // Also of a rail that the BTL had given up, or tried again, before the peer had a record: the count is all
  // that tells the peer of messages that the device had acknowledged and took with it (H4).
  const bool fenced = result == FenceResult::kFenced;
  const bool news =
      rail->name.epoch <= ev.name.epoch ? fenced || !given_up : fenced && rail->dead.epoch < ev.name.epoch;
  if (news) {
    rail->dead = ev.name;
    rail->dead_delivered = delivered;
    rail->closed_pending = ev.name.conn != 0 && !ev.left && !ev.late;
  }
  base_.records.close(*rail, ev);
  moves_.rail_left(*rail, ev.name.epoch, result == FenceResult::kFenced);
  base_.activate(p);
  base_.set_timer(p);
}

/// Send the pending RAILDOWN and EPOCHCLOSED over any usable rail.
template <class P>
void Failover<P>::post_notices(PeerT& p) {
  for (unsigned i = 0; i < p.n_rails; ++i) {
    RailT& r = p.rails[i];
    if (!(r.down_pending || r.closed_pending)) continue;
    core::RailHdr h{
        static_cast<uint8_t>(core::MsgType::kRailDown), 0, 0, r.dead.conn, r.dead.epoch, r.dead_cause, 0};
    if (r.down_pending) {
      r.down_pending = false;
      rails_.send_stored(p, &h, sizeof h);
    }
    if (r.closed_pending) {
      r.closed_pending = false;
      h.type = static_cast<uint8_t>(core::MsgType::kEpochClosed);
      h.delivered = r.dead_delivered;
      rails_.send_stored(p, &h, sizeof h);
    }
  }
}

/// A peer may report only its own connections with this process.
template <class P>
void Failover<P>::on_rail_message(const Arrival& a, MsgType type, Bytes in) {
  core::RailHdr h;
  if (!core::decode(type, in, h) || h.conn == 0) {
    ++base_.counters.malformed;
    return;
  }
  if (RailT* const r = base_.peers.rail_of(a.rail, h.conn)) return notice(*r, h);
  // a peer that has no record here yet
  if (a.rail || a.epoch == 0 || !early_.keep(base_.port, h)) ++base_.counters.stale;
}

/// RAILDOWN or EPOCHCLOSED of `r`. The epoch may not be up here yet: a notice can overtake the first message,
/// and it is sent only once.
template <class P>
void Failover<P>::notice(RailT& r, const core::RailHdr& h) {
  const RailName name{h.conn, h.epoch};
  if (h.type == static_cast<uint8_t>(MsgType::kRailDown)) {
    if (r.name.conn == h.conn) base_.port.peer_down(r.handle, name, h.cause);
    return;
  }
  if (h.epoch > r.peer_closed_epoch) {
    r.peer_closed_epoch = h.epoch;
    moves_.reads_over(r);
  }
  base_.port.peer_closed(r.handle, name, h.delivered);
}

}  // namespace bfo::xfer
