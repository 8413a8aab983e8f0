// SPDX-License-Identifier: BSD-3-Clause
//
// lock.h: the engine's lock. Recursive; costs one predictable branch while the process uses one thread.
#pragma once

#include <pthread.h>

#include <atomic>

#include "common/compat/ompi_includes.h"

namespace bfo::glue {

class Lock {
 public:
  void lock() {
    if (OPAL_UNLIKELY(opal_using_threads())) lock_threaded();
  }
  void unlock() {
    if (OPAL_UNLIKELY(opal_using_threads())) unlock_threaded();
  }
  // False when another thread holds it.
  bool try_lock() { return OPAL_LIKELY(!opal_using_threads()) || try_lock_threaded(); }

 private:
  // A thread finds itself here only if it wrote itself and has not cleared it since: no ordering is needed.
  bool owned() const { return owner_.load(std::memory_order_relaxed) == pthread_self(); }

  void lock_threaded() {
    if (!owned()) {
      pthread_mutex_lock(&mutex_);
      owner_.store(pthread_self(), std::memory_order_relaxed);
    }
    ++depth_;
  }
  bool try_lock_threaded() {
    if (!owned()) {
      if (pthread_mutex_trylock(&mutex_) != 0) return false;
      owner_.store(pthread_self(), std::memory_order_relaxed);
    }
    ++depth_;
    return true;
  }
  void unlock_threaded() {
    if (--depth_ > 0) return;
    owner_.store(pthread_t{}, std::memory_order_relaxed);
    pthread_mutex_unlock(&mutex_);
  }

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  std::atomic<pthread_t> owner_{};  // 0 = nobody (glibc has no thread 0)
  int depth_ = 0;                   // guarded by mutex_
};

}  // namespace bfo::glue
