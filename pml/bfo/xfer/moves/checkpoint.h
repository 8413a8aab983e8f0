// SPDX-License-Identifier: BSD-3-Clause
//
// checkpoint.h: how a sender learns that messages to one rank have ended, although it keeps nothing of them.
// The rails count the work that they have accepted and ended. A checkpoint notes what each had accepted at
// one moment. When all of that has ended, every message numbered before the checkpoint has ended. A message
// that is sent again meanwhile is not in those counts: then the checkpoint does not hold any more. A rail
// whose BTL has no failover contract is left out (window.h). Used under the engine's lock. Needs no memory,
// cannot fail.
#pragma once

#include <cstdint>

#include "common/seq.h"
#include "pml/bfo/core/seq_window.h"
#include "pml/bfo/xfer/args.h"
#include "pml/bfo/xfer/rails/rail_state.h"

namespace bfo::xfer {

template <class P>
class Checkpoint {
 public:
  /// Every message to `peer` that is numbered before `seq` is on a rail now, or has ended.
  void take(P& port, const Peer<P>& peer, Seq16 seq);
  bool holds() const { return holds_; }
  /// A message numbered before it may be sent again.
  void drop() { holds_ = false; }
  /// Have all messages numbered before it ended?
  bool passed(P& port, const Peer<P>& peer) const;
  Seq16 seq() const { return seq_; }

 private:
  uint64_t accepted_[kMaxRails] = {};
  Seq16 seq_ = 0;
  bool holds_ = false;
};

template <class P>
void Checkpoint<P>::take(P& port, const Peer<P>& peer, Seq16 seq) {
  seq_ = seq;
  holds_ = true;
  for (unsigned i = 0; i < kMaxRails; ++i) {
    const bool counts = i < peer.n_rails && peer.rails[i].limits.failover;
    accepted_[i] = counts ? port.work(peer.rails[i].handle).taken : 0;
  }
}

template <class P>
bool Checkpoint<P>::passed(P& port, const Peer<P>& peer) const {
  for (unsigned i = 0; i < peer.n_rails; ++i) {
    const Rail<P>& r = peer.rails[i];
    if (!r.limits.failover) continue;
    // Its fragments count as ended before they have come back.
    const bool returning = r.state == RailState::kDown && r.up_epoch == r.name.epoch && r.up_epoch != 0;
    if (!core::rail_past_checkpoint(returning, port.work(r.handle).ended < accepted_[i])) return false;
  }
  return true;
}

}  // namespace bfo::xfer
