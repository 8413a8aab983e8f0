// SPDX-License-Identifier: BSD-3-Clause
//
// rput.h: the put protocol: the receiver grants ranges of its buffer, the sender writes them over all rails.
//
//   S: RNDV (with the first bytes, CONTIG)  ->  R matches
//   R: PUT PUT PUT ... each grants one range to one rail (ledger entry) and goes over that rail
//   S: RDMA write, then FIN over the same rail  ->  R: the entry leaves, the bytes count
//   S: complete when all writes succeeded; R: complete when everything arrived and the ledger is empty
//
// PUT, the write and FIN of a grant use one rail. When that rail dies there are three cases. The sender knows
// that nothing was posted: FIN with the fail flag, and the range is granted again elsewhere. It knows that
// everything succeeded: FIN goes over another rail, and counts when the granted rail is fenced. It does not
// know: restart. The sender's half is in writes.h.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <algorithm>

#include "common/check.h"
#include "pml/bfo/xfer/moves/transfers.h"
#include "pml/bfo/xfer/moves/plan.h"
#include "pml/bfo/xfer/moves/registering.h"
#include "pml/bfo/xfer/moves/trace_plan.h"
#include "pml/bfo/xfer/moves/transfer.h"
#include "pml/bfo/xfer/moves/writes.h"

namespace bfo::xfer {

template <class P>
struct Rput {
  using E = Transfers<P>;
  using SendRequest = typename P::SendRequest;
  using RecvRequest = typename P::RecvRequest;
  using Frag = typename P::Frag;
  using Ledger = LedgerEntry<P>;
  using Arrival = typename E::Arrival;

  static constexpr unsigned kMaxRefusals = 8;      ///< after so many, the request continues by copy
  static constexpr uint8_t kManyPuts = UINT8_MAX;  ///< of one grant: no longer counted

  static bool can_put(const Rail<P>& r, uint64_t length) {
    return r.limits.put_limit != 0 && length >= r.limits.min_rdma_size;
  }
  static bool any_rail(const Peer<P>& p, uint64_t length) {
    for (unsigned i = 0; i < p.choice.size(); ++i)
      if (can_put(p.choice[i], length)) return true;
    return false;
  }

  /// Sender: may the receiver answer with PUT?
  static bool possible(E& e, SendRequest& r) {
    auto& x = r.xfer;
    if (!e.base_.config.use_put || x.rndv->no_rdma || x.length == 0) return false;
    return any_rail(*x.proc->peer, x.length) && Registering<P>::registered(e, r);
  }
  /// Receiver: may this rail be granted? Not one whose device could not register the buffer.
  static bool grantable(E& e, RecvRequest& r, const Rail<P>& rail) {
    HandleBytes key;
    return can_put(rail, r.xfer.length) && e.base_.port.handle(r.xfer.rndv->reg, rail.handle, key);
  }
  /// The rails that may not, one bit each.
  static uint32_t refused_rails(E& e, RecvRequest& r) {
    uint32_t refused = r.xfer.rndv->refused;
    const Peer<P>& p = *r.xfer.proc->peer;
    for (unsigned i = 0; i < p.choice.size(); ++i)
      if (!grantable(e, r, p.choice[i])) refused |= 1u << p.choice[i].index;
    return refused;
  }
  static bool any_grantable(E& e, RecvRequest& r) {
    const uint32_t refused = refused_rails(e, r);
    const Peer<P>& p = *r.xfer.proc->peer;
    for (unsigned i = 0; i < p.choice.size(); ++i)
      if (!(refused >> p.choice[i].index & 1)) return true;
    return false;
  }
  /// Receiver: answer with PUT?
  static bool accept(E& e, RecvRequest& r) {
    auto& x = r.xfer;
    if (!e.base_.config.use_put || x.rndv->no_rdma) return false;
    return any_rail(*x.proc->peer, x.length) && Registering<P>::registered(e, r) && any_grantable(e, r);
  }

  // ---- receiver

  /// What one call of serve() has found out.
  struct Serving {
    uint32_t refused = 0;  ///< rails (by index) that take no grant now
    unsigned open = 0;     ///< grants that have a rail
    bool blocked = false;  ///< a rail did not take a PUT, or there is no memory
    bool no_rail = false;  ///< for a range that has to be granted
  };

