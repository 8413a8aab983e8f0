// SPDX-License-Identifier: BSD-3-Clause
//
// writes.h: the sender's half of the put protocol (rput.h): grants that arrive, the write of each over the
// rail that it is for, and the FIN behind it.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>
#include <cstring>
#include <new>

#include "common/check.h"
#include "pml/bfo/xfer/moves/registering.h"
#include "pml/bfo/xfer/moves/transfers.h"

namespace bfo::xfer {

template <class P>
struct Writes {
  using E = Transfers<P>;
  using SendRequest = typename P::SendRequest;
  using Frag = typename P::Frag;

  static constexpr unsigned kGoOn = 4;  ///< sends that go on when a write ends: it makes room for few

  static void grant_arrived(E& e, SendRequest& r, const core::PutHdr& h, Rail<P>* arrival) {
    auto& x = r.xfer;
    if (x.protocol != Protocol::kPut) {
      x.protocol = Protocol::kPut;
      x.rndv->exposed = 0;  // PUT, like ACK, certifies that the receiver does not read in this round
      x.rndv->todo.clear();
      x.rndv->undelivered = h.total;
      x.rndv->grants.forget_arrivals();
    }
    switch (x.rndv->grants.arrive(h.grant)) {
      case Grants<P>::Arrival::kForged:
        ++e.base_.counters.malformed;
        return;
      case Grants<P>::Arrival::kDuplicate:
        ++e.base_.counters.duplicates;
        return;
      case Grants<P>::Arrival::kNew:
        break;
    }
    if (x.rndv->grants.incomplete()) [[unlikely]]
      e.base_.failing.no_memory(*x.proc->peer, sizeof(Range));
    Rail<P>* const rail = e.rails_.named(*x.proc->peer, h.key.conn, h.key.epoch, arrival);
    if (!rail || h.length > rail->limits.put_limit || !Registering<P>::registered(e, r)) {
      refuse(e, r, h.grant);
      return;
    }
    Grant<P> grant;
    grant.rail = rail;
    grant.epoch = rail->name.epoch;
    grant.number = h.grant;
    grant.offset = h.offset;
    grant.length = h.length;
    grant.address = h.address;
    grant.handle.size = h.key.handle_len;
    std::memcpy(grant.handle.bytes, h.key.handle, sizeof grant.handle.bytes);
    if (!x.proc->peer->active && !waits(*rail, h.length)) {  // nothing waits for a rail
      const Post post = write(e, r, grant);
      if (post == Post::kUnreachable) refuse(e, r, h.grant);
      if (post == Post::kCompleted) e.send_check(r);
      if (post != Post::kNoResource) return;
    }
    Grant<P>* const g = e.grant_pool_.take(e.base_.port);
    if (!g) {
      refuse(e, r, h.grant);
      return;
    }
    ::new (g) Grant<P>(grant);
    x.rndv->grants.push_back(g);
    x.pending |= kPendingData;
    e.ready(r);
  }

  /// Legal only while no byte of the grant was posted (H8).
  static void refuse(E& e, SendRequest& r, uint32_t grant) {
    auto& x = r.xfer;
    const core::FinHdr h = x.rndv->fin(grant, core::kFlagFail);
    e.rails_.send_stored(*x.proc->peer, &h, sizeof h);
  }

  static bool serve(E& e, SendRequest& r) {
    auto& x = r.xfer;
    uint32_t full = 0;  // rails (by index) that take nothing now
    x.rndv->grants.each(e.grant_pool_, [&](Grant<P>& g) {
      if (g.rail->usable(g.epoch)) {
        if (waits(*g.rail, g.length)) return true;
        const uint32_t bit = 1u << g.rail->index;
        const Post post = full & bit ? Post::kNoResource : write(e, r, g);
        if (post == Post::kNoResource) {
          full |= bit;
          return true;
        }
        if (post == Post::kUnreachable) refuse(e, r, g.number);
      } else {
        refuse(e, r, g.number);
      }
      return false;
    });
    if (full != 0) return false;
    x.pending &= static_cast<uint8_t>(~kPendingData);
    e.send_check(r);
    return true;
  }

  /// While rails are uneven a write waits here for those before it, and not in the queue of the rail: FIN,
  /// and PUTs for what comes the other way, are then behind one or two of them. Not over a rail that is far:
  /// how much keeps that busy is not known.
  static bool waits(Rail<P>& rail, uint64_t bytes) {
    const auto& choice = rail.peer->choice;
    if (!choice.uneven() || rail.goodput.cost().latency_ns != 0) return false;
    const Share s = choice.share(rail);
    if (!rail.writes.full(bytes, WriteAhead::kAlways * s.rate / s.best)) return false;
    rail.writes.waits();
    return true;
  }
  /// A write over `rail` has ended: the oldest sends whose writes wait for that go on; all, when no write is
  /// under way that would end: those that go on first may end, or begin a new round, without writing.
  static void go_on(E& e, Rail<P>& rail) {
    if (!rail.writes.take_held()) [[likely]]
      return;
    Peer<P>& p = *rail.peer;
    unsigned n = 0;
    for (SendRequest* r = p.live_sends.front(); r; r = p.live_sends.next(r)) {
      auto& x = r->xfer;
      if (x.phase != core::SendPhase::kSending || x.protocol != Protocol::kPut) continue;
      if (!x.rndv->grants.any_over(rail)) continue;
      if (++n > kGoOn && !rail.writes.empty()) return rail.writes.held();
      x.pending |= kPendingData;
      e.ready(*r);
    }
  }

