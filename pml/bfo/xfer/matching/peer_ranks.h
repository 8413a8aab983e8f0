// SPDX-License-Identifier: BSD-3-Clause
//
// peer_ranks.h: what Matching keeps of a peer: its ranks, and what it has of communicators that are gone or
// not there yet.
#pragma once

#include <cstdint>

#include "pml/bfo/xfer/args.h"
#include "pml/bfo/xfer/base/list.h"
#include "pml/bfo/xfer/matching/past_sequences.h"

namespace bfo::xfer {

template <class P>
struct PeerRanks {
  PastSequences past;  ///< of communicators that were freed
  /// bytes kept of its messages for communicators that do not exist here yet
  uint64_t unknown_held = 0;
  List<Proc<P>> procs;  ///< of it, on all communicators
};

}  // namespace bfo::xfer
