// SPDX-License-Identifier: BSD-3-Clause
//
// pace.h: which rails keep up with the process. A rail does while each of its READs has ended by the next
// look at that rail (Rail::late): then the processor is the limit, and not the rail. Counts the looks at all
// rails. turn() may be called by any thread, the rest under the engine's lock. Needs no memory, cannot fail.
#pragma once

#include <atomic>
#include <cstdint>

#include "pml/bfo/xfer/rails/rail_state.h"
#include "pml/bfo/xfer/state.h"

namespace bfo::xfer {

template <class P>
class Pace {
 public:
  using Frag = typename P::Frag;

  explicit Pace(P& port) : port_(port) {}

  /// All rails have been read since the last call.
  void turn() { turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  /// Notes that the READ `f` is about to be posted, if another rail could have it.
  void begin(Frag& f) {
    if (f.xfer.peer->choice.size() >= 2) begin_of_several(f);
  }
  /// The READ `f` has ended well.
  void ended(const Frag& f) {
    if (f.xfer.posted_ns != 0) judge(f);
  }

 private:
  void begin_of_several(Frag& f);
  void judge(const Frag& f);
  static bool soon(const Rail<P>& rail, uint64_t bytes, uint64_t ns);

  P& port_;
  std::atomic<uint32_t> turns_ = 0;
};

/// Could `rail` have moved `bytes` in that time at its nominal rate, or at a quarter of it? What took longer,
/// because the rail is slower or this process was away meanwhile, does not tell that the rail keeps up.
template <class P>
bool Pace<P>::soon(const Rail<P>& rail, uint64_t bytes, uint64_t ns) {
  constexpr uint64_t kSlackNs = 20'000;
  constexpr uint64_t kMbitNs = 8000;  // nanoseconds of one byte at 1 Mbit/s
  return ns < kSlackNs || (ns - kSlackNs) * rail.limits.weight < 4 * kMbitNs * bytes;
}

template <class P>
[[gnu::noinline]] void Pace<P>::begin_of_several(Frag& f) {
  f.xfer.turn = turns_.load(std::memory_order_relaxed);
  f.xfer.posted_ns = f.xfer.rail->late != 0 ? port_.now_ns() : 1;  // of a rail that keeps up only turns count
}

/// The READ `f` has ended well. Was that seen when its rail was read next, or was it under way while others
/// were?
template <class P>
[[gnu::noinline]] void Pace<P>::judge(const Frag& f) {
  const auto& x = f.xfer;
  if (turns_.load(std::memory_order_relaxed) - x.turn > 1)
    x.rail->late = port_.reads_in_time(kLate);
  else if (x.rail->late != 0 && soon(*x.rail, x.length, port_.now_ns() - x.posted_ns))
    --x.rail->late;
}

}  // namespace bfo::xfer