  static Post write(E& e, SendRequest& r, Grant<P>& g) {
    auto& x = r.xfer;
    Frag* const f = e.rails_.new_frag(FragKind::kWrite, *g.rail, *g.rail->peer);
    if (!f) return Post::kNoResource;
    f->xfer.name = x.rndv->name;
    f->xfer.offset = g.offset;
    f->xfer.length = g.length;
    f->xfer.grant = g.number;
    e.pace_.begin(*f);
    g.rail->inflight_bytes += g.length;
    g.rail->writes.posted(g.length);
    ++x.rndv->in_flight;
    const Post post = e.base_.port.put(g.rail->handle, r, g.offset, g.length, g.address, g.handle, *f);
    if (taken(post)) {
      e.base_.counters.bytes_sent += g.length;
      e.base_.records.note_segment(r, g.offset, g.length);
    }
    if (post == Post::kAccepted) return post;
    e.rails_.ended(*f);
    g.rail->writes.dropped(g.length);
    --x.rndv->in_flight;
    if (post == Post::kCompleted) finished(e, r, *f);
    e.base_.port.frag_free(*f);
    return post;
  }

  /// The write succeeded: send FIN over the same rail as long as that lives.
  static void finished(E& e, SendRequest& r, Frag& f) {
    auto& x = r.xfer;
    x.rndv->undelivered -= f.xfer.length;
    x.rndv->wrote_rails = static_cast<uint16_t>(x.rndv->wrote_rails | 1u << f.xfer.rail->index);
    core::FinHdr h = x.rndv->fin(f.xfer.grant, 0);
    Peer<P>& p = *x.proc->peer;
    Rail<P>& rail = *f.xfer.rail;
    // Of a latency the receiver hears nothing else; it counts when the rail is empty.
    if (const Goodput& g = rail.goodput; g.known()) {
      const Goodput::Cost c = g.cost();
      h.rate = core::rate_code(rail.inflight_bytes == 0 ? c.rate_alone(f.xfer.length) : c.rate);
    } else if (g.least() != 0) [[unlikely]] {
      if (const uint64_t least = p.choice.exceeds_measured(rail); least != 0) {
        h.rate = core::rate_code(least);
        h.flags |= core::kFlagAtLeast;
      }
    }
    // If the rail fails it hands back the bytes, which then go over another one.
    if (p.backlog.nothing_stored() && !p.standing.ended() && rail.usable(f.xfer.epoch)) {
      typename P::InlineSource none{};
      if (e.rails_.post_brief(rail, &h, sizeof h, none)) return;
    }
    e.rails_.send_stored(p, &h, sizeof h, &rail, f.xfer.epoch);
  }

  /// All writes have succeeded, and nothing else holds the gate.
  static bool ends_here(E& e, SendRequest& r) {
    auto& x = r.xfer;
    if (x.phase != core::SendPhase::kSending || x.rndv->undelivered != 0) return false;
    if (!x.rndv->grants.empty() || !e.gate_clear(x)) return false;
    Machine<P>::template finish_directly<kWrittenEntirely>(x);
    reset(e, r);
    e.send_over(r);
    return true;
  }

  static void write_done(E& e, Frag& f) {
    auto& fx = f.xfer;
    e.pace_.write_ended(f);
    go_on(e, *fx.rail);
    SendRequest* const r = e.sends_.find(fx.name);
    BFO_DCHECK(r != nullptr);  // the gate keeps the request while a write is in flight
    if (!r) return;
    auto& x = r->xfer;
    --x.rndv->in_flight;
    if (fx.fate == Fate::kDelivered) {
      e.pace_.frag_ended(f);
      finished(e, *r, f);
      if (ends_here(e, *r)) return;
    } else {
      if (fx.fate == Fate::kUnknown && fx.rail->limits.failover) {
        x.rndv->dirty_rails = static_cast<uint16_t>(x.rndv->dirty_rails | 1u << fx.rail->index);
        // That rail may still read from this buffer (invariant I16 of PROTOCOL.md).
        if (fx.epoch > fx.rail->closed_epoch)
          e.ledgers_.hold_until_fenced(*r, *fx.rail, fx.epoch, fx.offset, fx.offset + fx.length);
      }
      e.send_event(*r, core::SendEvent::kDataLost);
    }
    e.send_check(*r);
  }

  static void reset(E& e, SendRequest& r) { r.xfer.rndv->grants.clear(e.grant_pool_); }
};

}  // namespace bfo::xfer
