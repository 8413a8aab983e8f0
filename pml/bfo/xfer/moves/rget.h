// SPDX-License-Identifier: BSD-3-Clause
//
// rget.h: the get protocol: the sender exposes its buffer, the receiver reads it over all rails.
//
//   S: RGET (address, one key per rail, or the one that is enough)  ->  R matches
//   R: READ READ READ ... striped over the rails whose keys it has
//   R: FIN when everything was read and its gate is open  ->  S completes
//
// A READ that failed on one rail is repeated over another one. The failed READ may still bring data, but the
// same: the sender completes only after FIN, and FIN is sent only when both halves of the failed rail are
// closed. These are the receiver's half, and the sender's half, which could still serve a READ request that
// is under way in the fabric. When no rail with a key is left, the receiver asks for a restart and gets new
// keys. The sender's half is in offer.h.
//
// P1..P8: contrib/doc/design.md
#pragma once

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "pml/bfo/xfer/moves/offer.h"
#include "pml/bfo/xfer/moves/transfers.h"
#include "pml/bfo/xfer/moves/plan.h"
#include "pml/bfo/xfer/moves/registering.h"
#include "pml/bfo/xfer/moves/trace_plan.h"
#include "pml/bfo/xfer/moves/transfer.h"

namespace bfo::xfer {

template <class P>
struct Rget {
  using E = Transfers<P>;
  using SendRequest = typename P::SendRequest;
  using RecvRequest = typename P::RecvRequest;
  using Frag = typename P::Frag;
  using Arrival = typename E::Arrival;

  /// Would one key, of the rail over which the RGET of `r` came, be enough?
  [[gnu::always_inline]] static bool keeps_up(E& e, const RecvRequest& r) {
    const auto& d = *r.xfer.rndv;
    const Rail<P>* const rail = d.key_rail;
    HandleBytes unused;
    return r.xfer.proc->peer->choice.size() > 1 && rail && rail->late == 0 && rail->state == RailState::kUp &&
           e.base_.port.handle(d.reg, rail->handle, unused);
  }

  /// Keep the keys of an RGET whose rails are up here. False: it cannot be read.
  static bool take_keys(E& e, RecvRequest& r, const Arrival& a, const core::Opened& o) {
    auto& x = r.xfer;
    x.rndv->n_keys = 0;
    if (!e.base_.config.use_get || !o.is_rget()) return false;
    x.rndv->key_rail = a.rail;
    bool keep_up = a.rail != nullptr;
    for (unsigned i = 0; i < o.n_keys(); ++i) {
      const core::RailKey& key = o.key(i);
      Rail<P>* const rail = e.rails_.named(*x.proc->peer, key.conn, key.epoch, a.rail);
      if (!rail || rail->limits.get_limit == 0 || !aligned(*rail, o.address(), x.rndv->want)) continue;
      if (!Registering<P>::registered_for(e, r, *rail)) continue;
      keep_up = keep_up && rail->late == 0;
      x.rndv->keys[x.rndv->n_keys++] = key;
    }
    if (x.rndv->n_keys == 0) return false;
    x.rndv->remote_address = o.address();
    x.rndv->keep_up = keep_up && x.rndv->n_keys > 1;
    return true;
  }

  static bool aligned(const Rail<P>& rail, uint64_t address, uint64_t length) {
    const uint64_t mask = rail.limits.get_alignment - 1;
    return ((address | length) & mask) == 0;
  }

  /// A missing range may begin and end anywhere (after a round by copy); a READ may not.
  static void align_todo(RecvRequest& r) {
    auto& x = r.xfer;
    uint64_t mask = 0;
    const Peer<P>& p = *x.proc->peer;
    for (unsigned i = 0; i < p.n_rails; ++i)
      if (p.rails[i].limits.get_limit != 0) mask |= p.rails[i].limits.get_alignment - 1;
    if (mask == 0) return;
    for (uint32_t i = 0; i < x.rndv->todo.count(); ++i) {
      const Range hole = x.rndv->todo[i];
      const uint64_t end = (hole.end + mask) & ~mask;
      x.rndv->todo.add(hole.begin & ~mask, end < x.rndv->want ? end : x.rndv->want);
    }
  }

  /// An RNDV or RGET of this round came again, with newer keys or with none.
  static void refresh(E& e, RecvRequest& r, const Arrival& a, const core::Opened& o) {
    auto& x = r.xfer;
    if (x.protocol == Protocol::kPut) Rput<P>::repeat(r);
    if (x.protocol != Protocol::kGet) return;
    if (take_keys(e, r, a, o)) return;
    // What was read must not be sent again (P4): serve() finds no key and asks for a restart, which reports
    // it.
    if (x.rndv->in_flight != 0 || x.rndv->ledger != nullptr || !x.rndv->received.empty()) return;
    x.protocol = Protocol::kCopy;  // nothing was read and nothing will be
    x.rndv->todo.clear();
  }

