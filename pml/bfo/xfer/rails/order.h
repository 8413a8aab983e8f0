// SPDX-License-Identifier: BSD-3-Clause
//
// order.h: keeps what the user sends behind messages that end a send of the peer. These are FIN of an RGET,
// the ACK of a receive that needs no more data, and RESTARTNACK. They complete a request at the peer, and its
// user can see that: MPI_Bsend has room again. So a message that the local user sends afterwards must not be
// read there before them. While such messages are under way, they and all MATCH, RNDV and RGET to that peer
// take one rail. While one of them waits for a rail, MATCH, RNDV and RGET wait behind it. Fragments, reads
// and writes use all rails in any case. A FIN has no fragment record: its rail is asked whether it has ended.
//
// A rail that is not usable any more (suspect, down) delays nothing: what it carries is sent again when it
// comes back, and the order begins anew with that.
#pragma once

#include <utility>

#include "pml/bfo/xfer/state.h"

namespace bfo::xfer {

/// Chooses the rail of the user's short messages: none while they have to wait.
template <class P>
void settle_preferred(Peer<P>& p) {
  if (p.backlog.completion_waits())
    p.choice.prefer(nullptr);
  else if (p.completions.any())
    p.choice.prefer(p.completions.rail());
  else
    p.choice.prefer_default();
}

/// `rail` accepted a message that ends a send of the peer.
template <class P, class Frag>
void completing_begins(Frag& f, Rail<P>& rail) {
  Peer<P>& p = *rail.peer;
  f.xfer.completing_turn = p.completions.begin(rail);
  settle_preferred(p);
}

/// Such a message has ended, or came back.
template <class P, class Frag>
void completing_ends(Peer<P>& p, Frag& f) {
  if (p.completions.end(std::exchange(f.xfer.completing_turn, 0))) settle_preferred(p);
}

/// `rail` keeps a message that ends a send of the peer.
template <class P>
void brief_begins(Peer<P>& p, Rail<P>& rail) {
  p.completions.begin_brief(rail);
  if (p.choice.preferred() != &rail) settle_preferred(p);
}

/// The usable rails have changed.
template <class P>
void rails_changed(Peer<P>& p) {
  if (!p.choice.has(p.completions.rail())) p.completions.clear();
  settle_preferred(p);
}

}  // namespace bfo::xfer
