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
// The functions of the usual case pass a message by value to all others, which decode its header again: then
// both stay in registers.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstring>
#include <new>

#include "common/check.h"
#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

// ---- arrival

/// Each message that is matched begins with it.
template <class P>
core::MatchHdr match_of(const Arrival<P>& a) {
  core::MatchHdr h{};
  const bool decoded = core::decode(a.bytes, h);  // checked when it arrived
  BFO_DCHECK(decoded);
  return h;
}

template <class P>
[[gnu::always_inline]] inline typename P::RecvRequest* Engine<P>::on_match(const Arrival& a) {
  core::MatchHdr h;
  if (!core::decode_match(a.bytes, h)) [[unlikely]] {
    ++counters_.malformed;
    return nullptr;
  }
  CommT* const c = comms_.find(h.ctx);
  if (!c) [[unlikely]] {
    keep_unknown(a);
    return nullptr;
  }
  ProcT* const p = proc_at(*c, h.src);
  if (!p || (a.rail && a.rail->peer != p->peer && !is_of(*p, a.rail))) [[unlikely]] {
    if (!p && c->has(h.src))
      failing_.no_memory(*c, h.src, a);
    else
      ++counters_.malformed;
    return nullptr;
  }
  if (a.rail) [[likely]]
    a.rail->peer->choice.answered();
  return accept(*p, h, a);
}

/// The process of a rank must be known before a message counts as from that rank: the header names the
/// sender, and the rail shows whether that is true. A message without a rail (of a BTL that does not name the
/// sender) is believed.
template <class P>
[[gnu::cold, gnu::noinline]] bool Engine<P>::is_of(ProcT& p, const RailT* rail) {
  return peer_of(p) == rail->peer;
}

/// An RNDV or RGET that begins a request or continues one.
template <class P>
typename P::RecvRequest* Engine<P>::on_open(const Arrival& a) {
  core::RndvHdr open;
  const bool ok = a.bytes.size > 0 && a.bytes.data[0] == static_cast<std::uint8_t>(MsgType::kRget)
                      ? core::decode_rget(a.bytes, open)
                      : core::decode(a.bytes, open);
  const core::MatchHdr& h = open.match;
  if (!ok) {
    ++counters_.malformed;
    return nullptr;
  }
  CommT* const c = comms_.find(h.ctx);
  if (!c) {
    keep_unknown(a);
    return nullptr;
  }
  ProcT* const p = proc_at(*c, h.src);
  PeerT* const peer = p ? peer_of(*p) : nullptr;
  if (!peer || !from_peer(a.rail, peer)) {
    if (!peer && c->has(h.src))
      failing_.no_memory(*c, h.src, a);
    else
      ++counters_.malformed;
    return nullptr;
  }
  if (!(h.flags & (core::kFlagRestart | core::kFlagKnown))) return accept(*p, h, a);
  if (!(h.flags & core::kFlagRestart)) {
    duplicate(*p, h, a);
    return nullptr;
  }

  // It continues a request: matching is over, and the name in the header decides.
  NameState state;
  const Name name(open.receiver);
  RecvRequest* const r = recvs_.find(name, a, state);
  if (!r) {
    if (state == NameState::kFinished || state == NameState::kFailed)
      stored_restart(*peer, MsgType::kRestartNack, state == NameState::kFailed ? core::kFlagFail : 0, h,
                     Name(open.sender), name);
    else
      ++counters_.malformed;
    return nullptr;
  }
  auto& x = r->xfer;
  if (x.proc != p || x.seq != h.seq || !x.rndv->peer_name.same_request(Name(open.sender))) {
    ++counters_.malformed;
    return nullptr;
  }
  if (name.round() != x.rndv->name.round()) {
    ++(name.round() < x.rndv->name.round() ? counters_.stale : counters_.malformed);
    return nullptr;
  }
  RecvInput in;
  in.arrival = &a;
  recv_event(*r, RecvEvent::kReopen, in);
  flush(*peer);
  return nullptr;
}

template <class P>
[[gnu::always_inline]] inline typename P::RecvRequest* Engine<P>::accept(ProcT& p, const core::MatchHdr& h,
                                                                         const Arrival& a) {
  if (h.seq != p.expected || !p.out_of_sequence.empty()) [[unlikely]]
    return accept_out_of_order(p, a);
  p.expected = static_cast<Seq16>(p.expected + seq_step(port_));
  return deliver(p, h, a);
}