  /// Post READs. Without a usable key: ask the sender for a new round.
  static bool serve(E& e, RecvRequest& r) {
    auto& x = r.xfer;
    Peer<P>& p = *x.proc->peer;
    x.pending &= static_cast<uint8_t>(~(kPendingData | kPendingStart));
    e.pace_.plan(p);
    uint32_t refused = 0;
    while (x.rndv && !x.rndv->todo.empty()) {  // a READ that ends inside its call may complete the request
      const core::RailKey* key = nullptr;
      Rail<P>* best = nullptr;
      bool any = false;
      bool chosen = false;  // there is a key of a rail that is to be used, and has not refused
      const unsigned start = p.choice.take_turn();  // equal loads: take them in turn
      for (unsigned k = 0; k < x.rndv->n_keys; ++k) {
        const unsigned i = (start + k) % x.rndv->n_keys;
        Rail<P>* const rail =
            e.rails_.named(p, x.rndv->keys[i].conn, x.rndv->keys[i].epoch, x.rndv->key_rail);
        if (!rail) continue;
        any = true;
        if (refused & (1u << rail->index)) continue;
        if (const bool is_chosen = p.choice.uses(*rail); is_chosen != chosen) {
          if (chosen) continue;
          chosen = true;
          best = nullptr;
        }
        if (!best || p.choice.sooner(*rail, *best, planned(e, r, *rail))) {
          best = rail;
          key = &x.rndv->keys[i];
        }
      }
      if (!any) {
        e.recv_event(r, core::RecvEvent::kAsk);
        return true;
      }
      const Range next = x.rndv->todo.front();
      const uint64_t n = best
                             ? next_read(moving(e, r, next.size()), *best, p.choice.share(*best, next.size()))
                             : next.size();
      if (e.base_.config.trace_plans) [[unlikely]]
        trace_plan(e.base_, p, PlanTrace::What::kRead, moving(e, r, next.size()), best, best ? n : 0);
      if (n == 0) return true;  // the next completion calls again
      if (!best || !read(e, r, *best, *key, Range{next.begin, next.begin + n})) {
        if (best) refused |= 1u << best->index;
        if (best) continue;
        if (!any_registered(e, r)) {
          if (x.rndv->in_flight != 0) return true;  // the end of the READs calls again
          x.rndv->no_rdma = true;
          e.recv_event(r, core::RecvEvent::kAsk);
          return true;
        }
        x.pending |= kPendingData;
        return false;
      }
    }
    e.recv_check(r);
    return true;
  }
  static bool serve(E&, SendRequest&) { return true; }  // the offer is made when the message is opened

  /// Is the buffer registered with a rail that has a key? The device of the only one left may refuse it.
  static bool any_registered(E& e, const RecvRequest& r) {
    const auto& d = *r.xfer.rndv;
    HandleBytes unused;
    for (unsigned k = 0; k < d.n_keys; ++k) {
      const Rail<P>* const rail =
          e.rails_.named(*r.xfer.proc->peer, d.keys[k].conn, d.keys[k].epoch, d.key_rail);
      if (rail && e.base_.port.handle(d.reg, rail->handle, unused)) return true;
    }
    return false;
  }

  /// What the planner has to know of `r`, of which a range of `left` bytes is next.
  static Moving moving(const E& e, const RecvRequest& r, uint64_t left) {
    const auto& d = *r.xfer.rndv;
    return {d.want, left, d.bytes_out, d.in_flight, e.base_.config.rdma_depth, d.n_keys, d.keep_up};
  }

  /// Size of a piece of `r` over `rail`, if it takes one.
  static uint64_t planned(const E& e, const RecvRequest& r, const Rail<P>& rail) {
    const RailChoice<P>& choice = r.xfer.proc->peer->choice;
    if (!choice.uneven() && !choice.doubted()) return 0;
    Moving m = moving(e, r, r.xfer.rndv->todo.front().size());
    m.pieces_out = 0;
    return next_read(m, rail, choice.share(rail));
  }

  enum class Posted : uint8_t { kNothing, kRefused, kTaken };

