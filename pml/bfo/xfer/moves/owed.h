// SPDX-License-Identifier: BSD-3-Clause
//
// owed.h: what the messages of a peer have yet to send again: the record of a failover waits for it
// (base/record.h). How many requests are in a restart is counted as they enter and leave one, so that a
// record which waits for that looks at no request. What the others owe is added up when nobody is in a
// restart any more, and again when as much was sent as an eighth of the requests: a piece that is sent again
// pays for eight requests that are looked at, however many there are.
//
// P1..P8: contrib/doc/design.md
#pragma once

#include <cstdint>

#include "pml/bfo/xfer/base/record.h"
#include "pml/bfo/xfer/moves/transfers.h"

namespace bfo::xfer {

/// A sender that waits for the receiver's word of what it has, a receiver that waits to give it.
constexpr bool in_restart(core::SendPhase phase) {
  return phase == core::SendPhase::kDraining || phase == core::SendPhase::kNotified;
}
constexpr bool in_restart(core::RecvPhase phase) {
  return phase == core::RecvPhase::kAsking || phase == core::RecvPhase::kQuiescing ||
         phase == core::RecvPhase::kQuiesced;
}

/// `x` was in phase `before`.
template <class P>
void Transfers<P>::count_restart(const auto& x, auto before) {
  if (in_restart(before) == in_restart(x.phase)) [[likely]]
    return;
  uint64_t& n = x.proc->peer->restarting;
  in_restart(x.phase) ? ++n : --n;
}

/// The eager messages are counted where they wait; requests in a rendezvous are looked at. `all`: also while
/// some are in a restart.
template <class P>
Owed Transfers<P>::owed(const PeerT& p, bool all) {
  if (!all && p.restarting != 0) return {.in_restart = true, .waiting = {}};
  Owed o;
  o.waiting = p.backlog.again;
  for (SendRequest* r = p.live_sends.front(); r; r = p.live_sends.next(r)) {
    const auto& x = r->xfer;
    ++o.looked_at;
    if (x.phase == SendPhase::kOpening || x.phase == SendPhase::kSending)
      o.waiting.bytes += x.rndv->resend_bytes;
    // Its receiver has not said what it has: at most so much has to be sent again.
    if (in_restart(x.phase)) o.waiting.add(x.rndv->sent_once.bytes() - x.rndv->received);
    if (x.phase == SendPhase::kOpening && x.rndv->restarts == 0 && x.rndv->opened &&
        (x.pending & kPendingStart))
      o.waiting.add(x.rndv->sent_once.bytes());
  }
  for (RecvRequest* r = p.live_recvs.front(); r; r = p.live_recvs.next(r)) {
    ++o.looked_at;
    if (r->xfer.phase == RecvPhase::kReceiving || in_restart(r->xfer.phase))
      o.waiting.bytes += r->xfer.rndv->read_failed.bytes();
  }
  return o;
}

}  // namespace bfo::xfer
