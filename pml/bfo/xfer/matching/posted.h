// SPDX-License-Identifier: BSD-3-Clause
//
// posted.h: receives, probes and cancel: the local side of matching (see match.h).
#pragma once

#include "pml/bfo/xfer/matching/matching.h"

namespace bfo::xfer {

template <class P>
Unexpected<P>* Matching<P>::find_unexpected(CommT& c, int32_t src, int32_t tag) {
  if (c.arrivals.empty()) return nullptr;
  const auto oldest = [&](auto& queue) {
    if (tag != kAnyTag) return queue.find(*this, tag);
    Message* m = queue.front();
    while (m && m->match.tag < 0) m = queue.next(m);  // MPI_ANY_TAG does not match negative tags
    return m;
  };
  if (src == kAnySource) return oldest(c.arrivals);
  ProcT* const p = proc_at(c, src);
  return p ? oldest(p->unexpected) : nullptr;
}

template <class P>
void Matching<P>::remove_unexpected(Message& m) {
  m.proc->unexpected.remove(*this, &m);
  m.proc->comm->arrivals.remove(*this, &m);
}

/// Posts `r`, unless a message that it matches is here: that is returned, and is in no queue any more.
template <class P>
[[gnu::always_inline]] inline Unexpected<P>* Matching<P>::post(RecvRequest& r, const RecvArgs<P>& args) {
  CommT& c = *args.comm;
  auto& x = r.xfer;
  x.comm = &c;
  x.src = args.src;
  x.tag = args.tag;
  x.capacity = args.capacity;
  x.keeps_waiting = args.keeps_waiting;
  if (!c.arrivals.empty())
    if (Message* const m = take_unexpected(c, args.src, args.tag)) return m;
  x.post_order = c.post_order++;
  if (args.src == kAnySource) {
    if (c.wildcards_end && !x.keeps_waiting) [[unlikely]] {
      fail_wildcard(r);
    } else {
      c.posted_any_source.push_back(*this, &r);
      ++c.n_posted;
    }
    return nullptr;
  }
  ProcT* const p = proc_at(c, args.src);
  // The peer's record is made now, so that its failure ends this receive.
  PeerT* const peer = p ? peer_of(*p) : nullptr;
  if (!peer || peer->standing.failed()) [[unlikely]] {
    fail_recv(r, peer ? peer->standing.loss().outcome : Outcome::kNoMemory);
  } else {
    p->posted.push_back(*this, &r);
    ++c.n_posted;
  }
  return nullptr;
}

/// The oldest message here that a receive of these would match, in no queue any more.
template <class P>
[[gnu::noinline]] Unexpected<P>* Matching<P>::take_unexpected(CommT& c, int32_t src, int32_t tag) {
  Message* const m = find_unexpected(c, src, tag);
  if (!m) return nullptr;
  remove_unexpected(*m);
  if (m->proc->open_names.made()) [[unlikely]]
    leave_name(*m);
  return m;
}

template <class P>
[[gnu::cold]] Unexpected<P>* Matching<P>::take_refused(CommT& c) {
  Message* m = c.arrivals.front();
  while (m && !c.refusal.has(m->match.tag)) m = c.arrivals.next(m);
  if (!m) return nullptr;
  remove_unexpected(*m);
  if (m->proc->open_names.made()) leave_name(*m);
  return m;
}

/// `r` takes a message that a matched probe holds: in no queue any more.
template <class P>
void Matching<P>::post_for(Message& m, RecvRequest& r, uint64_t capacity) {
  auto& x = r.xfer;
  CommT& c = *m.proc->comm;
  x.comm = &c;
  x.src = m.proc->rank;
  x.tag = m.match.tag;
  x.capacity = capacity;
  c.taken_by_probe.remove(*this, &m);
  if (m.proc->open_names.made()) [[unlikely]]
    leave_name(m);
}

/// `r` ends before it is posted.
template <class P>
[[gnu::cold, gnu::noinline]] void Matching<P>::fail_recv(RecvRequest& r, Outcome outcome) {
  auto& x = r.xfer;
  x.status = RecvStatus{x.src, x.tag, 0, outcome};
  base_.finish_recv(r);
}

/// `r`, from any source and in no queue, ends for the member of its communicator that failed last.
template <class P>
[[gnu::cold, gnu::noinline]] void Matching<P>::fail_wildcard(RecvRequest& r) {
  const CommT& c = *r.xfer.comm;
  r.xfer.status = RecvStatus{c.lost_rank, r.xfer.tag, 0, c.lost_outcome};
  base_.finish_recv(r);
}

/// Receives that only `p` could match end with `outcome`.
template <class P>
[[gnu::cold]] void Matching<P>::fail_posted(PeerT& p, Outcome outcome) {
  for (ProcT* q = p.procs.front(); q; q = p.procs.next(q)) {
    while (RecvRequest* r = q->posted.pop_front(*this)) {
      --q->comm->n_posted;
      r->xfer.status = RecvStatus{q->rank, r->xfer.tag, 0, outcome};
      base_.finish_recv(*r);
    }
  }
}

template <class P>
bool Matching<P>::any_posted(const PeerT& p) {
  for (ProcT* q = p.procs.front(); q; q = p.procs.next(q))
    if (!q->posted.empty()) return true;
  return false;
}

template <class P>
[[gnu::cold]] uint64_t Matching<P>::posted(const PeerT& p) {
  uint64_t n = 0;
  for (ProcT* q = p.procs.front(); q; q = p.procs.next(q)) n += length_of(q->posted);
  return n;
}

/// Receives from any source that do not keep waiting end for the member of `c` that failed last.
template <class P>
[[gnu::cold]] void Matching<P>::fail_wildcards(CommT& c) {
  for (RecvRequest* r = c.posted_any_source.front(); r;) {
    RecvRequest* const next = c.posted_any_source.next(r);
    if (!r->xfer.keeps_waiting) {
      c.posted_any_source.remove(*this, r);
      --c.n_posted;
      fail_wildcard(*r);
    }
    r = next;
  }
}

/// True: `r` was posted, and is not any more.
template <class P>
bool Matching<P>::cancel(RecvRequest& r) {
  auto& x = r.xfer;
  if (x.linked != kPosted) return false;
  (x.src == kAnySource ? x.comm->posted_any_source : proc_at(*x.comm, x.src)->posted).remove(*this, &r);
  --x.comm->n_posted;
  return true;
}

/// A probe finds nothing. The result is what a receive posted instead would have ended with; kOk if it would
/// wait. Like a receive, the probe makes the peer's record and waits for the peer, or for all possible
/// senders (has_work(), keep_alive()), until the next probe.
template <class P>
Outcome Matching<P>::probe_missed(CommT& c, int32_t src) {
  if (src == kAnySource) {
    if (c.wildcards_end) return c.lost_outcome;
    c.probed = 2;
    return Outcome::kOk;
  }
  ProcT* const p = proc_at(c, src);
  PeerT* const peer = p ? peer_of(*p) : nullptr;
  if (!peer) return Outcome::kNoMemory;
  if (peer->standing.failed()) return peer->standing.loss().outcome;
  peer->watch.set_probed();
  return Outcome::kOk;
}

/// The message that a probe finds; it stays. nullptr: `result.outcome` tells whether one can still come.
template <class P>
Unexpected<P>* Matching<P>::probe(CommT& c, int32_t src, int32_t tag, ProbeResult& result) {
  Message* const m = find_unexpected(c, src, tag);
  if (m)
    result = ProbeResult{m->proc->rank, m->match.tag, m->length()};
  else
    result.outcome = probe_missed(c, src);
  return m;
}

/// A matched probe takes `m`.
template <class P>
void Matching<P>::hold(Message& m) {
  remove_unexpected(m);
  m.proc->comm->taken_by_probe.push_back(*this, &m);
}

template <class P>
QueueLengths Matching<P>::queue_lengths(const CommT& c, int32_t rank) const {
  if (rank == kAnySource) return {length_of(c.posted_any_source), length_of(c.arrivals)};
  const ProcT* const p = c.has(rank) ? c.procs[rank] : nullptr;
  return p ? QueueLengths{length_of(p->posted), length_of(p->unexpected)} : QueueLengths{};
}

}  // namespace bfo::xfer
