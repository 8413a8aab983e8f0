// SPDX-License-Identifier: BSD-3-Clause
//
// Queue pair states: what may be posted, what is received and sent, which attributes a change needs.
#include "test/conformance/rig.h"

namespace bfo::conformance {
namespace {

class State : public Conformance {
 protected:
  /// A peer that sends to `side` and is willing to retry for long.
  static void point_at(Side& peer, const Side& side, const LinkOptions& link = {}) {
    ASSERT_EQ(peer.to_init(), 0);
    ASSERT_EQ(peer.to_rtr(side.lid, side.qpn, link.sq_psn, link), 0);
    ASSERT_EQ(peer.to_rts(link), 0);
  }
};

TEST_F(State, Reset_RefusesBothQueues) {
  Side side;
  EXPECT_EQ(side.state(), IBV_QPS_RESET);
  EXPECT_NE(side.post_recv(1, 0, 64), 0);
  EXPECT_NE(side.send(2, 0, 64), 0);
  EXPECT_TRUE(side.quiet(side.send_cq, 5));
}

TEST_F(State, Init_TakesReceivesAndReceivesNothing) {
  Side side;
  Side peer;
  LinkOptions link;
  link.retry_cnt = 1;
  ASSERT_EQ(side.to_init(), 0);
  EXPECT_EQ(side.post_recv(1, 0, 64), 0);
  EXPECT_NE(side.send(2, 0, 64), 0);
  point_at(peer, side, link);
  ASSERT_EQ(peer.send(3, 0, 8), 0);
  EXPECT_WC(peer.wait_send(), IBV_WC_RETRY_EXC_ERR, 3);
  EXPECT_TRUE(side.quiet(side.recv_cq, 5));
}

TEST_F(State, Init_ReceivePostedEarlyIsUsedAfterRtr) {
  Side side;
  Side peer;
  LinkOptions link;
  ASSERT_EQ(side.to_init(), 0);
  ASSERT_EQ(side.post_recv(1, 0, 64), 0);
  ASSERT_EQ(side.to_rtr(peer.lid, peer.qpn, link.sq_psn, link), 0);
  point_at(peer, side, link);
  ASSERT_EQ(peer.send(3, 0, 8), 0);
  EXPECT_WC(side.wait_recv(), IBV_WC_SUCCESS, 1);
}

TEST_F(State, Rtr_ReceivesAndRefusesSends) {
  Side side;
  Side peer;
  LinkOptions link;
  ASSERT_EQ(side.to_init(), 0);
  ASSERT_EQ(side.to_rtr(peer.lid, peer.qpn, link.sq_psn, link), 0);
  EXPECT_NE(side.send(2, 0, 64), 0);
  EXPECT_EQ(side.post_recv(1, 0, 64), 0);
  point_at(peer, side, link);
  ASSERT_EQ(peer.send(3, 0, 8), 0);
  EXPECT_WC(side.wait_recv(), IBV_WC_SUCCESS, 1);
}

TEST_F(State, Rts_DoesEverything) {
  Pair p;
  ASSERT_EQ(p.a.post_recv(1, 0, 64), 0);
  ASSERT_EQ(p.b.post_recv(2, 0, 64), 0);
  ASSERT_EQ(p.a.send(3, 0, 8), 0);
  ASSERT_EQ(p.b.send(4, 0, 8), 0);
  EXPECT_WC(p.a.wait_recv(), IBV_WC_SUCCESS, 1);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_SUCCESS, 2);
}

TEST_F(State, Sqd_QueuesSendsFinishesStartedOnesAndReceives) {
  Pair p;
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(p.b.post_recv(i, 0, 64), 0);
  ASSERT_EQ(p.a.post_recv(9, 0, 64), 0);
  Lab::get().inject("when opcode=SEND message=1 do delay 20ms");
  ASSERT_EQ(p.a.send(1, 0, 8), 0);
  ASSERT_EQ(p.a.to_state(IBV_QPS_SQD), 0);
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 1);
  EXPECT_TRUE(p.a.quiet(p.a.send_cq)) << "queued sends wait in SQD";
  ASSERT_EQ(p.b.send(3, 0, 8), 0);
  EXPECT_WC(p.a.wait_recv(), IBV_WC_SUCCESS, 9);
  ASSERT_EQ(p.a.to_state(IBV_QPS_RTS), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 2);
}

