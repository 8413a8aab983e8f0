// SPDX-License-Identifier: BSD-3-Clause
//
// match.h: MPI matching: sequence per (communicator, peer), posted and unexpected queues, duplicates, probes.
//
// Messages of one sender are brought into sequence first and matched then, so MPI order holds whatever rails
// they used. Queues that grow long are searched by an index (queue.h). The lookup of a message that was seen
// before has five results (H7): being received (LIVE), in an unexpected queue or held by a matched probe
// (UNMATCHED), stored out of sequence or for a communicator that does not exist yet (KEPT), received
// completely (FINISHED), or new (NEVER_SEEN).
//
// A MATCH in the usual case is decoded in registers (on_match). In all others the header lies in memory of
// this process, and Opened tells what was decoded.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstring>
#include <new>

#include "common/check.h"
#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

// ---- arrival

/// A MATCH. The usual case: it is in sequence, from the rank that it names, and its receive is posted.
template <class P>
[[gnu::always_inline]] inline typename P::RecvRequest* Engine<P>::on_match(RailT* rail, std::uint32_t epoch,
                                                                           Bytes in) {
  core::MatchHdr h;
  if (!core::decode_match(in, h)) [[unlikely]] {
    ++base_.counters.malformed;
    return nullptr;
  }
  CommT* const c = comms_.find(h.ctx);
  if (!c || static_cast<std::uint32_t>(h.src) >= static_cast<std::uint32_t>(c->size)) [[unlikely]]
    return match_otherwise(rail, epoch, core::match_words(h.ctx, h.src, h.tag, h.seq), in);
  ProcT* const p = c->procs[h.src];
  if (!p || (rail && rail->peer != p->peer)) [[unlikely]]
    return match_otherwise(rail, epoch, core::match_words(h.ctx, h.src, h.tag, h.seq), in);
  if (h.seq != p->expected || !p->out_of_sequence.empty()) [[unlikely]]
    return match_otherwise(rail, epoch, core::match_words(h.ctx, h.src, h.tag, h.seq), in);
  if (rail) [[likely]]
    rail->peer->choice.answered();
  RecvRequest* const r = take_posted(*p, h.tag);
  if (!r) return match_unexpected(*p, rail, epoch, h.tag, in);
  p->expected = static_cast<Seq16>(p->expected + base_.port.seq_step());
  set_matched(*r, *p, h, in.size - sizeof h);
  return r;
}

/// The next MATCH of `p`, for which no receive is posted. nullptr.
template <class P>
[[gnu::noinline]] typename P::RecvRequest* Engine<P>::match_unexpected(ProcT& p, RailT* rail,
                                                                       std::uint32_t epoch, std::int32_t tag,
                                                                       Bytes in) {
  const core::MatchWords h = core::match_words(p.comm->ctx, p.rank, tag, p.expected);
  const Opened o = Opened::match(&h.header, in.from(sizeof h.header));
  if (Message* const m = keep_here(&p, o, Arrival{rail, epoch, in.size})) {
    p.expected = static_cast<Seq16>(p.expected + base_.port.seq_step());
    add_unexpected(p, m);
  }
  return nullptr;
}

template <class P>
[[gnu::noinline]] typename P::RecvRequest* Engine<P>::match_otherwise(RailT* rail, std::uint32_t epoch,
                                                                      core::MatchWords h, Bytes in) {
  return take_match(Arrival{rail, epoch, in.size}, Opened::match(&h.header, in.from(sizeof h.header)));
}

/// A MATCH in any case.
template <class P>
typename P::RecvRequest* Engine<P>::take_match(const Arrival& a, const Opened& o) {
  const core::MatchHdr& h = o.match();
  CommT* const c = comms_.find(h.ctx);
  if (!c) [[unlikely]] {
    keep_unknown(o, a);
    return nullptr;
  }
  ProcT* const p = proc_at(*c, h.src);
  if (!p || (a.rail && a.rail->peer != p->peer && !is_of(*p, a.rail))) [[unlikely]] {
    if (!p && c->has(h.src))
      base_.failing.no_memory(*c, h.src, a);
    else
      ++base_.counters.malformed;
    return nullptr;
  }
  if (a.rail) [[likely]]
    a.rail->peer->choice.answered();
  return accept(*p, o, a);
}

