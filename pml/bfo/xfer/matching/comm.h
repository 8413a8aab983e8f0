// SPDX-License-Identifier: BSD-3-Clause
//
// comm.h: communicators and their ranks, and what is kept after a communicator was freed. Lookup by context
// id: comm_table.h.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <algorithm>
#include <cstring>
#include <new>

#include "pml/bfo/xfer/matching/matching.h"

namespace bfo::xfer {

template <class P>
Comm<P>* Matching<P>::comm_add(const CommDesc<P>& d) {
  if (comms_.find(d.ctx)) return nullptr;
  if (!comms_.reserve(base_.port, d.ctx)) return nullptr;
  const size_t bytes = static_cast<size_t>(d.size) * sizeof(ProcT*);
  void* const memory = base_.port.alloc(sizeof(CommT));
  void* const procs = base_.port.alloc(bytes ? bytes : 1);
  if (!memory || !procs) {
    base_.port.free(memory);
    base_.port.free(procs);
    return nullptr;
  }
  auto* c = ::new (memory) CommT;
  c->handle = d.handle;
  c->ctx = d.ctx;
  c->my_rank = d.my_rank;
  c->size = d.size;
  c->inter = d.inter;
  c->procs = static_cast<ProcT**>(procs);
  std::memset(procs, 0, bytes);
  comms_.add(c);
  return c;
}

template <class P>
void Matching<P>::comm_del(CommT* c) {
  for (int32_t i = 0; i < c->size; ++i)
    if (c->procs[i]) remember(*c->procs[i]);
  comm_free(c);
}

template <class P>
void Matching<P>::free_all() {
  while (CommT* const c = comms_.front()) comm_free(c);
  comms_.free_pages(base_.port);
  while (Message* m = unknown_.pop(*this)) free_message(m);
  pushed_out_.free_all(base_.port);
}

template <class P>
void Matching<P>::comm_free(CommT* c) {
  for (int32_t i = 0; i < c->size; ++i) {
    ProcT* const p = c->procs[i];
    if (!p) continue;
    while (Message* m = p->out_of_sequence.pop_front(*this)) free_message(m);
    while (Message* m = p->unexpected.pop_front(*this)) {
      c->arrivals.remove(*this, m);
      free_message(m);
    }
    if (p->linked) p->peer->procs.remove(p);
    p->posted.forget(*this);
    p->open_names.drop(*this);
    p->~ProcT();
    base_.port.free(p);
  }
  c->posted_any_source.forget(*this);
  while (Message* m = c->taken_by_probe.pop_front(*this)) free_message(m);
  base_.port.free(c->procs);
  comms_.remove(c);
  c->~CommT();
  base_.port.free(c);
}

/// A communicator with the same context id was freed before: `p` continues its numbering.
template <class P>
void recall_sequence(Proc<P>& p, const PastSequence& s) {
  p.next_seq = s.next_seq;
  p.window_seq = s.window_seq;
  p.stop_seq = p.looked_seq = s.next_seq;
  p.confirmed = s.confirmed;
  p.acked = s.acked;  // work under way gets a new checkpoint
  p.expected = s.expected;
  p.resent_from = s.resent_from;
  p.question = s.question;
  p.resent = s.resent;
}

/// First use of a rank of a communicator. nullptr: no memory.
template <class P>
[[gnu::cold, gnu::noinline]] Proc<P>* Matching<P>::make_proc(CommT& c, int32_t rank) {
  void* const memory = base_.port.alloc(sizeof(ProcT));
  if (!memory) {
    if (auto* const peer = static_cast<PeerT*>(base_.port.resolve(c.handle, rank)))
      base_.failing.no_memory(*peer, sizeof(ProcT));
    return nullptr;  // a peer that has no record has no message here that could be lost
  }
  auto* const p = ::new (memory) ProcT;
  c.procs[rank] = p;
  p->comm = &c;
  p->rank = rank;
  p->window_seq = kSeqWindow / 2;
  p->stop_seq = static_cast<Seq16>(std::min<uint32_t>(kFirstLook * base_.port.seq_step(), kSeqWindow / 2));
  if (PeerT* const peer = comms_.was_used(c.ctx) ? peer_of(*p) : nullptr)
    if (const PastSequence* const s = peer->past.find(c.ctx)) recall_sequence(*p, *s);
  return p;
}

/// Ask the port which process this rank is, and keep the answer.
template <class P>
[[gnu::cold, gnu::noinline]] Peer<P>* Matching<P>::meet(ProcT& p) {
  auto* const peer = static_cast<PeerT*>(base_.port.resolve(p.comm->handle, p.rank));
  if (p.peer || !peer) return p.peer;
  p.peer = peer;
  peer->procs.push_back(&p);
  return peer;
}

/// The communicator is freed. Its numbering is kept (H6).
template <class P>
void Matching<P>::remember(ProcT& p) {
  if (!p.peer && p.expected == 0 && p.next_seq == 0) return;
  PeerT* const known = peer_of(p);
  if (!known) {  // without memory for it the numbering is lost, and later nobody can tell whose it was
    base_.failing.no_memory_for_any(sizeof(PastSequence));
    return;
  }
  PeerT& peer = *known;
  const PastSequence now{p.comm->ctx, p.next_seq,    p.window_seq, p.confirmed, p.acked,
                         p.expected,  p.resent_from, p.question,   p.resent};
  comms_.note_used(now.ctx);
  if (const size_t missing = peer.past.keep(base_.port, now)) base_.failing.no_memory(peer, missing);
}

}  // namespace bfo::xfer
