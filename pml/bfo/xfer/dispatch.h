// SPDX-License-Identifier: BSD-3-Clause
//
// dispatch.h: a message to the owner of what it is about, and what matching says of it to the transfer
// protocols: an eager message is unpacked, an RNDV or RGET begins a rendezvous or continues one.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

/// A MATCH. The usual case: it is in sequence, from the rank that it names, and its receive is posted.
template <class P>
[[gnu::always_inline]] inline typename P::RecvRequest* Engine<P>::on_match(RailT* rail, uint32_t epoch,
                                                                           Bytes in) {
  core::MatchHdr h;
  if (!core::decode_match(in, h)) [[unlikely]] {
    ++base_.counters.malformed;
    return nullptr;
  }
  ProcT* const p = matching_.in_sequence(h, rail);
  if (!p) [[unlikely]]
    return match_otherwise(rail, epoch, core::match_words(h.ctx, h.src, h.tag, h.seq), in);
  if (rail) [[likely]]
    rail->peer->choice.answered();
  if (RecvRequest* const r = matching_.take_next(*p, h, in.size - sizeof h)) return r;
  matching_.keep_next(*p, rail, epoch, h.tag, in);
  return nullptr;
}

/// Hands a message to the function for its tag, which decodes it: nobody reads its header before or after,
/// and one that says another type is dropped. Returns the receive that an eager message was matched with: the
/// caller unpacks and completes it.
template <class P>
[[gnu::always_inline]] inline typename P::RecvRequest* Engine<P>::dispatch(RailT* rail, uint32_t epoch,
                                                                           uint8_t tag, Bytes in) {
  if (tag == static_cast<uint8_t>(MsgType::kMatch)) [[likely]]
    return on_match(rail, epoch, in);
  return dispatch_longer(Arrival{rail, epoch, in.size}, static_cast<MsgType>(tag), in);
}

/// The same of any but a MATCH.
template <class P>
typename P::RecvRequest* Engine<P>::dispatch_longer(const Arrival& a, MsgType type, Bytes in) {
  switch (type) {
    case MsgType::kRndv:
    case MsgType::kRget:
      return on_open(a, type, in);
    case MsgType::kFin:
      flush_for(moves_.on_fin(a, in));
      return nullptr;
    case MsgType::kRailDown:
    case MsgType::kEpochClosed:
      failover_.on_rail_message(a, type, in);
      return nullptr;
    case MsgType::kPeerLost:
      failover_.on_peer_lost(a, in);
      return nullptr;
    default:
      break;
  }
  ProcT* opened = nullptr;  // whose window has opened
  PeerT* const posts = moves_.on_message(type, a, in, opened);
  if (opened) [[unlikely]]
    release_stalled(*opened);
  if (posts) flush(*posts);
  return nullptr;
}

template <class P>
[[gnu::noinline]] typename P::RecvRequest* Engine<P>::match_otherwise(RailT* rail, uint32_t epoch,
                                                                      core::MatchWords h, Bytes in) {
  return take(Arrival{rail, epoch, in.size}, Opened::match(&h.header, in.from(sizeof h.header)));
}

template <class P>
typename P::RecvRequest* Engine<P>::on_open(const Arrival& a, MsgType type, Bytes in) {
  core::RgetHdr room;
  const auto o = Opened::open(type, in, room);
  if (!o) {
    ++base_.counters.malformed;
    return nullptr;
  }
  return take(a, *o);
}

/// A MATCH in any case, an RNDV or an RGET.
template <class P>
[[gnu::always_inline]] inline typename P::RecvRequest* Engine<P>::take(const Arrival& a, const Opened& o) {
  bool over;
  ProcT* const p = matching_.sender(a, o, over);
  if (!p) [[unlikely]] {
    if (over && a.rail) answer_over(*a.rail->peer, o);
    return nullptr;
  }
  if (!o.is_match() && (o.match().flags & (core::kFlagRestart | core::kFlagKnown))) [[unlikely]] {
    if (o.match().flags & core::kFlagRestart) {
      if (moves_.reopen(*p, o, a)) flush(*p->peer);
    } else {
      ++base_.counters.duplicates;
      again(*p, o, a);
    }
    return nullptr;
  }
  const bool gap = matching_.has_gap(*p);
  const Matched<P> m = matching_.accept(*p, o, a);
  if (!gap) [[likely]] {
    if (m.what == Came::kEager) return m.receive;
    if (m.what == Came::kOpened) begin_recv(*m.receive, *p, a, o);
    if (m.what <= Came::kOpened) {
      refuse_any(*p);
      return nullptr;
    }
  }
  came(*p, m, o, a);
  if (gap) take_following(*p);
  refuse_any(*p);
  return nullptr;
}

/// Does what matching says of a message of `p`.
template <class P>
void Engine<P>::came(ProcT& p, const Matched<P>& m, const Opened& o, const Arrival& a) {
  switch (m.what) {
    case Came::kNothing:
      return;
    case Came::kEager:  // it is unpacked now, because later messages may follow at once
      matching_.unpack(*m.receive, o.payload());
      return base_.finish_recv(*m.receive);
    case Came::kOpened:
      return begin_recv(*m.receive, p, a, o);
    case Came::kDuplicate:
      return again(p, o, a);
    case Came::kOver:
      if (PeerT* const peer = matching_.peer_of(p)) answer_over(*peer, o);
      return;
  }
}

/// Messages of `p` that came out of sequence, and are in sequence now.
template <class P>
[[gnu::noinline]] void Engine<P>::take_following(ProcT& p) {
  RecvRequest* r = nullptr;
  while (Message* m = matching_.take_following(p, r))
    take_kept(*r, m, true);  // of another process: no own request
}