/// The process of a rank must be known before a message counts as from that rank: the header names the
/// sender, and the rail shows whether that is true. A message without a rail (of a BTL that does not name the
/// sender) is believed.
template <class P>
[[gnu::cold, gnu::noinline]] bool Engine<P>::is_of(ProcT& p, const RailT* rail) {
  return peer_of(p) == rail->peer;
}

template <class P>
typename P::RecvRequest* Engine<P>::on_open(const Arrival& a, MsgType type, Bytes in) {
  core::RgetHdr room;
  const auto o = Opened::open(type, in, room);
  if (!o) {
    ++base_.counters.malformed;
    return nullptr;
  }
  return take_open(a, *o);
}

/// A message that was kept for a communicator which exists now.
template <class P>
void Engine<P>::take_up(const Arrival& a, const Opened& o) {
  if (RecvRequest* const r = o.is_match() ? take_match(a, o) : take_open(a, o)) {
    eager_arrived(*r, o.payload());
    base_.finish_recv(*r);
  }
}

/// An RNDV or RGET that begins a request or continues one.
template <class P>
[[gnu::always_inline]] inline typename P::RecvRequest* Engine<P>::take_open(const Arrival& a,
                                                                            const Opened& o) {
  const core::MatchHdr& h = o.match();
  CommT* const c = comms_.find(h.ctx);
  if (!c) {
    keep_unknown(o, a);
    return nullptr;
  }
  ProcT* const p = proc_at(*c, h.src);
  PeerT* const peer = p ? peer_of(*p) : nullptr;
  if (!peer || !from_peer(a.rail, peer)) {
    if (!peer && c->has(h.src))
      base_.failing.no_memory(*c, h.src, a);
    else
      ++base_.counters.malformed;
    return nullptr;
  }
  if (!(h.flags & (core::kFlagRestart | core::kFlagKnown))) return accept(*p, o, a);
  if (!(h.flags & core::kFlagRestart)) {
    duplicate(*p, o, a);
    return nullptr;
  }

  // It continues a request: matching is over, and the name in the header decides.
  NameState state;
  const core::RndvHdr& open = o.rndv();
  const Name name(open.receiver);
  RecvRequest* const r = recvs_.find(name, a, state);
  if (!r) {
    if (state == NameState::kFinished || state == NameState::kFailed)
      stored_restart(*peer, MsgType::kRestartNack, state == NameState::kFailed ? core::kFlagFail : 0, h,
                     Name(open.sender), name);
    else
      ++base_.counters.malformed;
    return nullptr;
  }
  auto& x = r->xfer;
  if (x.proc != p || x.seq != h.seq || !x.rndv->peer_name.same_request(Name(open.sender))) {
    ++base_.counters.malformed;
    return nullptr;
  }
  if (name.round() != x.rndv->name.round()) {
    ++(name.round() < x.rndv->name.round() ? base_.counters.stale : base_.counters.malformed);
    return nullptr;
  }
  RecvInput in;
  in.arrival = &a;
  in.open = &o;
  recv_event(*r, RecvEvent::kReopen, in);
  flush(*peer);
  return nullptr;
}

template <class P>
[[gnu::always_inline]] inline typename P::RecvRequest* Engine<P>::accept(ProcT& p, const Opened& o,
                                                                         const Arrival& a) {
  if (o.match().seq != p.expected || !p.out_of_sequence.empty()) [[unlikely]]
    return accept_out_of_order(p, o, a);
  p.expected = static_cast<Seq16>(p.expected + base_.port.seq_step());
  return deliver(p, o, a);
}