  /// Send the grants that were not sent yet, then grant more, up to the depth per usable rail.
  static bool serve(E& e, RecvRequest& r) {
    auto& x = r.xfer;
    const Peer<P>& p = *x.proc->peer;
    Serving now;
    now.refused = refused_rails(e, r);
    send_pending(e, r, now);
    move_unsent(e, r, now);
    grant_more(e, r, now);
    if (now.no_rail) {
      // The rails that are left have no key for this buffer, or the sender refuses them: a new round, when
      // the grants that are out have ended, which calls again. Nothing else waits for that.
      const bool none = !p.choice.empty() && !any_grantable(e, r);
      if (none && now.open == 0) e.recv_event(r, core::RecvEvent::kAsk);
      now.blocked = now.blocked || !none || now.open == 0;
    }
    if (!now.blocked) x.pending &= static_cast<uint8_t>(~(kPendingData | kPendingStart));
    return !now.blocked;
  }

  static bool has_room(E& e, const RecvRequest& r, const Serving& now) {
    return !now.blocked && !now.no_rail &&
           !enough_out(now.open, e.base_.config.rdma_depth, r.xfer.proc->peer->choice.size());
  }

  /// The sender does not have this grant, and it cannot go over its rail: it was not sent, or its PUT came
  /// back as never sent.
  static bool displaced(const Ledger& l) {
    return l.grant != 0 && !l.fin && !l.sent() && !l.rail->usable(l.epoch);
  }

  static void send_pending(E& e, RecvRequest& r, Serving& now) {
    for (Ledger* l = r.xfer.rndv->ledger; l; l = l->next) {
      if (l->grant == 0 || l->fin || displaced(*l)) continue;
      ++now.open;
      if (l->pending && l->rail->usable(l->epoch) && !send_put(e, r, *l)) now.blocked = true;
    }
  }

  /// The rail of an attempt that failed comes up with another epoch, or never, and no end of this one may be
  /// reported; that of one that was up may be reported late.
  static void move_unsent(E& e, RecvRequest& r, Serving& now) {
    Peer<P>& p = *r.xfer.proc->peer;
    for (Ledger* l = r.xfer.rndv->ledger; l; l = l->next) {
      if (!displaced(*l)) continue;
      if (!has_room(e, r, now)) return;
      Rail<P>* const rail = p.choice.lightest(now.refused, l->end - l->begin);
      if (!rail) {
        now.no_rail = true;
        return;
      }
      move(r, *l, *rail);
      send_first(e, r, *l, now);
    }
  }

  static void grant_more(E& e, RecvRequest& r, Serving& now) {
    auto& x = r.xfer;
    Peer<P>& p = *x.proc->peer;
    e.pace_.plan(p);
    while (has_room(e, r, now) && !x.rndv->todo.empty()) {
      Rail<P>* const rail = p.choice.lightest(now.refused, kCompared);
      if (!rail) {
        now.no_rail = true;
        return;
      }
      const Moving m = moving(e, r, x.rndv->todo.front().size(), now.open);
      const Range g = x.rndv->todo.take_front(next_grant(m, *rail, p.choice.share(*rail, m.left)));
      if (e.base_.config.trace_plans) [[unlikely]]
        trace_plan(e.base_, p, PlanTrace::What::kGrant, m, rail, g.size());
      Ledger* const l = new_grant(e, r, *rail, g);
      if (!l) {
        x.rndv->todo.add(g.begin, g.end);
        now.blocked = true;
        return;
      }
      send_first(e, r, *l, now);
    }
  }

  static Moving moving(const E& e, const RecvRequest& r, uint64_t left, unsigned open) {
    return {.length = r.xfer.rndv->want,
            .left = left,
            .pieces_out = open,
            .depth = e.base_.config.rdma_depth,
            .rails = r.xfer.proc->peer->choice.size()};
  }

  /// A grant of `range` to `rail`, which is not sent yet. nullptr: there is no memory.
  static Ledger* new_grant(E& e, RecvRequest& r, Rail<P>& rail, Range range) {
    auto& d = *r.xfer.rndv;
    Ledger* const l = e.ledgers_.add(d.ledger, rail, rail.name.epoch, range.begin, range.end);
    if (!l) return nullptr;
    l->grant = d.next_grant++;
    l->round = d.name.round();
    l->pending = true;
    l->loaded = true;
    e.pace_.granted(rail, range.size());
    rail.inflight_bytes += range.size();
    return l;
  }

