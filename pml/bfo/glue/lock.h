// SPDX-License-Identifier: BSD-3-Clause
//
// lock.h: the engine's lock. Recursive; costs one predictable branch while the process uses one thread.
#pragma once

#include "common/compat/ompi_includes.h"
#include "common/recursive_lock.h"

namespace bfo::glue {

class Lock {
 public:
  void lock() {
    if (opal_using_threads()) [[unlikely]]
      lock_threaded();
  }
  void unlock() {
    if (opal_using_threads()) [[unlikely]]
      unlock_threaded();
  }
  /// False when another thread holds it.
  bool try_lock() {
    if (!opal_using_threads()) [[likely]]
      return true;
    return try_lock_threaded();
  }

 private:
  [[gnu::noinline]] void lock_threaded() { lock_.lock(); }
  [[gnu::noinline]] void unlock_threaded() { lock_.unlock(); }
  [[gnu::noinline]] bool try_lock_threaded() { return lock_.try_lock(); }

  RecursiveLock lock_;
};

}  // namespace bfo::glue
