// SPDX-License-Identifier: BSD-3-Clause
//
// names.h: finding the request that a header names. A header that names none, or one of another peer or of an
// older round, is dropped and counted (P5).
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

/// The request that a message of `a` names. nullptr, with the reason in `state`: there is none, or it belongs
/// to another peer.
template <class P>
template <class Request>
Request* Engine<P>::find(const SlotMap<Request>& names, Name name, const Arrival& a, NameState& state) {
  Request* const r = names.find(name, state);
  if (!r) {
    ++(state == NameState::kNever ? counters_.malformed : counters_.stale);
    return nullptr;
  }
  if (!from_peer(a.rail, r->xfer.proc->peer)) {
    ++counters_.malformed;
    state = NameState::kNever;
    return nullptr;
  }
  return r;
}

/// The same, in its current round: messages of older rounds are dropped, newer rounds are impossible (H13).
template <class P>
template <class Request>
Request* Engine<P>::find_current(const SlotMap<Request>& names, Name name, const Arrival& a) {
  NameState state;
  Request* const r = find(names, name, a, state);
  if (!r || name.round() == r->xfer.rndv->name.round()) return r;
  ++(name.round() < r->xfer.rndv->name.round() ? counters_.stale : counters_.malformed);
  return nullptr;
}

/// find_current(), for the usual case inline.
template <class P>
template <class Request>
[[gnu::always_inline]] inline Request* Engine<P>::find_here(const SlotMap<Request>& names, Name name,
                                                            const Arrival& a) {
  Request* const r = names.find(name);
  const bool here = r && from_peer(a.rail, r->xfer.proc->peer) && name == r->xfer.rndv->name;
  return here ? r : find_current(names, name, a);
}

}  // namespace bfo::xfer