  /// The usual case of a message that is written: one grant for all of it. False: another case; nothing was
  /// granted.
  static bool grant_whole(E& e, RecvRequest& r) {
    auto& x = r.xfer;
    auto& d = *x.rndv;
    Peer<P>& p = *x.proc->peer;
    if (!e.base_.config.use_put || p.active || d.want == 0 || !d.received.empty()) return false;
    Rail<P>* const rail = grants_whole(p.choice, d.want);
    if (!rail || !can_put(*rail, x.length) || !Registering<P>::registered(e, r)) return false;
    if (!grantable(e, r, *rail)) return false;
    if (e.base_.config.trace_plans) [[unlikely]]
      trace_plan(e.base_, p, PlanTrace::What::kGrant, moving(e, r, d.want, 0), rail, d.want);
    Ledger* const l = new_grant(e, r, *rail, Range{0, d.want});
    if (!l) return false;
    x.protocol = Protocol::kPut;
    d.total = d.want;
    if (send_put(e, r, *l)) return true;
    x.pending |= kPendingData;
    e.ready(r);
    return true;
  }

  static void send_first(E& e, RecvRequest& r, Ledger& l, Serving& now) {
    ++now.open;
    if (!send_put(e, r, l)) now.refused |= 1u << l.rail->index;  // the grant waits for its rail
    if (!l.sent()) now.blocked = true;
  }

  /// Another rail, or another epoch of its rail, for a grant that the sender does not have. It keeps its
  /// number, because the sender expects every number (Grants::arrive). What that rail does not take at once
  /// is granted anew.
  static void move(RecvRequest& r, Ledger& l, Rail<P>& rail) {
    if (l.loaded) l.rail->inflight_bytes -= l.end - l.begin;
    const uint64_t end = std::min(l.end, l.begin + usual_grant(rail));
    if (end < l.end) r.xfer.rndv->todo.add(end, l.end);
    l.end = end;
    l.rail = &rail;
    l.conn = rail.name.conn;
    l.epoch = rail.name.epoch;
    l.pending = true;
    l.loaded = true;
    rail.inflight_bytes += l.end - l.begin;
  }

  [[gnu::always_inline]] static bool send_put(E& e, RecvRequest& r, Ledger& l) {
    auto& x = r.xfer;
    core::PutHdr h{};
    h.type = static_cast<uint8_t>(core::MsgType::kPut);
    h.sender = x.rndv->peer_name.value;
    h.receiver = x.rndv->name.value;
    h.offset = l.begin;
    h.length = l.end - l.begin;
    h.address = reinterpret_cast<uintptr_t>(e.base_.port.contiguous(r)) + l.begin;
    h.total = x.rndv->total;
    h.grant = l.grant;
    if (!Registering<P>::key_of(e, x.rndv->reg, *l.rail, h.key)) return false;
    if (!e.rails_.post_on(*l.rail, &h, sizeof h, FragKind::kControl, x.rndv->name, true, l.grant))
      return false;
    l.pending = false;
    if (l.puts != kManyPuts) ++l.puts;
    return true;
  }

  /// A PUT ended without success. It is sent again if its rail lives. Otherwise the closure of the rail
  /// decides, unless every PUT of this grant was never sent: then the sender does not have it, and of an
  /// epoch that was never up no closure is reported.
  static void put_lost(RecvRequest& r, uint32_t grant, Fate fate) {
    for (Ledger* l = r.xfer.rndv->ledger; l; l = l->next) {
      if (l->grant != grant) continue;
      l->pending = true;
      if (fate == Fate::kNeverSent && l->sent() && l->puts != kManyPuts) --l->puts;
    }
  }
  /// The sender asks again: every open grant is sent again. The sender knows which ones it has.
  static void repeat(RecvRequest& r) {
    for (Ledger* l = r.xfer.rndv->ledger; l; l = l->next)
      if (l->grant != 0 && !l->fin) l->pending = true;
  }

