// SPDX-License-Identifier: BSD-3-Clause
//
// judge.h: judges the rails of a peer at the end of a term (degraded.h), and tells what was found. The word
// goes to the port, which says it; nothing else follows from it. What is known of a rail has the port's
// memory, from its first measured piece on; without memory nothing is said of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <new>

#include "common/clock.h"
#include "common/events.h"
#include "pml/bfo/xfer/base/base.h"
#include "pml/bfo/xfer/rails/rail_choice.h"

namespace bfo::xfer {

/// What the other rails prove that `rail` should move. One that keeps up proves nothing: its pieces are not
/// timed, and what it is said to move is no evidence.
template <class P>
uint64_t proven_by_others(const RailChoice<P>& choice, const Rail<P>& rail) {
  uint64_t most = 0;
  for (unsigned i = 0; i < choice.size(); ++i) {
    const Rail<P>& other = choice[i];
    if (&other == &rail || !other.degraded || other.late == 0) continue;
    most = std::max(most, other.degraded->at_least() * rail.limits.weight / other.limits.weight);
  }
  return most;
}
/// What the ports of other rails have moved for this process, and that of `rail`.
template <class P>
Degraded::Ports ports_of(const RailChoice<P>& choice, const Rail<P>& rail, uint64_t now_ns) {
  Degraded::Ports ports{choice.carried(rail), 0};
  for (unsigned i = 0; i < choice.size(); ++i) {
    const Rail<P>& other = choice[i];
    if (&other == &rail || !other.degraded) continue;
    const uint64_t moved = other.degraded->port_rate(choice.carried(other), now_ns);
    ports.others = std::max(ports.others, moved * rail.limits.weight / other.limits.weight);
  }
  return ports;
}

/// Rails over one port of this process: of how many anything is known, and against how many it counts.
struct JudgedRails {
  uint32_t judged = 0;
  uint32_t low = 0;
};
template <class P, class Over>
JudgedRails judged_rails(Base<P>& base, Over over) {
  JudgedRails n;
  for (Peer<P>* p = base.peers.front(); p; p = p->next) {
    for (unsigned i = 0; i < p->n_rails && !p->standing.failed(); ++i) {
      const Rail<P>& r = p->rails[i];
      if (!r.degraded || !r.degraded->judged() || !over(r.handle)) continue;
      ++n.judged;
      n.low += r.degraded->low();
    }
  }
  return n;
}

template <class P>
[[gnu::cold]] void tell(Base<P>& base, Rail<P>& rail, Degraded::Word word, uint64_t now_ns) {
  const Degraded& d = *rail.degraded;
  DegradedEvent e;
  e.degraded = word == Degraded::Word::kDegraded;
  e.rail = rail.index;
  e.epoch = rail.name.epoch;
  e.peer = &rail.peer->handle;
  e.rail_handle = &rail.handle;
  e.in = d.in();
  e.rate = d.rate();
  e.before = d.before();
  e.others = d.others();
  e.low_ns = time_since(d.since_ns(), now_ns);
  e.age_ns = rail.inflight_bytes != 0 ? rail.goodput.age_ns(rail.peer->choice.looked_ns()) : 0;
  if (e.degraded) {
    ++base.counters.degradations;
    ++base.counters.rails_degraded;
  } else {
    --base.counters.rails_degraded;
  }
  base.port.tell(e);
}

/// The rail has another connection, or none.
template <class P>
void not_degraded(Base<P>& base, Rail<P>& rail) {
  if (rail.degraded && rail.degraded->restart(rail.peer->choice.carried(rail)))
    --base.counters.rails_degraded;
}

/// What `rail` moved; `in`: to this process.
template <class P>
void note_moved(Base<P>& base, Rail<P>& rail, const Goodput::Sample& sample, bool in) {
  if (rail.peer->standing.failed()) [[unlikely]]
    return;
  if (!rail.degraded) [[unlikely]] {
    void* const memory = base.port.alloc(sizeof(Degraded));
    if (!memory) return;
    rail.degraded = ::new (memory) Degraded(rail.peer->choice.carried(rail));
  }
  if (rail.degraded->moved(sample, in)) rail.peer->choice.carries(rail, sample.bytes);
}

template <class P>
void free_degraded(Base<P>& base, Rail<P>& rail) {
  if (rail.degraded) base.port.free(rail.degraded);
  rail.degraded = nullptr;
}

template <class P>
[[gnu::cold]] void end_term(Base<P>& base, Peer<P>& p, const Degraded::Term& term) {
  RailChoice<P>& choice = p.choice;
  uint64_t others[kMaxRails];
  Degraded::Ports ports[kMaxRails];
  for (unsigned i = 0; i < choice.size(); ++i) {
    others[i] = proven_by_others(choice, choice[i]);
    ports[i] = ports_of(choice, choice[i], term.now_ns);
  }
  for (unsigned i = 0; i < choice.size(); ++i) {
    Rail<P>& r = choice[i];
    if (!r.degraded) continue;
    const Degraded::Word word = r.degraded->end_term(others[i], r.late == 0, term, ports[i]);
    if (word != Degraded::Word::kNone) tell(base, r, word, term.now_ns);
  }
}

/// A piece was measured, or time has passed: is the term over?
template <class P>
void judge_rails(Base<P>& base, Peer<P>& p, uint64_t now_ns) {
  const uint64_t bound_ns = base.config.degraded_ns;
  if (bound_ns == 0) return;
  Degraded* clock = nullptr;
  for (unsigned i = 0; i < p.choice.size() && !clock; ++i) clock = p.choice[i].degraded;
  if (!clock) return;
  const uint64_t from_ns = clock->term_over(now_ns, bound_ns / Degraded::kTerms);
  if (from_ns != 0) end_term(base, p, Degraded::Term{from_ns, now_ns, bound_ns});
}

}  // namespace bfo::xfer