  /// Posts a READ of `range`, which is in `todo` no more. kNothing: no record, or no memory. kRefused: the
  /// rail does not take it, and it is in `todo` again. A READ that ends inside the call may complete `r`.
  [[gnu::always_inline]] static Posted post_read(E& e, RecvRequest& r, Rail<P>& rail,
                                                 const core::RailKey& key, Range range) {
    auto& d = *r.xfer.rndv;
    Frag* const f = e.rails_.new_frag(FragKind::kRead, rail, *rail.peer);
    if (!f) [[unlikely]]
      return Posted::kNothing;
    if (!e.ledgers_.add(d.ledger, rail, rail.name.epoch, range.begin, range.end)) [[unlikely]] {
      e.rails_.drop(*f);
      return Posted::kNothing;
    }
    const uint64_t n = range.size();
    f->xfer.name = d.name;
    f->xfer.offset = range.begin;
    f->xfer.length = n;
    e.pace_.begin(*f);
    rail.inflight_bytes += n;
    ++d.in_flight;
    d.bytes_out += n;
    HandleBytes handle;
    handle.size = key.handle_len;
    std::memcpy(handle.bytes, key.handle, sizeof handle.bytes);
    const Post post =
        e.base_.port.get(rail.handle, r, range.begin, n, d.remote_address + range.begin, handle, *f);
    if (taken(post) && !d.read_failed.empty()) [[unlikely]]
      e.base_.records.note_resumed(*rail.peer);
    if (post == Post::kAccepted) return Posted::kTaken;
    e.rails_.ended(*f);
    f->xfer.fate = taken(post) ? Fate::kDelivered : Fate::kNeverSent;
    read_ended(e, r, *f);
    e.base_.port.frag_free(*f);
    return taken(post) ? Posted::kTaken : Posted::kRefused;
  }

  /// Posts a READ of the range that comes next. False: the rail does not take it now.
  static bool read(E& e, RecvRequest& r, Rail<P>& rail, const core::RailKey& key, Range range) {
    RangeSet& todo = r.xfer.rndv->todo;
    if (!Registering<P>::registered_for(e, r, rail)) return false;
    todo.remove(range.begin, range.end);
    const Posted posted = post_read(e, r, rail, key, range);
    if (posted == Posted::kNothing) todo.add(range.begin, range.end);
    return posted == Posted::kTaken;
  }

  // ---- one READ for all of it

  /// The rail of the only key of an RGET, if it can bring the message in one READ; else nullptr.
  [[gnu::always_inline]] static Rail<P>* only_rail(E& e, RecvRequest& r, const Arrival& a,
                                                   const core::Opened& o, const core::RailKey*& key) {
    auto& d = *r.xfer.rndv;
    core::RailKey& k = d.keys[0];
    k = o.key(0);
    // The header comes over the rail that it has a key for, nearly always.
    Rail<P>* const rail = a.rail && a.rail->name.conn == k.conn && a.rail->usable(k.epoch)
                              ? a.rail
                              : e.rails_.named(*r.xfer.proc->peer, k.conn, k.epoch, a.rail);
    if (!rail || !aligned(*rail, d.remote_address, d.want) || !reads_whole_alone(*rail, d.want))
      return nullptr;
    d.n_keys = 1;
    key = &k;
    return rail;
  }

  /// The rail of one of the keys of an RGET that is to bring the message in one READ; nullptr: none can,
  /// or several are to share it.
  [[gnu::noinline]] static Rail<P>* best_rail(E& e, RecvRequest& r, const Arrival& a, const core::Opened& o,
                                              const core::RailKey*& key) {
    auto& d = *r.xfer.rndv;
    e.pace_.plan(*r.xfer.proc->peer);
    OnlyRead<P> plan(r.xfer.proc->peer->choice, a.rail, d.want);
    if (!plan.possible()) return nullptr;
    unsigned kept = 0;
    for (unsigned i = 0; i < o.n_keys(); ++i) {
      core::RailKey& k = d.keys[kept];
      k = o.key(i);
      Rail<P>* const rail = e.rails_.named(*r.xfer.proc->peer, k.conn, k.epoch, a.rail);
      if (!rail || rail->limits.get_limit == 0 || !aligned(*rail, d.remote_address, d.want)) continue;
      ++kept;
      if (plan.prefers(*rail)) key = &k;
    }
    d.n_keys = static_cast<uint8_t>(kept);
    return plan.rail();
  }

