// SPDX-License-Identifier: BSD-3-Clause
//
// single.h: the receiver's usual case: one READ, or one grant, moves the whole message over one rail. The
// state is what the general ways (rget.h, rput.h) would make of such a message, without their plans. Whatever
// happens to the READ or the grant afterwards is theirs.
#pragma once

#include <cstring>

#include "pml/bfo/xfer/protocol/rget.h"
#include "pml/bfo/xfer/protocol/rput.h"

namespace bfo::xfer {

template <class P>
struct Single {
  using E = Engine<P>;
  using RecvRequest = typename P::RecvRequest;
  using Frag = typename P::Frag;
  using Arrival = typename E::Arrival;

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
    if (!rail || !Rget<P>::aligned(*rail, d.remote_address, d.want)) return nullptr;
    if (d.want > rail->limits.get_limit || d.want > most_over_one_rail(rail->limits.rdma_frag_size))
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
    const unsigned n = o.n_keys();
    const bool ahead = a.rail && a.rail->late == 0;
    if (n == 0 || d.want >= (ahead ? kMaxResent + 1 : kUncut)) return nullptr;
    Rail<P>* best = nullptr;
    unsigned kept = 0;
    for (unsigned i = 0; i < n; ++i) {
      core::RailKey& k = d.keys[kept];
      k = o.key(i);
      Rail<P>* const rail = e.rails_.named(*r.xfer.proc->peer, k.conn, k.epoch, a.rail);
      if (!rail || rail->limits.get_limit == 0 || !Rget<P>::aligned(*rail, d.remote_address, d.want))
        continue;
      ++kept;
      if (d.want > rail->limits.get_limit || d.want > rail->limits.rdma_frag_size) continue;
      if (best && !(ahead && rail == a.rail)) {
        if (ahead && best == a.rail) continue;
        const std::uint64_t mine = rail->inflight_bytes * best->limits.weight;
        const std::uint64_t least = best->inflight_bytes * rail->limits.weight;
        if (mine > least || (mine == least && rail != a.rail)) continue;
      }
      best = rail;
      key = &k;
    }
    d.n_keys = static_cast<std::uint8_t>(kept);
    return best;
  }

  /// The usual case: one READ brings everything, and nothing else waits. It takes the rail over which the
  /// header came while that keeps up: its READs end as fast as the processor posts them, so a second rail
  /// would not move them sooner, and its queues and a second segment would cost. Else the rail with the least
  /// in flight reads a short message, and a longer one is cut. False: another case; nothing happened.
  [[gnu::always_inline]] static bool read(E& e, RecvRequest& r, const Arrival& a, const core::Opened& o) {
    auto& x = r.xfer;
    auto& d = *x.rndv;
    Peer<P>& p = *x.proc->peer;
    if (!e.base_.config.use_get || p.active || d.want == 0) return false;
    d.remote_address = o.address();
    const core::RailKey* key = nullptr;
    Rail<P>* const best = o.n_keys() == 1 ? only_rail(e, r, a, o, key) : best_rail(e, r, a, o, key);
    if (!best || !Rget<P>::registered_for(e, r, *best)) return false;
    Frag* const f = e.rails_.new_frag(FragKind::kRead, *best, p);
    if (!f) [[unlikely]]
      return false;
    LedgerEntry<P>* const l = e.ledgers_.add(d.ledger, *best, best->name.epoch, 0, d.want);
    if (!l) [[unlikely]] {
      e.rails_.drop(*f);
      return false;
    }
    d.key_rail = a.rail;
    x.protocol = Protocol::kGet;
    f->xfer.name = d.name;
    const std::uint64_t begun = e.pace_.begin(*f);
    f->xfer.length = d.want;
    best->inflight_bytes += d.want;
    d.in_flight = 1;
    HandleBytes handle;
    handle.size = key->handle_len;
    std::memcpy(handle.bytes, key->handle, sizeof handle.bytes);
    e.ending_ = f;
    const Post post = e.base_.port.get(best->handle, r, 0, d.want, d.remote_address, handle, *f);
    e.pace_.posted(begun);
    const bool in_its_call = e.ending_ == nullptr;
    e.ending_ = nullptr;
    if (post == Post::kAccepted && !in_its_call) return true;
    if (taken(post)) [[likely]] {
      e.rails_.ended(*f);
      e.base_.counters.bytes_read += d.want;
      e.base_.port.frag_free(*f);
      d.in_flight = 0;
      e.ledgers_.remove(d.ledger, l);
      Machine<P>::template finish_directly<kOneRead>(x);
      e.recv_over(r);
      return true;
    }
    refused(e, r, *f);
    return true;
  }

  /// The READ was not posted.
  [[gnu::noinline]] static void refused(E& e, RecvRequest& r, Frag& f) {
    auto& x = r.xfer;
    e.rails_.ended(f);
    f.xfer.fate = Fate::kNeverSent;
    Rget<P>::read_ended(e, r, f);
    e.base_.port.frag_free(f);
    if (x.phase != core::RecvPhase::kReceiving) return;  // the rail was lost meanwhile
    x.pending |= kPendingData;
    e.ready(r);
  }

  /// One PUT grants everything. False: another case; nothing happened.
  static bool grant(E& e, RecvRequest& r) {
    auto& x = r.xfer;
    auto& d = *x.rndv;
    Peer<P>& p = *x.proc->peer;
    if (!e.base_.config.use_put || p.active || d.want == 0 || !d.received.empty()) return false;
    if (p.choice.size() > 1 && d.want >= kUncut) return false;
    Rail<P>* const rail = p.choice.size() == 1 ? &p.choice[0] : p.choice.lightest(0);
    if (!rail || d.want > rail->limits.put_limit || d.want > rail->limits.rdma_frag_size) return false;
    if (!Rput<P>::can_put(*rail, x.length) || !Rget<P>::registered(e, r)) return false;
    if (!Rput<P>::grantable(e, r, *rail)) return false;
    LedgerEntry<P>* const l = e.ledgers_.add(d.ledger, *rail, rail->name.epoch, 0, d.want);
    if (!l) return false;
    x.protocol = Protocol::kPut;
    d.total = d.want;
    l->grant = d.next_grant++;
    l->round = d.name.round();
    l->pending = true;
    l->loaded = true;
    rail->inflight_bytes += d.want;
    if (Rput<P>::send_put(e, r, *l)) return true;
    x.pending |= kPendingData;
    e.ready(r);
    return true;
  }

  /// FIN: the only grant is used up, and brought everything over the rail that it was for. False: another
  /// case; nothing happened.
  static bool written(E& e, RecvRequest& r, const core::FinHdr& h, const Arrival& a) {
    auto& x = r.xfer;
    auto& d = *x.rndv;
    LedgerEntry<P>* const l = d.ledger;
    if (x.phase != core::RecvPhase::kReceiving || x.protocol != Protocol::kPut || !l || l->next) return false;
    if ((h.flags & core::kFlagFail) || h.grant == 0 || l->grant != h.grant || d.in_flight != 0) return false;
    if (l->end - l->begin != d.want || x.length != d.want) return false;
    if (!d.received.empty() || !d.read_failed.empty() || !d.todo.empty()) return false;
    const bool same_rail = a.rail == l->rail && (a.epoch == 0 || a.epoch == l->epoch);
    if (!same_rail && l->rail->limits.failover) return false;
    e.ledgers_.remove(d.ledger, l);
    Machine<P>::template finish_directly<kOneGrant>(x);
    e.recv_over(r);
    return true;
  }
};

}  // namespace bfo::xfer
