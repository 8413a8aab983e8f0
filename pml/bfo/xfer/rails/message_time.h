// SPDX-License-Identifier: BSD-3-Clause
//
// message_time.h: how long the last few eager messages that were timed took over a rail, from their posting
// until it was seen that they have ended there. When two of them end one after the other says little about
// the rail: their ends come late and together behind what goes the other way, and apart behind what goes to
// other peers. But of rails that carry messages in turn the slower one holds them longer, all of them.
// Nanoseconds of the port's clock. Used under the engine's lock. Needs no memory, cannot fail.
#pragma once

#include <algorithm>
#include <cstdint>

namespace bfo::xfer {

class MessageTime {
 public:
  static constexpr uint8_t kSamples = 4;

  /// One took so long.
  void ended(uint64_t took_ns) {
    last_ = static_cast<uint8_t>((last_ + 1) % kSamples);
    took_[last_] = static_cast<uint32_t>(std::clamp<uint64_t>(took_ns, 1, UINT32_MAX));
    if (n_ < kSamples) ++n_;
  }
  bool known() const { return n_ == kSamples; }
  /// Did each of the last four take longer than each of the other rail's?
  bool longer_than(const MessageTime& other) const {
    return known() && other.known() && beyond(*std::min_element(took_, took_ + kSamples), other.most());
  }
  /// Did the last one?
  bool last_longer_than(const MessageTime& other) const {
    return n_ != 0 && other.known() && beyond(took_[last_], other.most());
  }
  /// Did the last one take so many times what each of the other rail's did, as far as there were any?
  bool last_longer_than(const MessageTime& other, uint64_t times) const {
    return n_ != 0 && other.n_ != 0 && took_[last_] > times * other.most() + kSlackNs;
  }

 private:
  static constexpr uint64_t kLongerTenths = 12;
  static constexpr uint64_t kSlackNs = 2000;  ///< what rails that are equal may differ by

  static bool beyond(uint64_t a, uint64_t b) { return a * 10 > b * kLongerTenths + 10 * kSlackNs; }
  uint64_t most() const { return *std::max_element(took_, took_ + kSamples); }

  uint32_t took_[kSamples] = {};  ///< 0: none
  uint8_t n_ = 0;                 ///< so many
  uint8_t last_ = kSamples - 1;   ///< the last of them
};

}  // namespace bfo::xfer
