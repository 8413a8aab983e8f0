// SPDX-License-Identifier: BSD-3-Clause
//
// device_test.cc: rows of test/conformance/rows.tsv on the devices of the whole-stack simulator. Each test
// carries the id of its row; the software HCA passes the same rows in test/conformance. Left out is what
// needs an operating system, and what the BTL's engine never asks of a device (UC, atomics, memory windows,
// SQE, RNR retry counts other than 7). H2 is in contrib/doc/hazards.md.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "test/stack/device.h"

namespace bfo::stack {
namespace {

constexpr uint64_t kLong = 1'000'000'000;

struct Silent : Observer {
  void wake(uint32_t) override {}
  void wake_events(uint32_t, int) override {}
  void accessed(uint32_t, uint64_t, uint32_t, uint32_t, bool) override {}
  void broken(const char* what) override { ADD_FAILURE() << what; }
  void thrown_away(const Qp&, const char* what) override { thrown.emplace_back(what); }
  void blocked(uint32_t, uint64_t) override {}
  std::vector<std::string> thrown;
};

/// One end of a connection: a device with a queue pair, a receive queue shared by queue pairs, and memory.
struct Side {
  Device* device = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* send_cq = nullptr;
  ibv_cq* recv_cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  char buffer[4096] = {};
};

class DeviceRow : public testing::Test {
 protected:
  DeviceRow() : fabric_(time_, observer_, FabricTraits{}, 1) {
    make(a_, 0);
    make(b_, 1);
    connect(a_, b_);
    connect(b_, a_);
  }
  ~DeviceRow() override {
    for (Side* const s : {&a_, &b_}) {
      if (s->qp != nullptr) verbs().destroy_qp(s->qp);
      verbs().dereg_mr(s->mr);
      verbs().destroy_srq(s->srq);
      verbs().destroy_cq(s->send_cq);
      verbs().destroy_cq(s->recv_cq);
      verbs().dealloc_pd(s->pd);
    }
  }

  void make(Side& s, uint32_t process) {
    s.device = fabric_.add_device(process, 0);
    ibv_context* const c = &s.device->context;
    s.pd = verbs().alloc_pd(c);
    s.send_cq = verbs().create_cq(c, 64);
    s.recv_cq = verbs().create_cq(c, 64);
    ibv_srq_init_attr srq{};
    s.srq = verbs().create_srq(s.pd, &srq);
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    init.send_cq = s.send_cq;
    init.recv_cq = s.recv_cq;
    init.srq = s.srq;
    init.cap.max_send_wr = 4;
    s.qp = verbs().create_qp(s.pd, &init);
    s.mr = verbs().reg_mr(s.pd, s.buffer, sizeof s.buffer, 0);
  }
  static void connect(Side& s, const Side& peer) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.dest_qp_num = peer.qp->qp_num;
    ASSERT_EQ(verbs().modify_qp(s.qp, &attr, IBV_QP_STATE | IBV_QP_DEST_QPN), 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 8;  // 1 ms
    attr.retry_cnt = 3;
    ASSERT_EQ(verbs().modify_qp(s.qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT), 0);
  }
  static void stop(Side& s) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(verbs().modify_qp(s.qp, &attr, IBV_QP_STATE), 0);
  }
  static int post(Side& s, ibv_wr_opcode opcode, uint64_t id, const Side* remote = nullptr, uint32_t rkey = 0,
                  bool signaled = true) {
    ibv_sge sge{reinterpret_cast<uint64_t>(s.buffer), 64, s.mr->lkey};
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = signaled ? IBV_SEND_SIGNALED : 0;
    if (remote != nullptr) {
      wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(remote->buffer) + 1024;
      wr.wr.rdma.rkey = rkey;
    }
    ibv_send_wr* bad = nullptr;
    return s.device->context.ops.post_send(s.qp, &wr, &bad);
  }
  static void receive(Side& s, uint64_t id) {
    ibv_sge sge{reinterpret_cast<uint64_t>(s.buffer) + 2048, 1024, s.mr->lkey};
    ibv_recv_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    s.device->context.ops.post_srq_recv(s.srq, &wr, &bad);
  }
  void run(uint64_t ns) {
    const uint64_t end = time_.now() + ns;
    while (!time_.empty() && time_.next() <= end) time_.step();
  }
  std::optional<ibv_wc> poll(Side& s, ibv_cq* cq) {
    ibv_wc wc{};
    if (s.device->context.ops.poll_cq(cq, 1, &wc) != 1) return std::nullopt;
    return wc;
  }
  std::optional<ibv_wc> sent(Side& s) { return poll(s, s.send_cq); }
  static bool has_event(const Side& s, ibv_event_type type) {
    for (const ibv_async_event& e : s.device->events)
      if (e.event_type == type) return true;
    return false;
  }
  void expect_sent(Side& s, uint64_t id, ibv_wc_status status) {
    const std::optional<ibv_wc> wc = sent(s);
    ASSERT_TRUE(wc.has_value()) << "request " << id;
    EXPECT_EQ(wc->wr_id, id);
    EXPECT_EQ(wc->status, status);
  }

