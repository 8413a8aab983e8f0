// SPDX-License-Identifier: BSD-3-Clause
//
// The engine's lock (recursive_lock.h): exclusion, recursion, a holder that does not run.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "common/recursive_lock.h"

namespace bfo {
namespace {

bool free_for_another(RecursiveLock& lock) {
  bool taken = false;
  std::thread([&] {
    taken = lock.try_lock();
    if (taken) lock.unlock();
  }).join();
  return taken;
}

TEST(RecursiveLock, IsFreeAfterTheLastUnlockOnly) {
  RecursiveLock lock;
  lock.lock();
  EXPECT_TRUE(lock.try_lock());
  lock.lock();
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(free_for_another(lock)) << i;
    lock.unlock();
  }
  EXPECT_TRUE(free_for_another(lock));
}

// Many more threads than cores: holders lose their core, and each waits for the others. Plain variables,
// which a sanitizer of threads watches too.
TEST(RecursiveLock, ManyThreadsCountWithoutLoss) {
  constexpr int kThreads = 16;
  constexpr int kRounds = 20000;
  RecursiveLock lock;
  long count = 0;
  int inside = 0;
  bool shared = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        lock.lock();
        if (i % 3 == 0) lock.lock();
        shared |= ++inside != 1;
        ++count;
        if (i % 1000 == t) std::this_thread::yield();  // with the lock held
        --inside;
        if (i % 3 == 0) lock.unlock();
        lock.unlock();
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(count, long{kThreads} * kRounds);
  EXPECT_FALSE(shared);
}

// Those who wait for a long time sleep: they leave the cores to others.
TEST(RecursiveLock, WhoWaitsLongUsesNoCore) {
  RecursiveLock lock;
  lock.lock();
  double used = 1;
  std::thread waiter([&] {
    const auto mine = [] {
      timespec t;
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
    };
    const double before = mine();
    lock.lock();
    lock.unlock();
    used = mine() - before;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  lock.unlock();
  waiter.join();
  EXPECT_LT(used, 0.3);
}

}  // namespace
}  // namespace bfo
