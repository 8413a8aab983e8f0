// SPDX-License-Identifier: BSD-3-Clause
//
// memory.h: what happens when there is no memory for something that must be kept: an unexpected message, or
// bytes that must be said again. Order and completeness of what that peer sends cannot be kept any more, so
// it is given up: its requests end with an error on both sides, all others go on (P6). What a request
// needs for itself (a grant, a ledger entry, a name) waits instead, or is refused.
//
// P1..P8: contrib/doc/design.md
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

/// `size` bytes from or for `p` cannot be kept. It is given up when the engine is left: this may be called
/// anywhere, also while its requests are walked through.
template <class P>
[[gnu::cold, gnu::noinline]] void Engine<P>::no_memory(PeerT& p, std::size_t size) {
  if (p.lost || p.doomed) return;
  p.loss = PeerLoss{Outcome::kNoMemory, size, false};
  doom(p);
}

/// Gives up `p` when the engine is left.
template <class P>
void Engine<P>::doom(PeerT& p) {
  p.doomed = true;
  doomed_ = tail_work_ = true;
}

/// The same for a message that came over `rail`. Without a rail its sender is not known: it is one of those
/// whose messages come without, also one that has not been spoken to yet. With an epoch the rail is one that
/// speaks failover, of a peer that has not been spoken to yet: all others have a rail to be found.
template <class P>
[[gnu::cold, gnu::noinline]] void Engine<P>::no_memory(const RailT* rail, std::uint32_t epoch,
                                                       std::size_t size) {
  if (rail) return no_memory(*rail->peer, size);
  if (epoch != 0) {
    unmet_unkept_ = size;
    return;
  }
  nameless_unkept_ = size;
  for (PeerT* p = peers_; p; p = p->next)
    for (unsigned i = 0; i < p->n_rails; ++i)
      if (!p->rails[i].limits.failover) no_memory(*p, size);
}

/// The same for a message of rank `rank` of `c`: its sender is known even if it came without a rail, but it
/// may have no record, and there may be no memory for one. Then it is given up when it is met.
template <class P>
[[gnu::cold, gnu::noinline]] void Engine<P>::no_memory(CommT& c, std::int32_t rank, const Arrival& a) {
  PeerT* const peer = a.rail ? a.rail->peer : static_cast<PeerT*>(port_.resolve(c.handle, rank));
  if (peer) return no_memory(*peer, a.bytes.size);
  (a.epoch != 0 ? unmet_unkept_ : nameless_unkept_) = a.bytes.size;
}

/// nullptr: there is no memory.
template <class P>
template <class Rndv>
[[gnu::cold, gnu::noinline]] Rndv* Engine<P>::make_rndv() {
  void* const memory = port_.alloc(sizeof(Rndv));
  return memory ? ::new (memory) Rndv : nullptr;
}

template <class P>
template <class Rndv>
void Engine<P>::free_rndv(Rndv* list) {
  while (Rndv* const r = list) {
    list = r->next_free;
    r->~Rndv();
    port_.free(r);
  }
}

template <class P>
void Engine<P>::on_message_unkept(RailT* rail, std::size_t size) {
  Entry entry(*this);
  no_memory(rail, 0, size);
}

template <class P>
[[gnu::cold]] void Engine<P>::give_up_doomed() {
  doomed_ = false;
  for (PeerT* p = peers_; p; p = p->next) {
    if (!p->doomed || p->lost) continue;
    give_up(*p);
    p->owe_lost = !p->knows;
    tell_lost(*p);
  }
}

}  // namespace bfo::xfer
