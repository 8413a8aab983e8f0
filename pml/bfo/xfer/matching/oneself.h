// SPDX-License-Identifier: BSD-3-Clause
//
// oneself.h: messages to oneself. They use no rail, no header and no number, and no rendezvous: nothing can
// be lost and nothing overtakes anything here. A receive that is posted is filled inside the send. Otherwise
// a short message is kept as one that came over a rail, so that its send is over; of a long or synchronous
// one only the request is kept, and the receive is filled from its buffer when it comes.
//
// Buffers are copied after the lock was released, by whoever has both requests: neither is in a queue then.
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

/// `source` is the buffer of a send to oneself that matched `r`. Not under the lock.
template <class P>
template <class Source>
void Engine<P>::fill_own(RecvRequest& r, Source& source) {
  if (r.xfer.status.length != 0) port_.copy(source, r, r.xfer.status.length);
  port_.complete_recv(r, r.xfer.status);
}

/// Nobody waits for a short message yet. False: it is too long, or there is no memory.
template <class P>
template <class Source>
bool Engine<P>::keep_own(ProcT& p, const SendArgs<P>& args, Source& source) {
  if (args.mode == SendMode::kSync || args.length + sizeof(core::MatchHdr) > p.peer->eager_limit)
    return false;
  const std::size_t size = sizeof(core::MatchHdr) + args.length;
  void* const memory = port_.alloc(sizeof(Message) + size);
  if (!memory) return false;
  auto* const m = ::new (memory) Message;
  m->proc = &p;
  m->match = Eager<P>::header(p, args.tag, 0);
  m->data = reinterpret_cast<std::uint8_t*>(m + 1);
  m->size = static_cast<std::uint32_t>(size);
  if (args.length != 0 && !port_.gather(source, m->data + sizeof(core::MatchHdr), args.length)) [[unlikely]] {
    free_message(m);
    return false;
  }
  add_unexpected(p, m);
  return true;
}

/// Nobody waits for the message of `r` yet, and it stays where it is. False: there is no memory.
template <class P>
bool Engine<P>::keep_request(ProcT& p, SendRequest& r) {
  void* const memory = port_.alloc(sizeof(Message));
  if (!memory) return false;
  auto* const m = ::new (memory) Message;
  m->proc = &p;
  m->match = Eager<P>::header(p, r.xfer.tag, 0);
  m->match.type = kOwnRequest;
  m->data = reinterpret_cast<std::uint8_t*>(&r);
  add_unexpected(p, m);
  ++counters_.eager_sent;
  counters_.bytes_sent += r.xfer.length;
  return true;
}

/// A message to oneself begins, under the lock.
template <class P>
template <class Source>
[[gnu::noinline]] typename Engine<P>::OwnStart Engine<P>::begin_own(ProcT& p, const SendArgs<P>& args,
                                                                    Source& source) {
  RecvRequest* const taker = take_posted(p, args.tag);
  if (taker)
    set_matched(*taker, p, Eager<P>::header(p, args.tag, 0), args.length);
  else if (!keep_own(p, args, source))
    return {};
  ++counters_.eager_sent;
  counters_.bytes_sent += args.length;
  return {true, taker};
}

/// send_inline() to oneself. By value: its caller keeps them in registers.
template <class P>
[[gnu::noinline]] bool Engine<P>::inline_own(SendArgs<P> args, InlineSource source) {
  if (args.mode == SendMode::kSync) return false;
  OwnStart start;
  {
    Entry entry(*this);
    ProcT& p = *proc_at(*args.comm, args.dst);
    if (p.peer->standing.failed()) return false;
    start = begin_own(p, args, source);
  }
  if (start.taker) fill_own(*start.taker, source);
  return start.taken;
}

}  // namespace bfo::xfer