/// An RNDV or RGET that came before.
template <class P>
[[gnu::noinline]] void Engine<P>::again(ProcT& p, const Opened& o, const Arrival& a) {
  PeerT* const peer = matching_.peer_of(p);
  if (!peer) return;
  if (moves_.open_again(p, o, a))
    flush(*peer);
  else if (matching_.renew(p, o, a))
    answer_over(*peer, o);
}

/// A receive takes an RNDV or RGET of `p`.
template <class P>
void Engine<P>::begin_recv(RecvRequest& r, ProcT& p, const Arrival& a, const Opened& o) {
  if (moves_.begin_recv(r, p, a, o)) flush(*p.peer);
}

/// The sender of a message that has been received has to hear that.
template <class P>
void Engine<P>::answer_over(PeerT& p, const Opened& o) {
  moves_.answer_over(p, o.match(), Name(o.rndv().sender));
  flush(p);
}

/// A message that was kept for a communicator which exists now.
template <class P>
void Engine<P>::take_up(const Arrival& a, const Opened& o) {
  if (RecvRequest* const r = take(a, o)) {
    matching_.unpack(*r, o.payload());
    base_.finish_recv(*r);
  }
}

template <class P>
Comm<P>* Engine<P>::comm_add(const CommDesc<P>& d) {
  Entry entry(*this);
  CommT* const c = matching_.comm_add(d);
  if (!c) return nullptr;
  failover_.comm_made(*c);
  // Messages that came before the communicator existed: in order of arrival, through the same duplicate check
  // as others. No receive is posted yet.
  while (Message* m = matching_.take_unknown(d.ctx)) {
    take_up(Arrival{m->rail, m->epoch, m->size}, m->what);
    matching_.free_message(m);
  }
  matching_.end_pushed_out(*c);
  return c;
}

template <class P>
void Engine<P>::comm_del(CommT* c) {
  Entry entry(*this);
  for (int32_t i = 0; i < c->size; ++i)
    if (c->procs[i]) moves_.leave_window(*c->procs[i]);
  matching_.comm_del(c);
}

// ---- a message that was kept, and its receive

/// Give a kept message to a receive. Afterwards the receive is filled, or in a rendezvous, or matched with a
/// send to oneself.
template <class P>
typename Engine<P>::KeptResult Engine<P>::match_kept(RecvRequest& r, Message& m) {
  if (m.is_open()) {
    begin_recv(r, *m.proc, Arrival{m.rail, m.epoch, m.size}, m.what);
    return KeptResult::begun();
  }
  matching_.set_matched(r, *m.proc, m.match, m.length());
  if (m.own) return KeptResult::own(*m.own);
  matching_.unpack(r, m.what.payload());
  return KeptResult::filled();
}

/// Gives `m`, which is in no queue, to `r`. `nested`: the lock stays held, so a filled receive ends with the
/// outermost call.
template <class P>
[[gnu::always_inline]] inline typename Engine<P>::KeptResult Engine<P>::take_kept(RecvRequest& r, Message* m,
                                                                                  bool nested) {
  const KeptResult kept = match_kept(r, *m);
  matching_.free_message(m);
  if (!nested || !kept.is_filled()) [[likely]]
    return kept;
  base_.finish_recv(r);
  return KeptResult::begun();
}

/// A kept message was given to `r`, and the lock is released: `r` ends as one that waited for its message.
template <class P>
[[gnu::noinline]] void Engine<P>::end_kept(RecvRequest& r, KeptResult kept) {
  if (kept.is_filled())
    base_.port.complete_recv(r, r.xfer.status);
  else if (SendRequest* const own = kept.own())
    moves_.finish_own(r, *own);
}

/// inline: as send_inline().
template <class P>
[[gnu::always_inline]] inline void Engine<P>::irecv(RecvRequest* r, const RecvArgs<P>& args) {
  if (const KeptResult kept = post_recv(*r, args); kept.found()) [[unlikely]]
    end_kept(*r, kept);
}

/// Returns what became of the message that it was matched with: not found() when none was here.
template <class P>
[[gnu::always_inline]] inline typename Engine<P>::KeptResult Engine<P>::post_recv(RecvRequest& r,
                                                                                  const RecvArgs<P>& args) {
  Entry entry(*this);
  Machine<P>::rest(r.xfer);
  if (Message* const m = matching_.post(r, args)) return give_kept(r, m, entry.nested());
  return {};
}

template <class P>
[[gnu::noinline]] typename Engine<P>::KeptResult Engine<P>::give_kept(RecvRequest& r, Message* m,
                                                                      bool nested) {
  return take_kept(r, m, nested);
}

template <class P>
bool Engine<P>::cancel(RecvRequest* r) {
  Entry entry(*this);
  return matching_.cancel(*r);
}

template <class P>
bool Engine<P>::iprobe(CommT* c, int32_t src, int32_t tag, ProbeResult& result) {
  Entry entry(*this);
  return matching_.probe(*c, src, tag, result) != nullptr;
}

template <class P>
Unexpected<P>* Engine<P>::improbe(CommT* c, int32_t src, int32_t tag, ProbeResult& result) {
  Entry entry(*this);
  Message* const m = matching_.probe(*c, src, tag, result);
  if (m) matching_.hold(*m);
  return m;
}

template <class P>
void Engine<P>::imrecv(Message* m, RecvRequest* r, uint64_t capacity) {
  KeptResult kept;
  {
    Entry entry(*this);
    Machine<P>::rest(r->xfer);
    matching_.post_for(*m, *r, capacity);
    kept = take_kept(*r, m, entry.nested());
  }
  end_kept(*r, kept);
}

}  // namespace bfo::xfer
