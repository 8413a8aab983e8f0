// SPDX-License-Identifier: BSD-3-Clause
//
// short_time.h: how long short messages take over a rail, from their posting until it is seen that they have
// ended there: the least of the last few that were timed. What is more is mostly the time until somebody
// looked. Nanoseconds of the port's clock. Used under the engine's lock. Needs no memory, cannot fail.
#pragma once

#include <algorithm>
#include <cstdint>

namespace bfo::xfer {

class ShortTime {
 public:
  static constexpr uint8_t kSamples = 4;

  /// One took so long. True: much longer than the last few, or much less: more are to be timed soon.
  bool ended(uint64_t took_ns, uint64_t now_ns) {
    const auto took = static_cast<uint32_t>(std::clamp<uint64_t>(took_ns, 1, UINT32_MAX));
    const bool news = !known() || beyond(took, ns()) || beyond(ns(), took);
    last_ns_ = now_ns;
    latest_ = std::min(latest_, took);
    if (++n_ < kSamples) return news;
    before_ = latest_;
    latest_ = UINT32_MAX;
    n_ = 0;
    return news;
  }
  bool known() const { return before_ != UINT32_MAX; }
  /// The least of the last four to eight.
  uint32_t ns() const { return std::min(before_, latest_); }
  /// When the last one ended.
  uint64_t last_ns() const { return last_ns_; }
  /// Has none been timed for so long that one more costs less than a hundredth of the time?
  bool forgotten(uint64_t now_ns) const { return !known() || time_since_last(now_ns) > kTryTimes * ns(); }
  /// Do short messages take so much longer here that this is worth a choice?
  bool longer_than(const ShortTime& other) const {
    return known() && other.known() && beyond(ns(), other.ns());
  }
  /// Do they take about as long, or less? Between the two nothing changes: a rail that carries them all is
  /// seen with its queue, and another one is not.
  bool as_short_as(const ShortTime& other) const {
    return known() && other.known() && uint64_t{ns()} * 10 <= uint64_t{other.ns()} * kAlikeTenths;
  }

 private:
  static constexpr uint64_t kTryTimes = 128;
  static constexpr uint64_t kAlikeTenths = 12;
  static constexpr uint64_t kSlackNs = 2000;  ///< what rails that are equal may differ by

  static bool beyond(uint64_t a, uint64_t b) { return 2 * a > 3 * b + 2 * kSlackNs; }
  uint64_t time_since_last(uint64_t now_ns) const { return now_ns > last_ns_ ? now_ns - last_ns_ : 0; }

  uint64_t last_ns_ = 0;
  uint32_t before_ = UINT32_MAX;  ///< the least of the last four that are complete
  uint32_t latest_ = UINT32_MAX;  ///< of those that follow
  uint8_t n_ = 0;                 ///< so many
};

}  // namespace bfo::xfer
