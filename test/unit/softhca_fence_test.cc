// SPDX-License-Identifier: BSD-3-Clause
//
// The fence of the software HCA: what one process may still do to the memory of another one after that one
// has taken its locks and keys back, when the first is stopped or dead at the worst moment.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "contrib/softhca/fabric/copy.h"
#include "contrib/softhca/fabric/tables.h"

namespace bfo::softhca {
namespace {

constexpr uint32_t kBytes = 4096;
constexpr uint8_t kOld = 0x11, kNew = 0x22;
constexpr unsigned kTimeLimitS = 30;

/// What the child saw; in memory both processes map.
struct Report {
  CopyResult result;
  bool firm;
  bool done;
};

class Fence : public testing::Test {
 protected:
  void SetUp() override {
    alarm(kTimeLimitS);
    fabric_ = Fabric::anonymous(FabricConfig{}, 0);
    ASSERT_NE(fabric_, nullptr);
    report_ = static_cast<Report*>(
        mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    buffer_.assign(kBytes, kOld);
  }
  void TearDown() override {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    munmap(report_, sizeof(Report));
    alarm(0);
  }

  Lock& lock() { return fabric_->header().qps[100].resp_lock; }
  Sge target() { return {reinterpret_cast<uint64_t>(buffer_.data()), kBytes, 0}; }

  /// A child that takes the lock, opens a copy into our buffer, stops, and goes on with the copy when
  /// continued.
  void start_copier(bool die) {
    child_ = fork();
    ASSERT_GE(child_, 0);
    if (child_ != 0) return;
    alarm(kTimeLimitS);
    std::unique_ptr<Fabric> own = Fabric::share(*fabric_, 1);
    std::vector<uint8_t> data(kBytes, kNew);
    Sge from{reinterpret_cast<uint64_t>(data.data()), kBytes, 0};
    Sge to = target();
    lock().acquire(own->tag(), *own);
    if (die) _exit(0);
    {
      Copy copy(*own, fabric_->process(), &to, 1, kBytes);
      raise(SIGSTOP);
      report_->result = copy.put(&from, 1);
    }
    report_->firm = lock().commit(own->tag());
    report_->done = true;
    _exit(0);
  }

  void wait_stopped() {
    int status = 0;
    ASSERT_EQ(waitpid(child_, &status, WUNTRACED), child_);
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  void go_on() {
    kill(child_, SIGCONT);
    int status = 0;
    ASSERT_EQ(waitpid(child_, &status, 0), child_);
    child_ = -1;
    ASSERT_TRUE(report_->done);
  }

  std::unique_ptr<Fabric> fabric_;
  Report* report_ = nullptr;
  std::vector<uint8_t> buffer_;
  pid_t child_ = -1;
};

TEST_F(Fence, LockOfACopierThatIsStopped_IsTakenOverAndItsCopyComesToNothing) {
  start_copier(false);
  wait_stopped();
  lock().acquire(fabric_->tag(), *fabric_);
  EXPECT_EQ(lock().word.load(), fabric_->tag());
  go_on();
  EXPECT_EQ(report_->result, CopyResult::kRevoked);
  EXPECT_FALSE(report_->firm);
  EXPECT_EQ(lock().word.load(), fabric_->tag()) << "the copier must not release what it no longer holds";
  EXPECT_EQ(buffer_, std::vector<uint8_t>(kBytes, kOld));
}

TEST_F(Fence, CopyOfAStoppedPeer_IsVoidAfterWaitingForCopies) {
  start_copier(false);
  wait_stopped();
  wait_for_copies(*fabric_, target().addr, kBytes);
  go_on();
  EXPECT_EQ(report_->result, CopyResult::kRevoked);
  EXPECT_EQ(buffer_, std::vector<uint8_t>(kBytes, kOld));
}

TEST_F(Fence, CopyToOtherMemory_IsNotWaitedForNorRevoked) {
  start_copier(false);
  wait_stopped();
  wait_for_copies(*fabric_, target().addr + kBytes, kBytes);
  go_on();
  EXPECT_EQ(report_->result, CopyResult::kDone);
  EXPECT_TRUE(report_->firm);
  EXPECT_EQ(buffer_, std::vector<uint8_t>(kBytes, kNew));
}

TEST_F(Fence, LockOfADeadProcess_IsTakenOver) {
  start_copier(true);
  ASSERT_EQ(waitpid(child_, nullptr, 0), child_);
  child_ = -1;
  EXPECT_NE(lock().word.load(), 0u);
  lock().acquire(fabric_->tag(), *fabric_);
  EXPECT_EQ(lock().word.load(), fabric_->tag());
  fabric_->reap();
}

TEST_F(Fence, DeadProcess_LeavesNothingAfterReaping) {
  child_ = fork();
  if (child_ == 0) {
    std::unique_ptr<Fabric> own = Fabric::share(*fabric_, 1);
    allocate_qp(*own);
    allocate_cq(*own, 16);
    allocate_srq(*own, 16, 1);
    allocate_context(*own, 1, 0, 0);
    _exit(0);
  }
  ASSERT_EQ(waitpid(child_, nullptr, 0), child_);
  child_ = -1;
  fabric_->reap();
  FabricHeader& h = fabric_->header();
  for (uint32_t i = 0; i < h.qp_fresh.load(); ++i) ASSERT_EQ(h.qps[i].qpn.load(), 0u);
  for (const CqEntry& cq : h.cqs) ASSERT_EQ(cq.used.load(), 0u);
  for (const SrqEntry& srq : h.srqs) ASSERT_EQ(srq.used.load(), 0u);
  for (const ContextEntry& context : h.contexts) ASSERT_EQ(context.used.load(), 0u);
  uint32_t live = 0;
  for (const ProcessEntry& process : h.processes) live += process.state.load() != ProcessState::kFree ? 1 : 0;
  EXPECT_EQ(live, 1u);
}

}  // namespace
}  // namespace bfo::softhca
