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
// A MATCH in the usual case is decoded in registers (in_sequence). In all others the header lies in memory of
// this process, and Opened tells what was decoded.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <new>

#include "pml/bfo/xfer/matching/matching.h"

namespace bfo::xfer {

// ---- arrival

/// The rank that a MATCH is the next message of, in the usual case: it comes over a rail of that rank's
/// process, and no other message of it is out of sequence. nullptr: another case.
template <class P>
[[gnu::always_inline]] inline Proc<P>* Matching<P>::in_sequence(const core::MatchHdr& h,
                                                                const RailT* rail) const {
  CommT* const c = comms_.find(h.ctx);
  if (!c || static_cast<uint32_t>(h.src) >= static_cast<uint32_t>(c->size)) [[unlikely]]
    return nullptr;
  ProcT* const p = c->procs[h.src];
  if (!p || (rail && rail->peer != p->peer)) [[unlikely]]
    return nullptr;
  if (h.seq != p->expected || !p->out_of_sequence.empty()) [[unlikely]]
    return nullptr;
  return p;
}

/// The receive that the next message of `p`, a MATCH, is for. nullptr: none is posted, and nothing happened.
template <class P>
[[gnu::always_inline]] inline typename P::RecvRequest* Matching<P>::take_next(ProcT& p,
                                                                              const core::MatchHdr& h,
                                                                              uint64_t length) {
  RecvRequest* const r = take_posted(p, h.tag);
  if (!r) return nullptr;
  p.expected = static_cast<Seq16>(p.expected + base_.port.seq_step());
  set_matched(*r, p, h, length);
  return r;
}

/// The next message of `p`, a MATCH for which no receive is posted, is kept.
template <class P>
[[gnu::noinline]] void Matching<P>::keep_next(ProcT& p, RailT* rail, uint32_t epoch, int32_t tag, Bytes in) {
  const core::MatchWords h = core::match_words(p.comm->ctx, p.rank, tag, p.expected);
  const Opened o = Opened::match(&h.header, in.from(sizeof h.header));
  if (Message* const m = keep_here(&p, o, Arrival{rail, epoch, in.size})) {
    p.expected = static_cast<Seq16>(p.expected + base_.port.seq_step());
    add_unexpected(p, m);
  }
}

/// The rank that a message is from. nullptr: it is kept, or dropped and counted, or `over`.
template <class P>
[[gnu::always_inline]] inline Proc<P>* Matching<P>::sender(const Arrival& a, const Opened& o, bool& over) {
  const core::MatchHdr& h = o.match();
  over = false;
  CommT* const c = comms_.find(h.ctx);
  if (!c) [[unlikely]] {
    over = keep_unknown(o, a);
    return nullptr;
  }
  ProcT* const p = proc_at(*c, h.src);
  if (p && is_from(*p, a.rail, o)) [[likely]] {
    if (o.is_match() && a.rail) a.rail->peer->choice.answered();
    return p;
  }
  if (c->has(h.src) && (!p || (!o.is_match() && !p->peer)))
    base_.failing.no_memory(*c, h.src, a);
  else
    ++base_.counters.malformed;
  return nullptr;
}

/// Is a message that came over `rail` from `p`? The header names the sender, and the rail shows whether that
/// is true. A message without a rail (of a BTL that does not name the sender) is believed; the process of a
/// rank that begins a rendezvous must be known.
template <class P>
[[gnu::always_inline]] inline bool Matching<P>::is_from(ProcT& p, const RailT* rail, const Opened& o) {
  if (o.is_match()) return !rail || rail->peer == p.peer || rail->peer == peer_of(p);
  PeerT* const peer = peer_of(p);
  return peer && from_peer(rail, peer);
}

/// What comes of a message of `p`.
template <class P>
[[gnu::always_inline]] inline Matched<P> Matching<P>::accept(ProcT& p, const Opened& o, const Arrival& a) {
  if (o.match().seq != p.expected || !p.out_of_sequence.empty()) [[unlikely]]
    return accept_out_of_order(p, o, a);
  p.expected = static_cast<Seq16>(p.expected + base_.port.seq_step());
  return deliver(p, o, a);
}

template <class P>
[[gnu::noinline]] Matched<P> Matching<P>::accept_out_of_order(ProcT& p, const Opened& o, const Arrival& a) {
  const core::MatchHdr& h = o.match();
  switch (seq_place(p.expected, h.seq)) {
    case SeqPlace::kExpected:
      p.expected = static_cast<Seq16>(p.expected + base_.port.seq_step());
      return deliver(p, o, a);
    case SeqPlace::kFuture: {
      const bool highest = p.out_of_sequence.empty() || seq_before(p.last_out_of_sequence, h.seq);
      if (Message* const same = highest ? nullptr : p.out_of_sequence.find(*this, h.seq)) {
        ++base_.counters.duplicates;
        return {replace(*same, o, a) ? Came::kOver : Came::kNothing, nullptr};
      }
      Message* const m = keep(&p, o, a);
      if (!m) return {};
      p.out_of_sequence.push_back(*this, m);
      if (highest) p.last_out_of_sequence = h.seq;
      return {};
    }
    case SeqPlace::kPast:
      ++base_.counters.duplicates;
      return {o.is_match() ? Came::kNothing : Came::kDuplicate, nullptr};
    case SeqPlace::kOutside:
      ++base_.counters.malformed;
      return {};
  }
  return {};
}

/// The next of the messages of `p` that came out of sequence and are in sequence now, removed, and the
/// receive that takes it. Those before it that no receive takes become unexpected. nullptr: there is no other
/// one.
template <class P>
Unexpected<P>* Matching<P>::take_following(ProcT& p, RecvRequest*& receive) {
  while (Message* m = p.out_of_sequence.find(*this, p.expected)) {
    p.expected = static_cast<Seq16>(p.expected + base_.port.seq_step());
    p.out_of_sequence.remove(*this, m);
    if ((receive = take_posted(p, m->match.tag))) return m;
    add_unexpected(p, m);
  }
  return nullptr;
}

template <class P>
[[gnu::always_inline]] inline void Matching<P>::add_unexpected(ProcT& p, Message* m) {
  p.unexpected.push_back(*this, m);
  p.comm->arrivals.push_back(*this, m);
  if (p.open_names.made()) [[unlikely]]
    enter_name(*m);
}

/// The oldest posted receive that matches a message of `p` with `tag`, removed from its queue.
template <class P>
[[gnu::always_inline]] inline typename P::RecvRequest* Matching<P>::take_posted(ProcT& p, int32_t tag) {
  CommT& c = *p.comm;
  const int32_t any = tag >= 0 ? kAnyTag : tag;  // MPI_ANY_TAG does not match negative tags
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
[[gnu::always_inline]] inline void Matching<P>::set_matched(RecvRequest& r, ProcT& p, const core::MatchHdr& h,
                                                            uint64_t length) {
  auto& x = r.xfer;
  x.status.source = p.rank;
  x.status.tag = h.tag;
  x.status.length = length < x.capacity ? length : x.capacity;
  x.status.outcome = length > x.capacity ? Outcome::kTruncated : Outcome::kOk;
  base_.port.matched(r, p.rank, h.tag, length);
}

/// In-sequence message: to a posted receive, or to the unexpected queue.
template <class P>
[[gnu::always_inline]] inline Matched<P> Matching<P>::deliver(ProcT& p, const Opened& o, const Arrival& a) {
  RecvRequest* const r = take_posted(p, o.match().tag);
  if (!r) {
    Message* const m = keep(&p, o, a);
    if (!m) {
      p.expected = static_cast<Seq16>(p.expected - base_.port.seq_step());  // no later message is delivered
      return {};
    }
    add_unexpected(p, m);
    return {};
  }
  if (!o.is_match()) return {Came::kOpened, r};
  set_matched(*r, p, o.match(), o.payload().size);
  return {Came::kEager, r};
}

/// Store an eager payload; its receive is owned by the caller and completes next.
template <class P>
[[gnu::always_inline]] inline void Matching<P>::unpack(RecvRequest& r, Bytes payload) {
  if (r.xfer.status.length != 0) base_.port.unpack(r, 0, payload.data, r.xfer.status.length);
}

template <class P>
[[gnu::noinline]] Unexpected<P>* Matching<P>::keep(ProcT* p, const Opened& o, const Arrival& a) {
  return keep_here(p, o, a);
}

/// Keep a message. nullptr: no memory, and its sender will be declared failed.
template <class P>
[[gnu::always_inline]] inline Unexpected<P>* Matching<P>::keep_here(ProcT* p, const Opened& o,
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
  m->size = m->room = static_cast<uint32_t>(o.stored_size());
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
/// name rails that are up (H21). A stored eager message is complete: if it comes again as a rendezvous,
/// because the rails that are left take only shorter messages, its sender has to hear that it is received
/// (true). The tag is the key of queues that the stored one is in: it is that of the first header.
template <class P>
bool Matching<P>::replace(Message& m, const Opened& o, const Arrival& a) {
  if (o.match().tag != m.match.tag) {
    ++base_.counters.malformed;
    return false;
  }
  if (!m.is_open()) return !o.is_match() && (m.proc || a.rail);
  if (!renews(m, o)) return false;
  const size_t size = o.stored_size();
  void* const memory = size > m.room ? base_.port.alloc(size) : &m + 1;
  if (!memory) return false;  // keep the older one: a receiver without usable keys asks for others
  void* const old = m.separate();
  m.what = o.stored_at(memory, nullptr);
  if (old) base_.port.free(old);
  m.size = static_cast<uint32_t>(size);
  m.rail = a.rail;
  m.epoch = a.epoch;
  return false;
}

/// The first message in `queue` for which f() is true.
template <class Queue, class F>
auto* first_in(const Queue& queue, F f) {
  auto* m = queue.front();
  while (m && !f(*m)) m = queue.next(m);
  return m;
}

/// The rendezvous `sender` of `p` that no receive has matched, or that a matched probe holds. A search that
/// passes many messages makes an index of the rendezvous among them; without memory for it the queues are
/// searched.
template <class P>
Unexpected<P>* Matching<P>::kept_open(ProcT& p, Name sender) {
  constexpr unsigned kShort = 16;
  if (p.open_names.made()) return p.open_names.find(sender.request());
  unsigned passed = 0;
  const auto search = [&](auto f) {
    Message* const m = first_in(p.unexpected, f);
    return m ? m : first_in(p.comm->taken_by_probe, f);
  };
  const auto is = [&](const Message& m) {
    return m.proc == &p && m.is_open() && OpenName::of(&m) == sender.request();
  };
  Message* const near = search([&](const Message& m) { return is(m) || ++passed > kShort; });
  if (!near || is(*near)) return near;
  if (!p.open_names.make(*this)) return search(is);
  const auto enter = [&](Message& m) {
    if (m.proc == &p) enter_name(m);
    return !p.open_names.made();
  };
  return search(enter) ? search(is) : p.open_names.find(sender.request());
}

/// `m` is among those that kept_open() finds.
template <class P>
[[gnu::cold]] void Matching<P>::enter_name(Message& m) {
  OpenNames<P>& names = m.proc->open_names;
  if (m.is_open() && !names.add(*this, &m)) names.drop(*this);
}

/// It is not any more, and in no queue.
template <class P>
[[gnu::cold]] void Matching<P>::leave_name(Message& m) {
  OpenNames<P>& names = m.proc->open_names;
  if (m.is_open()) names.remove(&m);
  if (m.proc->unexpected.empty() && m.proc->comm->taken_by_probe.empty()) names.drop(*this);
}

/// An RNDV or RGET of `p` came again that no receive is busy with. It is looked up by its name, because its
/// sequence number may have wrapped while it waited for a receive. True: it has been received.
template <class P>
bool Matching<P>::renew(ProcT& p, const Opened& o, const Arrival& a) {
  Message* const m = kept_open(p, Name(o.rndv().sender));
  if (!m) return true;                                          // FINISHED: received, matched, not live
  if (m->match.seq == o.match().seq) return replace(*m, o, a);  // UNMATCHED
  ++base_.counters.malformed;
  return false;
}

template <class P>
void Matching<P>::free_message(Message* m) {
  if (void* const header = m->separate()) base_.port.free(header);
  m->~Message();
  base_.port.free(m);
}

}  // namespace bfo::xfer
