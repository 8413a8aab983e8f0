// SPDX-License-Identifier: BSD-3-Clause
//
// control_threads.h: the threads that run the commands of some lanes (control.h): those of a port. One is
// started when a command finds none that waits, up to a bound; one that has had nothing to do for a while
// ends. A lane begins its second command only while the other lanes have room for their first: what blocks in
// one of them leaves the others their thread. An urgent lane keeps the last one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace bfo::engine {

/// The order in a lane; of the same urgency the oldest is first.
enum class Urgency : uint8_t { kFirst, kNormal, kLast };

/// Control verbs to run, and what becomes of their result. Derived structs add the operands. Owned by the
/// lane from submit() until done() is called.
struct Command {
  Command* next = nullptr;
  void (*run)(Command& self) = nullptr;   ///< control thread
  void (*done)(Command& self) = nullptr;  ///< progress function
  bool droppable = false;                 ///< a lane that closes need not run it
  bool dropped = false;                   ///< and has not
  bool brief = false;                     ///< over soon as a rule: no thread is made to be free meanwhile
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

/// A lane as the threads see it. It outlives its lane when a thread is left behind in one of its commands.
struct ControlQueue {
  CommandFifo queues[3];  ///< by urgency
  CommandFifo results;
  std::atomic<bool> any_result{false};
  std::atomic<bool>* service_needed = nullptr;  ///< nullptr: left behind
  uint32_t width = 1;
  uint32_t queued = 0;
  uint32_t running = 0;  ///< on threads
  bool urgent = false;
  bool closing = false;  ///< droppable commands are dropped
  bool closed = false;   ///< no thread serves it any more
  bool left = false;
  ControlQueue* next = nullptr;

  Command* pop();
  void put_result(Command& command);
};

/// The threads of some lanes, which share a lock. All members by any thread.
class ControlThreads {
 public:
  ControlThreads() = default;
  ControlThreads(const ControlThreads&) = delete;
  ControlThreads& operator=(const ControlThreads&) = delete;
  ~ControlThreads() { close(); }

  /// At most `most` threads; one that is not kept ends after `idle_ns` without a command. False when memory
  /// is short.
  bool open(uint32_t most, uint64_t idle_ns = kIdleNs);
  bool is_open() const { return shared_ != nullptr; }
  /// So many do not end for want of commands: those of the urgent lane find them. They are started now.
  void keep(uint32_t count);
  /// Threads that have not ended.
  uint32_t count() const;
  /// errno of a thread that could not be started since this was asked last, or 0. Any time, without a lock.
  int take_error() { return shared_ == nullptr ? 0 : take_shared_error(); }
  /// Ends the threads that wait, and returns when they have given their memory back. All lanes must be
  /// closed. Not on one of them.
  void close();

  // For lanes.
  /// Serves `queue` from now on.
  void add(ControlQueue& queue);
  void put(ControlQueue& queue, Command& command, size_t urgency, bool threaded);
  /// Runs the next command of `queue` on the calling thread. False when there is none.
  bool run_one(ControlQueue& queue);
  /// The results of `queue`.
  CommandFifo take_results(ControlQueue& queue);
  /// Waits until the queue is empty. False: no command has ended for `timeout_ns`.
  bool drain(ControlQueue& queue, uint64_t timeout_ns);
  /// Forgets and frees it; `left`: when its threads have come back.
  void remove(ControlQueue& queue, bool left);
  /// True while nobody but the caller can run commands.
  bool threadless() const;

  static constexpr uint64_t kIdleNs = 500'000'000;

 private:
  struct Shared;
  static void* thread_main(void* shared);
  int take_shared_error();

  Shared* shared_ = nullptr;
};

}  // namespace bfo::engine
