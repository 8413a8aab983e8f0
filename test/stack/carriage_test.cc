// SPDX-License-Identifier: BSD-3-Clause
//
// carriage_test.cc: reliable connections over ports that have rates: which side is busy, what timers do while
// packets wait, and what loss costs (carriage.cc).
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "test/stack/device.h"

namespace bfo::stack {
namespace {

constexpr uint64_t kGiga = 1'000'000'000;
constexpr uint32_t kLength = 1'000'000;
constexpr uint64_t kTimeoutNs = uint64_t{4096} << 8;  // of the queue pairs: 1 ms

struct Silent : Observer {
  void wake(uint32_t) override {}
  void wake_events(uint32_t, int) override {}
  void accessed(uint32_t, uint64_t, uint32_t, uint32_t, bool) override {}
  void broken(const char* what) override { ADD_FAILURE() << what; }
  void thrown_away(const Qp&, const char*) override {}
  void blocked(uint32_t, uint64_t) override {}
};

struct Side {
  Device* device = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<char> buffer = std::vector<char>(2 * kLength);
};

class Carriage : public testing::Test {
 protected:
  Carriage() : fabric_(time_, observer_, FabricTraits{.jitter_ns = 0}, 1) {
    make(a_, 0);
    make(b_, 1);
    connect(a_, b_);
    connect(b_, a_);
  }
  ~Carriage() override {
    for (Side* const s : {&a_, &b_}) {
      verbs().destroy_qp(s->qp);
      verbs().dereg_mr(s->mr);
      verbs().destroy_srq(s->srq);
      verbs().destroy_cq(s->cq);
      verbs().dealloc_pd(s->pd);
    }
  }
  void make(Side& s, uint32_t process) {
    s.device = fabric_.add_device(process, 0);
    s.pd = verbs().alloc_pd(&s.device->context);
    s.cq = verbs().create_cq(&s.device->context, 1024);
    ibv_srq_init_attr srq{};
    s.srq = verbs().create_srq(s.pd, &srq);
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    init.send_cq = init.recv_cq = s.cq;
    init.srq = s.srq;
    init.cap.max_send_wr = 256;
    s.qp = verbs().create_qp(s.pd, &init);
    s.mr = verbs().reg_mr(s.pd, s.buffer.data(), s.buffer.size(), 0);
  }
  static void connect(Side& s, const Side& peer) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.dest_qp_num = peer.qp->qp_num;
    ASSERT_EQ(verbs().modify_qp(s.qp, &attr, IBV_QP_STATE | IBV_QP_DEST_QPN), 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 8;
    attr.retry_cnt = 3;
    ASSERT_EQ(verbs().modify_qp(s.qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT), 0);
  }
  void rates(Side& s, const Pace& out, const Pace& in) {
    fabric_.set_rate(*s.device, Course(out), Course(in));
  }
  static void post(Side& s, ibv_wr_opcode opcode, const Side& to, uint32_t length = kLength) {
    ibv_sge sge{reinterpret_cast<uint64_t>(s.buffer.data()), length, s.mr->lkey};
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(to.buffer.data()) + kLength;
    wr.wr.rdma.rkey = to.mr->rkey;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(s.device->context.ops.post_send(s.qp, &wr, &bad), 0);
  }
  /// Runs until `n` completions are there; their status, and how long it took.
  ibv_wc_status wait(Side& s, int n, uint64_t* ns) {
    const uint64_t from = time_.now();
    ibv_wc wc{};
    for (int got = 0; got < n;) {
      const int more = s.device->context.ops.poll_cq(s.cq, 1, &wc);
      got += more;
      if (more == 0 && time_.empty()) break;
      if (time_.now() - from > kGiga) return IBV_WC_GENERAL_ERR;  // a second
      if (more == 0) time_.step();
      if (wc.status != IBV_WC_SUCCESS) break;
    }
    *ns = time_.now() - from;
    return wc.status;
  }
  void run(uint64_t ns) {
    const uint64_t end = time_.now() + ns;
    while (!time_.empty() && time_.next() <= end) time_.step();
  }
  uint64_t took(Side& s, int n = 1) {
    uint64_t ns = 0;
    EXPECT_EQ(wait(s, n, &ns), IBV_WC_SUCCESS);
    return ns;
  }

