// SPDX-License-Identifier: BSD-3-Clause
//
// moderation.h: when a completion queue is left alone. A poll that finds nothing reads the entry that the
// device writes next, and takes its cache line away from whoever writes it. A receiver that keeps pace with a
// stream of short messages does so for nearly each of them, and slows the stream down. So while receives
// complete one soon after another, the queue is polled again only some time after the last completion was
// handled, and several of them are taken at once. Network drivers do the same with interrupts and call it
// moderation.
//
// The gap between two polls grows with the stream, so a burst of few messages is hardly delayed. There is no
// gap after this process has posted work, whose completion or answer may be next; after completions of sends
// and RDMA operations; after messages that took long to handle; and while the queue holds more than one poll
// takes.
#pragma once

#include <algorithm>
#include <cstdint>

namespace bfo::engine {

/// Of one port. Progress function only.
class Moderation {
 public:
  static constexpr uint32_t kNearPolls = 8;    ///< empty polls between two receives of a stream, at most
  static constexpr uint32_t kStreamPolls = 4;  ///< successful polls in a row until it is a stream
  static constexpr uint32_t kGrowthPolls =
      8;  ///< successful polls in a row until the gap has its full length
  static constexpr uint64_t kShortWorkNs = 250;  ///< to handle one receive of a stream, at most
  static constexpr uint64_t kPauseNs = 5000;     ///< without a look at the queue: the stream is over
  static constexpr uint32_t kNever = UINT32_MAX;

  /// What a poll found in a stream.
  struct Found {
    int completions;
    bool receives_only;
    bool all;  ///< the queue is empty now
  };

  /// `gap_ns`: time from the end of one poll to the next one in a long stream; 0: never moderated.
  void set_gap(uint64_t gap_ns) {
    gap_ns_ = gap_ns;
    needed_ = gap_ns == 0 ? kNever : kStreamPolls;
  }
  /// True during a stream: then holds() is asked before a poll, and it and found() need the time.
  bool streaming() const { return streak_ >= needed_; }
  /// True when the queue is left alone at time `now`. Otherwise a poll begins then. Never when this process
  /// has posted work since the last poll: its completion, or an answer, may be next.
  bool holds(uint64_t now, bool posted) {
    if (now < next_ns_ && !posted) return true;
    if (next_ns_ != 0 && now > next_ns_ + kPauseNs) streak_ = 0;
    begun_ns_ = now;
    return false;
  }
  /// A poll found nothing. Unless the stream has only begun, that is its end.
  void nothing() {
    if ((streaming() && next_ns_ != 0) || ++empty_ > kNearPolls) streak_ = 0;
  }
  /// A poll found something, outside of a stream.
  void found(bool receives_only) {
    next_ns_ = 0;
    if (!receives_only) return;
    streak_ = empty_ > kNearPolls ? 0 : streak_ < kStreamPolls ? streak_ + 1 : streak_;
    empty_ = 0;
  }
  /// A poll found something in a stream, and it was handled by the time `now`.
  void found(const Found& found, uint64_t now) {
    empty_ = 0;
    const bool work = now - begun_ns_ > kShortWorkNs * static_cast<uint64_t>(found.completions);
    const bool next_is_late = found.receives_only && found.all && !work;
    next_ns_ = next_is_late ? now + gap_ns_ * std::min(streak_, kGrowthPolls) / kGrowthPolls : now;
    if (streak_ < kNever - 1) ++streak_;
  }

 private:
  uint32_t empty_ = 0;   ///< polls that found nothing since the last that found something
  uint32_t streak_ = 0;  ///< successful polls, each soon after the one before
  uint32_t needed_ = kNever;
  uint64_t gap_ns_ = 0;
  uint64_t next_ns_ = 0;   ///< not polled before; 0: not known
  uint64_t begun_ns_ = 0;  ///< the poll under way
};

}  // namespace bfo::engine