template <class P>
[[gnu::noinline]] typename P::RecvRequest* Engine<P>::accept_out_of_order(ProcT& p, const Opened& o,
                                                                          const Arrival& a) {
  const core::MatchHdr& h = o.match();
  switch (seq_place(p.expected, h.seq)) {
    case SeqPlace::kExpected: {
      p.expected = static_cast<Seq16>(p.expected + base_.port.seq_step());
      RecvRequest* const r = deliver(p, o, a);
      if (r) {  // it is unpacked now, because later messages may follow at once
        eager_arrived(*r, o.payload());
        base_.finish_recv(*r);
      }
      deliver_following(p);
      return nullptr;
    }
    case SeqPlace::kFuture: {
      const bool highest = p.out_of_sequence.empty() || seq_before(p.last_out_of_sequence, h.seq);
      if (Message* const same = highest ? nullptr : p.out_of_sequence.find(*this, h.seq)) {
        ++base_.counters.duplicates;
        replace(*same, o, a);
        return nullptr;
      }
      Message* const m = keep(&p, o, a);
      if (!m) return nullptr;
      p.out_of_sequence.push_back(*this, m);
      if (highest) p.last_out_of_sequence = h.seq;
      return nullptr;
    }
    case SeqPlace::kPast:
      duplicate(p, o, a);
      return nullptr;
    case SeqPlace::kOutside:
      ++base_.counters.malformed;
      return nullptr;
  }
  return nullptr;
}

template <class P>
void Engine<P>::deliver_following(ProcT& p) {
  while (Message* m = p.out_of_sequence.find(*this, p.expected)) {
    p.expected = static_cast<Seq16>(p.expected + base_.port.seq_step());
    p.out_of_sequence.remove(*this, m);
    if (RecvRequest* r = take_posted(p, m->match.tag)) {
      take_kept(*r, m, true);  // of another process: it has no request here
    } else {
      add_unexpected(p, m);
    }
  }
}

template <class P>
[[gnu::always_inline]] inline void Engine<P>::add_unexpected(ProcT& p, Message* m) {
  p.unexpected.push_back(*this, m);
  p.comm->arrivals.push_back(*this, m);
}

/// The oldest posted receive that matches a message of `p` with `tag`, removed from its queue.
template <class P>
[[gnu::always_inline]] inline typename P::RecvRequest* Engine<P>::take_posted(ProcT& p, std::int32_t tag) {
  CommT& c = *p.comm;
  const std::int32_t any = tag >= 0 ? kAnyTag : tag;  // MPI_ANY_TAG does not match negative tags
  RecvRequest* const s = p.posted.find(*this, tag, any);
  RecvRequest* const w = c.posted_any_source.find(*this, tag, any);
  if (s && (!w || s->xfer.post_order < w->xfer.post_order)) {
    p.posted.remove(*this, s);
    --c.n_posted;
    return s;
  }
  if (w) {
    c.posted_any_source.remove(*this, w);
    --c.n_posted;
  }
  return w;
}

template <class P>
[[gnu::always_inline]] inline void Engine<P>::set_matched(RecvRequest& r, ProcT& p, const core::MatchHdr& h,
                                                          std::uint64_t length) {
  auto& x = r.xfer;
  x.status.source = p.rank;
  x.status.tag = h.tag;
  x.status.length = length < x.capacity ? length : x.capacity;
  x.status.outcome = length > x.capacity ? Outcome::kTruncated : Outcome::kOk;
  base_.port.matched(r, p.rank, h.tag, length);
}

/// In-sequence message: to a posted receive, or to the unexpected queue.
template <class P>
[[gnu::always_inline]] inline typename P::RecvRequest* Engine<P>::deliver(ProcT& p, const Opened& o,
                                                                          const Arrival& a) {
  RecvRequest* const r = take_posted(p, o.match().tag);
  if (!r) {
    Message* const m = keep(&p, o, a);
    if (!m) {
      p.expected = static_cast<Seq16>(p.expected - base_.port.seq_step());  // no later message is delivered
      return nullptr;
    }
    add_unexpected(p, m);
    return nullptr;
  }
  if (o.is_match()) {
    set_matched(*r, p, o.match(), o.payload().size);
    return r;
  }
  begin_recv(*r, p, a, o);
  return nullptr;
}

