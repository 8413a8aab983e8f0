// SPDX-License-Identifier: BSD-3-Clause
//
// `do stop for=TIME`: a process that is stopped goes on only if another one continues it. Others may have
// left.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>

#include "contrib/softhca/engine/topology_faults.h"
#include "contrib/softhca/fabric/fabric.h"
#include "contrib/softhca/fault/language.h"

namespace bfo::softhca {
namespace {

constexpr unsigned kTimeLimitS = 30;

void act(Fabric& fabric, const std::string& text) {
  const ParseResult rules = parse_rules(text);
  std::string error;
  ASSERT_TRUE(rules.ok());
  ASSERT_TRUE(
      install(fabric.header().faults, rules.rules.data(), rules.rules.size(), true, fabric.now(), error))
      << error;
  topology_tick(fabric, fabric.now());
}

/// A second process of the fabric, on node 1, that does nothing but live until it is told to end.
class Stop : public testing::Test {
 protected:
  void SetUp() override {
    alarm(kTimeLimitS);
    fabric_ = Fabric::anonymous(FabricConfig{}, 0);
    ASSERT_NE(fabric_, nullptr);
    step_ = static_cast<std::atomic<int>*>(
        mmap(nullptr, sizeof *step_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    child_ = fork();
    ASSERT_GE(child_, 0);
    if (child_ == 0) {
      alarm(kTimeLimitS);
      std::unique_ptr<Fabric> own = Fabric::share(*fabric_, 1);
      step_->store(1);
      while (step_->load() < 2) usleep(1000);
      _exit(0);
    }
    while (step_->load() == 0) usleep(1000);
  }
  void TearDown() override {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    munmap(step_, sizeof *step_);
    alarm(0);
  }
  void wait_for(int options) {
    int status = 0;
    ASSERT_EQ(waitpid(child_, &status, options), child_);
    EXPECT_EQ(WIFSTOPPED(status), options == WUNTRACED);
  }

  std::unique_ptr<Fabric> fabric_;
  std::atomic<int>* step_ = nullptr;
  pid_t child_ = -1;
};

TEST_F(Stop, OthersContinueIt_WhenTheTimeIsOver) {
  act(*fabric_, "when node=1 do stop for=20ms\n");
  wait_for(WUNTRACED);
  usleep(20'000);
  topology_tick(*fabric_, fabric_->now());
  wait_for(WCONTINUED);
}

TEST_F(Stop, LastOneThatRunsLeaves_ItGoesOn) {
  act(*fabric_, "when node=1 do stop for=1000s\n");
  wait_for(WUNTRACED);
  fabric_->leave();
  wait_for(WCONTINUED);
}

TEST_F(Stop, AnotherOneLeaves_ItStaysStopped) {
  act(*fabric_, "when node=1 do stop for=1000s\n");
  wait_for(WUNTRACED);
  Fabric::share(*fabric_, 2)->leave();
  int status = 0;
  EXPECT_EQ(waitpid(child_, &status, WCONTINUED | WNOHANG), 0);
}

/// One that a rule has stopped for good continues nobody.
TEST_F(Stop, OthersAreStoppedForGood_TheLastOneDoesNotStop) {
  act(*fabric_, "when node=1 do stop\n");
  wait_for(WUNTRACED);
  act(*fabric_, "when node=0 do stop for=20ms\n");  // this process would never get here
  EXPECT_FALSE(fabric_->others_run());
}

/// It has not stopped, and others that leave do not take it for one that has.
TEST_F(Stop, LastOneThatDidNotStop_Runs) {
  act(*fabric_, "when node=any do stop for=1000s\n");
  wait_for(WUNTRACED);
  std::unique_ptr<Fabric> third = Fabric::share(*fabric_, 2);
  EXPECT_TRUE(third->others_run());
  third->leave();
  int status = 0;
  EXPECT_EQ(waitpid(child_, &status, WCONTINUED | WNOHANG), 0);
}

TEST_F(Stop, ProcessInTheSlotOfAStoppedOne_Runs) {
  act(*fabric_, "when node=1 do stop for=1000s\n");
  wait_for(WUNTRACED);
  EXPECT_FALSE(fabric_->others_run());
  kill(child_, SIGKILL);
  wait_for(0);
  child_ = 0;
  fabric_->reap();
  std::unique_ptr<Fabric> next = Fabric::share(*fabric_, 2);
  EXPECT_TRUE(fabric_->others_run());
}

TEST_F(Stop, AllOfThem_TheLastOneGoesOn_AndContinuesTheOthers) {
  act(*fabric_, "when node=any do stop for=20ms\n");  // this process would never get here
  wait_for(WUNTRACED);
  usleep(20'000);
  topology_tick(*fabric_, fabric_->now());
  wait_for(WCONTINUED);
}

}  // namespace
}  // namespace bfo::softhca
