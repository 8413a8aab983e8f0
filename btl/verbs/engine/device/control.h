// SPDX-License-Identifier: BSD-3-Clause
//
// control.h: control verbs off the progress path. Making an address handle waits about a second for a
// neighbour that does not answer, destroying a queue pair for the kernel or the firmware; the progress
// function waits for neither. It hands a command to a lane, whose control threads run it, and takes the
// result in a later round:
//
//     progress function: submit() ------------------------------------> finish() -> Command::done
//     control thread:              Command::run (the verbs) -> service_needed
//
// A command owns what its verbs work on; run() touches nothing else, so the endpoint that asked may be gone
// when the result comes. The lanes of a port share threads (control_threads.h), no two ports do: what blocks
// in one lane does not delay the others while there may be a further thread, and never another port.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "btl/verbs/engine/device/control_threads.h"

namespace bfo::engine {

/// Who runs the commands of a lane.
enum class ControlMode : uint8_t {
  kInline,    ///< submit(), at once, done() included
  kDeferred,  ///< run_one(), when the test says so
  kThread,
};

/// A queue of commands, which the threads of a port run. All members by one thread at a time: the progress
/// function's, or the event thread's.
class ControlLane {
 public:
  static constexpr uint32_t kMaxWidth = 4;

  ControlLane() = default;
  ControlLane(const ControlLane&) = delete;
  ControlLane& operator=(const ControlLane&) = delete;
  ~ControlLane() { close(0); }

  /// Up to `width` commands run at the same time, on `threads`, or on threads of this lane alone (nullptr).
  /// `urgent`: a thread is kept free for it where possible. `service_needed` is set whenever a result waits.
  /// Without memory or threads the lane runs its commands inline.
  void open(ControlMode mode, uint32_t width, std::atomic<bool>* service_needed,
            ControlThreads* threads = nullptr, bool urgent = false);
  /// Takes the command; it runs when its turn comes. Bounded by the callers: each object of theirs has at
  /// most one command under way. With kFirst the caller offers its processor to the lane's thread.
  void submit(Command& command, Urgency urgency);
  /// Calls done() of everything that has run.
  void finish();
  /// Commands submitted whose done() has not been called.
  size_t pending() const { return pending_; }
  /// kDeferred: runs the next command, as a control thread would. False when there is none.
  bool run_one();
  /// Waits for the commands that must run; droppable ones are dropped. Finishes all. Waits until no command
  /// has ended for `timeout_ns` (real time): then false, and the threads are left behind with the command
  /// they are in, which is never finished; what it works on must stay.
  bool close(uint64_t timeout_ns);

 private:
  ControlMode mode_ = ControlMode::kInline;
  ControlThreads own_;
  ControlThreads* threads_ = nullptr;
  ControlQueue* queue_ = nullptr;
  size_t pending_ = 0;
};

}  // namespace bfo::engine
