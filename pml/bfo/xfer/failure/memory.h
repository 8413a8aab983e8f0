// SPDX-License-Identifier: BSD-3-Clause
//
// memory.h: what happens when the memory for something that must be kept cannot be allocated: for an
// unexpected message, or for bytes that must be sent again. The messages of that peer can then not be kept
// complete and in order. The peer is declared failed: requests with it end with an error on both sides,
// requests with other peers continue (P6). What a request needs for itself (a grant, a ledger entry, a name)
// does not end the peer: the request waits, or is refused.
//
// P1..P8: contrib/doc/design.md
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

/// `size` bytes from or for `p` could not be stored. The peer is declared failed when the engine is left, so
/// this function may be called anywhere, also from a loop over its requests.
template <class P>
[[gnu::cold, gnu::noinline]] void Engine<P>::no_memory(PeerT& p, std::size_t size) {
  if (p.standing.failed() || p.standing.failing()) return;
  p.standing.set_loss(PeerLoss{Outcome::kNoMemory, size, false});
  schedule_failure(p);
}

/// Declare `p` failed when the engine is left.
template <class P>
void Engine<P>::schedule_failure(PeerT& p) {
  p.standing.set_failing();
  exit_work_.add_failure();
}

/// The same for a message that came over `rail`. Without a rail the sender is unknown: it is any peer that is
/// reached by a BTL which does not name senders, including peers that this process has not sent to yet. A
/// rail of nullptr with an epoch means a failover rail of a peer that has no record here.
template <class P>
[[gnu::cold, gnu::noinline]] void Engine<P>::no_memory(const RailT* rail, std::uint32_t epoch,
                                                       std::size_t size) {
  if (rail) return no_memory(*rail->peer, size);
  unstored_.note(epoch != 0, size);
  if (epoch != 0) return;
  for (PeerT* p = peers_.front(); p; p = p->next)
    for (unsigned i = 0; i < p->n_rails; ++i)
      if (!p->rails[i].limits.failover) no_memory(*p, size);
}

/// The same for a message of rank `rank` of `c`. The header names the sender, but the sender may have no
/// record, and there may be no memory for one. It is then declared failed when its record is made.
template <class P>
[[gnu::cold, gnu::noinline]] void Engine<P>::no_memory(CommT& c, std::int32_t rank, Arrival a) {
  PeerT* const peer = a.rail ? a.rail->peer : static_cast<PeerT*>(port_.resolve(c.handle, rank));
  if (peer) return no_memory(*peer, a.bytes.size);
  unstored_.note(a.epoch != 0, a.bytes.size);
}

template <class P>
void Engine<P>::on_message_unstored(RailT* rail, std::size_t size) {
  Entry entry(*this);
  no_memory(rail, 0, size);
}

template <class P>
[[gnu::cold]] void Engine<P>::fail_scheduled() {
  exit_work_.forget_failures();
  for (PeerT* p = peers_.front(); p; p = p->next) {
    if (!p->standing.failing() || p->standing.failed()) continue;
    declare_failed(*p);
    p->standing.set_notice_pending(!p->standing.declared_by_peer());
    notify_lost(*p);
  }
}

}  // namespace bfo::xfer
