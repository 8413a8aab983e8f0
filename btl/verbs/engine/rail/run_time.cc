// SPDX-License-Identifier: BSD-3-Clause
//
// run_time.cc: see run_time.h.
#include "btl/verbs/engine/rail/run_time.h"

#include <algorithm>

#include "common/clock.h"

namespace bfo::engine {

void RunTime::note(uint64_t now, uint32_t polls, bool somebody_waits, const Environment& env) {
  constexpr uint64_t kSeldomNs = 20'000'000;
  constexpr uint64_t kMostStayNs = 50'000'000;
  const uint64_t elapsed = time_since(last_look_ns_, now);
  const uint64_t counted = std::min(elapsed, most_ns_);
  looked_before_ns_ = last_look_ns_;
  const uint64_t pause = last_look_ns_ == 0 ? 0 : elapsed / std::max(polls, 1u);
  may_stay_ns_ = pause < kSeldomNs ? 0 : std::min(pause / 20, kMostStayNs);
  last_look_ns_ = now;
  away_ns_ = 0;
  if (counted < elapsed && somebody_waits) {
    const uint64_t starved = env.starved_ns();
    const uint64_t lost = starved == UINT64_MAX ? elapsed : time_since(starved_ns_, starved);
    away_ns_ = time_since(std::max(lost, counted), elapsed);
    starved_ns_ = starved;
  }
  ran_ns_.store(ran_ns_.load(std::memory_order_relaxed) + counted, std::memory_order_relaxed);
}

void Stay::forgive() {
  const uint64_t starved = env_.starved_ns();
  if (starved == UINT64_MAX) return;
  const uint64_t lost = time_since(starved_ns_, starved);
  starved_ns_ = starved;
  step_end_ns_ += lost;
  end_ns_ += lost;
}

}  // namespace bfo::engine
