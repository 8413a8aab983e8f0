// SPDX-License-Identifier: BSD-3-Clause
//
// run_time.h: how long this process could answer its peers. One that waits for a processor looks at the clock
// seldom. So does one that computes or sleeps: the system knows the difference, and is asked while somebody
// waits.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "btl/verbs/engine/base/environment.h"

namespace bfo::engine {

class RunTime {
 public:
  /// Of the time between two looks at the clock a hundredth of `connect_timeout_ns` counts at most.
  void open(uint64_t connect_timeout_ns) { most_ns_ = connect_timeout_ns / 100; }
  /// A look at the clock, after `polls` polls since the last one. Progress function only.
  void note(uint64_t now, uint32_t polls, bool somebody_waits, const Environment& env);

  /// Time in which this process ran, as far as its looks at the clock tell. Any thread.
  uint64_t ran_ns() const { return ran_ns_.load(std::memory_order_relaxed); }
  /// The last look at the clock before the present one, and what ran_ns() did not count of the time since
  /// although the process could run: it computed, or slept. Progress function only.
  uint64_t looked_before_ns() const { return looked_before_ns_; }
  uint64_t away_ns() const { return away_ns_; }
  /// A process that comes by seldom can stay for so long for each step of a handshake, which is a twentieth
  /// of its pauses, up to 50 ms; 0: it comes by often. Progress function only.
  uint64_t may_stay_ns() const { return may_stay_ns_; }

 private:
  uint64_t most_ns_ = 0;
  uint64_t last_look_ns_ = 0;
  uint64_t looked_before_ns_ = 0;
  uint64_t away_ns_ = 0;
  uint64_t may_stay_ns_ = 0;
  uint64_t starved_ns_ = 0;  ///< at the last look after a pause
  std::atomic<uint64_t> ran_ns_{0};
};

/// How long a process that comes by seldom stays in progress for a handshake: while steps come that are not
/// far apart, up to four times what it may for one. Time in which it waited for a processor does not count:
/// then its control threads and its peer wait for theirs, too. The clock on the wall ends it after four times
/// as long.
class Stay {
 public:
  Stay(uint64_t step_ns, uint64_t steps, uint64_t now, const Environment& env)
      : env_(env),
        step_ns_(step_ns),
        steps_(steps),
        step_end_ns_(now + step_ns),
        end_ns_(now + kSteps * step_ns),
        last_ns_(now + 4 * kSteps * step_ns),
        starved_ns_(env.starved_ns()) {}
  /// `steps`: of all handshakes so far.
  bool goes_on(uint64_t steps, uint64_t now) {
    if (steps != steps_) step_end_ns_ = now + step_ns_;
    steps_ = steps;
    if (now >= std::min(step_end_ns_, end_ns_)) forgive();
    return now < std::min({step_end_ns_, end_ns_, last_ns_});
  }

 private:
  static constexpr uint64_t kSteps = 4;
  void forgive();

  const Environment& env_;
  uint64_t step_ns_;
  uint64_t steps_;
  uint64_t step_end_ns_;
  uint64_t end_ns_;
  uint64_t last_ns_;
  uint64_t starved_ns_;  ///< so much is forgiven
};

}  // namespace bfo::engine
