// SPDX-License-Identifier: BSD-3-Clause
//
// patience.h: what a process that comes by seldom remembers of its last stay for a handshake (Stay in
// run_time.h). A peer that lets it wait for a step, and has answered by the next call, is alive and has to
// wait for a processor itself: the next stay has more time for each step. Progress function only.
#pragma once

#include <algorithm>
#include <cstdint>

namespace bfo::engine {

class Patience {
 public:
  /// The time for a step of the stay that begins, which is `usual_ns`. `steps`: of all handshakes so far,
  /// those that waited for this call among them. The polls of the last stay make the calls look more frequent
  /// than they are: its time counts, if it was longer.
  uint64_t step_ns(uint64_t usual_ns, uint64_t steps) {
    const bool answered_late = cut_short_ && steps != steps_;
    if (!answered_late) usual_ns_ = usual_ns;
    usual_ns_ = std::max(usual_ns_, usual_ns);
    return answered_late ? kTimes * usual_ns_ : usual_ns;
  }
  /// A stay has ended. `connecting`: before the handshakes did.
  void left(bool connecting, uint64_t steps) {
    cut_short_ = connecting;
    steps_ = steps;
  }

 private:
  static constexpr uint64_t kTimes = 4;
  uint64_t usual_ns_ = 0;
  uint64_t steps_ = 0;
  bool cut_short_ = false;
};

}  // namespace bfo::engine
