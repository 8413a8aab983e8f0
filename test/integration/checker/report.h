// SPDX-License-Identifier: BSD-3-Clause
//
// The reporter: counts findings by kind, prints the first ones in full, keeps the totals of the summary line.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "test/integration/checker/stamp.h"

namespace bfo::checker {

/// One per process; every member function may be called by any thread.
class Report {
 public:
  static constexpr int kPrinted = 20;  ///< findings printed in full per process
  explicit Report(int rank) : rank_(rank) {}

  /// Records a finding about a message seen in `phase` and prints it unless muted or the limit is reached.
  void add(const char* phase, Kind kind, const std::string& text);
  void add(const char* phase, const Finding& finding, const Message& expected, const char* when);
  void verified(uint64_t messages, uint64_t bytes) {
    messages_.fetch_add(messages, std::memory_order_relaxed);
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  void rechecked(uint64_t bytes) { rechecked_.fetch_add(bytes, std::memory_order_relaxed); }

  uint64_t messages() const { return messages_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t rechecked_bytes() const { return rechecked_; }
  uint64_t errors() const { return errors_; }
  uint64_t count(Kind kind) const { return counts_[static_cast<size_t>(kind)]; }
  /// The self-test provokes findings on purpose: count them without printing, and forget them afterwards.
  void mute(bool on) { muted_ = on; }
  void forget();

 private:
  int rank_;
  std::mutex lock_;
  std::atomic<bool> muted_{false};
  std::atomic<uint64_t> messages_{0}, bytes_{0}, rechecked_{0}, errors_{0};
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Kind::kCount)> counts_{};
};

}  // namespace bfo::checker