  Timeline time_;
  Silent observer_;
  Fabric fabric_;
  Side a_, b_;
};

TEST_F(DeviceRow, ST_01_Success) {
  std::strcpy(a_.buffer, "hello");
  receive(b_, 7);
  ASSERT_EQ(post(a_, IBV_WR_SEND_WITH_IMM, 1), 0);
  run(kLong);
  expect_sent(a_, 1, IBV_WC_SUCCESS);
  const std::optional<ibv_wc> wc = poll(b_, b_.recv_cq);
  ASSERT_TRUE(wc.has_value());
  EXPECT_EQ(wc->wr_id, 7u);
  EXPECT_EQ(wc->byte_len, 64u);
  EXPECT_STREQ(b_.buffer + 2048, "hello");
}

TEST_F(DeviceRow, ST_11_FlushOfWhatIsPostedAfter) {
  stop(a_);
  ASSERT_EQ(post(a_, IBV_WR_SEND_WITH_IMM, 1), 0);
  expect_sent(a_, 1, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(DeviceRow, ST_12_FlushInFlightAndUnsignaled) {
  fabric_.silence(*b_.device, kLong);
  ASSERT_EQ(post(a_, IBV_WR_SEND_WITH_IMM, 1, nullptr, 0, false), 0);
  ASSERT_EQ(post(a_, IBV_WR_SEND_WITH_IMM, 2), 0);
  stop(a_);
  expect_sent(a_, 1, IBV_WC_WR_FLUSH_ERR);
  expect_sent(a_, 2, IBV_WC_WR_FLUSH_ERR);
  EXPECT_FALSE(sent(a_).has_value());
}

TEST_F(DeviceRow, ST_13_SharedReceivesAreNotFlushed) {
  receive(b_, 7);
  stop(b_);
  run(kLong);
  EXPECT_FALSE(poll(b_, b_.recv_cq).has_value());
}

TEST_F(DeviceRow, ST_19_PAIR_05_WriteWithAWrongKey) {
  ASSERT_EQ(post(a_, IBV_WR_RDMA_WRITE, 1, &b_, b_.mr->rkey + 100), 0);
  ASSERT_EQ(post(a_, IBV_WR_RDMA_WRITE, 2, &b_, b_.mr->rkey), 0);
  run(kLong);
  expect_sent(a_, 1, IBV_WC_REM_ACCESS_ERR);
  expect_sent(a_, 2, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(static_cast<Qp*>(b_.qp)->attr.qp_state, IBV_QPS_ERR);
}

TEST_F(DeviceRow, PAIR_06_WriteBeyondTheRegion) {
  b_.mr->length = 1024 + 63;
  ASSERT_EQ(post(a_, IBV_WR_RDMA_WRITE, 1, &b_, b_.mr->rkey), 0);
  run(kLong);
  expect_sent(a_, 1, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(DeviceRow, PAIR_10_ReadWithAWrongKey) {
  ASSERT_EQ(post(a_, IBV_WR_RDMA_READ, 1, &b_, b_.mr->rkey + 100), 0);
  run(kLong);
  expect_sent(a_, 1, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(DeviceRow, PAIR_17_HealthyHalfRetriesUntilItGivesUp) {
  receive(b_, 7);
  stop(b_);
  ASSERT_EQ(post(a_, IBV_WR_SEND_WITH_IMM, 1), 0);
  EXPECT_FALSE(sent(a_).has_value());
  run(kLong);
  expect_sent(a_, 1, IBV_WC_RETRY_EXC_ERR);
  EXPECT_FALSE(poll(b_, b_.recv_cq).has_value());
}

TEST_F(DeviceRow, ST_21_RETRY_02_RetriesEndAfterRetryCountPlusOneTimeouts) {
  fabric_.silence(*b_.device, kLong);
  ASSERT_EQ(post(a_, IBV_WR_SEND_WITH_IMM, 1), 0);
  constexpr uint64_t kTimeout = uint64_t{4096} << 8;
  run(4 * kTimeout - 1);
  EXPECT_FALSE(sent(a_).has_value());
  run(kTimeout);
  expect_sent(a_, 1, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(DeviceRow, RETRY_06_TheCountBeginsAnewWithEachAcknowledgement) {
  constexpr uint64_t kTimeout = uint64_t{4096} << 8;
  for (uint64_t id = 1; id <= 3; ++id) {
    receive(b_, id);
    fabric_.silence(*b_.device, 3 * kTimeout);  // three of four timeouts
    ASSERT_EQ(post(a_, IBV_WR_SEND_WITH_IMM, id), 0);
    run(5 * kTimeout);
    expect_sent(a_, id, IBV_WC_SUCCESS);
  }
}

TEST_F(DeviceRow, RETRY_11_ReceiverNotReadyIsRetriedForEver) {
  ASSERT_EQ(post(a_, IBV_WR_SEND_WITH_IMM, 1), 0);
  run(10 * kLong);
  EXPECT_FALSE(sent(a_).has_value());
  receive(b_, 7);
  run(kLong);
  expect_sent(a_, 1, IBV_WC_SUCCESS);
}

TEST_F(DeviceRow, EV_07_LastReceiveOfAQueuePairOnASharedQueue) {
  stop(b_);
  EXPECT_TRUE(has_event(b_, IBV_EVENT_QP_LAST_WQE_REACHED));
  stop(b_);
  EXPECT_EQ(b_.device->events.size(), 1u) << "once";
}

TEST_F(DeviceRow, EV_11_SharedQueueLimitIsReportedOnce) {
  ibv_srq_attr attr{};
  attr.srq_limit = 2;
  verbs().modify_srq(b_.srq, &attr, IBV_SRQ_LIMIT);
  for (uint64_t id = 1; id <= 3; ++id) receive(b_, id);
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_EQ(post(a_, IBV_WR_SEND_WITH_IMM, id), 0);
  run(kLong);
  size_t raised = 0;
  for (const ibv_async_event& e : b_.device->events) raised += e.event_type == IBV_EVENT_SRQ_LIMIT_REACHED;
  EXPECT_EQ(raised, 1u);
}

TEST_F(DeviceRow, EV_12_EV_13_PortEventsLeaveTheQueuePairsAsTheyAre) {
  fabric_.set_port(*b_.device, false);
  EXPECT_TRUE(has_event(b_, IBV_EVENT_PORT_ERR));
  EXPECT_EQ(static_cast<Qp*>(b_.qp)->attr.qp_state, IBV_QPS_RTS);
  fabric_.set_port(*b_.device, true);
  EXPECT_TRUE(has_event(b_, IBV_EVENT_PORT_ACTIVE));
  EXPECT_TRUE(a_.device->events.empty()) << "events of another device";
}

TEST_F(DeviceRow, REP_3_AWrongStateIsRefusedAtOnce) {
  ibv_qp_init_attr init = static_cast<Qp*>(a_.qp)->init;
  ibv_qp* const fresh = verbs().create_qp(a_.pd, &init);
  ibv_qp* const connected = a_.qp;
  a_.qp = fresh;
  EXPECT_EQ(post(a_, IBV_WR_SEND_WITH_IMM, 1), EINVAL);
  a_.qp = connected;
  verbs().destroy_qp(fresh);
}

TEST_F(DeviceRow, REP_3b_AFullQueueIsRefusedAtOnce) {
  fabric_.silence(*b_.device, kLong);
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_EQ(post(a_, IBV_WR_SEND_WITH_IMM, id), 0);
  EXPECT_EQ(post(a_, IBV_WR_SEND_WITH_IMM, 5), ENOMEM);
}

/// No access after destroy_qp returned: what the fence relies on (H2).
TEST_F(DeviceRow, DestroyedQueuePairKeepsEverythingOut) {
  fabric_.traits.err_lands = 1000;
  std::strcpy(a_.buffer, "late");
  ASSERT_EQ(post(a_, IBV_WR_RDMA_WRITE, 1, &b_, b_.mr->rkey), 0);
  verbs().destroy_qp(b_.qp);
  b_.qp = nullptr;
  run(kLong);
  EXPECT_EQ(b_.buffer[1024], 0);
  expect_sent(a_, 1, IBV_WC_RETRY_EXC_ERR);
}

// ---- slow devices

TEST_F(DeviceRow, LateCompletion_TheOnesBehindItWaitAndTheEventComesLast) {
  fabric_.traits.cqe_late = 1000;
  fabric_.traits.cqe_ns = 1'000'000;
  receive(b_, 7);
  receive(b_, 8);
  ASSERT_EQ(post(a_, IBV_WR_SEND_WITH_IMM, 1), 0);
  ASSERT_EQ(post(a_, IBV_WR_SEND_WITH_IMM, 2), 0);
  run(10'000);
  stop(b_);
  EXPECT_FALSE(has_event(b_, IBV_EVENT_QP_LAST_WQE_REACHED));
  run(kLong);
  EXPECT_TRUE(has_event(b_, IBV_EVENT_QP_LAST_WQE_REACHED));
  const std::optional<ibv_wc> first = poll(b_, b_.recv_cq);
  const std::optional<ibv_wc> second = poll(b_, b_.recv_cq);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->wr_id, 7u);
  EXPECT_EQ(second->wr_id, 8u);
}

TEST_F(DeviceRow, LateWrite_IsAcknowledgedFirstAndInMemoryBeforeALaterMessage) {
  fabric_.traits.write_late = 1000;
  fabric_.traits.write_ns = kLong;
  std::strcpy(a_.buffer, "late");
  ASSERT_EQ(post(a_, IBV_WR_RDMA_WRITE, 1, &b_, b_.mr->rkey), 0);
  run(100'000);
  expect_sent(a_, 1, IBV_WC_SUCCESS);
  EXPECT_EQ(b_.buffer[1024], 0);
  receive(b_, 7);
  ASSERT_EQ(post(a_, IBV_WR_SEND_WITH_IMM, 2), 0);
  run(100'000);
  EXPECT_STREQ(b_.buffer + 1024, "late");
}

TEST_F(DeviceRow, LateWrite_IsInMemoryWhenDestroyReturns) {
  fabric_.traits.write_late = 1000;
  fabric_.traits.write_ns = kLong;
  std::strcpy(a_.buffer, "late");
  ASSERT_EQ(post(a_, IBV_WR_RDMA_WRITE, 1, &b_, b_.mr->rkey), 0);
  run(100'000);
  verbs().destroy_qp(b_.qp);
  b_.qp = nullptr;
  EXPECT_STREQ(b_.buffer + 1024, "late");
}

TEST_F(DeviceRow, DestroyWithUnreadCompletions_IsReported) {
  fabric_.running = true;
  receive(b_, 7);
  ASSERT_EQ(post(a_, IBV_WR_SEND_WITH_IMM, 1), 0);
  run(kLong);
  verbs().destroy_qp(b_.qp);
  b_.qp = nullptr;
  verbs().destroy_qp(a_.qp);
  a_.qp = nullptr;
  ASSERT_EQ(observer_.thrown.size(), 2u);
  EXPECT_EQ(observer_.thrown[0], "a message that was acknowledged");
}

TEST_F(DeviceRow, UnreadMessage_IsAcknowledgedAndLost) {
  fabric_.expect(PacketFault{PacketFault::What::kUnread, a_.device, b_.device, PacketFault::kAny, 1, 0});
  receive(b_, 7);
  ASSERT_EQ(post(a_, IBV_WR_SEND_WITH_IMM, 1), 0);
  run(kLong);
  expect_sent(a_, 1, IBV_WC_SUCCESS);
  EXPECT_TRUE(has_event(b_, IBV_EVENT_CQ_ERR));
}

}  // namespace
}  // namespace bfo::stack
