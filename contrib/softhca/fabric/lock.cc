// SPDX-License-Identifier: BSD-3-Clause
//
// The contended side of the process-shared lock: spin, yield, sleep, and ask whether the owner still lives.
#include "contrib/softhca/fabric/lock.h"

#include <sched.h>
#include <time.h>

namespace bfo::softhca {

void Lock::acquire_slow(OwnerTag self, OwnerOracle& oracle) {
  constexpr unsigned kSpins = 100;
  constexpr unsigned kYields = 200;
  for (unsigned round = 0;; ++round) {
    uint32_t owner = word.load(std::memory_order_relaxed);
    if (owner == 0) {
      if (try_acquire(self)) return;
      continue;
    }
    if (round < kSpins) {
      __builtin_ia32_pause();
      continue;
    }
    if (round < kSpins + kYields) {
      sched_yield();
      continue;
    }
    if (oracle.may_take_over(owner) &&
        word.compare_exchange_strong(owner, self, std::memory_order_acquire, std::memory_order_relaxed)) {
      return;
    }
    timespec nap{0, 50'000};
    nanosleep(&nap, nullptr);
  }
}

}  // namespace bfo::softhca
