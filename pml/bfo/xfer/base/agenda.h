// SPDX-License-Identifier: BSD-3-Clause
//
// agenda.h: whom progress() has to look at: peers for which something waits (at every call), peers that wait
// for a time, and ranks whose sequence window is full (once a millisecond). Only lists: the links are in the
// peers and ranks, which the engine owns. Used under the engine's lock, but for empty(), which any thread may
// ask. Needs no memory, cannot fail.
#pragma once

#include <cstdint>

#include "pml/bfo/xfer/args.h"
#include "pml/bfo/xfer/base/list.h"

namespace bfo::xfer {

template <class P>
class Agenda {
 public:
  using PeerT = Peer<P>;
  using ProcT = Proc<P>;

  bool empty() const { return active_.empty() && timed_ == nullptr && stalled_ == nullptr; }

  // ---- peers for which something waits
  void activate(PeerT& p) {
    if (!p.active) active_.push_back(&p);
  }
  void deactivate(PeerT& p) {
    if (p.active) active_.remove(&p);
  }
  /// `look` may deactivate the peer that it gets.
  template <class Look>
  void each_active(Look look) {
    for (PeerT* p = active_.front(); p;) {
      PeerT* const next = active_.next(p);
      look(*p);
      p = next;
    }
  }

  // ---- peers that wait for a time
  void set_timer(PeerT& p) {
    if (p.timed) return;
    p.timed = true;
    p.next_timed = timed_;
    timed_ = &p;
  }
  /// Takes each from the list; `look` sets the timer again where it is needed.
  template <class Look>
  void each_timed(Look look) {
    PeerT* p = timed_;
    timed_ = nullptr;
    while (p) {
      PeerT* const next = p->next_timed;
      p->timed = false;
      look(*p);
      p = next;
    }
  }

  // ---- ranks whose sequence window is full
  void add_stalled(ProcT& p) {
    if (p.in_stalled) return;
    p.in_stalled = true;
    push_stalled(p);
  }
  /// `look` does what can be done; a rank with stalled sends stays.
  template <class Look>
  void each_stalled(Look look) {
    ProcT* p = stalled_;
    stalled_ = nullptr;
    while (p) {
      ProcT* const next = p->next_stalled;
      look(*p);
      p->in_stalled = !p->stalled.empty();
      if (p->in_stalled) push_stalled(*p);
      p = next;
    }
  }
  void remove_stalled(ProcT& p) {
    if (!p.in_stalled) return;
    ProcT** at = &stalled_;
    while (*at != &p) at = &(*at)->next_stalled;
    *at = p.next_stalled;
  }

  // ---- the clock
  /// Does anything wait for a time, and is it a millisecond since the last look?
  bool due(uint64_t now_ns) const { return (timed_ || stalled_) && now_ns >= next_look_ns_; }
  /// The look begins. True: the last one is so long ago that this process must have been outside MPI.
  bool begin_look(uint64_t now_ns) {
    const bool absent = now_ns - next_look_ns_ > kAbsence;
    next_look_ns_ = now_ns + 1'000'000;
    return absent;
  }

 private:
  static constexpr uint64_t kAbsence = 2'000'000'000;
  void push_stalled(ProcT& p) {
    p.next_stalled = stalled_;
    stalled_ = &p;
  }

  List<PeerT, ActiveLink> active_;
  PeerT* timed_ = nullptr;
  ProcT* stalled_ = nullptr;
  uint64_t next_look_ns_ = 0;
};

}  // namespace bfo::xfer
