// SPDX-License-Identifier: BSD-3-Clause
//
// failed.h: messages whose receive ended with an error while their sender's process is still a peer. The
// sender is told, but its header may be under way again, and the answer to that one may overtake the first:
// both must say the same. A failed slot of a SlotMap does this for names of ours; a header that was never
// answered carries the sender's name only, and a receive that found no name has no slot.
//
// A record stays as long as the peer does: what is under way nobody knows. The sender's name is not used
// again either, because its send fails with it.
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

/// The receive of the message `sender` of `p` has failed. Without memory to remember it the peer is given up:
/// then its sends end with an error too.
template <class P>
[[gnu::cold]] void Engine<P>::note_failed(PeerT& p, Name sender) {
  if (p.lost || p.doomed) return;  // its sends end with an error all the same
  void* const memory = port_.alloc(sizeof(FailedReceive));
  if (!memory) return no_memory(p, sizeof(FailedReceive));
  p.failed = ::new (memory) FailedReceive{p.failed, sender};
}

/// The message `sender` of `p` came again, and its receive is over: NACK, as it ended.
template <class P>
[[gnu::cold]] void Engine<P>::answer_over(PeerT& p, const core::MatchHdr& h, Name sender) {
  if (p.doomed) return;
  const FailedReceive* f = p.failed;
  while (f && !f->sender.same_request(sender)) f = f->next;
  raw_restart(p, MsgType::kRestartNack, f ? core::kFlagFail : 0, h, sender, Name());
  flush(p);
}

}  // namespace bfo::xfer
