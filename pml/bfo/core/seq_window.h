// SPDX-License-Identifier: BSD-3-Clause
//
// seq_window.h: the decisions of the sender's sequence window (H5), without their effects.
// xfer/moves/window.h and xfer/moves/eager.h act on them; the closure model of sequence numbers
// (test/sim/closure_seq.h) walks the same functions.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/seq.h"

namespace bfo::core {

/// What bounds the numbers of one sender to one receiver.
struct SeqBounds {
  Seq16 next;         ///< the number of the next message
  Seq16 confirmed;    ///< the receiver has every message before this one
  Seq16 acked;        ///< the rails have reported the end of every message before this one
  bool resent;        ///< messages were sent twice, and a dead epoch is not closed at both ends
  Seq16 resent_from;  ///< the first of those messages
};

/// Distance from the oldest message that may still reach the receiver to the next one.
constexpr int32_t window_used(const SeqBounds& at) {
  const int32_t resent_span = at.resent ? seq_distance(at.resent_from, at.next) : 0;
  return std::max({seq_distance(at.confirmed, at.next), resent_span, seq_distance(at.acked, at.next)});
}

/// May the next number be used?
constexpr bool window_allows(int32_t used) {
  return used < kSeqWindow;
}

/// The first number that needs another look at the window, when `used` of it is taken: half a window further,
/// or where the window ends.
constexpr Seq16 window_stop(Seq16 next, int32_t used) {
  return static_cast<Seq16>(next + std::min(kSeqWindow - used, kSeqWindow / 2));
}

/// A message with number `seq` is sent again: does the window begin earlier than at `resent_from`?
constexpr bool resent_earlier(bool resent, Seq16 resent_from, Seq16 seq) {
  return !resent || seq_before(seq, resent_from);
}

/// Is a rail past the checkpoint? `returning`: it is down, and what it took has not all come back, although
/// it counts as ended. `left`: it has not ended all the work that the checkpoint counted.
constexpr bool rail_past_checkpoint(bool returning, bool left) {
  return !returning && !left;
}

/// The receiver answers `question` with `value`, the number it expects. It counts when it is the answer to
/// the question that is `open`, and moves `confirmed` forward, but not beyond what was sent.
constexpr bool answers_open_question(uint16_t open, uint16_t question) {
  return open == question;
}
constexpr bool answer_confirms(const SeqBounds& at, Seq16 value) {
  return seq_distance(at.confirmed, value) > 0 && seq_distance(value, at.next) >= 0;
}

}  // namespace bfo::core
