// SPDX-License-Identifier: BSD-3-Clause
//
// names.h: the names of the requests of one direction, and finding the request that a header names. A header
// that names none, or one of another peer or of an older round, is dropped and counted (P5). The requests
// belong to the port. Used under the engine's lock.
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>

#include "common/slot_map.h"
#include "pml/bfo/xfer/calls.h"
#include "pml/bfo/xfer/counters.h"
#include "pml/bfo/xfer/state.h"

namespace bfo::xfer {

/// `Request`: the port's SendRequest or RecvRequest.
template <class P, class Request>
class Names {
 public:
  /// `most`: names in use at once. `first`: see SlotMap.
  Names(Counters& counters, uint32_t most, uint32_t first) : counters_(counters), names_(most, first) {}

  // ---- for this process
  /// A fresh name for `r`; a zero name when all are taken, or there is no memory for more.
  Name insert(Request* r) { return names_.insert(r); }
  /// The request has ended. `failed`: with an error, which is remembered.
  void erase(Name name, bool failed) { names_.erase(name, failed); }
  Request* find(Name name) const { return names_.find(name); }
  NameState state_of(Name name) const {
    NameState state;
    names_.find(name, state);
    return state;
  }
  /// Number of requests that have a name.
  uint32_t live() const { return names_.live(); }

  // ---- for a message
  /// The request that a message of `a` names. nullptr, with the reason in `state`: there is none, or it
  /// belongs to another peer.
  Request* find(Name name, const Arrival<P>& a, NameState& state);
  /// The same, in its current round: messages of older rounds are dropped, newer rounds are impossible (H13).
  Request* find_current(Name name, const Arrival<P>& a);
  /// find_current(), for the usual case inline.
  [[gnu::always_inline]] Request* find_here(Name name, const Arrival<P>& a) {
    Request* const r = names_.find(name);
    const bool here = r && from_peer(a.rail, r->xfer.proc->peer) && name == r->xfer.rndv->name;
    return here ? r : find_current(name, a);
  }

 private:
  Counters& counters_;
  SlotMap<Request> names_;
};

template <class P, class Request>
Request* Names<P, Request>::find(Name name, const Arrival<P>& a, NameState& state) {
  Request* const r = names_.find(name, state);
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

template <class P, class Request>
Request* Names<P, Request>::find_current(Name name, const Arrival<P>& a) {
  NameState state;
  Request* const r = find(name, a, state);
  if (!r || name.round() == r->xfer.rndv->name.round()) return r;
  ++(name.round() < r->xfer.rndv->name.round() ? counters_.stale : counters_.malformed);
  return nullptr;
}

}  // namespace bfo::xfer
