// SPDX-License-Identifier: BSD-3-Clause
//
// eager.h: the MATCH protocol: short messages, sent without asking. This file is the hot path.
//
// A message is sent without any record when sendi accepts it: the BTL keeps the bytes and hands them back if
// the rail dies. Otherwise it has a fragment record, and its request lives until the fragment was delivered.
// In both cases a message that failed is sent again, unchanged, on another rail, and the receiver drops a
// copy that it has seen.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include "pml/bfo/core/seq_window.h"
#include "pml/bfo/xfer/moves/transfers.h"
#include "pml/bfo/xfer/moves/transfer.h"
#include "pml/bfo/xfer/rails/order.h"

namespace bfo::xfer {

template <class P>
struct Eager {
  using E = Transfers<P>;
  using SendRequest = typename P::SendRequest;
  using RecvRequest = typename P::RecvRequest;

  enum class Sent : uint8_t { kDone, kFlying, kRefused };

  static core::MatchHdr header(const Proc<P>& p, int32_t tag, Seq16 seq) {
    return core::match_words(p.comm->ctx, p.comm->my_rank, tag, seq).header;
  }

  /// One attempt on one rail.
  static Sent post(E& e, SendRequest& r, Rail<P>& rail) {
    auto& x = r.xfer;
    const core::MatchHdr h = header(*x.proc, x.tag, x.seq);
    const bool timed = rail.peer->choice.samples();
    if (x.length + sizeof h <= rail.limits.inline_limit && !timed) {
      if (e.base_.port.sendi(rail.handle, h.type, &h, sizeof h, r, x.length)) return Sent::kDone;
      rail.peer->choice.congested(rail);
    }
    auto* const f = e.rails_.new_frag(FragKind::kMatch, rail, *rail.peer);
    if (!f) return Sent::kRefused;
    f->xfer.send = &r;
    f->xfer.type = h.type;
    if (timed) [[unlikely]]
      time(e, *f, x.length);
    size_t n = x.length;
    const Post post = e.base_.port.send(rail.handle, h.type, &h, sizeof h, r, 0, n, *f);
    if (post == Post::kAccepted) {
      ++e.eager_out_;
      return Sent::kFlying;
    }
    Pace<P>::sample_over(*f);
    e.rails_.drop(*f);
    return post == Post::kCompleted ? Sent::kDone : Sent::kRefused;
  }

  /// `f` is timed. What its rail has to send before it is not known, unless there is nothing: the rail tells
  /// the end of its work late. Then the next message follows `f` over the same rail, and is what is timed.
  [[gnu::cold]] static void time(E& e, typename P::Frag& f, uint64_t length) {
    using Before = typename Pace<P>::Before;
    Rail<P>& rail = *f.xfer.rail;
    auto& choice = rail.peer->choice;
    f.xfer.length = length;
    if (length < e.base_.config.short_limit) {
      f.xfer.posted_ns = e.pace_.begin_short(rail);
      choice.sampled();
      if (f.xfer.posted_ns == 0) choice.short_untimed();
      return settle_preferred(*rail.peer);
    }
    const WorkCount work = rail.limits.failover ? e.base_.port.work(rail.handle) : WorkCount{};
    Before before = Before::kNothing;
    if (work.taken != work.ended) before = choice.samples_behind(rail) ? Before::kSample : Before::kUnknown;
    const uint64_t ahead = (work.taken - work.ended) * rail.limits.eager_limit;
    f.xfer.posted_ns = e.pace_.begin_sample(rail, length, before, ahead);
    if (before == Before::kUnknown && f.xfer.posted_ns != 0)
      choice.sampled_behind(rail);
    else
      choice.sampled();
    settle_preferred(*rail.peer);
  }

