// SPDX-License-Identifier: BSD-3-Clause
//
// revoked.h: messages of a communicator that was revoked. Nobody receives them any more, but their senders
// wait: a rendezvous that no receive has matched is answered like one whose receive has failed, and its send
// ends with an error. What a receive or a matched probe has taken already goes on.
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

/// `refusal`: which messages of `c` nobody receives.
template <class P>
[[gnu::cold]] void Engine<P>::comm_revoke(CommT* c, const Refusal& refusal) {
  Entry entry(*this);
  c->refusal = refusal;
  if (!entry.nested())
    refuse(*c);
  else
    refusals_wait_ = true;  // the engine may be in the middle of its queues
}

/// What has come for `c` and is refused leaves.
template <class P>
[[gnu::cold, gnu::noinline]] void Engine<P>::refuse(CommT& c) {
  while (Message* const m = matching_.take_refused(c)) {
    PeerT* const p = m->is_open() ? matching_.peer_of(*m->proc) : nullptr;
    if (m->own) base_.finish_send(*m->own, Outcome::kPeerLost);
    if (p && !p->standing.ended()) {
      moves_.refuse(*p, m->what.match(), Name(m->what.rndv().sender));
      flush(*p);
    }
    matching_.free_message(m);
  }
}

/// The runtime keeps account of the processes that are gone. `gone(handle)`: does it say so of this peer?
/// Then its requests end with kPeerLost, each through its gate. `lost(handle, ns)`: this peer was declared
/// failed here, so many ns ago, and the runtime does not know. A peer that was given up because memory is
/// short here lives: of it nothing is said. Called with the lock held.
template <class P>
template <class Gone, class Lost>
[[gnu::cold]] void Engine<P>::compare_losses(Gone gone, Lost lost) {
  Entry entry(*this);
  if (entry.nested()) return;
  if (std::exchange(refusals_wait_, false))
    for (CommT* c = matching_.comms().front(); c; c = matching_.comms().next(c))
      if (c->refusal.any()) refuse(*c);
  for (PeerT* p = base_.peers.front(); p; p = p->next) {
    if (p->own || p->standing.finalized()) continue;
    const bool dead = gone(p->handle);
    if (p->standing.failed()) {
      if (!dead && !p->standing.declared_by_peer() && p->standing.loss().outcome != Outcome::kNoMemory)
        lost(p->handle, time_since(p->standing.failed_ns(), base_.port.now_ns()));
    } else if (dead) {
      PeerLoss loss;
      loss.died = true;
      p->standing.set_loss(loss);
      failover_.declare_failed(*p);
    }
  }
}

}  // namespace bfo::xfer
