// SPDX-License-Identifier: BSD-3-Clause
//
// control_threads.cc: see control_threads.h.
#include "btl/verbs/engine/device/control_threads.h"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "btl/verbs/engine/base/locked.h"
#include "btl/verbs/engine/base/memory.h"
#include "btl/verbs/engine/base/thread.h"

namespace bfo::engine {
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

timespec after(uint64_t ns) {
  timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  const uint64_t at = static_cast<uint64_t>(until.tv_nsec) + ns;
  until.tv_sec += static_cast<time_t>(at / 1'000'000'000);
  until.tv_nsec = static_cast<long>(at % 1'000'000'000);
  return until;
}

}  // namespace

Command* ControlQueue::pop() {
  for (CommandFifo& queue : queues) {
    Command* const command = queue.pop();
    if (command == nullptr) continue;
    --queued;
    return command;
  }
  return nullptr;
}

void ControlQueue::put_result(Command& command) {
  results.push(command);
  any_result.store(true, std::memory_order_release);
  if (service_needed != nullptr) service_needed->store(true, std::memory_order_release);
}

/// All under its lock. Its owner frees it, or the last thread that was left behind.
struct ControlThreads::Shared {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t work;   // a command, or the end
  pthread_cond_t ended;  // a command or a thread ended
  ControlQueue* first = nullptr;
  uint32_t most = 1;
  uint32_t keep = 0;
  uint64_t idle_ns = 0;
  uint32_t threads = 0;  // started and not ended
  uint32_t idle = 0;     // of these, not in a command
  uint64_t ends = 0;     // commands that have run
  std::atomic<int> error{0};
  bool stuck = false;      // a thread was left behind
  bool ending = false;     // close() was called
  bool abandoned = false;  // and is over: the last thread frees this
  // The thread that ended last. Each waits for the one before it, so who has waited for this one has waited
  // for all.
  pthread_t last_ended{};
  bool any_ended = false;

  Shared() {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&work, &monotonic);
    pthread_cond_init(&ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
  }
  ~Shared() {
    pthread_cond_destroy(&work);
    pthread_cond_destroy(&ended);
    pthread_mutex_destroy(&lock);
  }

  uint32_t busy() const { return threads - idle; }

  bool may_run(const ControlQueue& queue) const {
    if (queue.queued == 0 || queue.running >= queue.width || queue.closed) return false;
    uint32_t others = 0;  // that have nothing running: room for their first command
    bool urgent = false;
    for (const ControlQueue* each = first; each != nullptr; each = each->next) {
      if (each == &queue || each->running != 0 || each->closed) continue;
      ++others;
      urgent = urgent || each->urgent;
    }
    const uint32_t rest = queue.running != 0 ? others : urgent && most > 1 ? 1 : 0;
    return busy() + 1 + rest <= most;
  }
  ControlQueue* next() const {
    for (ControlQueue* queue = first; queue != nullptr; queue = queue->next) {
      if (may_run(*queue)) return queue;
    }
    return nullptr;
  }
  uint32_t waiting() const {
    uint32_t sum = 0;
    for (const ControlQueue* queue = first; queue != nullptr; queue = queue->next) {
      if (may_run(*queue)) sum += std::min(queue->queued, queue->width - queue->running);
    }
    return sum;
  }
  void unlink(ControlQueue& queue) {
    for (ControlQueue** at = &first; *at != nullptr; at = &(*at)->next) {
      if (*at != &queue) continue;
      *at = queue.next;
      return;
    }
  }
  /// One that has begun counts as idle: it will look for work.
  bool start() {
    if (threads >= most || ending) return false;
    pthread_t thread;
    const int rc = start_thread(&thread, thread_main, this);
    if (rc != 0) {
      error.store(rc, std::memory_order_relaxed);
      return false;
    }
    ++threads;
    ++idle;
    return true;
  }
  /// Takes the thread to wait for, without the lock. False: none.
  bool take_ended(pthread_t& thread) {
    thread = last_ended;
    return std::exchange(any_ended, false);
  }
  void run(ControlQueue& queue);
  bool wait();
};

bool ControlThreads::open(uint32_t most, uint64_t idle_ns) {
  close();
  shared_ = make<Shared>();
  if (shared_ == nullptr) return false;
  shared_->most = std::max(most, 1u);
  shared_->idle_ns = idle_ns;
  return true;
}

void ControlThreads::keep(uint32_t count) {
  if (shared_ == nullptr) return;
  const Locked locked(shared_->lock);
  shared_->keep = std::min(count, shared_->most);
  while (shared_->idle < shared_->keep && shared_->start()) {
  }
}

uint32_t ControlThreads::count() const {
  if (shared_ == nullptr) return 0;
  const Locked locked(shared_->lock);
  return shared_->threads;
}

int ControlThreads::take_shared_error() {
  if (shared_->error.load(std::memory_order_relaxed) == 0) return 0;
  return shared_->error.exchange(0, std::memory_order_relaxed);
}

void ControlThreads::close() {
  if (shared_ == nullptr) return;
  bool last, any;
  pthread_t ended;
  {
    const Locked locked(shared_->lock);
    shared_->ending = true;
    pthread_cond_broadcast(&shared_->work);
    while (shared_->idle != 0) pthread_cond_wait(&shared_->ended, &shared_->lock);
    any = shared_->take_ended(ended);
    last = shared_->threads == 0;
    shared_->abandoned = !last;
  }
  // A thread that ends gives its stack back, and Open MPI's memory hook then walks the registration caches on
  // it. The caller destroys them next.
  if (any) pthread_join(ended, nullptr);
  if (last) unmake(shared_);
  shared_ = nullptr;
}

// ---- threads

/// Under the lock, which is given back meanwhile.
void ControlThreads::Shared::run(ControlQueue& queue) {
  Command* const command = queue.pop();
  ++queue.running;
  --idle;
  const bool closing = queue.closing;
  // What waits besides has its thread, and the urgent lane its own, before this one may be gone for long. For
  // a brief command that would be a thread made and ended each time: who comes meanwhile makes one.
  const uint32_t wanted = waiting() + (queue.urgent || command->brief ? 0 : keep);
  if (wanted > idle) start();
  if (idle != 0 && next() != nullptr) pthread_cond_signal(&work);
  pthread_mutex_unlock(&lock);
  run_or_drop(*command, closing);
  pthread_mutex_lock(&lock);
  ++idle;
  --queue.running;
  ++ends;
  queue.put_result(*command);
  pthread_cond_broadcast(&ended);
  if (!queue.left || queue.running != 0 || queue.queued != 0) return;
  unlink(queue);
  unmake(&queue);
}

/// For work. False: this thread is not needed any more. Under the lock. What a lane that was left behind
/// still has is run by the thread that comes back to it.
bool ControlThreads::Shared::wait() {
  if (ending) return false;
  // Those that stay sleep without a clock.
  if (idle <= keep) {
    pthread_cond_wait(&work, &lock);
    return true;
  }
  const timespec until = after(idle_ns);
  const bool over = pthread_cond_timedwait(&work, &lock, &until) != 0;
  return !over || idle <= keep || next() != nullptr;
}

void* ControlThreads::thread_main(void* shared) {
  Shared& s = *static_cast<Shared*>(shared);
  make_thread_heap();
  pthread_mutex_lock(&s.lock);
  for (;;) {
    ControlQueue* const queue = s.next();
    if (queue != nullptr) {
      s.run(*queue);
    } else if (!s.wait()) {
      break;
    }
  }
  --s.idle;
  const bool last = --s.threads == 0 && s.abandoned;
  pthread_t before;
  const bool any = s.take_ended(before);
  if (last) {
    pthread_detach(pthread_self());
  } else {
    s.last_ended = pthread_self();
    s.any_ended = true;
  }
  pthread_cond_broadcast(&s.ended);
  pthread_mutex_unlock(&s.lock);
  if (any) pthread_join(before, nullptr);
  if (last) unmake(&s);
  return nullptr;
}

// ---- lanes

void ControlThreads::add(ControlQueue& queue) {
  const Locked locked(shared_->lock);
  ControlQueue** at = &shared_->first;
  while (*at != nullptr) at = &(*at)->next;
  *at = &queue;
}

void ControlThreads::put(ControlQueue& queue, Command& command, size_t urgency, bool threaded) {
  {
    const Locked locked(shared_->lock);
    queue.queues[urgency].push(command);
    ++queue.queued;
    // The end of the lane runs what comes late.
    if (!threaded || queue.closing) return;
    // One that waits looks for work, and starts more where it sees more: the caller has other things to do.
    if (shared_->idle == 0 && shared_->waiting() != 0) shared_->start();
  }
  pthread_cond_signal(&shared_->work);  // not under the lock: the thread would wake and wait for it
}

bool ControlThreads::threadless() const {
  const Locked locked(shared_->lock);
  return shared_->threads == 0;
}

bool ControlThreads::run_one(ControlQueue& queue) {
  Command* command;
  bool closing;
  {
    const Locked locked(shared_->lock);
    command = queue.pop();
    closing = queue.closing;
  }
  if (command == nullptr) return false;
  run_or_drop(*command, closing);
  const Locked locked(shared_->lock);
  queue.put_result(*command);
  return true;
}

CommandFifo ControlThreads::take_results(ControlQueue& queue) {
  CommandFifo results;
  const Locked locked(shared_->lock);
  std::swap(results, queue.results);
  queue.any_result.store(false, std::memory_order_relaxed);
  return results;
}

bool ControlThreads::drain(ControlQueue& queue, uint64_t timeout_ns) {
  Shared& s = *shared_;
  const Locked locked(s.lock);
  queue.closing = true;
  pthread_cond_broadcast(&s.work);
  while (queue.running != 0 || (queue.queued != 0 && s.threads != 0)) {
    if (s.stuck && queue.running == 0 && s.idle == 0) return false;  // nobody comes
    const timespec until = after(timeout_ns);
    const uint64_t ends = s.ends;
    while (s.ends == ends && (queue.running != 0 || queue.queued != 0)) {
      if (pthread_cond_timedwait(&s.ended, &s.lock, &until) != 0) break;
    }
    if (s.ends == ends && (queue.running != 0 || queue.queued != 0)) return false;
  }
  queue.closed = true;
  return true;
}

void ControlThreads::remove(ControlQueue& queue, bool left) {
  Shared& s = *shared_;
  {
    const Locked locked(s.lock);
    if (left && (queue.running != 0 || queue.queued != 0)) {
      keep_code_mapped();
      queue.service_needed = nullptr;
      queue.left = s.stuck = true;
      return;
    }
    s.unlink(queue);
  }
  unmake(&queue);
}

}  // namespace bfo::engine
