// SPDX-License-Identifier: BSD-3-Clause
//
// Arming a completion queue of the software HCA while another thread writes to it: a completion that the poll
// after arming does not find raises an event (verbs: ibv_req_notify_cq, then ibv_poll_cq, then wait).
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "contrib/softhca/engine/cq.h"
#include "contrib/softhca/fabric/tables.h"

namespace bfo::softhca {
namespace {

constexpr uint32_t kRounds = 30'000;
constexpr unsigned kTimeLimitS = 60;
constexpr int kSpins = 2000;  ///< then there may be one processor only

class Arming : public testing::Test {
 protected:
  void SetUp() override {
    alarm(kTimeLimitS);
    fabric_ = Fabric::anonymous(FabricConfig{}, 0);
    ASSERT_NE(fabric_, nullptr);
    cq_ = allocate_cq(*fabric_, 64);
    ASSERT_NE(cq_, nullptr);
  }
  void TearDown() override { alarm(0); }

  static void wait_for(const std::atomic<uint32_t>& what, uint32_t value) {
    for (int i = 0; what.load(std::memory_order_acquire) != value; ++i)
      if (i > kSpins) sched_yield();
  }

  /// Writes one completion in each round.
  void write() {
    for (uint32_t round = 1; round <= kRounds; ++round) {
      wait_for(begun_, round);
      // At another moment each time, before, while and after the owner arms.
      for (uint32_t i = 0; i < round % 256; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
      {
        DeferredActions deferred(*fabric_);
        CqePush push(*fabric_, *cq_, deferred);
        if (CqeEntry* entry = push.entry()) {
          entry->status = IBV_WC_SUCCESS;
          entry->flags = 0;
          push.commit(false);
        }
      }
      ended_.store(round, std::memory_order_release);
    }
  }

  /// Arms and polls once in each round; how many completions were neither found nor announced.
  uint32_t lost() {
    uint32_t lost = 0;
    for (uint32_t round = 1; round <= kRounds; ++round) {
      begun_.store(round, std::memory_order_release);
      arm_cq(owner_ ? *owner_ : *fabric_, *cq_, false);
      ibv_wc wc;
      const bool found = poll_cq(*fabric_, *cq_, 1, &wc) == 1;
      wait_for(ended_, round);
      const bool announced = cq_->events_raised.exchange(0) != 0;
      if (!found && !announced) ++lost;
      if (!found && poll_cq(*fabric_, *cq_, 1, &wc) != 1) ADD_FAILURE() << "no completion in round " << round;
      found_ += found ? 1 : 0;
    }
    return lost;
  }

  uint32_t race() {
    std::thread writer([this] { write(); });
    const uint32_t count = lost();
    writer.join();
    return count;
  }

  std::unique_ptr<Fabric> fabric_, owner_;
  CqEntry* cq_ = nullptr;
  uint32_t found_ = 0;
  std::atomic<uint32_t> begun_{0}, ended_{0};
};

TEST_F(Arming, NoCompletionIsLost) {
  EXPECT_EQ(race(), 0u);
  RecordProperty("found_by_the_poll", static_cast<int>(found_));
}

TEST_F(Arming, NoCompletionIsLost_WithoutMembarrier) {
  fabric_->forgo_membarrier();
  EXPECT_EQ(race(), 0u);
}

/// One process that lacks it is enough: whoever arms there cannot reach the others.
TEST_F(Arming, NoCompletionIsLost_WhereOnlyTheOwnerLacksMembarrier) {
  owner_ = Fabric::share(*fabric_, 1);
  ASSERT_NE(owner_, nullptr);
  owner_->forgo_membarrier();
  EXPECT_EQ(race(), 0u);
}

}  // namespace
}  // namespace bfo::softhca
