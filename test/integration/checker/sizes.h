// SPDX-License-Identifier: BSD-3-Clause
//
// Message sizes: a pure function of the stream and the sequence number, so that the receiver knows what the
// sender does without being told. Most sizes lie at or next to a threshold at which some layer changes its
// protocol.
#pragma once

#include <cstdint>
#include <vector>

#include "test/integration/checker/stamp.h"

namespace bfo::checker {

class Sizes {
 public:
  /// As a cap: no cap, and no small message either (at least half of the largest size).
  static constexpr uint64_t kLarge = ~0ull - 1;
  /// `max_bytes` bounds every size; `around` are further thresholds.
  Sizes(uint64_t seed, uint64_t max_bytes, const std::vector<uint64_t>& around);
  /// Size of message `seq` of the stream, at most `cap` bytes.
  uint64_t of(const Stream& stream, uint32_t seq, uint64_t cap) const;
  /// Each threshold size up to `cap`, ascending.
  std::vector<uint64_t> ladder(uint64_t cap) const;
  uint64_t max() const { return max_; }

 private:
  uint64_t seed_;
  uint64_t max_;
  std::vector<uint64_t> sizes_;
};

}  // namespace bfo::checker
