// SPDX-License-Identifier: BSD-3-Clause
//
// recursive_lock.h: a recursive lock that is held for a short time and is taken by few threads at once. One
// atomic read-modify-write a round, where a mutex needs two: a thread that waits polls the lock, none is
// woken. A holder that does not run (more threads than cores, or of less priority) gets a core soon, because
// those who wait yield, and sleep if that does not help.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <atomic>
#include <cstdint>

namespace bfo {

class RecursiveLock {
 public:
  void lock() {
    if (!mine() && !take()) [[unlikely]]
      wait();
    ++depth_;
  }
  void unlock() {
    if (--depth_ > 0) return;
    owner_.store(0, std::memory_order_release);
  }
  /// False when another thread holds it.
  bool try_lock() {
    if (!mine() && !take()) return false;
    ++depth_;
    return true;
  }

  /// Does the calling thread hold it?
  /// A thread finds itself there only if it wrote itself and has not cleared it since: no ordering is needed.
  bool mine() const { return owner_.load(std::memory_order_relaxed) == self(); }

 private:
  static constexpr int kSpins = 500;
  static constexpr int kYields = 50;
  static constexpr long kSleepNs = 20'000;

  /// A value of this thread that is not 0. The thread pointer costs no call, unlike pthread_self().
  static uintptr_t self() {
#if defined(__x86_64__) && defined(__GNUC__) && __GNUC__ >= 11
    return reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
#else
    return static_cast<uintptr_t>(pthread_self());
#endif
  }
  bool take() {
    uintptr_t nobody = 0;
    return owner_.compare_exchange_strong(nobody, self(), std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  [[gnu::cold, gnu::noinline]] void wait() {
    for (;;) {
      for (int i = 0; i < kSpins + kYields; ++i) {
        if (owner_.load(std::memory_order_relaxed) == 0 && take()) return;
        if (i >= kSpins) sched_yield();
      }
      const timespec nap = {0, kSleepNs};
      nanosleep(&nap, nullptr);
    }
  }

  std::atomic<uintptr_t> owner_{0};  ///< 0: nobody
  int depth_ = 0;                    ///< guarded by owner_
};

}  // namespace bfo
