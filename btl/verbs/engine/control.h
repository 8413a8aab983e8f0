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
// when the result comes. Each lane has its own threads: what blocks in one lane does not delay the others.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace bfo::engine {

/// Who runs the commands of a lane.
enum class ControlMode : uint8_t {
  kInline,    // submit(), at once, done() included
  kDeferred,  // run_one(), when the test says so
  kThread,
};

/// The order in a lane; of the same urgency the oldest is first.
enum class Urgency : uint8_t { kFirst, kNormal, kLast };

/// Control verbs to run, and what becomes of their result. Derived structs add the operands. Owned by the
/// lane from submit() until done() is called.
struct Command {
  Command* next = nullptr;
  void (*run)(Command& self) = nullptr;   // control thread
  void (*done)(Command& self) = nullptr;  // progress function
  bool droppable = false;                 // a lane that closes need not run it
  bool dropped = false;                   // and has not
};

/// Commands in order.
class CommandFifo {
 public:
  bool empty() const { return head_ == nullptr; }
  void push(Command& command) {
    command.next = nullptr;
    (tail_ == nullptr ? head_ : tail_->next) = &command;
    tail_ = &command;
  }
  /// The oldest one; nullptr when empty.
  Command* pop() {
    Command* const first = head_;
    if (first == nullptr) return nullptr;
    head_ = first->next;
    if (head_ == nullptr) tail_ = nullptr;
    return first;
  }

 private:
  Command* head_ = nullptr;
  Command* tail_ = nullptr;
};

/// A queue of commands with threads of its own, started by start() or when there is something to do. All
/// members by one thread at a time: the progress function's.
class ControlLane {
 public:
  static constexpr uint32_t kMaxWidth = 4;

  ControlLane() = default;
  ControlLane(const ControlLane&) = delete;
  ControlLane& operator=(const ControlLane&) = delete;
  ~ControlLane() { close(0); }

  /// Up to `width` commands run at the same time. `service_needed` is set whenever a result waits. Without
  /// memory or threads the lane runs its commands inline.
  void open(ControlMode mode, uint32_t width, std::atomic<bool>* service_needed);
  /// Starts a thread if there is none yet (kThread): the first command then does not wait until it exists.
  /// When none can be had, submit() tries again.
  void start();
  /// Threads started that have not ended.
  uint32_t threads() const;
  /// Takes the command; it runs when its turn comes. Bounded by the callers: each object of theirs has at
  /// most one command under way. With kFirst the caller offers its processor to the lane's thread.
  void submit(Command& command, Urgency urgency);
  /// Calls done() of everything that has run.
  void finish();
  /// Commands submitted whose done() has not been called.
  size_t pending() const { return pending_; }
  /// kDeferred: runs the next command, as a control thread would. False when there is none.
  bool run_one();
  /// Ends the threads after the commands that must run; droppable ones are dropped. Finishes all. Waits until
  /// no command has ended for `patience_ns` (real time): then false, and the threads are left behind with the
  /// command they are in, which is never finished; what it works on must stay.
  bool close(uint64_t patience_ns);

 private:
  struct Shared;
  static void* thread_main(void* shared);
  bool start_thread();
  bool wait_for_threads(uint64_t patience_ns);
  bool leave_threads(uint32_t started);

  ControlMode mode_ = ControlMode::kInline;
  uint32_t width_ = 1;
  Shared* shared_ = nullptr;
  std::array<pthread_t, kMaxWidth> threads_{};
  size_t pending_ = 0;
};

}  // namespace bfo::engine
