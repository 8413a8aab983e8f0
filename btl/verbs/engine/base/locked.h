// SPDX-License-Identifier: BSD-3-Clause
//
// The scoped lock of a pthread mutex.
#pragma once

#include <pthread.h>

namespace bfo::engine {

/// Holds `mutex` for as long as it lives. The mutex outlives it.
class Locked {
 public:
  explicit Locked(pthread_mutex_t& mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
  ~Locked() { pthread_mutex_unlock(&mutex_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

}  // namespace bfo::engine
