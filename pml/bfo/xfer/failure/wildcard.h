// SPDX-License-Identifier: BSD-3-Clause
//
// wildcard.h: receives and probes from MPI_ANY_SOURCE when a process that could have sent the message has
// failed.
//
// Such a wildcard cannot know whether its message would have come from the failed process. So it ends with
// the error of that process on every communicator of which that process is a member, whether it was posted
// before the failure or after it (MPI's fault tolerance has the same rule). A message that has arrived is
// still received. With AnySource::kWait it continues while any other member is left.
//
// The processes that a wildcard waits for must be watched (keepalive.h): the members that this process is
// connected to, and in a small communicator also those it has never sent to. In a large communicator the
// latter are left out: watching them would connect this process to all of them.
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

/// Rank `rank` of `c` if this process has a record of it; unlike peer_of() it makes none.
template <class P>
Peer<P>* Engine<P>::known_peer(const CommT& c, std::int32_t rank) const {
  const ProcT* const p = c.procs[rank];
  if (p && p->peer) return p->peer;
  return static_cast<PeerT*>(port_.known(c.handle, rank));
}

/// Does a wildcard on `c` end with the error of a failed member?
template <class P>
bool Engine<P>::wildcard_lost(const CommT& c) const {
  if (c.n_lost == 0) return false;
  return config_.any_source_on_loss == AnySource::kError || c.n_lost >= c.others();
}

/// Rank `rank` of `c` was declared failed.
template <class P>
[[gnu::cold]] void Engine<P>::count_lost(CommT& c, std::int32_t rank, const PeerT& p) {
  // Messages to oneself can still come when all others have failed: for kWait this process counts as a member
  // that is left.
  if (c.inter || rank != c.my_rank || config_.any_source_on_loss == AnySource::kError) ++c.n_lost;
  c.lost_rank = rank;
  c.lost_outcome = p.standing.loss().outcome;
}

/// A communicator is made after processes have failed.
template <class P>
[[gnu::cold]] void Engine<P>::count_lost(CommT& c) {
  for (std::int32_t i = 0; i < c.size; ++i)
    if (const PeerT* const p = known_peer(c, i); p && p->standing.failed()) count_lost(c, i, *p);
}

/// `p` was declared failed: end the wildcards on all communicators of which it is a member.
template <class P>
[[gnu::cold]] void Engine<P>::wildcards_lose(PeerT& p) {
  ++n_lost_;
  for (CommT* c = comms_.front(); c; c = comms_.next(c)) {
    for (std::int32_t i = 0; i < c->size; ++i)
      if (known_peer(*c, i) == &p) count_lost(*c, i, p);
    if (wildcard_lost(*c)) end_wildcards(*c);
  }
}

template <class P>
[[gnu::cold]] void Engine<P>::end_wildcards(CommT& c) {
  for (RecvRequest* r = c.posted_any_source.front(); r;) {
    RecvRequest* const next = c.posted_any_source.next(r);
    if (!r->xfer.keeps_waiting) {
      c.posted_any_source.remove(*this, r);
      fail_wildcard(*r);
    }
    r = next;
  }
}

template <class P>
[[gnu::cold, gnu::noinline]] void Engine<P>::fail_wildcard(RecvRequest& r) {
  const CommT& c = *r.xfer.comm;
  r.xfer.status = RecvStatus{c.lost_rank, r.xfer.tag, 0, c.lost_outcome};
  finish_recv(r);
}

/// Is there a wildcard on `c` that a failure would end?
template <class P>
bool Engine<P>::wildcard_waits(const CommT& c) const {
  if (c.probed != 0) return true;
  for (RecvRequest* r = c.posted_any_source.front(); r; r = c.posted_any_source.next(r))
    if (!r->xfer.keeps_waiting) return true;
  return false;
}

/// Has every other member of `c` failed, or finalized in order? Then the park time applies to the finalized
/// ones as well: without it the wait would have no end.
template <class P>
[[gnu::cold]] bool Engine<P>::deserted(const CommT& c) const {
  for (std::int32_t i = 0; i < c.size; ++i) {
    if (!c.inter && i == c.my_rank) continue;
    const PeerT* const p = known_peer(c, i);
    if (!p || !p->standing.ended()) return false;
  }
  return true;
}

/// The park time of `p`, which watch_wildcards() had set watched, is over: does a wildcard still wait for it?
template <class P>
[[gnu::cold]] bool Engine<P>::watched_by_wildcard(PeerT& p) {
  if (!p.watch.watched()) return false;
  for (CommT* c = comms_.front(); c; c = comms_.next(c)) {
    if (!wildcard_waits(*c)) continue;
    for (std::int32_t i = 0; i < c->size; ++i)
      if (known_peer(*c, i) == &p && (!p.standing.finalized() || deserted(*c))) return true;
  }
  p.watch.forget_wildcards();
  return false;
}

/// Marks members of communicators on which a wildcard waits: some at each call, round robin.
template <class P>
void Engine<P>::watch_wildcards() {
  std::int32_t ranks_left = kWatched;
  for (CommT* c = comms_.front(); c && ranks_left > 0; c = comms_.next(c)) {
    if (!wildcard_waits(*c)) continue;
    if (c->probed != 0) --c->probed;
    const std::int32_t n = c->size < ranks_left ? c->size : ranks_left;
    ranks_left -= n;
    for (std::int32_t i = 0; i < n; ++i) {
      watch(*c, c->watch);
      c->watch = c->watch + 1 < c->size ? c->watch + 1 : 0;
    }
  }
}

template <class P>
void Engine<P>::watch(CommT& c, std::int32_t rank) {
  if (!c.inter && rank == c.my_rank) return;
  PeerT* p = known_peer(c, rank);
  if (!p && c.size > kSmallComm) return;
  ProcT* const q = proc_at(c, rank);
  if (!q || !(p = peer_of(*q)) || p->standing.failed()) return;
  bool connected = c.size <= kSmallComm;
  for (unsigned i = 0; i < p->n_rails; ++i) connected = connected || p->rails[i].up_epoch != 0;
  p->watch.set_watched(connected && !p->standing.finalized());
}

}  // namespace bfo::xfer
