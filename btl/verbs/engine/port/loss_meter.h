// SPDX-License-Identifier: BSD-3-Clause
//
// loss_meter.h: does a port lose packets, one way? What its device counts is compared from term to term. A
// term ends when it is long enough and enough has happened in it to tell. Loss is what goes on for some
// terms: a burst, however large, is an accident, and a single packet is nothing.
#pragma once

#include <algorithm>
#include <cstdint>

#include "btl/verbs/engine/device/loss_counters.h"

namespace bfo::engine {

class LossMeter {
 public:
  static constexpr uint64_t kTermNs = 900'000'000;  ///< of looks that are a second apart, at least
  static constexpr uint64_t kEnough = 8;            ///< signs that prove, or would be there if it were lossy
  static constexpr uint32_t kBadTerms = 3;          ///< in a row: it loses packets
  static constexpr uint32_t kGoodTerms = 10;        ///< in a row: it does not any more
  static constexpr uint64_t kGoodPart = 4;          ///< a good term has less than this part of the limit

  enum class Word : uint8_t {
    kNone,
    kLossy,  ///< it loses packets
    kStill,  ///< as it did: another bad term
    kWell,   ///< it does not any more
  };

  /// `per_million`: signs for so many packets make a term bad.
  void set_limit(uint32_t per_million) { limit_ = per_million; }

  /// The device has counted so much by `now`.
  Word take(const LossCount& count, uint64_t now) {
    // The device was reset, or the number went round: nothing is known of that term.
    const bool back = count.signs < last_.signs || count.packets < last_.packets;
    if (!count.known || !last_.known || back) {
      skip(count, now);
      return Word::kNone;
    }
    const uint64_t signs = std::min(count.signs - last_.signs, kMost);
    const uint64_t packets = std::min(count.packets - last_.packets, kMost);
    if (now - last_ns_ < kTermNs) return Word::kNone;
    // The counter of packets stands still: it has reached its end, or belongs to another function.
    if (signs > packets) {
      skip(count, now);
      return Word::kNone;
    }
    if (signs < kEnough && packets * limit_ < kEnough * kMillion) return Word::kNone;
    const Word word = judge(signs, packets);
    last_ = count;
    last_ns_ = now;
    return word;
  }

  /// What was counted until now says nothing: a rail over the port was lost, and its last packets with it.
  void skip(const LossCount& count, uint64_t now) {
    last_ = count;
    last_ns_ = now;
    bad_ = good_ = 0;
  }

  /// This process reads from now on. `lossy`: the one that did so before has told that packets are lost, and
  /// not that this is over.
  void begin(bool lossy) {
    last_ = {};
    bad_ = good_ = 0;
    lossy_ = lossy;
  }

  bool lossy() const { return lossy_; }
  /// Of the bad terms in which it was found to lose packets, or the one in which it still did; of the good
  /// ones when that was over.
  uint64_t signs() const { return signs_; }
  uint64_t packets() const { return packets_; }
  /// When the first of these terms began.
  uint64_t since_ns() const { return since_ns_; }

 private:
  static constexpr uint64_t kMillion = 1'000'000;
  static constexpr uint64_t kMost = uint64_t{1} << 40;  ///< products with these fit

  Word judge(uint64_t signs, uint64_t packets) {
    const bool is_bad = signs * kMillion >= packets * limit_;
    const bool is_good = signs * kMillion * kGoodPart < packets * limit_;
    if (lossy_ && is_bad) {
      good_ = 0;
      signs_ = signs;
      packets_ = packets;
      since_ns_ = last_ns_;
      return Word::kStill;
    }
    uint32_t& row = lossy_ ? good_ : bad_;
    if (lossy_ ? !is_good : !is_bad) {
      row = 0;
      return Word::kNone;
    }
    if (row == 0) {
      signs_ = packets_ = 0;
      since_ns_ = last_ns_;
    }
    signs_ += signs;
    packets_ += packets;
    if (++row < (lossy_ ? kGoodTerms : kBadTerms)) return Word::kNone;
    row = 0;
    lossy_ = !lossy_;
    return lossy_ ? Word::kLossy : Word::kWell;
  }

  uint64_t limit_ = kMillion;
  LossCount last_;
  uint64_t last_ns_ = 0;
  uint64_t signs_ = 0;
  uint64_t packets_ = 0;
  uint64_t since_ns_ = 0;
  uint32_t bad_ = 0;
  uint32_t good_ = 0;
  bool lossy_ = false;
};

}  // namespace bfo::engine