/// Store an eager payload; its receive is owned by the caller and completes next.
template <class P>
[[gnu::always_inline]] inline void Engine<P>::eager_arrived(RecvRequest& r, Bytes payload) {
  if (r.xfer.status.length != 0) base_.port.unpack(r, 0, payload.data, r.xfer.status.length);
}

template <class P>
[[gnu::noinline]] Unexpected<P>* Engine<P>::keep(ProcT* p, const Opened& o, const Arrival& a) {
  return keep_here(p, o, a);
}

/// Keep a message. nullptr: no memory, and its sender will be declared failed.
template <class P>
[[gnu::always_inline]] inline Unexpected<P>* Engine<P>::keep_here(ProcT* p, const Opened& o,
                                                                  const Arrival& a) {
  void* const memory = base_.port.alloc(sizeof(Message) + o.stored_size());
  if (!memory) [[unlikely]] {
    if (p)
      base_.failing.no_memory(*p->comm, p->rank, a);
    else
      base_.failing.no_memory(a.rail, a.epoch, a.size);
    return nullptr;
  }
  auto* const m = ::new (memory) Message(o);
  m->proc = p;
  m->rail = a.rail;
  m->epoch = a.epoch;
  m->size = m->room = static_cast<std::uint32_t>(o.stored_size());
  return m;
}

/// Is `o` the rendezvous of `m`, not older?
template <class P>
bool renews(const Unexpected<P>& m, const core::Opened& o) {
  if (!m.is_open() || o.is_match() || o.match().tag != m.match.tag) return false;
  const core::RndvHdr& was = m.what.rndv();
  const core::RndvHdr& is = o.rndv();
  return Name(was.sender).same_request(Name(is.sender)) && was.length == is.length &&
         Name(is.sender).round() >= Name(was.sender).round();
}

/// A rendezvous header came again for a message that is stored. The newer header is kept, because its keys
/// name rails that are up (H21). A stored eager message is complete. If it comes again as a rendezvous,
/// because the rails that are left take only shorter messages, its sender is notified that it is received.
/// The tag is the key of queues that the stored one is in: it is that of the first header.
template <class P>
void Engine<P>::replace(Message& m, const Opened& o, const Arrival& a) {
  if (o.match().tag != m.match.tag) {
    ++base_.counters.malformed;
    return;
  }
  if (!m.is_open()) {
    PeerT* const peer = m.proc ? peer_of(*m.proc) : a.rail ? a.rail->peer : nullptr;
    if (!peer || o.is_match()) return;
    stored_restart(*peer, MsgType::kRestartNack, 0, o.match(), Name(o.rndv().sender), Name());
    flush(*peer);
    return;
  }
  if (!renews(m, o)) return;
  const std::size_t size = o.stored_size();
  void* const memory = size > m.room ? base_.port.alloc(size) : &m + 1;
  if (!memory) return;  // keep the older one: a receiver without usable keys asks for others
  void* const old = m.separate();
  m.what = o.stored_at(memory, nullptr);
  if (old) base_.port.free(old);
  m.size = static_cast<std::uint32_t>(size);
  m.rail = a.rail;
  m.epoch = a.epoch;
}

/// The rendezvous `sender` of `p` that no receive has matched, or that a matched probe holds.
template <class P>
Unexpected<P>* kept_open(const Proc<P>& p, Name sender) {
  const auto is = [&](const Unexpected<P>& m) {
    return m.proc == &p && m.is_open() && Name(m.what.rndv().sender).same_request(sender);
  };
  for (Unexpected<P>* m = p.unexpected.front(); m; m = p.unexpected.next(m))
    if (is(*m)) return m;
  for (Unexpected<P>* m = p.comm->taken_by_probe.front(); m; m = p.comm->taken_by_probe.next(m))
    if (is(*m)) return m;
  return nullptr;
}

