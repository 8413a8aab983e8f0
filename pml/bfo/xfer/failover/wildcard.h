// SPDX-License-Identifier: BSD-3-Clause
//
// wildcard.h: receives and probes from MPI_ANY_SOURCE when a process that could have sent the message has
// failed.
//
// Such a wildcard cannot know whether its message would have come from the failed process. So it ends with
// the error of that process on every communicator of which that process is a member, whether it was posted
// before the failure or after it (MPI's fault tolerance has the same rule). A message that has arrived is
// still received. With AnySource::kWait it continues while any other member is left, with kRuntime always.
//
// The processes that a wildcard waits for must be watched (keepalive.h): the members that this process is
// connected to, and in a small communicator also those it has never sent to. In a large communicator the
// latter are left out: watching them would connect this process to all of them.
//
// Counts the failed members of each communicator; owns no memory. Used under the engine's lock.
#pragma once

#include <cstdint>

#include "pml/bfo/xfer/counters.h"
#include "pml/bfo/xfer/matching/matching.h"
#include "pml/bfo/xfer/state.h"

namespace bfo::xfer {

template <class P>
class Wildcards {
 public:
  using RecvRequest = typename P::RecvRequest;
  using CommT = Comm<P>;
  using PeerT = Peer<P>;

  /// `rule`: what a failure does.
  Wildcards(P& port, AnySource rule, Matching<P>& matching)
      : port_(port), rule_(rule), matching_(matching), comms_(matching.comms()) {}

  /// A communicator is made.
  void comm_made(CommT& c) {
    if (n_lost_ != 0) [[unlikely]]
      count_lost(c);
  }
  void peer_failed(PeerT& p);
  bool wait_for(PeerT& p);
  template <class Meet>
  void watch_all(Meet meet);

 private:
  static constexpr int32_t kWatched = 256;  ///< ranks that watch_all() looks at in one call
  /// up to this size all ranks are watched, also those never spoken to
  static constexpr int32_t kSmallComm = 64;

  PeerT* known_peer(const CommT& c, int32_t rank) const;
  void count_lost(CommT& c, int32_t rank, const PeerT& p);
  void count_lost(CommT& c);
  bool wait_on(const CommT& c) const;
  bool deserted(const CommT& c) const;
  template <class Meet>
  void watch(CommT& c, int32_t rank, Meet meet);

  P& port_;
  AnySource rule_;
  Matching<P>& matching_;
  const CommTable<P>& comms_;
  uint32_t n_lost_ = 0;  ///< peers that failed and had not finalized
};

/// Rank `rank` of `c` if this process has a record of it; unlike peer_of() it makes none.
template <class P>
Peer<P>* Wildcards<P>::known_peer(const CommT& c, int32_t rank) const {
  const Proc<P>* const p = c.procs[rank];
  if (p && p->peer) return p->peer;
  return static_cast<PeerT*>(port_.known(c.handle, rank));
}

/// Rank `rank` of `c` was declared failed.
template <class P>
[[gnu::cold]] void Wildcards<P>::count_lost(CommT& c, int32_t rank, const PeerT& p) {
  // Messages to oneself can still come when all others have failed: for kWait this process counts as a member
  // that is left.
  if (c.inter || rank != c.my_rank || rule_ == AnySource::kError) ++c.n_lost;
  c.lost_rank = rank;
  c.lost_outcome = p.standing.loss().outcome;
  c.wildcards_end =
      rule_ != AnySource::kRuntime && c.n_lost != 0 && (rule_ == AnySource::kError || c.n_lost >= c.others());
}

/// A communicator is made after processes have failed.
template <class P>
[[gnu::cold]] void Wildcards<P>::count_lost(CommT& c) {
  for (int32_t i = 0; i < c.size; ++i)
    if (const PeerT* const p = known_peer(c, i); p && p->standing.failed()) count_lost(c, i, *p);
}

/// `p` was declared failed: end the wildcards on all communicators of which it is a member.
template <class P>
[[gnu::cold]] void Wildcards<P>::peer_failed(PeerT& p) {
  ++n_lost_;
  for (CommT* c = comms_.front(); c; c = comms_.next(c)) {
    for (int32_t i = 0; i < c->size; ++i)
      if (known_peer(*c, i) == &p) count_lost(*c, i, p);
    if (c->wildcards_end) matching_.fail_wildcards(*c);
  }
}

/// Is there a wildcard on `c` that a failure would end?
template <class P>
bool Wildcards<P>::wait_on(const CommT& c) const {
  if (c.probed != 0) return true;
  for (RecvRequest* r = c.posted_any_source.front(); r; r = c.posted_any_source.next(r))
    if (!r->xfer.keeps_waiting) return true;
  return false;
}

/// Has every other member of `c` failed, or finalized in order? Then the park time applies to the finalized
/// ones as well: without it the wait would have no end.
template <class P>
[[gnu::cold]] bool Wildcards<P>::deserted(const CommT& c) const {
  for (int32_t i = 0; i < c.size; ++i) {
    if (!c.inter && i == c.my_rank) continue;
    const PeerT* const p = known_peer(c, i);
    if (!p || !p->standing.ended()) return false;
  }
  return true;
}

/// The park time of `p`, which watch_all() had set watched, is over: does a wildcard still wait for it?
template <class P>
[[gnu::cold]] bool Wildcards<P>::wait_for(PeerT& p) {
  if (!p.watch.watched()) return false;
  for (CommT* c = comms_.front(); c; c = comms_.next(c)) {
    if (!wait_on(*c)) continue;
    for (int32_t i = 0; i < c->size; ++i)
      if (known_peer(*c, i) == &p && (!p.standing.finalized() || deserted(*c))) return true;
  }
  p.watch.forget_wildcards();
  return false;
}

/// Marks members of communicators on which a wildcard waits: some at each call, round robin. `meet` makes the
/// record of a rank's peer; nullptr: no memory.
template <class P>
template <class Meet>
void Wildcards<P>::watch_all(Meet meet) {
  int32_t ranks_left = kWatched;
  for (CommT* c = comms_.front(); c && ranks_left > 0; c = comms_.next(c)) {
    if (!wait_on(*c)) continue;
    if (c->probed != 0) --c->probed;
    const int32_t n = c->size < ranks_left ? c->size : ranks_left;
    ranks_left -= n;
    for (int32_t i = 0; i < n; ++i) {
      watch(*c, c->watch, meet);
      c->watch = c->watch + 1 < c->size ? c->watch + 1 : 0;
    }
  }
}

template <class P>
template <class Meet>
void Wildcards<P>::watch(CommT& c, int32_t rank, Meet meet) {
  if (!c.inter && rank == c.my_rank) return;
  PeerT* p = known_peer(c, rank);
  if (!p && c.size > kSmallComm) return;
  if (!(p = meet(c, rank)) || p->standing.failed()) return;
  bool connected = c.size <= kSmallComm;
  for (unsigned i = 0; i < p->n_rails; ++i) connected = connected || p->rails[i].up_epoch != 0;
  p->watch.set_watched(connected && !p->standing.finalized());
}

}  // namespace bfo::xfer