TEST_F(State, Sqd_AttributesMayChangeWhenDrained) {
  Pair p;
  ASSERT_EQ(p.a.to_state(IBV_QPS_SQD), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.timeout = 10;
  attr.retry_cnt = 1;
  EXPECT_EQ(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT), 0);
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(p.a.qp, &now, IBV_QP_TIMEOUT, &init), 0);
  EXPECT_EQ(now.timeout, 10);
  EXPECT_EQ(now.retry_cnt, 1);
  EXPECT_EQ(p.a.to_state(IBV_QPS_RTS), 0);
}

TEST_F(State, Sqe_FlushesSendsReceivesAndGoesBackToRts) {
  SideOptions uc;
  uc.type = IBV_QPT_UC;
  Pair p(uc);
  ASSERT_EQ(p.a.post_recv(9, 0, 64), 0);
  ASSERT_EQ(p.b.post_recv(8, 0, 64), 0);
  ibv_sge sge = p.a.sge(0, 64);
  sge.lkey ^= 0x5a5a00;
  ibv_send_wr wr{};
  wr.wr_id = 1;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  ASSERT_EQ(p.a.post_send(wr), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_LOC_PROT_ERR, 1);
  ASSERT_EQ(p.a.state(), IBV_QPS_SQE);
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_WR_FLUSH_ERR, 2);
  ASSERT_EQ(p.b.send(3, 0, 8), 0);
  EXPECT_WC(p.a.wait_recv(), IBV_WC_SUCCESS, 9);
  ASSERT_EQ(p.a.to_state(IBV_QPS_RTS), 0);
  ASSERT_EQ(p.a.send(4, 0, 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 4);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_SUCCESS, 8);
}

TEST_F(State, Err_FlushesBothQueuesAndReceivesNothing) {
  LinkOptions link;
  link.retry_cnt = 1;
  Pair p({}, link);
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  ASSERT_EQ(p.b.to_state(IBV_QPS_ERR), 0);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_WR_FLUSH_ERR, 1);
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 2);
}

struct Bit {
  int mask;
  const char* name;
};

TEST_F(State, ResetToInit_NeedsExactlyItsAttributes) {
  Side side;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  const int all = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  for (const Bit& bit :
       {Bit{IBV_QP_PKEY_INDEX, "pkey_index"}, {IBV_QP_PORT, "port"}, {IBV_QP_ACCESS_FLAGS, "access"}}) {
    EXPECT_EQ(ibv_modify_qp(side.qp, &attr, all & ~bit.mask), EINVAL) << "without " << bit.name;
  }
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr, all | IBV_QP_TIMEOUT), EINVAL) << "with timeout";
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr, all | IBV_QP_AV), EINVAL) << "with address";
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr, all | IBV_QP_QKEY), EINVAL) << "with Q_Key";
  attr.port_num = 9;
  EXPECT_NE(ibv_modify_qp(side.qp, &attr, all), 0) << "no such port";
  EXPECT_EQ(side.state(), IBV_QPS_RESET);
  attr.port_num = 1;
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr, all), 0);
}

TEST_F(State, InitToRtr_NeedsExactlyItsAttributes) {
  Side side;
  ASSERT_EQ(side.to_init(), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = 77;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr.dlid = side.lid;
  attr.ah_attr.port_num = 1;
  const int all = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  for (const Bit& bit : {Bit{IBV_QP_AV, "address"},
                         {IBV_QP_PATH_MTU, "MTU"},
                         {IBV_QP_DEST_QPN, "QPN"},
                         {IBV_QP_RQ_PSN, "PSN"},
                         {IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic"},
                         {IBV_QP_MIN_RNR_TIMER, "min_rnr_timer"}}) {
    EXPECT_EQ(ibv_modify_qp(side.qp, &attr, all & ~bit.mask), EINVAL) << "without " << bit.name;
  }
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr, all | IBV_QP_SQ_PSN), EINVAL) << "with sq_psn";
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr, all | IBV_QP_RETRY_CNT), EINVAL) << "with retry_cnt";
  EXPECT_EQ(side.state(), IBV_QPS_INIT);
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr, all), 0);
}

