// SPDX-License-Identifier: BSD-3-Clause
//
// watch.h: what the watchdog of a port (watchdog.cc) knows of a rail that is up, and what the rail's peer
// was asked because of it (verdict.h).
#pragma once

#include <cstdint>

#include "btl/verbs/engine/rail/verdict_rules.h"

namespace bfo::engine {

inline constexpr int kPollBatch = 16;  ///< completions taken from a queue in one poll

/// How long it has been impossible that completions wait unseen in a queue. A queue that is never empty,
/// because other peers are busy, hides the latest completions. But a completion that was there some time ago
/// has been taken if as many completions as the queue holds were taken since.
class SeenCompletions {
 public:
  /// A poll left something in a queue.
  void full_poll() { ++full_polls_; }
  /// `elapsed` has passed; `emptied`: all queues were seen empty just now; `depth`: entries of the largest
  /// one. The time for which it is certain now.
  uint64_t proven(uint64_t elapsed, bool emptied, uint32_t depth);

 private:
  uint64_t full_polls_ = 0;
  uint64_t marked_polls_ = 0;  ///< full_polls_ at the last mark
  uint64_t marked_ns_ = 0;     ///< unproven_ns_ at the last mark
  uint64_t unproven_ns_ = 0;   ///< time in which what looks like silence may wait in a queue
};

/// The probe on the probe queue pair of an epoch.
enum class PathProbe : uint8_t {
  kIdle,      ///< one can be sent
  kUnderWay,  ///< one was sent, and the queue pair takes no other: it is on its way, or failed before work
              ///< moved
  kDone,      ///< one came back since the last completed work; another one can be sent
  kFailed,    ///< one failed, and neither work nor the path has shown life since
};

/// Of one rail.
struct Watch {
  uint64_t seen_tail = 0;
  uint32_t silent_ticks = 0;
  PathProbe probe = PathProbe::kIdle;
  int32_t probe_status = 0;
  uint64_t silent_ns = 0;     ///< watched time without a completion
  uint64_t suspected_ns = 0;  ///< since when it is asked about; 0 = it is not
  uint64_t slowest_ns = 0;    ///< longest silence that ended by itself, fading
  Inquiry inquiry;            ///< verdict_rules.h
  uint64_t ask_again_ns = 0;  ///< the next question about it
  uint64_t ask_pause_ns = 0;

  /// A new epoch: nothing has been sent on it.
  void begin_epoch() {
    seen_tail = silent_ns = 0;
    silent_ticks = 0;
    probe = PathProbe::kIdle;
  }
  bool can_probe() const { return probe == PathProbe::kIdle || probe == PathProbe::kDone; }
  bool probe_done() const { return probe == PathProbe::kDone; }
  bool probe_failed() const { return probe == PathProbe::kFailed; }
  /// The path works, whatever made the probe fail. The failed queue pair takes no other probe.
  void forgive_probe() {
    if (probe_failed()) probe = PathProbe::kUnderWay;
  }
  /// Work has moved for `tail`: what was silent is over.
  void moved(uint64_t tail) {
    seen_tail = tail;
    silent_ticks = 0;
    silent_ns = 0;
    if (probe_done()) probe = PathProbe::kIdle;
    forgive_probe();
  }
};

}  // namespace bfo::engine
