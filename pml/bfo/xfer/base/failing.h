// SPDX-License-Identifier: BSD-3-Clause
//
// failing.h: peers that are to be declared failed, because the memory for something that must be kept cannot
// be allocated: for an unexpected message, or for bytes that must be sent again. The messages of that peer
// can then not be kept complete and in order. Requests with it end with an error on both sides, requests with
// other peers continue (P6). What a request needs for itself (a grant, a ledger entry, a name) does not end
// the peer: the request waits, or is refused.
//
// The peer is declared failed when the engine is left (peer_failure.h). So everything here may be called
// anywhere, also from a loop over its requests. What concerns a peer that has no record here takes effect
// when that record is made. Used under the engine's lock.
//
// P1..P8: contrib/doc/design.md
#pragma once

#include <cstddef>
#include <cstdint>

#include "pml/bfo/xfer/calls.h"
#include "pml/bfo/xfer/base/exit_work.h"
#include "pml/bfo/xfer/base/early_losses.h"
#include "pml/bfo/xfer/base/unstored.h"
#include "pml/bfo/xfer/base/peers.h"

namespace bfo::xfer {

template <class P>
class Failing {
 public:
  using PeerT = Peer<P>;

  Failing(P& port, const Peers<P>& peers, ExitWork<P>& exit_work)
      : port_(port), peers_(peers), exit_work_(exit_work) {}

  // ---- there was no memory
  void no_memory(PeerT& p, size_t size);
  void no_memory(const Rail<P>* rail, uint32_t epoch, size_t size);
  void no_memory(Comm<P>& c, int32_t rank, Arrival<P> a);
  /// `p` has reached a limit with `size`.
  void too_much(PeerT& p, PeerLoss::Limit limit, uint64_t size);
  /// `size` bytes about a process that is not known could not be stored.
  void no_memory_for_any(size_t size) { unstored_.note_any(size); }

  // ---- nothing can be said to `p`, which has no rail
  void refused(PeerT& p) {
    p.standing.set_loss(PeerLoss{});
    p.standing.set_declared_by_peer();  // it is not told
    schedule(p);
  }

  // ---- the peer declared this process failed
  /// Keeps `loss` until the record of the peer with connection `conn` is made. False: nobody has that many.
  bool keep(uint32_t epoch, uint64_t conn, const PeerLoss& loss);

  /// The record of `rail` is made, and its connection known.
  void met(Rail<P>& rail);
  void free_all() { early_losses_.free_all(port_); }

 private:
  void schedule(PeerT& p) {
    p.standing.set_failing();
    exit_work_.add_failure();
  }

  P& port_;
  const Peers<P>& peers_;
  ExitWork<P>& exit_work_;
  EarlyLosses early_losses_;
  Unstored unstored_;
};

/// `size` bytes from or for `p` could not be stored.
template <class P>
[[gnu::cold, gnu::noinline]] void Failing<P>::no_memory(PeerT& p, size_t size) {
  too_much(p, PeerLoss::Limit::kMemory, size);
}

template <class P>
[[gnu::cold, gnu::noinline]] void Failing<P>::too_much(PeerT& p, PeerLoss::Limit limit, uint64_t size) {
  if (p.standing.failed() || p.standing.failing()) return;
  p.standing.set_loss(PeerLoss{Outcome::kNoMemory, size, false, limit});
  schedule(p);
}

/// The same for a message that came over `rail`. Without a rail the sender is unknown: it is any peer that is
/// reached by a BTL which does not name senders, including peers that this process has not sent to yet. A
/// rail of nullptr with an epoch means a failover rail of a peer that has no record here.
template <class P>
[[gnu::cold, gnu::noinline]] void Failing<P>::no_memory(const Rail<P>* rail, uint32_t epoch, size_t size) {
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
[[gnu::cold, gnu::noinline]] void Failing<P>::no_memory(Comm<P>& c, int32_t rank, Arrival<P> a) {
  PeerT* const peer = a.rail ? a.rail->peer : static_cast<PeerT*>(port_.resolve(c.handle, rank));
  if (peer) return no_memory(*peer, a.size);
  unstored_.note(a.epoch != 0, a.size);
}

template <class P>
[[gnu::cold]] bool Failing<P>::keep(uint32_t epoch, uint64_t conn, const PeerLoss& loss) {
  switch (early_losses_.keep(port_, conn, loss)) {
    case EarlyLosses::Kept::kYes:
      return true;
    case EarlyLosses::Kept::kFull:
      return false;
    case EarlyLosses::Kept::kNoMemory:
      break;
  }
  no_memory(nullptr, epoch, EarlyLosses::record_size());
  return true;
}

template <class P>
void Failing<P>::met(Rail<P>& rail) {
  PeerT& p = *rail.peer;
  if (const size_t size = unstored_.over(rail.limits.failover)) no_memory(p, size);
  PeerLoss loss;
  if (early_losses_.empty() || !early_losses_.take(port_, rail.name.conn, loss)) [[likely]]
    return;
  if (!p.standing.failing()) p.standing.set_loss(loss);
  p.standing.set_declared_by_peer();
  schedule(p);
}

}  // namespace bfo::xfer
