// SPDX-License-Identifier: BSD-3-Clause
//
// The three ways an error is reported, and the completion queue.
#include <poll.h>

#include "test/conformance/rig.h"

namespace bfo::conformance {
namespace {

class Report : public Conformance {};

TEST_F(Report, ErrorCompletion_HasOnlyFourValidFields) {
  Pair p;
  ibv_sge sge = p.a.sge(0, 48);
  ibv_send_wr wr{};
  wr.wr_id = 77;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.wr.rdma.remote_addr = p.b.address(0);
  wr.wr.rdma.rkey = ~p.b.mr->rkey;
  ASSERT_EQ(p.a.post_send(wr), 0);
  const auto wc = p.a.wait_send();
  EXPECT_WC(wc, IBV_WC_REM_ACCESS_ERR, 77);
  EXPECT_EQ(wc->qp_num, p.a.qpn);
  uint32_t opcode = 0;  // no value of the enumeration: not to be loaded as one
  memcpy(&opcode, &wc->opcode, sizeof opcode);
  EXPECT_NE(opcode, uint32_t{IBV_WC_RDMA_WRITE}) << "a program that reads it must be caught";
  EXPECT_NE(wc->byte_len, 48u);
  EXPECT_NE(wc->byte_len, 0u);
}

TEST_F(Report, AffiliatedEvent_ReachesTheOwnerOnly) {
  Pair p;
  Side third;
  ibv_sge sge = p.a.sge(0, 8);
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.wr.rdma.remote_addr = p.b.address(0);
  wr.wr.rdma.rkey = ~p.b.mr->rkey;
  ASSERT_EQ(p.a.post_send(wr), 0);
  p.a.wait_send();
  EXPECT_TRUE(p.b.wait_event_of(IBV_EVENT_QP_ACCESS_ERR));
  EXPECT_FALSE(third.wait_event(10).has_value());
  EXPECT_FALSE(p.a.wait_event_of(IBV_EVENT_QP_ACCESS_ERR, 10));
}

TEST_F(Report, UnaffiliatedEvent_ReachesEveryContextOfTheDevice) {
  Side first;
  Side second;
  Lab::get().inject("when device=0 do sm-change");
  EXPECT_TRUE(first.wait_event_of(IBV_EVENT_SM_CHANGE));
  EXPECT_TRUE(second.wait_event_of(IBV_EVENT_SM_CHANGE));
}

TEST_F(Report, ImmediateError_NamesTheBadRequest) {
  Side side;
  ibv_sge sge = side.sge(0, 8);
  ibv_send_wr second{};
  second.sg_list = &sge;
  second.num_sge = 1;
  ibv_send_wr first = second;
  first.next = &second;
  ibv_send_wr* bad = nullptr;
  EXPECT_NE(ibv_post_send(side.qp, &first, &bad), 0) << "in RESET";
  EXPECT_EQ(bad, &first);
  ibv_recv_wr recv{};
  ibv_recv_wr* bad_recv = nullptr;
  EXPECT_NE(ibv_post_recv(side.qp, &recv, &bad_recv), 0);
  EXPECT_EQ(bad_recv, &recv);
}

TEST_F(Report, ImmediateError_FullQueueAndTooManyElements) {
  SideOptions small;
  small.recv_wr = 2;
  small.sge = 1;
  Side side(small);
  ASSERT_EQ(side.to_init(), 0);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(side.qp, &attr, IBV_QP_CAP, &init), 0);
  const std::vector<ibv_sge> many(init.cap.max_recv_sge + 1, side.sge(0, 8));
  EXPECT_EQ(side.post_recv(9, many), EINVAL);
  for (uint32_t i = 0; i < init.cap.max_recv_wr; ++i) ASSERT_EQ(side.post_recv(i, 0, 8), 0) << i;
  EXPECT_EQ(side.post_recv(9, 0, 8), ENOMEM);
}

class Cq : public Conformance {};

TEST_F(Cq, Poll_TakesUpToTheNumberAskedForAndOnce) {
  Pair p;
  for (uint64_t i = 0; i < 5; ++i) ASSERT_EQ(p.a.send(i, 0, 8, IBV_WR_RDMA_WRITE, &p.b), 0);
  ibv_wc wc[8];
  std::vector<uint64_t> ids;
  for (int round = 0; round < 100'000 && ids.size() < 5; ++round) {
    const int n = ibv_poll_cq(p.a.send_cq, 2, wc);
    ASSERT_GE(n, 0);
    ASSERT_LE(n, 2);
    for (int i = 0; i < n; ++i) ids.push_back(wc[i].wr_id);
  }
  EXPECT_EQ(ids, (std::vector<uint64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(ibv_poll_cq(p.a.send_cq, 8, wc), 0);
}

TEST_F(Cq, Size_IsAtLeastWhatWasAskedFor) {
  Side side;
  ibv_cq* cq = ibv_create_cq(side.context, 5, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  EXPECT_GE(cq->cqe, 5);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(Cq, Overflow_PollingFailsAndQueuePairsAreDead) {
  SideOptions small;
  small.cqe = 4;
  small.send_wr = 128;
  small.one_cq = true;
  Pair p(small, {}, {});
  const int capacity = p.a.send_cq->cqe;
  for (int i = 0; i <= capacity + 4; ++i) {
    if (p.a.send(1, 0, 8, IBV_WR_RDMA_WRITE, &p.b) != 0) break;
  }
  ASSERT_TRUE(p.a.wait_event_of(IBV_EVENT_CQ_ERR));
  ibv_wc wc;
  int n = 0;
  for (int i = 0; i <= capacity && n >= 0; ++i) n = ibv_poll_cq(p.a.send_cq, 1, &wc);
  EXPECT_LT(n, 0) << "nothing can be polled from an overrun queue";
  EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
}

TEST_F(Cq, CompletionChannel_WakesOnArmedQueues) {
  Pair p;
  ASSERT_EQ(ibv_req_notify_cq(p.b.recv_cq, 0), 0);
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 2);
  pollfd fd{p.b.channel->fd, POLLIN, 0};
  ASSERT_EQ(poll(&fd, 1, kDeadlineMs), 1);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(p.b.channel, &cq, &context), 0);
  EXPECT_EQ(cq, p.b.recv_cq);
  EXPECT_EQ(context, &p.b);
  ibv_ack_cq_events(cq, 1);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_SUCCESS, 1);
}

TEST_F(Cq, SolicitedOnly_IgnoresOthersButNotErrors) {
  Pair p;
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(p.b.post_recv(i, 0, 64), 0);
  ASSERT_EQ(ibv_req_notify_cq(p.b.recv_cq, 1), 0);
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 2);
  pollfd fd{p.b.channel->fd, POLLIN, 0};
  EXPECT_EQ(poll(&fd, 1, 20), 0) << "not solicited";
  ASSERT_EQ(p.a.send(3, 0, 8, IBV_WR_SEND, nullptr, 0, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED), 0);
  ASSERT_EQ(poll(&fd, 1, kDeadlineMs), 1);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(p.b.channel, &cq, &context), 0);
  ibv_ack_cq_events(cq, 1);
}

}  // namespace
}  // namespace bfo::conformance
