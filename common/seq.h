// SPDX-License-Identifier: BSD-3-Clause
//
// seq.h: circular sequence arithmetic: the only place that compares message sequence numbers.
//
// A message's sequence number is 16 bits wide and counts the messages of one (communicator, sender,
// receiver). A sender never runs more than kSeqWindow messages ahead of the oldest one whose fate is open
// (hazard H5), so a received number lies within +-kSeqWindow of the expected one; anything farther away is
// not a sequence number we ever sent and is dropped.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>

namespace bfo {

using Seq16 = uint16_t;

/// Largest distance, in messages, between the oldest unfinished and the newest message of one pair.
inline constexpr int32_t kSeqWindow = 1 << 14;

/// Signed circular distance `to - from` in [-32768, 32767].
constexpr int32_t seq_distance(Seq16 from, Seq16 to) {
  return static_cast<int16_t>(static_cast<Seq16>(to - from));
}

/// True when `a` comes before `b` on the circle (distance at most half of it).
constexpr bool seq_before(Seq16 a, Seq16 b) {
  return seq_distance(a, b) > 0;
}

enum class SeqPlace : uint8_t {
  kExpected,  ///< the next one in order
  kFuture,    ///< inside the window, to be stored
  kPast,      ///< already received: a duplicate
  kOutside,   ///< farther than the window on either side: never sent by a correct peer
};

/// Where `seq` lies relative to the receiver's `expected` number.
constexpr SeqPlace seq_place(Seq16 expected, Seq16 seq) {
  const int32_t d = seq_distance(expected, seq);
  if (d == 0) return SeqPlace::kExpected;
  if (d > 0) return d <= kSeqWindow ? SeqPlace::kFuture : SeqPlace::kOutside;
  return -d <= kSeqWindow ? SeqPlace::kPast : SeqPlace::kOutside;
}

/// A peer that is asked how far it has got may answer late by any number of messages, so its answer repeats
/// the number of the question. This is the number of the next one, when it was `open` with everything before
/// `before` confirmed, and now everything before `now` is, at most kSeqWindow further: it goes up once in
/// kSeqWindow messages. The answer to the open question is then less than kSeqWindow behind what is
/// confirmed, and seq_distance() can tell. The number itself comes round after 2^30 messages.
constexpr uint16_t seq_question(uint16_t open, Seq16 before, Seq16 now) {
  return static_cast<uint16_t>(open + (before / kSeqWindow != now / kSeqWindow ? 1 : 0));
}

}  // namespace bfo