template <class P>
[[gnu::noinline]] typename P::RecvRequest* Engine<P>::accept_out_of_order(ProcT& p, Arrival a) {
  const core::MatchHdr h = match_of(a);
  switch (seq_place(p.expected, h.seq)) {
    case SeqPlace::kExpected: {
      p.expected = static_cast<Seq16>(p.expected + seq_step(port_));
      RecvRequest* const r = deliver(p, h, a);
      if (r) {  // it is unpacked now, because later messages may follow at once
        eager_arrived(*r, a.bytes.from(sizeof(core::MatchHdr)));
        finish_recv(*r);
      }
      deliver_following(p);
      return nullptr;
    }
    case SeqPlace::kFuture: {
      const bool highest = p.out_of_sequence.empty() || seq_before(p.last_out_of_sequence, h.seq);
      if (Message* const same = highest ? nullptr : p.out_of_sequence.find(*this, h.seq)) {
        ++counters_.duplicates;
        replace(*same, a);
        return nullptr;
      }
      Message* const m = keep(&p, a);
      if (!m) return nullptr;
      p.out_of_sequence.push_back(*this, m);
      if (highest) p.last_out_of_sequence = h.seq;
      return nullptr;
    }
    case SeqPlace::kPast:
      duplicate(p, h, a);
      return nullptr;
    case SeqPlace::kOutside:
      ++counters_.malformed;
      return nullptr;
  }
  return nullptr;
}

