// SPDX-License-Identifier: BSD-3-Clause
//
// posted.h: receives, probes and cancel: the local side of matching (see match.h).
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

template <class P>
Unexpected<P>* Engine<P>::find_unexpected(CommT& c, std::int32_t src, std::int32_t tag) {
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
void Engine<P>::remove_unexpected(Message& m) {
  m.proc->unexpected.remove(*this, &m);
  m.proc->comm->arrivals.remove(*this, &m);
}

/// Give a kept message to a receive. Afterwards the receive is filled, or in a rendezvous, or matched with a
/// send to oneself.
template <class P>
typename Engine<P>::KeptResult Engine<P>::match_kept(RecvRequest& r, Message& m) {
  if (m.is_open()) {
    begin_recv(r, *m.proc, Arrival{m.rail, m.epoch, m.size}, m.what);
    return KeptResult::begun();
  }
  set_matched(r, *m.proc, m.match, m.length());
  if (m.own) return KeptResult::own(*m.own);
  eager_arrived(r, m.what.payload());
  return KeptResult::filled();
}

/// A kept message was given to `r`, and the lock is released: `r` ends as one that waited for its message.
template <class P>
[[gnu::noinline]] void Engine<P>::end_kept(RecvRequest& r, KeptResult kept) {
  if (kept.is_filled())
    base_.port.complete_recv(r, r.xfer.status);
  else if (SendRequest* const own = kept.own())
    Oneself<P>::finish(*this, r, *own);
}

// inline: as send_inline().
template <class P>
[[gnu::always_inline]] inline void Engine<P>::irecv(RecvRequest* r, const RecvArgs<P>& args) {
  if (const KeptResult kept = post_recv(*r, args); kept.found()) [[unlikely]]
    end_kept(*r, kept);
}

/// Returns what became of the message that it was matched with: not found() when none was here.
template <class P>
[[gnu::always_inline]] inline typename Engine<P>::KeptResult Engine<P>::post_recv(RecvRequest& r,
                                                                                  const RecvArgs<P>& args) {
  Entry entry(*this);
  CommT& c = *args.comm;
  auto& x = r.xfer;
  x.comm = &c;
  x.src = args.src;
  x.tag = args.tag;
  x.capacity = args.capacity;
  x.keeps_waiting = args.keeps_waiting;
  Machine<P>::rest(x);
  if (!c.arrivals.empty())
    if (const KeptResult kept = take_unexpected(r, entry.nested()); kept.found()) return kept;
  x.post_order = c.post_order++;
  if (args.src == kAnySource) {
    if (c.n_lost != 0 && wildcards_.lost(c) && !x.keeps_waiting) [[unlikely]] {
      wildcards_.fail(r);
    } else {
      c.posted_any_source.push_back(*this, &r);
      ++c.n_posted;
    }
    return {};
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
  return {};
}

/// Gives `r` the oldest message here that it matches.
template <class P>
[[gnu::noinline]] typename Engine<P>::KeptResult Engine<P>::take_unexpected(RecvRequest& r, bool nested) {
  Message* const m = find_unexpected(*r.xfer.comm, r.xfer.src, r.xfer.tag);
  if (!m) return {};
  remove_unexpected(*m);
  return take_kept(r, m, nested);
}

/// Gives `m`, which is in no queue, to `r`. `nested`: the lock stays held, so a filled receive ends with the
/// outermost call.
template <class P>
[[gnu::always_inline]] inline typename Engine<P>::KeptResult Engine<P>::take_kept(RecvRequest& r, Message* m,
                                                                                  bool nested) {
  const KeptResult kept = match_kept(r, *m);
  free_message(m);
  if (!nested || !kept.is_filled()) [[likely]]
    return kept;
  base_.finish_recv(r);
  return KeptResult::begun();
}

/// `r` ends before it is posted.
template <class P>
[[gnu::cold, gnu::noinline]] void Engine<P>::fail_recv(RecvRequest& r, Outcome outcome) {
  auto& x = r.xfer;
  x.status = RecvStatus{x.src, x.tag, 0, outcome};
  base_.finish_recv(r);
}

template <class P>
bool Engine<P>::cancel(RecvRequest* r) {
  Entry entry(*this);
  auto& x = r->xfer;
  if (x.linked != kPosted) return false;
  (x.src == kAnySource ? x.comm->posted_any_source : proc_at(*x.comm, x.src)->posted).remove(*this, r);
  --x.comm->n_posted;
  return true;
}

/// A probe finds nothing. The result is what a receive posted instead would have ended with; kOk if it would
/// wait. Like a receive, the probe makes the peer's record and waits for the peer, or for all possible
/// senders (has_work(), keep_alive()), until the next probe.
template <class P>
Outcome Engine<P>::probe_missed(CommT& c, std::int32_t src) {
  if (src == kAnySource) {
    if (wildcards_.lost(c)) return c.lost_outcome;
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

template <class P>
bool Engine<P>::iprobe(CommT* c, std::int32_t src, std::int32_t tag, ProbeResult& result) {
  Entry entry(*this);
  Message* const m = find_unexpected(*c, src, tag);
  if (!m) {
    result.outcome = probe_missed(*c, src);
    return false;
  }
  result = ProbeResult{m->proc->rank, m->match.tag, m->length()};
  return true;
}

template <class P>
Unexpected<P>* Engine<P>::improbe(CommT* c, std::int32_t src, std::int32_t tag, ProbeResult& result) {
  Entry entry(*this);
  Message* const m = find_unexpected(*c, src, tag);
  if (!m) {
    result.outcome = probe_missed(*c, src);
    return nullptr;
  }
  result = ProbeResult{m->proc->rank, m->match.tag, m->length()};
  remove_unexpected(*m);
  c->taken_by_probe.push_back(*this, m);
  return m;
}

template <class P>
void Engine<P>::imrecv(Message* m, RecvRequest* r, std::uint64_t capacity) {
  KeptResult kept;
  {
    Entry entry(*this);
    auto& x = r->xfer;
    CommT& c = *m->proc->comm;
    x.comm = &c;
    x.src = m->proc->rank;
    x.tag = m->match.tag;
    x.capacity = capacity;
    Machine<P>::rest(x);
    c.taken_by_probe.remove(*this, m);
    kept = take_kept(*r, m, entry.nested());
  }
  end_kept(*r, kept);
}

template <class P>
typename Engine<P>::QueueLengths Engine<P>::queue_lengths(CommT* c, std::int32_t rank) {
  Entry entry(*this);
  if (rank == kAnySource) return {length_of(c->posted_any_source), length_of(c->arrivals)};
  const ProcT* const p = c->has(rank) ? c->procs[rank] : nullptr;
  return p ? QueueLengths{length_of(p->posted), length_of(p->unexpected)} : QueueLengths{};
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