TEST_F(State, RtrToRts_NeedsExactlyItsAttributes) {
  Side side;
  LinkOptions link;
  ASSERT_EQ(side.to_init(), 0);
  ASSERT_EQ(side.to_rtr(side.lid, 77, 0, link), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  const int all = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                  IBV_QP_MAX_QP_RD_ATOMIC;
  for (const Bit& bit : {Bit{IBV_QP_TIMEOUT, "timeout"},
                         {IBV_QP_RETRY_CNT, "retry_cnt"},
                         {IBV_QP_RNR_RETRY, "rnr_retry"},
                         {IBV_QP_SQ_PSN, "sq_psn"},
                         {IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic"}}) {
    EXPECT_EQ(ibv_modify_qp(side.qp, &attr, all & ~bit.mask), EINVAL) << "without " << bit.name;
  }
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr, all | IBV_QP_DEST_QPN), EINVAL) << "with dest_qpn";
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr, all | IBV_QP_PORT), EINVAL) << "with port";
  EXPECT_EQ(side.state(), IBV_QPS_RTR);
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr, all), 0);
}

TEST_F(State, SkippedSteps_AreRefused) {
  Side side;
  EXPECT_NE(side.to_rts(), 0);
  EXPECT_NE(side.to_rtr(1, 1, 0), 0);
  EXPECT_NE(side.to_state(IBV_QPS_SQD), 0);
  ASSERT_EQ(side.to_init(), 0);
  EXPECT_NE(side.to_rts(), 0);
  EXPECT_NE(side.to_state(IBV_QPS_SQD), 0);
  EXPECT_EQ(side.state(), IBV_QPS_INIT);
}

TEST_F(State, AnyStateToErr_AndErrToReset) {
  for (int steps = 0; steps < 4; ++steps) {
    Side side;
    if (steps > 0) {
      ASSERT_EQ(side.to_init(), 0);
    }
    if (steps > 1) {
      ASSERT_EQ(side.to_rtr(side.lid, 77, 0), 0);
    }
    if (steps > 2) {
      ASSERT_EQ(side.to_rts(), 0);
    }
    EXPECT_EQ(side.to_state(IBV_QPS_ERR), 0) << steps;
    EXPECT_EQ(side.state(), IBV_QPS_ERR) << steps;
    EXPECT_EQ(side.to_state(IBV_QPS_RESET), 0) << steps;
    EXPECT_EQ(side.state(), IBV_QPS_RESET) << steps;
    EXPECT_EQ(side.to_init(), 0) << steps;
  }
}

TEST_F(State, SqeToRts_IsNeverForRc) {
  Pair p;
  ibv_sge sge = p.a.sge(0, 64);
  sge.lkey ^= 0x5a5a00;
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  ASSERT_EQ(p.a.post_send(wr), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_LOC_PROT_ERR, 0);
  EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
  EXPECT_NE(p.a.to_state(IBV_QPS_RTS), 0);
}

TEST_F(State, TakingBack_ErrReturnsEveryPostedRequest) {
  Pair p;
  for (uint64_t i = 0; i < 20; ++i) ASSERT_EQ(p.a.post_recv(i, 0, 64), 0);
  ASSERT_EQ(p.a.to_state(IBV_QPS_ERR), 0);
  for (uint64_t i = 0; i < 20; ++i) EXPECT_WC(p.a.wait_recv(), IBV_WC_WR_FLUSH_ERR, i);
  EXPECT_TRUE(p.a.quiet(p.a.recv_cq));
}

TEST_F(State, Reset_DiscardsRequestsAndPurgesTheQueue) {
  Pair p;
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  ASSERT_EQ(p.b.post_recv(2, 0, 64), 0);
  ASSERT_EQ(p.a.send(3, 0, 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 3);
  ASSERT_EQ(p.b.to_state(IBV_QPS_ERR), 0);
  ASSERT_EQ(p.b.to_state(IBV_QPS_RESET), 0);
  EXPECT_TRUE(p.b.quiet(p.b.recv_cq)) << "not polled before RESET: gone";
}

TEST_F(State, Reset_LeavesCompletionsOfOtherQueuePairs) {
  Pair p;
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = p.b.recv_cq;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.qp_type = IBV_QPT_RC;
  ibv_qp* other = ibv_create_qp(p.b.pd, &attr);
  ASSERT_NE(other, nullptr);
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  ASSERT_EQ(p.a.send(3, 0, 8), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 3);
  EXPECT_EQ(ibv_destroy_qp(other), 0);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_SUCCESS, 1);
}

