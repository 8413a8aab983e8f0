// SPDX-License-Identifier: BSD-3-Clause
//
// pump.h: posts what waits for a peer: notices about rails, questions about the sequence window, stored
// messages, then what requests have to post. What no rail takes now waits in the peer's lists, until a rail
// of the peer has room.
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

/// Post as much as possible of what waits for this peer. What no rail takes now stays for progress(). Without
/// a usable rail there is nothing to try; the next one calls rebuild(), which continues here.
template <class P>
void Engine<P>::flush(PeerT& p) {
  if (!p.active) return;
  if (p.choice.empty() || post_waiting(p)) base_.agenda.deactivate(p);
}

/// Stored messages, notices about rails, then requests. Control messages go before new data, because they
/// free resources of the peer. False: something still waits.
template <class P>
bool Engine<P>::post_waiting(PeerT& p) {
  failover_.post_notices(p);
  if (!p.backlog.syncs.empty() && !moves_.post_syncs(p)) return false;
  if (!rails_.post_stored(p)) return false;
  if (!moves_.post_requests(p)) return false;
  // Control messages that came up meanwhile are in `stored`: by a READ that ended inside its call, or a grant
  // that was refused.
  return p.backlog.nothing_stored() && p.backlog.syncs.empty() && p.backlog.unnamed.empty() &&
         p.backlog.ready_recvs.empty();
}

/// Sends of `p` that waited for the window go on, as far as it is open.
template <class P>
void Engine<P>::release_stalled(ProcT& p) {
  for (bool more = true; more;) {
    const auto one = moves_.release_one(p);
    if (one.posts) flush(*p.peer);
    more = one.more;
  }
}

// ---- for tools

template <class P>
typename Engine<P>::QueueLengths Engine<P>::queue_lengths(CommT* c, int32_t rank) {
  Entry entry(*this);
  return matching_.queue_lengths(*c, rank);
}

template <class P>
typename Engine<P>::PeerLoad Engine<P>::peer_load(const PeerT& peer) {
  Entry entry(*this);
  PeerLoad load;
  load.ready_sends = length_of(peer.backlog.ready_sends);
  load.ready_recvs = length_of(peer.backlog.ready_recvs);
  load.live_sends = length_of(peer.live_sends);
  load.live_recvs = length_of(peer.live_recvs);
  peer.backlog.each_stored([&load](const void*, size_t) { ++load.stored; });
  for (auto* proc = peer.procs.front(); proc; proc = peer.procs.next(proc))
    load.stalled += length_of(proc->stalled);
  return load;
}

}  // namespace bfo::xfer
