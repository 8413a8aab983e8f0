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
  rail_notices(p);
  if (!p.backlog.syncs.empty() && !post_syncs(p)) return false;
  if (!rails_.post_stored(p)) return false;
  while (RecvRequest* r = p.backlog.ready_recvs.front()) {
    p.backlog.ready_recvs.remove(r);
    if (!serve(*r)) {
      if (!r->xfer.linked) p.backlog.ready_recvs.push_front(r);
      return false;
    }
  }
  while (SendRequest* r = p.backlog.unnamed.pop_front()) {
    if (RndvCopy<P>::begin(*this, *r)) continue;
    p.backlog.unnamed.push_front(r);
    break;
  }
  while (SendRequest* r = p.backlog.ready_sends.front()) {
    p.backlog.ready_sends.remove(r);
    if (!serve(*r)) {
      if (!r->xfer.linked) p.backlog.ready_sends.push_front(r);
      return false;
    }
  }
  // Control messages that came up meanwhile are in `stored`: by a READ that ended inside its call, or a grant
  // that was refused.
  return p.backlog.nothing_stored() && p.backlog.syncs.empty() && p.backlog.unnamed.empty() &&
         p.backlog.ready_recvs.empty();
}

/// Post what the state of a send requires. True: nothing is left that a rail could take now.
template <class P>
bool Engine<P>::serve(SendRequest& r) {
  auto& x = r.xfer;
  if (x.protocol == Protocol::kEager) return Eager<P>::serve(*this, r);
  if (x.pending & kPendingNotify) {
    if (!RestartMessages<P>::send_notify(*this, r)) return false;
    x.pending &= static_cast<std::uint8_t>(~kPendingNotify);
  }
  if (x.pending & kPendingStart) {
    if (!open(r)) return false;
    x.pending &= static_cast<std::uint8_t>(~kPendingStart);
  }
  if (!(x.pending & kPendingData)) return true;
  if (x.rndv->todo.incomplete()) [[unlikely]] {
    base_.failing.no_memory(*x.proc->peer, sizeof(Range));
    return true;
  }
  return x.protocol == Protocol::kPut ? Rput<P>::serve(*this, r) : RndvCopy<P>::serve(*this, r);
}

template <class P>
bool Engine<P>::serve(RecvRequest& r) {
  auto& x = r.xfer;
  if (x.pending & kPendingNotify) {
    if (!RestartMessages<P>::send_recv_err(*this, r)) return false;
    x.pending &= static_cast<std::uint8_t>(~kPendingNotify);
  }
  if (x.pending & kPendingRestartAck) {
    if (!RestartMessages<P>::send_restart_ack(*this, r)) return false;
    x.pending &= static_cast<std::uint8_t>(~kPendingRestartAck);
  }
  if (!(x.pending & (kPendingStart | kPendingData))) return true;
  if (x.rndv->todo.incomplete()) [[unlikely]] {
    base_.failing.no_memory(*x.proc->peer, sizeof(Range));
    return true;
  }
  switch (x.protocol) {
    case Protocol::kGet:
      return Rget<P>::serve(*this, r);
    case Protocol::kPut:
      return Rput<P>::serve(*this, r);
    default:
      return RndvCopy<P>::serve(*this, r);
  }
}

// ---- for tools

template <class P>
typename Engine<P>::QueueLengths Engine<P>::queue_lengths(CommT* c, std::int32_t rank) {
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
  peer.backlog.each_stored([&load](const void*, std::size_t) { ++load.stored; });
  for (auto* proc = peer.procs.front(); proc; proc = peer.procs.next(proc))
    load.stalled += length_of(proc->stalled);
  return load;
}

}  // namespace bfo::xfer
