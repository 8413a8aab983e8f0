// SPDX-License-Identifier: BSD-3-Clause
//
// clock.h: differences between times that different threads have read.
//
// A thread reads the clock and then waits for a lock, or calls other functions. Meanwhile another thread may
// record a later time. The difference is then 0, not 2^64 ns minus a little.
#pragma once

#include <atomic>
#include <cstdint>

namespace bfo {

/// How long ago `then_ns` was at `now_ns`; 0 when it was later.
constexpr uint64_t time_since(uint64_t then_ns, uint64_t now_ns) {
  return now_ns > then_ns ? now_ns - then_ns : 0;
}

/// Something that any of several threads does, once per period: the first one that asks after the period.
class Periodic {
 public:
  explicit Periodic(uint64_t period_ns) : period_ns_(period_ns) {}

  /// Is it due, and for this thread to do?
  bool due(uint64_t now_ns) {
    uint64_t last = last_ns_.load(std::memory_order_relaxed);
    return time_since(last, now_ns) >= period_ns_ &&
           last_ns_.compare_exchange_strong(last, now_ns, std::memory_order_relaxed);
  }

 private:
  const uint64_t period_ns_;
  std::atomic<uint64_t> last_ns_{0};
};

}  // namespace bfo