template <class P>
void Engine<P>::deliver_following(ProcT& p) {
  while (Message* m = p.out_of_sequence.find(*this, p.expected)) {
    p.expected = static_cast<Seq16>(p.expected + seq_step(port_));
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
  port_.matched(r, p.rank, h.tag, length);
}

/// In-sequence message: to a posted receive, or to the unexpected queue.
template <class P>
[[gnu::always_inline]] inline typename P::RecvRequest* Engine<P>::deliver(ProcT& p, const core::MatchHdr& h,
                                                                          const Arrival& a) {
  RecvRequest* const r = take_posted(p, h.tag);
  if (!r) {
    Message* const m = keep(&p, a);
    if (!m) {
      p.expected = static_cast<Seq16>(p.expected - seq_step(port_));  // no later message is delivered
      return nullptr;
    }
    add_unexpected(p, m);
    return nullptr;
  }
  if (h.type == static_cast<std::uint8_t>(MsgType::kMatch)) {
    set_matched(*r, p, h, a.bytes.size - sizeof(core::MatchHdr));
    return r;
  }
  begin_recv(*r, p, a);
  return nullptr;
}

/// Store an eager payload; its receive is owned by the caller and completes next.
template <class P>
[[gnu::always_inline]] inline void Engine<P>::eager_arrived(RecvRequest& r, Bytes payload) {
  if (r.xfer.status.length != 0) port_.unpack(r, 0, payload.data, r.xfer.status.length);
}

/// Keep a message as it came. nullptr: no memory, and its sender will be declared failed.
template <class P>
[[gnu::noinline]] Unexpected<P>* Engine<P>::keep(ProcT* p, Arrival a) {
  void* const memory = port_.alloc(sizeof(Message) + a.bytes.size);
  if (!memory) [[unlikely]] {
    if (p)
      failing_.no_memory(*p->comm, p->rank, a);
    else
      failing_.no_memory(a.rail, a.epoch, a.bytes.size);
    return nullptr;
  }
  auto* m = ::new (memory) Message;
  m->proc = p;
  m->rail = a.rail;
  m->epoch = a.epoch;
  m->match = match_of(a);
  m->data = reinterpret_cast<std::uint8_t*>(m + 1);
  m->size = m->room = static_cast<std::uint32_t>(a.bytes.size);
  std::memcpy(m->data, a.bytes.data, a.bytes.size);
  return m;
}

/// Is `a` the rendezvous header of `m`, not older?
template <class P>
bool renews(const Unexpected<P>& m, const Arrival<P>& a) {
  constexpr auto kMatch = static_cast<std::uint8_t>(core::MsgType::kMatch);
  core::RndvHdr was;
  core::RndvHdr is;
  if (m.match.type == kMatch || a.bytes.data[0] == kMatch) return false;
  if (!core::decode(m.bytes(), was) || !core::decode(a.bytes, is)) return false;
  return Name(was.sender).same_request(Name(is.sender)) && was.length == is.length &&
         Name(is.sender).round() >= Name(was.sender).round();
}

/// A rendezvous header came again for a message that is stored. The newer header is kept, because its keys
/// name rails that are up (H21). A stored eager message is complete. If it comes again as a rendezvous,
/// because the rails that are left take only shorter messages, its sender is notified that it is received.
template <class P>
void Engine<P>::replace(Message& m, const Arrival& a) {
  if (m.match.type == static_cast<std::uint8_t>(MsgType::kMatch)) {
    PeerT* const peer = m.proc ? peer_of(*m.proc) : a.rail ? a.rail->peer : nullptr;
    core::RndvHdr again;
    if (!peer || a.bytes.data[0] == m.match.type || !core::decode(a.bytes, again)) return;
    stored_restart(*peer, MsgType::kRestartNack, 0, again.match, Name(again.sender), Name());
    flush(*peer);
    return;
  }
  if (!renews(m, a)) return;
  const bool separate = a.bytes.size > m.room;
  auto* const data = static_cast<std::uint8_t*>(separate ? port_.alloc(a.bytes.size) : &m + 1);
  if (!data) return;  // keep the older one: a receiver without usable keys asks for others
  std::memcpy(data, a.bytes.data, a.bytes.size);
  if (m.separate) port_.free(m.data);
  m.data = data;
  m.size = static_cast<std::uint32_t>(a.bytes.size);
  m.separate = separate;
  m.rail = a.rail;
  m.epoch = a.epoch;
  m.match.type = a.bytes.data[0];
}

/// The rendezvous `sender` of `p` that no receive has matched, or that a matched probe holds.
template <class P>
Unexpected<P>* kept_open(const Proc<P>& p, Name sender) {
  const auto is = [&](const Unexpected<P>& m) {
    core::RndvHdr h;
    return m.proc == &p && m.match.type != static_cast<std::uint8_t>(core::MsgType::kMatch) &&
           core::decode(m.bytes(), h) && Name(h.sender).same_request(sender);
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
[[gnu::noinline]] void Engine<P>::duplicate(ProcT& p, const core::MatchHdr& h, const Arrival& a) {
  ++counters_.duplicates;
  if (h.type == static_cast<std::uint8_t>(MsgType::kMatch)) return;
  PeerT* const known = peer_of(p);
  core::RndvHdr n;
  if (!known || !core::decode(a.bytes, n)) return;
  PeerT& peer = *known;
  const Name sender(n.sender);
  for (RecvRequest* r = peer.live_recvs.front(); r; r = peer.live_recvs.next(r)) {  // LIVE
    auto& x = r->xfer;
    if (x.proc != &p || !x.rndv->peer_name.same_request(sender)) continue;
    if (x.seq != h.seq) {
      ++counters_.malformed;
      return;
    }
    if (sender.round() != x.rndv->name.round()) {
      ++counters_.stale;
      return;
    }
    RecvInput in;
    in.arrival = &a;
    recv_event(*r, RecvEvent::kOpenAgain, in);
    flush(peer);
    return;
  }
  if (Message* const m = kept_open(p, sender)) {  // UNMATCHED
    if (m->match.seq == h.seq)
      replace(*m, a);
    else
      ++counters_.malformed;
    return;
  }
  answer_over(peer, h, sender);  // FINISHED: received, matched, not live
}

/// The sender of `a` has no allowance left for it.
template <class P>
[[gnu::cold]] void Engine<P>::unknown_too_many(const Arrival& a) {
  if (a.rail) return failing_.too_much(*a.rail->peer, PeerLoss::Limit::kUnknown, config_.unknown_limit);
  failing_.no_memory(a.rail, a.epoch, a.bytes.size);
}

/// A message for a communicator that does not exist here. If this process has not made it yet, the message is
/// kept (KEPT). If it was freed, what was received in it is FINISHED, and a sender that missed the answer
/// gets it again (H11). A message that its sender knows to be here belongs to a communicator of the past.
template <class P>
[[gnu::noinline]] void Engine<P>::keep_unknown(Arrival a) {
  const core::MatchHdr h = match_of(a);
  PeerT* const peer = a.rail ? a.rail->peer : nullptr;
  const bool known =
      h.type != static_cast<std::uint8_t>(MsgType::kMatch) && (h.flags & core::kFlagKnown) != 0;
  const PastSequence* const past = peer ? peer->past.find(h.ctx) : nullptr;
  if (past && (known || seq_place(past->expected, h.seq) == SeqPlace::kPast)) {
    ++counters_.duplicates;
    core::RndvHdr n;
    if (h.type == static_cast<std::uint8_t>(MsgType::kMatch) || !core::decode(a.bytes, n)) return;
    answer_over(*peer, h, Name(n.sender));
    return;
  }
  if (known) {
    ++counters_.malformed;
    return;
  }
  if (Message* const m = unknown_.find(*this, h, a.rail)) {
    ++counters_.duplicates;
    if (renews(*m, a) && !unknown_.fits_instead(*m, a.bytes.size, config_.unknown_limit))
      return unknown_too_many(a);
    unknown_.uncount(*m);
    replace(*m, a);
    unknown_.count(*m);
    return;
  }
  // A sender may be ahead of a process that is slow to make the communicator, but within a bound.
  if (!unknown_.fits(a.rail, a.bytes.size, config_.unknown_limit)) return unknown_too_many(a);
  if (Message* const m = keep(nullptr, a)) unknown_.add(*this, m);
}

template <class P>
void Engine<P>::free_message(Message* m) {
  if (m->separate) port_.free(m->data);
  m->~Message();
  port_.free(m);
}

}  // namespace bfo::xfer