  /// From the ready list: try every usable rail.
  static bool serve(E& e, SendRequest& r) {
    auto& x = r.xfer;
    Peer<P>& p = *x.proc->peer;
    bool fits = false;
    const unsigned rails = e.rails_.for_user(p);
    for (unsigned i = 0; i < rails; ++i) {
      Rail<P>* const rail = e.rails_.next_for_user(p);
      if (x.length + sizeof(core::MatchHdr) > rail->limits.eager_limit) continue;
      fits = true;
      const Sent s = post(e, r, *rail);
      if (s == Sent::kRefused) continue;
      ++e.base_.counters.eager_sent;
      e.base_.counters.bytes_sent += x.length;
      if (x.sent_before) {
        p.backlog.again.remove(x.length);
        e.base_.records.note_resent(p, x.length, true);
      }
      if (s == Sent::kDone) e.base_.finish_send(r, Outcome::kOk);
      return true;
    }
    if (fits || rails == 0) return false;
    if (!e.begin_rendezvous(r))
      p.backlog.unnamed.push_back(&r);  // the rails that are left have smaller limits
    return true;
  }
  static bool serve(E&, RecvRequest&) { return true; }

  /// The fragment of the request failed. It goes to the front of the queue, because it holds the sequence
  /// window (H5, H22).
  [[gnu::cold]] static void lost(E& e, SendRequest& r) {
    auto& x = r.xfer;
    --e.eager_out_;
    Proc<P>& p = *x.proc;
    if (p.peer->standing.failed()) {
      e.base_.finish_send(r, p.peer->standing.loss().outcome);
      return;
    }
    note_resent_seq(p, x.seq);
    x.sent_before = true;
    p.peer->backlog.ready_sends.push_front(&r);
    p.peer->backlog.again.add(x.length);
    e.base_.activate(*p.peer);
  }

  /// Copies of this message may exist until the dead epoch is closed at the receiver (H5).
  template <class Sequence>
  [[gnu::cold]] static void note_resent_seq(Sequence& p, Seq16 seq) {
    if (core::resent_earlier(p.resent, p.resent_from, seq)) p.resent_from = seq;
    p.resent = true;
    // the copy is not among the work that the checkpoint has counted
    if constexpr (requires { p.checkpoint; }) p.checkpoint.drop();
  }

