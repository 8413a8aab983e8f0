// SPDX-License-Identifier: BSD-3-Clause
//
// events.h: how peers, rails and their events enter the engine.
#pragma once

#include <algorithm>
#include <new>

#include "pml/bfo/xfer/engine.h"
#include "pml/bfo/xfer/rails/judge.h"
#include "pml/bfo/xfer/rails/limits.h"

namespace bfo::xfer {

template <class P>
Peer<P>* Engine<P>::peer_add(const typename P::PeerHandle& handle, uint64_t key, bool own) {
  Entry entry(*this);
  // The first rail's record comes with it: a peer without any rail could not be notified that it is declared
  // failed.
  static_assert(alignof(RailT) <= alignof(PeerT));
  void* const memory = base_.port.alloc(sizeof(PeerT) + sizeof(RailT));
  if (!memory) return nullptr;
  auto* p = ::new (memory) PeerT;
  p->handle = handle;
  p->choice.set_key(key);
  p->choice.set_weighing(rails_.weighing());
  p->own = own;
  base_.peers.add(*p);
  return p;
}

/// An eager message that a rail hands back is sent unchanged over another rail, so every rail must take it.
/// Returns the longest one that a blocking send offers to any of them.
template <class P>
size_t share_eager_limit(Peer<P>& p) {
  size_t least = SIZE_MAX;
  for (unsigned i = 0; i < p.n_rails; ++i) least = std::min(least, p.rails[i].limits.post_limit);
  size_t longest = 0;
  p.eager_limit = 0;
  for (unsigned i = 0; i < p.n_rails; ++i) {
    RailLimits& l = p.rails[i].limits;
    l.eager_limit = std::min(l.eager_limit, least);
    l.inline_limit = std::min(l.inline_limit, l.eager_limit);
    l.blocking_limit = std::min(l.blocking_limit, least);
    p.eager_limit = std::max(p.eager_limit, l.eager_limit);
    longest = std::max(longest, l.blocking_limit);
  }
  return longest;
}

/// The limit of all rails becomes at least `limit`.
template <class P>
void Engine<P>::raise(std::atomic<size_t>& longest, size_t limit) {
  const size_t now = longest.load(std::memory_order_relaxed);
  if (now == kNoRail || limit > now) longest.store(limit, std::memory_order_relaxed);
}

template <class P>
Rail<P>* Engine<P>::rail_add(PeerT* p, const typename P::RailHandle& handle, const RailLimits& limits) {
  Entry entry(*this);
  if (p->n_rails == kMaxRails) return nullptr;
  void* const memory = p->n_rails == 0 ? static_cast<void*>(p + 1) : base_.port.alloc(sizeof(RailT));
  if (!memory) {
    base_.failing.no_memory(
        *p,
        sizeof(RailT));  // the messages over it could not be distinguished from a stranger's
    return nullptr;
  }
  RailT& r = *::new (memory) RailT;
  p->rails.at[p->n_rails] = &r;
  r.handle = handle;
  r.limits = keepable(limits);
  if (r.limits.weight == 0) r.limits.weight = 1;
  r.peer = p;
  r.index = p->n_rails++;
  const size_t longest = share_eager_limit(*p);
  raise(longest_eager_, p->eager_limit);
  raise(longest_blocking_, std::max(p->eager_limit, longest));
  return &r;
}

template <class P>
void Engine<P>::rail_begin(RailT* rail, RailState state, RailName name) {
  Entry entry(*this);
  failover_.begin(*rail, state, name);
}

template <class P>
void Engine<P>::on_rail_up(RailT* rail, const RailEvent& ev) {
  Entry entry(*this);
  failover_.up(rail, ev);
  if (!entry.nested()) flush(*rail->peer);
}

template <class P>
void Engine<P>::on_rail_suspect(RailT* rail, const RailEvent& ev) {
  Entry entry(*this);
  failover_.suspect(rail, ev);
}

template <class P>
void Engine<P>::on_rail_down(RailT* rail, const RailEvent& ev) {
  Entry entry(*this);
  failover_.down(rail, ev);
}

template <class P>
void Engine<P>::on_rail_closed(RailT* rail, const RailEvent& ev, FenceResult result, uint64_t delivered) {
  Entry entry(*this);
  failover_.closed(rail, ev, result, delivered);
}

template <class P>
[[gnu::cold]] void Engine<P>::on_rail_broken(RailT* rail, const RailEvent& ev, bool may_have_lost) {
  Entry entry(*this);
  failover_.broken(rail, ev, may_have_lost);
}

template <class P>
void Engine<P>::on_peer_alive(RailT* rail, bool alive) {
  Entry entry(*this);
  failover_.peer_alive(rail, alive);
}

template <class P>
void Engine<P>::on_gap_lost(RailT* rail, RailName, uint64_t lost) {
  Entry entry(*this);
  if (lost != 0) failover_.gap_lost(*rail->peer);
}

template <class P>
void Engine<P>::peer_lost(PeerT* p, bool finalized) {
  Entry entry(*this);
  if (finalized) p->standing.set_finalized();  // its handle may be gone
  failover_.declare_failed(*p, !finalized);
}

template <class P>
void Engine<P>::peer_refuse(PeerT* p) {
  Entry entry(*this);
  base_.failing.refused(*p);
}

template <class P>
void Engine<P>::on_message_unstored(RailT* rail, size_t size) {
  Entry entry(*this);
  base_.failing.no_memory(rail, 0, size);
}

template <class P>
void Engine<P>::tell_losses(PeerT* p) {
  Entry entry(*this);
  base_.records.report(*p, true, moves_);
}

template <class P>
bool Engine<P>::losses_open() {
  Entry entry(*this);
  for (PeerT* p = base_.peers.front(); p; p = p->next)
    if (FailoverRecords<P>::any_open(*p)) return true;
  return false;
}

template <class P>
void Engine<P>::keep_alive() {
  Entry entry(*this);
  if (entry.nested()) return;
  failover_.watch_wildcards();
  for (PeerT* p = base_.peers.front(); p; p = p->next) {
    if (base_.counters.rails_degraded != 0) judge_rails(base_, *p, base_.port.now_ns());
    if (failover_.keep_alive(*p)) flush(*p);
  }
}

}  // namespace bfo::xfer