/// A message that was received before: its number is behind the expected one, or its sender says that it is
/// known (kFlagKnown). A rendezvous is looked up by its name, because its sequence number may have wrapped
/// while it waited for a receive.
template <class P>
[[gnu::noinline]] void Engine<P>::duplicate(ProcT& p, const Opened& o, const Arrival& a) {
  ++base_.counters.duplicates;
  if (o.is_match()) return;
  PeerT* const known = peer_of(p);
  if (!known) return;
  PeerT& peer = *known;
  const core::MatchHdr& h = o.match();
  const Name sender(o.rndv().sender);
  for (RecvRequest* r = peer.live_recvs.front(); r; r = peer.live_recvs.next(r)) {  // LIVE
    auto& x = r->xfer;
    if (x.proc != &p || !x.rndv->peer_name.same_request(sender)) continue;
    if (x.seq != h.seq) {
      ++base_.counters.malformed;
      return;
    }
    if (sender.round() != x.rndv->name.round()) {
      ++base_.counters.stale;
      return;
    }
    RecvInput in;
    in.arrival = &a;
    in.open = &o;
    recv_event(*r, RecvEvent::kOpenAgain, in);
    flush(peer);
    return;
  }
  if (Message* const m = kept_open(p, sender)) {  // UNMATCHED
    if (m->match.seq == h.seq)
      replace(*m, o, a);
    else
      ++base_.counters.malformed;
    return;
  }
  answer_over(peer, h, sender);  // FINISHED: received, matched, not live
}

/// The sender of `a` has no allowance left for it.
template <class P>
[[gnu::cold]] void Engine<P>::unknown_too_many(const Arrival& a) {
  if (a.rail)
    return base_.failing.too_much(*a.rail->peer, PeerLoss::Limit::kUnknown, base_.config.unknown_limit);
  base_.failing.no_memory(a.rail, a.epoch, a.size);
}

/// A message for a communicator that does not exist here. If this process has not made it yet, the message is
/// kept (KEPT). If it was freed, what was received in it is FINISHED, and a sender that missed the answer
/// gets it again (H11). A message that its sender knows to be here belongs to a communicator of the past.
template <class P>
[[gnu::noinline]] void Engine<P>::keep_unknown(const Opened& o, const Arrival& a) {
  const core::MatchHdr& h = o.match();
  PeerT* const peer = a.rail ? a.rail->peer : nullptr;
  const bool known = !o.is_match() && (h.flags & core::kFlagKnown) != 0;
  const PastSequence* const past = peer ? peer->past.find(h.ctx) : nullptr;
  if (past && (known || seq_place(past->expected, h.seq) == SeqPlace::kPast)) {
    ++base_.counters.duplicates;
    if (!o.is_match()) answer_over(*peer, h, Name(o.rndv().sender));
    return;
  }
  if (known) {
    ++base_.counters.malformed;
    return;
  }
  if (Message* const m = unknown_.find(*this, h, a.rail)) {
    ++base_.counters.duplicates;
    if (renews(*m, o) && !unknown_.fits_instead(*m, o.stored_size(), base_.config.unknown_limit))
      return unknown_too_many(a);
    unknown_.uncount(*m);
    replace(*m, o, a);
    unknown_.count(*m);
    return;
  }
  // A sender may be ahead of a process that is slow to make the communicator, but within a bound.
  if (!unknown_.fits(a.rail, o.stored_size(), base_.config.unknown_limit)) return unknown_too_many(a);
  if (Message* const m = keep(nullptr, o, a)) unknown_.add(*this, m);
}

template <class P>
void Engine<P>::free_message(Message* m) {
  if (void* const header = m->separate()) base_.port.free(header);
  m->~Message();
  base_.port.free(m);
}

}  // namespace bfo::xfer