  static Ledger* find(RecvRequest& r, uint32_t grant) {
    if (grant == 0) return nullptr;
    Ledger* l = r.xfer.rndv->ledger;
    while (l && l->grant != grant) l = l->next;
    return l;
  }
  static void again(E& e, RecvRequest& r) {
    if (r.xfer.phase != core::RecvPhase::kReceiving) return;
    r.xfer.pending |= kPendingData;
    e.ready(r);
  }

  /// FIN: the only grant is used up, and brought everything over the rail that it was for. False: another
  /// case; nothing happened.
  static bool whole_written(E& e, RecvRequest& r, const core::FinHdr& h, const Arrival& a) {
    auto& x = r.xfer;
    auto& d = *x.rndv;
    Ledger* const l = d.ledger;
    if (x.phase != core::RecvPhase::kReceiving || x.protocol != Protocol::kPut || !l || l->next) return false;
    if ((h.flags & core::kFlagFail) || h.grant == 0 || l->grant != h.grant || d.in_flight != 0) return false;
    if (l->end - l->begin != d.want || x.length != d.want) return false;
    if (!d.received.empty() || !d.read_failed.empty() || !d.todo.empty()) return false;
    if (!a.over(*l->rail, l->epoch) && l->rail->limits.failover) return false;
    e.ledgers_.remove(d.ledger, l);
    Machine<P>::template finish_directly<kOneGrant>(x);
    e.recv_over(r);
    return true;
  }

  /// FIN over the granted rail: its bytes are in place, because RC keeps order. Over another rail it counts
  /// only after the fence (H9).
  static void use_grant(E& e, RecvRequest& r, uint32_t grant, const Arrival& a) {
    auto& x = r.xfer;
    Ledger* const l = find(r, grant);
    if (!l) {
      ++e.base_.counters.duplicates;
      return;
    }
    if (a.over(*l->rail, l->epoch) || !l->rail->limits.failover) {
      e.arrived(r, l->begin, l->end, false);
      e.ledgers_.remove(x.rndv->ledger, l);
    } else {
      l->fin = true;
      ++e.base_.counters.fences;
      e.base_.port.fence(l->rail->handle, l->epoch);
    }
    again(e, r);
  }

  /// FIN with the fail flag: the sender has not used the grant and never will. True: nothing more can be
  /// granted in this round.
  static bool drop_grant(E& e, RecvRequest& r, uint32_t grant) {
    auto& x = r.xfer;
    Ledger* const l = find(r, grant);
    if (!l) return false;
    const Range range{l->begin, l->end};
    // that rail is down at the sender: no further grant on it in this round
    x.rndv->refused |= 1u << l->rail->index;
    e.ledgers_.remove(x.rndv->ledger, l);
    if (x.phase != core::RecvPhase::kReceiving) return false;
    x.rndv->todo.add(range.begin, range.end);
    if (++x.rndv->refusals >= kMaxRefusals) x.rndv->no_rdma = true;
    return !any_grantable(e, r) || x.rndv->no_rdma;
  }

  /// SENDDONE: every write of this round succeeded. Writes on fenced rails count now; the others count with
  /// their FIN, or when their rail is fenced.
  static void sender_done(E& e, RecvRequest& r) {
    auto& x = r.xfer;
    x.rndv->sender_done = true;
    if (x.rndv->doubtful.incomplete()) [[unlikely]]
      e.base_.failing.no_memory(*x.proc->peer, sizeof(Range));
    for (uint32_t i = 0; i < x.rndv->doubtful.count(); ++i)
      e.arrived(r, x.rndv->doubtful[i].begin, x.rndv->doubtful[i].end, false);
    x.rndv->doubtful.clear();
    for (Ledger* l = x.rndv->ledger; l; l = l->next)
      if (l->grant != 0 && l->sent()) l->fin = true;
  }

  // ---- sender

  static bool serve(E& e, SendRequest& r) { return Writes<P>::serve(e, r); }
  static void reset(E& e, SendRequest& r) { Writes<P>::reset(e, r); }
  static void reset(E&, RecvRequest& r) {
    auto& x = r.xfer;
    x.rndv->todo.clear();
    x.rndv->doubtful.clear();
    x.rndv->refused = 0;
    x.rndv->next_grant = 1;
  }
};

}  // namespace bfo::xfer
