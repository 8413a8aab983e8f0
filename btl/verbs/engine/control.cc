// SPDX-License-Identifier: BSD-3-Clause
//
// control.cc: see control.h.
#include "btl/verbs/engine/control.h"

#include <dlfcn.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "btl/verbs/engine/locked.h"
#include "btl/verbs/engine/memory.h"
#include "btl/verbs/engine/thread.h"

namespace bfo::engine {

/// What the control threads see. It outlives its lane when a thread is left behind; the last thread frees it.
struct ControlLane::Shared {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t work = PTHREAD_COND_INITIALIZER;  // a command, or the end
  pthread_cond_t ended;                            // a command or a thread ended
  CommandFifo queues[3];                           // by urgency
  CommandFifo results;
  std::atomic<bool> any_result{false};
  std::atomic<bool>* service_needed = nullptr;  // nullptr: left behind
  uint32_t queued = 0;
  uint32_t threads = 0;  // started and not ended
  uint32_t idle = 0;     // of these, waiting for work
  uint64_t ends = 0;     // commands that have run
  bool closing = false;
  bool left = false;

  Command* pop() {
    for (CommandFifo& queue : queues) {
      Command* const command = queue.pop();
      if (command == nullptr) continue;
      --queued;
      return command;
    }
    return nullptr;
  }
  void put_result(Command& command) {
    results.push(command);
    ++ends;
    any_result.store(true, std::memory_order_release);
    if (service_needed != nullptr) service_needed->store(true, std::memory_order_release);
  }
};

namespace {

void run_or_drop(Command& command, bool closing) {
  if (closing && command.droppable) {
    command.dropped = true;
  } else {
    command.run(command);
  }
}

/// A thread that is left behind returns into this shared object: it must stay mapped.
void keep_code_mapped() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&keep_code_mapped), &info) == 0 || info.dli_fname == nullptr) return;
  // Never closed. It fails for the program itself, which stays anyway.
  static_cast<void>(dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE));
}

}  // namespace

void ControlLane::open(ControlMode mode, uint32_t width, std::atomic<bool>* service_needed) {
  close(0);
  mode_ = mode;
  width_ = std::clamp(width, 1u, kMaxWidth);
  if (mode == ControlMode::kInline) return;
  shared_ = make<Shared>();
  if (shared_ == nullptr) {
    mode_ = ControlMode::kInline;
    return;
  }
  shared_->service_needed = service_needed;
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&shared_->ended, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

/// Under the lock.
bool ControlLane::start_thread() {
  if (engine::start_thread(&threads_[shared_->threads], thread_main, shared_) != 0) return false;
  ++shared_->threads;
  return true;
}

void ControlLane::start() {
  if (mode_ != ControlMode::kThread || shared_ == nullptr) return;
  const Locked locked(shared_->lock);
  if (shared_->threads == 0 && !shared_->closing) start_thread();
}

uint32_t ControlLane::threads() const {
  if (shared_ == nullptr) return 0;
  const Locked locked(shared_->lock);
  return shared_->threads;
}

void ControlLane::submit(Command& command, Urgency urgency) {
  ++pending_;
  command.dropped = false;
  if (mode_ == ControlMode::kInline) {
    command.run(command);
    --pending_;
    return command.done(command);
  }
  bool served = true;
  {
    const Locked locked(shared_->lock);
    shared_->queues[static_cast<size_t>(urgency)].push(command);
    ++shared_->queued;
    // close() runs what comes late.
    if (mode_ == ControlMode::kDeferred || shared_->closing) return;
    if (shared_->queued > shared_->idle && shared_->threads < width_) {
      served = start_thread() || shared_->threads != 0;
    }
  }
  pthread_cond_signal(&shared_->work);  // not under the lock: the thread would wake and wait for it
  // Threads inherit the binding of the process, so the control thread may wait for this processor, where the
  // application polls. A rail's failover waits for urgent commands: let it run now.
  if (urgency == Urgency::kFirst) sched_yield();
  // No thread can be had: slow is better than never.
  while (!served && run_one()) {
  }
}

void* ControlLane::thread_main(void* shared) {
  Shared& s = *static_cast<Shared*>(shared);
  make_thread_heap();
  pthread_mutex_lock(&s.lock);
  for (;;) {
    Command* const command = s.pop();
    if (command == nullptr) {
      if (s.closing) break;
      ++s.idle;
      pthread_cond_wait(&s.work, &s.lock);
      --s.idle;
      continue;
    }
    const bool closing = s.closing;
    pthread_mutex_unlock(&s.lock);
    run_or_drop(*command, closing);
    pthread_mutex_lock(&s.lock);
    s.put_result(*command);
    pthread_cond_signal(&s.ended);
  }
  const bool last = --s.threads == 0 && s.left;
  pthread_cond_signal(&s.ended);
  pthread_mutex_unlock(&s.lock);
  if (last) unmake(&s);
  return nullptr;
}

bool ControlLane::run_one() {
  if (shared_ == nullptr) return false;
  Command* command;
  bool closing;
  {
    const Locked locked(shared_->lock);
    command = shared_->pop();
    closing = shared_->closing;
  }
  if (command == nullptr) return false;
  run_or_drop(*command, closing);
  const Locked locked(shared_->lock);
  shared_->put_result(*command);
  return true;
}

void ControlLane::finish() {
  while (shared_ != nullptr && shared_->any_result.load(std::memory_order_acquire)) {
    CommandFifo results;
    {
      const Locked locked(shared_->lock);
      std::swap(results, shared_->results);
      shared_->any_result.store(false, std::memory_order_relaxed);
    }
    while (Command* const command = results.pop()) {
      --pending_;
      command->done(*command);
    }
  }
}

/// True when all threads have ended.
bool ControlLane::wait_for_threads(uint64_t patience_ns) {
  const Locked locked(shared_->lock);
  shared_->closing = true;
  pthread_cond_broadcast(&shared_->work);
  while (shared_->threads != 0) {
    timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const uint64_t at = static_cast<uint64_t>(until.tv_nsec) + patience_ns;
    until.tv_sec += static_cast<time_t>(at / 1'000'000'000);
    until.tv_nsec = static_cast<long>(at % 1'000'000'000);
    const uint64_t ends = shared_->ends;
    const uint32_t threads = shared_->threads;
    while (shared_->ends == ends && shared_->threads == threads) {
      if (pthread_cond_timedwait(&shared_->ended, &shared_->lock, &until) != 0) break;
    }
    if (shared_->ends == ends && shared_->threads == threads) return false;
  }
  return true;
}

/// False when all threads have ended meanwhile.
bool ControlLane::leave_threads(uint32_t started) {
  Shared& shared = *shared_;
  const Locked locked(shared.lock);
  if (shared.threads == 0) return false;
  keep_code_mapped();
  for (uint32_t i = 0; i < started; ++i) pthread_detach(threads_[i]);
  shared.service_needed = nullptr;
  shared.left = true;
  shared_ = nullptr;
  return true;
}

bool ControlLane::close(uint64_t patience_ns) {
  if (shared_ == nullptr) return true;
  uint32_t started;
  {
    const Locked locked(shared_->lock);
    started = shared_->threads;
  }
  const bool ended = wait_for_threads(patience_ns);
  finish();
  if (!ended && leave_threads(started)) return false;
  for (uint32_t i = 0; i < started; ++i) pthread_join(threads_[i], nullptr);
  finish();
  while (run_one()) finish();
  pthread_cond_destroy(&shared_->ended);
  unmake(shared_);
  shared_ = nullptr;
  return true;
}

}  // namespace bfo::engine
