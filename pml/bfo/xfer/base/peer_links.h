// SPDX-License-Identifier: BSD-3-Clause
//
// peer_links.h: what Base keeps of a peer: the lists that it is in.
#pragma once

#include "pml/bfo/xfer/args.h"

namespace bfo::xfer {

template <class P>
struct PeerLinks {
  typename P::PeerHandle handle{};
  Peer<P>* next = nullptr;
  Peer<P>* active_next = nullptr;  ///< list of peers for which something waits: progress() serves them
  Peer<P>* active_prev = nullptr;
  Peer<P>* next_timed = nullptr;  ///< list of peers that progress() looks at every millisecond
  bool active = false;
  bool timed = false;
  bool own = false;  ///< this process itself: no message to it uses a rail
};

}  // namespace bfo::xfer
