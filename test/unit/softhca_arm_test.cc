// SPDX-License-Identifier: BSD-3-Clause
//
// Arming a completion queue of the software HCA while another process writes to it: a completion that the
// poll after arming does not find raises an event (verbs: ibv_req_notify_cq, then ibv_poll_cq, then wait).
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>

#include "contrib/softhca/engine/cq.h"
#include "contrib/softhca/fabric/tables.h"

namespace bfo::softhca {
namespace {

constexpr uint32_t kMostRounds = 30'000;
constexpr uint32_t kEnd = UINT32_MAX;
constexpr auto kTime = std::chrono::seconds(3);  ///< then a loaded machine has done fewer rounds
constexpr unsigned kTimeLimitS = 60;
constexpr int kSpins = 20'000;  ///< then there may be one processor only

/// In memory that both processes map.
struct Rounds {
  std::atomic<uint32_t> begun{0}, ended{0};
};

class Arming : public testing::Test {
 protected:
  void SetUp() override {
    alarm(kTimeLimitS);
    fabric_ = Fabric::anonymous(FabricConfig{}, 0);
    ASSERT_NE(fabric_, nullptr);
    cq_ = allocate_cq(*fabric_, 64);
    ASSERT_NE(cq_, nullptr);
    void* map = mmap(nullptr, sizeof(Rounds), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(map, MAP_FAILED);
    rounds_ = ::new (map) Rounds;
  }
  void TearDown() override {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    munmap(rounds_, sizeof(Rounds));
    alarm(0);
  }

  static void wait_until_not(const std::atomic<uint32_t>& what, uint32_t value) {
    for (int i = 0; what.load(std::memory_order_acquire) == value; ++i)
      if (i > kSpins) sched_yield();
  }

  /// Another process of the fabric, which writes one completion in each round.
  void start_writer(bool forgoes) {
    child_ = fork();
    ASSERT_GE(child_, 0);
    if (child_ != 0) return;
    alarm(kTimeLimitS);
    std::unique_ptr<Fabric> own = Fabric::share(*fabric_, 1);
    if (forgoes) own->forgo_membarrier();
    rounds_->ended.store(kEnd, std::memory_order_release);  // ready
    for (uint32_t round = 1;; ++round) {
      wait_until_not(rounds_->begun, round - 1);
      if (rounds_->begun.load() == kEnd) _exit(0);
      // At another moment each time: before, while and after the owner arms.
      for (uint32_t i = 0; i < round % 256; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
      {
        DeferredActions deferred(*own);
        CqePush push(*own, *cq_, deferred);
        if (CqeEntry* entry = push.entry()) {
          entry->status = IBV_WC_SUCCESS;
          entry->flags = 0;
          push.commit(false);
        }
      }
      rounds_->ended.store(round, std::memory_order_release);
    }
  }

  /// Arms and polls once in each round. How many completions were neither found nor announced.
  uint32_t lost() {
    wait_until_not(rounds_->ended, 0);
    const auto until = std::chrono::steady_clock::now() + kTime;
    uint32_t lost = 0;
    uint32_t round = 1;
    for (; round <= kMostRounds && std::chrono::steady_clock::now() < until; ++round) {
      const uint32_t before = rounds_->ended.load();
      rounds_->begun.store(round, std::memory_order_release);
      arm_cq(*fabric_, *cq_, false);
      ibv_wc wc;
      const bool found = poll_cq(*fabric_, *cq_, 1, &wc) == 1;
      wait_until_not(rounds_->ended, before);
      const bool announced = cq_->events_raised.exchange(0) != 0;
      if (!found && !announced) ++lost;
      if (!found && poll_cq(*fabric_, *cq_, 1, &wc) != 1) ADD_FAILURE() << "no completion in round " << round;
      cq_->armed.store(0);  // an arm that is left over would hide the next loss
      found_ += found ? 1 : 0;
    }
    rounds_->begun.store(kEnd, std::memory_order_release);
    RecordProperty("rounds", static_cast<int>(round - 1));
    RecordProperty("found_by_the_poll", static_cast<int>(found_));  // the others were announced: both happen
    return lost;
  }

  std::unique_ptr<Fabric> fabric_;
  CqEntry* cq_ = nullptr;
  Rounds* rounds_ = nullptr;
  pid_t child_ = -1;
  uint32_t found_ = 0;
};

TEST_F(Arming, NoCompletionIsLost) {
  if (!fabric_->expedited()) GTEST_SKIP() << "this system has no membarrier(2)";
  start_writer(false);
  EXPECT_EQ(lost(), 0u);
}

TEST_F(Arming, NoCompletionIsLost_WithoutMembarrier) {
  fabric_->forgo_membarrier();
  start_writer(true);
  EXPECT_EQ(lost(), 0u);
}

/// One process that lacks it is enough: whoever arms there cannot reach the others.
TEST_F(Arming, NoCompletionIsLost_WhereOnlyTheOwnerLacksMembarrier) {
  fabric_->forgo_membarrier();
  start_writer(false);
  EXPECT_EQ(lost(), 0u);
}

TEST_F(Arming, NoCompletionIsLost_WhereOnlyTheWriterLacksMembarrier) {
  start_writer(true);
  EXPECT_EQ(lost(), 0u);
}

/// From now on membarrier(2) fails in this process.
bool forbid_membarrier() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof filter / sizeof filter[0], filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// The writers that were there cannot be fenced any more: the event that may be missing is raised.
TEST_F(Arming, MembarrierIsForbiddenLater_OneEventAndFullFencesFromThenOn) {
  if (!fabric_->expedited()) GTEST_SKIP() << "this system has no membarrier(2)";
  child_ = fork();
  ASSERT_GE(child_, 0);
  if (child_ == 0) {
    std::unique_ptr<Fabric> own = Fabric::share(*fabric_, 1);
    if (!own->expedited() || !forbid_membarrier()) _exit(1);
    arm_cq(*own, *cq_, false);
    if (cq_->events_raised.exchange(0) != 1 || cq_->armed.load() != 0) _exit(2);
    if (own->header().full_fences.load() != 1) _exit(3);
    arm_cq(*own, *cq_, false);
    _exit(cq_->events_raised.load() == 0 && cq_->armed.load() == 1 ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child_, &status, 0), child_);
  child_ = -1;
  EXPECT_EQ(status, 0) << "exit code " << WEXITSTATUS(status);
}

}  // namespace
}  // namespace bfo::softhca