TEST_F(State, Marker_PostedAfterErrComesLast) {
  Pair p;
  for (uint64_t i = 0; i < 5; ++i) ASSERT_EQ(p.a.post_recv(i, 0, 64), 0);
  ASSERT_EQ(p.a.to_state(IBV_QPS_ERR), 0);
  ASSERT_EQ(p.a.post_recv(99, 0, 64), 0);
  uint64_t last = 0;
  for (int i = 0; i < 6; ++i) {
    const auto wc = p.a.wait_recv();
    ASSERT_TRUE(wc.has_value());
    last = wc->wr_id;
  }
  EXPECT_EQ(last, 99u);
}

TEST_F(State, Recreated_QueuePairHasANewNumberAndWorks) {
  Side a;
  const uint32_t old_qpn = a.qpn;
  a.destroy_qp();
  ibv_qp_init_attr attr{};
  attr.send_cq = a.send_cq;
  attr.recv_cq = a.recv_cq;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 8;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  attr.qp_type = IBV_QPT_RC;
  attr.sq_sig_all = 1;
  a.qp = ibv_create_qp(a.pd, &attr);
  ASSERT_NE(a.qp, nullptr);
  a.qpn = a.qp->qp_num;
  EXPECT_NE(a.qpn, old_qpn) << "a number is not used again at once";
  Side b;
  LinkOptions link;
  ASSERT_EQ(a.to_init(), 0);
  ASSERT_EQ(b.to_init(), 0);
  ASSERT_EQ(a.to_rtr(b.lid, b.qpn, link.sq_psn, link), 0);
  ASSERT_EQ(b.to_rtr(a.lid, a.qpn, link.sq_psn, link), 0);
  ASSERT_EQ(a.to_rts(link), 0);
  ASSERT_EQ(a.send(1, 0, 8, IBV_WR_RDMA_WRITE, &b), 0);
  EXPECT_WC(a.wait_send(), IBV_WC_SUCCESS, 1);
}

TEST_F(State, InOrderRule_SignaledSuccessCoversAllBefore) {
  SideOptions options;
  options.sig_all = 0;
  Pair p(options);
  for (uint64_t i = 0; i < 10; ++i) {
    p.a.buffer[i] = static_cast<uint8_t>(i + 1);
    const unsigned flags = i == 9 ? IBV_SEND_SIGNALED : 0;
    ASSERT_EQ(
        p.a.send(i, static_cast<uint32_t>(i), 1, IBV_WR_RDMA_WRITE, &p.b, static_cast<uint32_t>(i), flags),
        0);
  }
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 9);
  EXPECT_EQ(memcmp(p.a.buffer.data(), p.b.buffer.data(), 10), 0);
  EXPECT_TRUE(p.a.quiet(p.a.send_cq, 5));
}

TEST_F(State, InOrderRule_UnsignaledFailureCompletesAndTheRestIsFlushed) {
  SideOptions options;
  options.sig_all = 0;
  Pair p(options);
  ASSERT_EQ(p.a.send(1, 0, 8, IBV_WR_RDMA_WRITE, &p.b, 0, 0), 0);
  Lab::get().inject("when opcode=WRITE message=1 do complete REM_OP_ERR");
  ASSERT_EQ(p.a.send(2, 0, 8, IBV_WR_RDMA_WRITE, &p.b, 0, 0), 0);
  const auto first = p.a.wait_send();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->status, IBV_WC_REM_OP_ERR);
  ASSERT_EQ(p.a.send(3, 0, 8, IBV_WR_RDMA_WRITE, &p.b, 0, 0), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_WR_FLUSH_ERR, 3);
}

TEST_F(State, FailedRequest_MayHaveArrived) {
  LinkOptions link;
  link.retry_cnt = 1;
  Pair p({}, link);
  Lab::get().inject("when opcode=WRITE message=1 do drop-ack");
  p.a.buffer[0] = 55;
  ASSERT_EQ(p.a.send(1, 0, 8, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 1);
  EXPECT_EQ(p.b.buffer[0], 55);
}

}  // namespace
}  // namespace bfo::conformance
