// SPDX-License-Identifier: BSD-3-Clause
//
// btl_contract_test.cc: the user pointer of an endpoint, also while another thread makes progress.
#include "btl/verbs/engine/progress/contract.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

TEST(Attach, RailIsUp_TheStateIsReadAndThePointerIsThereUntilItIsTaken) {
  World w;
  w.connect();
  int rail = 0;
  bfo_rail_info_t now{};
  engine::rail_attach(w.a.endpoint, &rail, &now);
  EXPECT_EQ(now.state, BFO_RAIL_UP);
  EXPECT_EQ(now.name.epoch, 1u);
  EXPECT_EQ(w.a.endpoint.user.load(), &rail);
  engine::rail_attach(w.a.endpoint, nullptr, nullptr);
  EXPECT_EQ(w.a.endpoint.user.load(), nullptr);
}

// What a connection needs is made by whoever first wants the rail. A sender in another thread takes the lock
// before it looks for it: told by ThreadSanitizer only.
TEST(Reserve, AnotherThreadHasJustWantedTheRail_WhatItMadeIsReadUnderTheLock) {
  World w;
  static constexpr bool kThreads = true;
  w.a.port.lock().open(&kThreads);
  ASSERT_FALSE(w.a.endpoint.has_resources());
  std::atomic<bool> wanted{false};
  std::thread other([&] {
    engine::rail_connect(w.a.endpoint);
    wanted.store(true, std::memory_order_relaxed);  // orders nothing
  });
  while (!wanted.load(std::memory_order_relaxed)) std::this_thread::yield();
  EXPECT_EQ(engine::slot_reserve(w.a.endpoint, 1), nullptr);
  other.join();
  EXPECT_TRUE(w.a.endpoint.has_resources());
}

// A session for one thread may come before MPI_Init_thread for several.
TEST(PortLock, ThreadsAreAllowedLater_ItIsTakenFromThenOn) {
  engine::PortLock lock;
  bool threads = false;
  lock.open(&threads);
  lock.lock();
  std::thread([&lock] { const engine::Guard guard(lock); }).join();
  lock.unlock();
  threads = true;
  std::atomic<bool> in{false};
  lock.lock();
  std::thread other([&] {
    const engine::Guard guard(lock);
    in.store(true);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(in.load());
  lock.unlock();
  other.join();
  EXPECT_TRUE(in.load());
}

// As progress does it: the state changes under the lock, and who is to be told is looked up after that.
TEST(Attach, StateChangesInAnotherThread_ItIsReadOrReported) {
  World w;
  static constexpr bool kThreads = true;
  w.a.port.lock().open(&kThreads);
  engine::Endpoint& endpoint = w.a.endpoint;
  constexpr int kRounds = 20'000;
  int rail = 0;
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};
  void* told = nullptr;
  std::thread progress([&] {
    for (int round = 1; round <= kRounds; ++round) {
      while (begun != round) std::this_thread::yield();
      {
        const engine::Guard guard(w.a.port.lock());
        endpoint.phase = engine::Phase::kUp;
      }
      told = endpoint.user.load(std::memory_order_acquire);
      ended = round;
    }
  });
  int missed = 0;
  for (int round = 1; round <= kRounds; ++round) {
    endpoint.phase = engine::Phase::kIdle;
    endpoint.user = nullptr;
    bfo_rail_info_t now{};
    begun = round;
    engine::rail_attach(endpoint, &rail, &now);
    while (ended != round) std::this_thread::yield();
    missed += now.state != BFO_RAIL_UP && told != &rail;
  }
  progress.join();
  endpoint.phase = engine::Phase::kIdle;
  EXPECT_EQ(missed, 0);
}

}  // namespace
}  // namespace bfo::test