  /// The usual case of an RGET: one READ brings everything, and nothing else waits. False: another case;
  /// nothing was posted.
  [[gnu::always_inline]] static bool read_whole(E& e, RecvRequest& r, const Arrival& a,
                                                const core::Opened& o) {
    auto& x = r.xfer;
    auto& d = *x.rndv;
    if (!e.base_.config.use_get || x.proc->peer->active || d.want == 0) return false;
    d.remote_address = o.address();
    const core::RailKey* key = nullptr;
    Rail<P>* const rail = o.n_keys() == 1 ? only_rail(e, r, a, o, key) : best_rail(e, r, a, o, key);
    if (!rail || !Registering<P>::registered_for(e, r, *rail)) return false;
    d.key_rail = a.rail;
    x.protocol = Protocol::kGet;
    if (e.base_.config.trace_plans) [[unlikely]]
      trace_plan(e.base_, *x.proc->peer, PlanTrace::What::kRead, moving(e, r, d.want), rail, d.want);
    const Posted posted = post_read(e, r, *rail, *key, Range{0, d.want});
    if (posted == Posted::kRefused && x.phase == core::RecvPhase::kReceiving) [[unlikely]] {
      x.pending |= kPendingData;
      e.ready(r);
    }
    return posted != Posted::kNothing;
  }

  [[gnu::noinline]] static void read_done(E& e, Frag& f) {
    RecvRequest* const r = e.recvs_.find(f.xfer.name);
    BFO_DCHECK(r != nullptr);  // the gate keeps the request while a READ is in flight
    if (!r) return;
    read_ended(e, *r, f);
    if (r->xfer.phase == core::RecvPhase::kReceiving && !r->xfer.rndv->todo.empty()) {
      r->xfer.pending |= kPendingData;
      e.ready(*r);
    }
  }

  /// One READ has brought everything, and nothing else is under way. False: another case; nothing happened.
  [[gnu::always_inline]] static bool only_read_ended(E& e, RecvRequest& r, const Frag& f) {
    auto& x = r.xfer;
    auto& d = *x.rndv;
    const LedgerEntry<P>* const l = d.ledger;
    if (d.in_flight != 1 || f.xfer.length != d.want || !l || l->next || l->grant != 0 || l->dead)
      return false;
    if (f.xfer.fate != Fate::kDelivered || x.phase != core::RecvPhase::kReceiving) return false;
    if (!d.received.empty() || !d.read_failed.empty()) return false;
    d.in_flight = 0;
    d.bytes_out = 0;
    e.base_.counters.bytes_read += f.xfer.length;
    e.pace_.ended(f);
    e.ledgers_.remove_only(d.ledger);
    Machine<P>::template finish_directly<kOneRead>(x);
    e.recv_over(r);
    return true;
  }

  static void read_ended(E& e, RecvRequest& r, Frag& f) {
    if (only_read_ended(e, r, f)) [[likely]]
      return;
    auto& x = r.xfer;
    auto& d = *x.rndv;
    auto& fx = f.xfer;
    --d.in_flight;
    d.bytes_out -= fx.length;
    if (fx.fate != Fate::kNeverSent) e.base_.counters.bytes_read += fx.length;
    LedgerEntry<P>* entry = d.ledger;
    while (entry && !(entry->grant == 0 && !entry->dead && entry->rail == fx.rail &&
                      entry->epoch == fx.epoch && entry->begin == fx.offset))
      entry = entry->next;
    BFO_DCHECK(entry != nullptr);
    if (fx.fate == Fate::kDelivered) {
      e.pace_.ended(f);
      if (fx.rail->late != 0) d.keep_up = false;
      e.ledgers_.remove(d.ledger, entry);
      typename E::RecvInput in;
      in.offset = fx.offset;
      in.length = fx.length;
      e.recv_event(r, core::RecvEvent::kReadDone, in);
      return;
    }
    const bool executed_perhaps = fx.fate == Fate::kUnknown && fx.rail->limits.failover;
    if (fx.fate != Fate::kNeverSent) d.keep_up = false;
    if (fx.fate == Fate::kUnknown) e.base_.records.read_in_vain(r, fx.offset, fx.offset + fx.length);
    if (!executed_perhaps || Exposure<P>::over(*fx.rail, fx.epoch))
      e.ledgers_.remove(x.rndv->ledger, entry);
    else
      entry->dead = true;
    if (x.phase == core::RecvPhase::kReceiving) {
      x.rndv->todo.add(fx.offset, fx.offset + fx.length);
      for (unsigned i = 0; i < x.rndv->n_keys; ++i) {
        if (e.rails_.named(*x.proc->peer, x.rndv->keys[i].conn, x.rndv->keys[i].epoch, x.rndv->key_rail))
          return;
      }
    }
    e.recv_event(r, core::RecvEvent::kReadLost);
    e.recv_check(r);
  }

  static void reset(E&, SendRequest&) {}
  static void reset(E&, RecvRequest& r) {
    auto& x = r.xfer;
    x.rndv->n_keys = 0;
    x.rndv->todo.clear();
  }
};

}  // namespace bfo::xfer