  static void reset(E&, SendRequest&) {}  // no rounds: the message is sent again unchanged
  static void reset(E&, RecvRequest&) {}
};

/// These bytes are sent again and may be an eager message: they hold the window of their destination. If the
/// communicator was freed, or its context id is used again without this peer, they hold the numbering that
/// was kept (H6).
template <class P>
[[gnu::cold]] void note_resent_message(Peer<P>& p, core::Bytes message) {
  core::MatchHdr h;
  if (!core::decode(core::MsgType::kMatch, message, h)) return;
  bool found = false;
  for (Proc<P>* q = p.procs.front(); q; q = p.procs.next(q)) {
    if (q->comm->ctx != h.ctx) continue;
    Eager<P>::note_resent_seq(*q, h.seq);
    found = true;
  }
  if (PastSequence* const past = found ? nullptr : p.past.find(h.ctx))
    Eager<P>::note_resent_seq(*past, h.seq);
}

/// The number of a header in the record of its fragment.
inline uint32_t header_number(const core::MatchHdr& h) {
  return uint32_t{h.ctx} << 16 | h.seq;
}

/// The header of a rendezvous came back. When its send is over, for another copy of it was answered, it is
/// not sent again, and yet this one may be delivered until its epoch is closed at the receiver (H5). One that
/// is older than the window is known there by its name.
template <class P>
[[gnu::cold]] void note_header_back(Peer<P>& p, uint32_t number) {
  const auto ctx = static_cast<uint16_t>(number >> 16);
  const auto seq = static_cast<Seq16>(number);
  const auto note = [seq](auto& numbers) {
    if (seq_place(numbers.next_seq, seq) == SeqPlace::kPast) Eager<P>::note_resent_seq(numbers, seq);
  };
  bool found = false;
  for (Proc<P>* q = p.procs.front(); q; q = p.procs.next(q)) {
    if (q->comm->ctx != ctx) continue;
    note(*q);
    found = true;
  }
  if (PastSequence* const past = found ? nullptr : p.past.find(ctx)) note(*past);
}

/// Begin a send whose SendState is filled in, with a number.
template <class P>
Begun Transfers<P>::begin_send(SendRequest& r) {
  auto& x = r.xfer;
  ProcT& p = *x.proc;
  PeerT& peer = *p.peer;
  const bool fits = x.length + sizeof(core::MatchHdr) <= peer.eager_limit;
  RailT* const rail = fits ? rails_.next_for(peer, x.length) : nullptr;
  if (rail) [[likely]] {
    if (x.length + sizeof(core::MatchHdr) <= rail->limits.eager_limit && x.mode != SendMode::kSync) {
      const auto s = Eager<P>::post(*this, r, *rail);
      if (s != Eager<P>::Sent::kRefused) [[likely]] {
        ++base_.counters.eager_sent;
        base_.counters.bytes_sent += x.length;
        return {s == Eager<P>::Sent::kDone, false};
      }
      x.sent_before = false;
      ready(r);
      return {false, true};
    }
  } else if (peer.standing.failed()) [[unlikely]] {
    base_.finish_send(r, peer.standing.loss().outcome);
    return {};
  } else if (x.mode != SendMode::kSync && fits) {
    x.sent_before = false;
    ready(r);
    return {};
  }
  x.sent_before = false;
  if (peer.choice.samples()) [[unlikely]] {
    peer.choice.not_sampled();  // the peer times what it reads
    settle_preferred(peer);
  }
  if (!begin_rendezvous(r)) peer.backlog.unnamed.push_back(&r);
  return {false, true};
}

/// Numbers a send to another process and begins it. `p`, its rank, is known, and its window open.
template <class P>
Begun Transfers<P>::start(SendRequest& r, ProcT& p) {
  r.xfer.seq = p.next_seq;
  p.next_seq = static_cast<Seq16>(p.next_seq + base_.port.seq_step());
  return begin_send(r);
}

template <class P>
[[gnu::always_inline]] inline typename Transfers<P>::Inline Transfers<P>::try_inline(const SendArgs<P>& args,
                                                                                     InlineSource& source) {
  ProcT* const p = matching_.proc_at(*args.comm, args.dst);
  if (!p || !matching_.peer_of(*p)) [[unlikely]]
    return Inline::kNo;
  PeerT& peer = *p->peer;
  if (peer.own) [[unlikely]]
    return Inline::kOwn;
  if (p->next_seq == p->stop_seq) [[unlikely]]
    return Inline::kNo;  // isend() looks at the window
  if (args.mode == SendMode::kSync) return Inline::kNo;
  RailT* rail = peer.choice.for_short(args.length, base_.config.short_limit);
  if (!rail) [[unlikely]] {
    rail = rails_.next_spread(peer, args.length);
    if (!rail || peer.choice.samples()) return Inline::kNo;  // one that is timed has a record
  }
  const size_t size = args.length + sizeof(core::MatchHdr);
  if (size > rail->limits.inline_limit) [[unlikely]] {
    // A caller that receives, too, has work while its message is read: then the copies are what takes time.
    if (!args.blocking || size > rail->limits.blocking_limit || p->comm->n_posted != 0) return Inline::kNo;
  }
  const core::MatchWords words = core::match_words(p->comm->ctx, p->comm->my_rank, args.tag, p->next_seq);
  const core::MatchHdr& h = words.header;
  const bool sent = base_.port.sendi(rail->handle, static_cast<uint8_t>(core::MsgType::kMatch), &h, sizeof h,
                                     source, args.length);
  if (!sent) [[unlikely]] {
    // A longer one may lack a fragment of its own, which does not tell anything about the rail.
    if (size <= rail->limits.inline_limit) peer.choice.congested(*rail);
    return Inline::kNo;
  }
  p->next_seq = static_cast<Seq16>(p->next_seq + base_.port.seq_step());
  ++base_.counters.eager_sent;
  base_.counters.bytes_sent += args.length;
  return Inline::kSent;
}

/// A message came back. The state of its request decides whether an RGET or RNDV has to be sent again; any
/// other message is sent again unchanged.
template <class P>
[[gnu::cold]] void Transfers<P>::brief_lost(PeerT& p, MsgType type, Bytes message) {
  core::RndvHdr h;
  const bool opens = type == MsgType::kRget || type == MsgType::kRndv;
  if (opens && core::decode(type, message, h)) {
    if (!(h.match.flags & (core::kFlagRestart | core::kFlagKnown)))
      note_header_back(p, header_number(h.match));
    SendRequest* const r = sends_.find(Name(h.sender));
    if (r && r->xfer.rndv->name == Name(h.sender)) send_event(*r, SendEvent::kControlLost);
    return;
  }
  note_resent_message(p, message);
  rails_.send_stored(p, message.data, message.size);
}

}  // namespace bfo::xfer
