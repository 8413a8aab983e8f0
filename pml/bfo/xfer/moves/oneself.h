// SPDX-License-Identifier: BSD-3-Clause
//
// oneself.h: messages to oneself. They use no rail, no header and no number, and no rendezvous: nothing can
// be lost and nothing overtakes anything here. A receive that is posted is filled inside the send. Otherwise
// a short message is kept as one that came over a rail, so that its send is over; of a long or synchronous
// one only the request is kept, and the receive is filled from its buffer when it comes.
//
// Buffers are copied after the lock was released, by the call that found both requests: neither is in a queue
// then.
#pragma once

#include <new>

#include "pml/bfo/xfer/moves/transfers.h"

namespace bfo::xfer {

template <class P>
struct Oneself {
  using E = Transfers<P>;
  using SendRequest = typename P::SendRequest;
  using RecvRequest = typename P::RecvRequest;
  using InlineSource = typename P::InlineSource;
  using Start = OwnStart<P>;

  /// `source` is the buffer of a send that matched `r`. Not under the lock.
  template <class Source>
  static void fill(E& e, RecvRequest& r, Source& source) {
    if (r.xfer.status.length != 0) e.base_.port.copy(source, r, r.xfer.status.length);
    e.base_.port.complete_recv(r, r.xfer.status);
  }

  /// `own` was matched with `r`: both end. Not under the lock.
  [[gnu::noinline]] static void finish(E& e, RecvRequest& r, SendRequest& own) {
    fill(e, r, own);
    e.base_.port.complete_send(own, Outcome::kOk);
  }

  /// Nobody waits for a short message yet. False: it is too long, or there is no memory.
  template <class Source>
  static bool keep(E& e, Proc<P>& p, const SendArgs<P>& args, Source& source) {
    if (args.mode == SendMode::kSync || args.length + sizeof(core::MatchHdr) > p.peer->eager_limit)
      return false;
    void* const memory = e.base_.port.alloc(sizeof(Unexpected<P>) + args.length);
    if (!memory) return false;
    auto* const payload = static_cast<uint8_t*>(memory) + sizeof(Unexpected<P>);
    auto* const m =
        ::new (memory) Unexpected<P>(Eager<P>::header(p, args.tag, 0), core::Bytes{payload, args.length});
    m->proc = &p;
    if (args.length != 0 && !e.base_.port.gather(source, payload, args.length)) [[unlikely]] {
      e.matching_.free_message(m);
      return false;
    }
    e.matching_.add_unexpected(p, m);
    return true;
  }

  /// Nobody waits for the message of `r` yet, and it stays where it is. False: there is no memory.
  static bool keep_request(E& e, Proc<P>& p, SendRequest& r) {
    void* const memory = e.base_.port.alloc(sizeof(Unexpected<P>));
    if (!memory) return false;
    auto* const m = ::new (memory) Unexpected<P>(Eager<P>::header(p, r.xfer.tag, 0), core::Bytes{});
    m->proc = &p;
    m->own = &r;
    e.matching_.add_unexpected(p, m);
    ++e.base_.counters.eager_sent;
    e.base_.counters.bytes_sent += r.xfer.length;
    return true;
  }

  /// A message begins, under the lock.
  template <class Source>
  [[gnu::noinline]] static Start begin(E& e, Proc<P>& p, const SendArgs<P>& args, Source& source) {
    RecvRequest* const taker = e.matching_.take_posted(p, args.tag);
    if (taker)
      e.matching_.set_matched(*taker, p, Eager<P>::header(p, args.tag, 0), args.length);
    else if (!keep(e, p, args, source))
      return {};
    ++e.base_.counters.eager_sent;
    e.base_.counters.bytes_sent += args.length;
    return {true, taker};
  }

  /// A message without a request begins.
  static Start begin_inline(E& e, const SendArgs<P>& args, InlineSource& source) {
    if (args.mode == SendMode::kSync) return {};
    Proc<P>& p = *e.matching_.proc_at(*args.comm, args.dst);
    if (p.peer->standing.failed()) return {};
    return begin(e, p, args, source);
  }
};

}  // namespace bfo::xfer
