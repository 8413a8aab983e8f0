// SPDX-License-Identifier: BSD-3-Clause
//
// sends.h: how a send enters the engine, and how one that a rail could not keep comes back.
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

template <class P>
void Engine<P>::isend(SendRequest* r, const SendArgs<P>& args) {
  bool done = false;
  RecvRequest* taker = nullptr;  // of a message to oneself
  {
    Entry entry(*this);
    ProcT* const p = matching_.proc_at(*args.comm, args.dst);
    auto& x = r->xfer;
    if (!p || !matching_.peer_of(*p)) [[unlikely]] {
      base_.finish_send(*r, Outcome::kNoMemory);
      return;
    }
    x.proc = p;
    x.length = args.length;
    x.tag = args.tag;
    x.mode = args.mode;
    x.protocol = Protocol::kEager;
    Machine<P>::rest(x);
    x.outcome = Outcome::kOk;
    if (!p->peer->own || p->peer->standing.failed()) [[likely]] {
      if (p->next_seq == p->stop_seq) [[unlikely]] {
        bool asked;
        const bool open = moves_.admit(*p, *r, asked);
        if (asked) flush(*p->peer);
        if (!open) return;
      }
      const Begun begun = moves_.start(*r, *p);
      if (begun.posts) flush(*p->peer);
      done = begun.done;
    } else {
      const OwnStart<P> start = moves_.begin_own(*p, args, *r);
      taker = start.taker;
      done = start.taken;
      if (!done && !moves_.keep_own(*p, *r)) base_.finish_send(*r, Outcome::kNoMemory);
    }
  }
  if (taker) [[unlikely]]
    moves_.fill_own(*taker, *r);
  if (done) base_.port.complete_send(*r, Outcome::kOk);
}

/// inline: so that the function MPI calls contains it, also in a program that instantiates the engine
/// elsewhere.
template <class P>
inline bool Engine<P>::send_inline(const SendArgs<P>& args, InlineSource& source) {
  const auto& longest = args.blocking ? longest_blocking_ : longest_eager_;
  if (args.length > longest.load(std::memory_order_relaxed)) return false;
  Inline how;
  {
    Entry entry(*this);
    how = moves_.try_inline(args, source);
  }
  if (how == Inline::kOwn) [[unlikely]]
    return send_own(args, source);
  return how == Inline::kSent;
}

/// The same to this process itself. By value: its caller keeps them in registers.
template <class P>
[[gnu::noinline]] bool Engine<P>::send_own(SendArgs<P> args, InlineSource source) {
  OwnStart<P> start;
  {
    Entry entry(*this);
    start = moves_.begin_own(args, source);
  }
  if (start.taker) moves_.fill_own(*start.taker, source);
  return start.taken;
}

template <class P>
void Engine<P>::on_sendi_failed(RailT* rail, uint8_t tag, const void* data, size_t size, Fate) {
  Entry entry(*this);
  if (size == 0 || *static_cast<const uint8_t*>(data) != tag) {
    ++base_.counters.malformed;
    return;
  }
  PeerT& p = *rail->peer;
  if (p.standing.finalized()) return;
  if (entry.nested() && tag != static_cast<uint8_t>(MsgType::kMatch)) {
    defer(rail, 0, tag, data, size, true);
    return;
  }
  moves_.brief_lost(p, static_cast<MsgType>(tag), Bytes{static_cast<const uint8_t*>(data), size});
  if (!entry.nested())
    flush(p);
  else
    base_.activate(p);
}

}  // namespace bfo::xfer
