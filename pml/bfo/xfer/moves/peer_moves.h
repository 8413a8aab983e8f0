// SPDX-License-Identifier: BSD-3-Clause
//
// peer_moves.h: what Moves keeps of a peer: the requests that are in a rendezvous with it.
#pragma once

#include <cstdint>

#include "pml/bfo/xfer/base/by_key.h"
#include "pml/bfo/xfer/base/list.h"
#include "pml/bfo/xfer/moves/failed_receives.h"

namespace bfo::xfer {

/// A receive by the name that its sender has given the message.
struct SenderName {
  static uint64_t of(const auto* r) { return r->xfer.rndv->peer_name.request(); }
};

template <class P>
struct PeerMoves {
  FailedReceives failed_receives;                      ///< messages of it whose receive ended with an error
  uint64_t rendezvous = 0;                             ///< with it that have begun, in both directions
  uint64_t restarting = 0;                             ///< of live_sends and live_recvs: owed.h
  List<typename P::SendRequest, LiveLink> live_sends;  ///< named requests
  List<typename P::RecvRequest, LiveLink> live_recvs;
  /// of live_recvs: made by the first search for one of many, until they have ended
  ByKey<typename P::RecvRequest, SenderName> recvs_by_sender;
};

}  // namespace bfo::xfer
