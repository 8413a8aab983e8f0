// SPDX-License-Identifier: BSD-3-Clause
//
// outages.h: how often a port was lost, and how long it has been down, all times together: the latter decides
// what a job lost with it, and the former whether somebody should look at its cable.
#pragma once

#include <atomic>
#include <cstdint>

namespace bfo::engine {

/// Written by the progress function, read by any thread.
class Outages {
 public:
  /// The port is opened; one that is down then is not a loss.
  void open(bool active, uint64_t now) { since_ns_.store(active ? 0 : now, std::memory_order_relaxed); }
  /// The port is active, or not, since `now` or before.
  void note(bool active, uint64_t now) {
    const uint64_t since = since_ns_.load(std::memory_order_relaxed);
    if (active == (since == 0)) return;
    if (!active) {
      losses_.store(losses() + 1, std::memory_order_relaxed);
      since_ns_.store(now, std::memory_order_relaxed);
      return;
    }
    ended_ns_.store(ended_ns_.load(std::memory_order_relaxed) + (now > since ? now - since : 0),
                    std::memory_order_relaxed);
    since_ns_.store(0, std::memory_order_relaxed);
  }

  uint64_t losses() const { return losses_.load(std::memory_order_relaxed); }
  /// Time in which it was not active, up to `now`.
  uint64_t down_ns(uint64_t now) const {
    const uint64_t since = since_ns_.load(std::memory_order_relaxed);
    const uint64_t ended = ended_ns_.load(std::memory_order_relaxed);
    return ended + (since != 0 && now > since ? now - since : 0);
  }

 private:
  std::atomic<uint64_t> losses_{0};
  std::atomic<uint64_t> ended_ns_{0};  ///< of outages that are over
  std::atomic<uint64_t> since_ns_{0};  ///< it is down since then; 0: it is active
};

}  // namespace bfo::engine
