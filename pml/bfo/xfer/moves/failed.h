// SPDX-License-Identifier: BSD-3-Clause
//
// failed.h: messages whose receive ended with an error although their sender is still a peer. The sender is
// notified by a NACK with the fail flag. Its header may be sent again meanwhile, and the answer to the copy
// may overtake the first answer, so both must be the same. If the sender knows the receiver's name, the
// failed slot of the SlotMap does this. A header that was never answered carries only the sender's name, and
// a receive without a name has no slot: for these there is a record here.
//
// A record stays as long as its peer, because nobody knows which copies are under way. The sender's name is
// not used again either, because its send fails with the receive.
#pragma once

#include "pml/bfo/xfer/moves/transfers.h"

namespace bfo::xfer {

/// The receive of message `sender` of `p` has failed. Without memory for a record the peer is declared
/// failed, so that its sends end with an error, too.
template <class P>
[[gnu::cold]] void Transfers<P>::note_failed(PeerT& p, Name sender) {
  if (p.standing.failed() || p.standing.failing()) return;  // its sends end with an error in any case
  if (!p.failed_receives.add(base_.port, sender)) base_.failing.no_memory(p, FailedReceives::record_size());
}

/// The message `sender` of `p` came again after its receive had ended: answer NACK with the same outcome.
template <class P>
[[gnu::cold]] void Transfers<P>::answer_over(PeerT& p, const core::MatchHdr& h, Name sender) {
  if (p.standing.failing()) return;
  stored_restart(p, MsgType::kRestartNack, p.failed_receives.has(sender) ? core::kFlagFail : 0, h, sender,
                 Name());
}

}  // namespace bfo::xfer