  Timeline time_;
  Silent observer_;
  Fabric fabric_;
  Side a_, b_;
};

TEST_F(Carriage, AReadTakesTheOutgoingSideOfWhoAnswers) {
  rates(a_, Pace{kGiga / 1000, 0, 0}, Pace{});  // the requester's does not count
  rates(b_, Pace{kGiga, 0, 0}, Pace{kGiga / 1000, 0, 0});
  post(a_, IBV_WR_RDMA_READ, b_);
  EXPECT_NEAR(static_cast<double>(took(a_)), 1e6, 2e5);
  EXPECT_EQ(fabric_.bytes_out(*b_.device), kLength);
  EXPECT_EQ(fabric_.bytes_out(*a_.device), 0u);
  EXPECT_EQ(fabric_.bytes_in(*a_.device), kLength);
}

TEST_F(Carriage, AWriteTakesTheOutgoingSideOfWhoWrites) {
  rates(a_, Pace{kGiga, 0, 0}, Pace{kGiga / 1000, 0, 0});
  rates(b_, Pace{kGiga / 1000, 0, 0}, Pace{kGiga, 0, 0});
  post(a_, IBV_WR_RDMA_WRITE, b_);
  EXPECT_NEAR(static_cast<double>(took(a_)), 1e6, 2e5);
  EXPECT_EQ(fabric_.bytes_out(*a_.device), kLength);
}

TEST_F(Carriage, BytesArrive) {
  rates(a_, Pace{kGiga, 0, 0}, Pace{kGiga, 0, 0});
  a_.buffer[5] = 'x';
  post(a_, IBV_WR_RDMA_WRITE, b_);
  took(a_);
  EXPECT_EQ(b_.buffer[kLength + 5], 'x');
}

TEST_F(Carriage, NoTimerEndsWhatMoves) {
  rates(a_, Pace{kGiga / 100, 0, 0}, Pace{});
  for (int i = 0; i < 4; ++i) post(a_, IBV_WR_RDMA_WRITE, b_);  // 100 ms each, a hundred timeouts
  EXPECT_NEAR(static_cast<double>(took(a_, 4)), 4e8, 1e7);
  EXPECT_EQ(fabric_.bytes_out(*a_.device), 4 * kLength);  // once
}

TEST_F(Carriage, WhatDoesNotMoveFailsAfterItsRetries) {
  rates(a_, Pace{kGiga, 0, 0}, Pace{kGiga, 0, 0});
  fabric_.set_port(*b_.device, false);
  post(a_, IBV_WR_RDMA_WRITE, b_, 100);
  uint64_t ns = 0;
  EXPECT_EQ(wait(a_, 1, &ns), IBV_WC_RETRY_EXC_ERR);
  EXPECT_NEAR(static_cast<double>(ns), 4.0 * kTimeoutNs, 1e6);
}

/// A part of a response is progress: what counts are the timeouts since the last one.
TEST_F(Carriage, AReadThatMovesNowAndThenDoesNotFail) {
  rates(a_, Pace{}, Pace{kGiga / 10, 0, 0});
  rates(b_, Pace{kGiga / 10, 0, 0}, Pace{});
  post(a_, IBV_WR_RDMA_READ, b_);  // 10 ms
  for (int i = 0; i < 5; ++i) {
    run(2 * kTimeoutNs);
    fabric_.set_port(*b_.device, false);
    run(7 * kTimeoutNs / 2);
    fabric_.set_port(*b_.device, true);
  }
  took(a_);
}

/// Requests leave again while the answers wait behind each other: there is one stream of answers, and it goes
/// on from what was asked for last. What was answered already is not in the way of what follows.
TEST_F(Carriage, ReadsThatAreAskedForAgain_AreAnsweredInOneStream) {
  rates(a_, Pace{}, Pace{kGiga / 1000, 0, 0});
  rates(b_, Pace{kGiga / 500, 0, 0}, Pace{});
  uint64_t ns = 0;
  for (int i = 0; i < 4; ++i) post(a_, IBV_WR_RDMA_READ, b_, 10'000);  // 10 ms each, ten timeouts
  for (int i = 0; i < 26; ++i) {
    ns += took(a_);
    ASSERT_FALSE(HasFailure());
    post(a_, IBV_WR_RDMA_READ, b_, 10'000);
  }
  ns += took(a_, 4);
  EXPECT_LT(ns, 5 * 30 * 10'000'000u);
  EXPECT_LT(fabric_.bytes_out(*b_.device), 5 * 30 * 10'000u);
}

TEST_F(Carriage, ALongWriteOnADeadPathFailsToo) {
  rates(a_, Pace{kGiga / 100, 0, 0}, Pace{kGiga, 0, 0});
  fabric_.set_port(*b_.device, false);
  for (int i = 0; i < 4; ++i) post(a_, IBV_WR_RDMA_WRITE, b_);
  uint64_t ns = 0;
  EXPECT_EQ(wait(a_, 1, &ns), IBV_WC_RETRY_EXC_ERR);
  EXPECT_LT(ns, kGiga);
}

TEST_F(Carriage, AQueuePairInErrorSendsNoMore) {
  rates(a_, Pace{kGiga / 100, 0, 0}, Pace{});
  for (int i = 0; i < 10; ++i) post(a_, IBV_WR_RDMA_WRITE, b_);
  run(150'000'000);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(verbs().modify_qp(a_.qp, &attr, IBV_QP_STATE), 0);
  while (!time_.empty()) time_.step();
  EXPECT_LT(fabric_.bytes_out(*a_.device), 2 * kLength);
}

TEST_F(Carriage, LossIsMadeUpForInOrder) {
  rates(a_, Pace{kGiga, 10'000, 30}, Pace{kGiga, 0, 10});
  rates(b_, Pace{kGiga, 10'000, 30}, Pace{kGiga, 0, 10});
  for (int i = 0; i < 100; ++i) post(a_, i % 3 == 0 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, b_, 20'000 + i);
  const uint64_t ns = took(a_, 100);
  EXPECT_GT(ns, 2'000'000u);
  EXPECT_LT(ns, 40'000'000u);
}

TEST_F(Carriage, AGapIsAskedForBeforeTheTimer) {
  Course out(Pace{kGiga, 0, 1000});
  out.then(Change{Change::Shape::kStep, 100, 0, Pace{kGiga, 0, 0}});
  fabric_.set_rate(*a_.device, out, Course());
  post(a_, IBV_WR_RDMA_WRITE, b_, 10);  // lost: nothing follows yet
  run(1000);
  EXPECT_EQ(fabric_.lost, 1u);
  post(a_, IBV_WR_RDMA_WRITE, b_, 10);
  EXPECT_LT(took(a_, 2), kTimeoutNs / 10);
}

}  // namespace
}  // namespace bfo::stack
