// SPDX-License-Identifier: BSD-3-Clause
//
// damping.h: for how long a port that is active again is left alone. A port that goes at once each time costs
// more than it carries: its connections are made, lost and fenced, and what was under way moves again. So
// such losses are remembered, and fade. Times are nanoseconds of the port's clock. Progress function only.
#pragma once

#include <algorithm>
#include <cstdint>

namespace bfo::engine {

class Damping {
 public:
  /// A port that was active for less than that and is lost again costs more than it carried: making and
  /// losing its connections takes some milliseconds.
  static constexpr uint64_t kShortNs = 100'000'000;
  /// So many such losses have no effect.
  static constexpr uint64_t kFree = 2;
  /// What is remembered halves in that time.
  static constexpr uint64_t kHalfLifeNs = 10'000'000'000;
  /// The first delay; it doubles with each loss up to the last one. A port that stays is used within a
  /// second.
  static constexpr uint64_t kFirstNs = 50'000'000;
  static constexpr uint64_t kMostNs = 900'000'000;

  /// The port is active, or not, since `now`.
  void note(bool active, uint64_t now) {
    if (active == active_) return;
    active_ = active;
    if (active) {
      since_ns_ = now;
      return;
    }
    fade(now);
    if (since_ns_ != 0 && now - std::min(now, since_ns_) < kShortNs)
      penalty_ = std::min(penalty_ + kOne, kMost);
  }
  /// For so long after it became active it is not used.
  uint64_t delay_ns(uint64_t now) {
    fade(now);
    if (penalty_ <= kFree * kOne) return 0;
    const uint64_t doubled = (penalty_ - kFree * kOne - 1) / kOne;
    return std::min(kFirstNs << doubled, kMostNs);
  }
  /// When a port that is active may be used.
  uint64_t free_ns(uint64_t now) { return since_ns_ + delay_ns(now); }

 private:
  static constexpr uint64_t kOne = 1024;
  static constexpr uint64_t kMost = 12 * kOne;  ///< after the last one 26 s until there is no delay
  static constexpr uint64_t kStepNs = kHalfLifeNs / 16;

  void fade(uint64_t now) {
    const uint64_t steps = (now - std::min(now, faded_ns_)) / kStepNs;
    faded_ns_ += steps * kStepNs;
    // 2^(-1/16) is 0.9576.
    for (uint64_t i = 0; i < steps && penalty_ != 0; ++i) penalty_ = penalty_ * 9576 / 10000;
  }

  uint64_t penalty_ = 0;
  uint64_t faded_ns_ = 0;
  uint64_t since_ns_ = 0;  ///< when it became active last; 0: it was when it was opened
  bool active_ = true;
};

}  // namespace bfo::engine
