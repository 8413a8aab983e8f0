// SPDX-License-Identifier: BSD-3-Clause
//
// What responder and requester see of the same fault, on RC.
#include "test/conformance/rig.h"

namespace bfo::conformance {
namespace {

class Both : public Conformance {
 protected:
  /// One request with a remote address; returns what post_send said.
  static int request(Side& from, const Side& to, ibv_wr_opcode opcode, uint32_t length, uint64_t remote,
                     uint32_t rkey) {
    ibv_sge sge = from.sge(0, length);
    ibv_send_wr wr{};
    wr.wr_id = 2;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
      wr.wr.atomic.remote_addr = remote;
      wr.wr.atomic.rkey = rkey;
    } else {
      wr.wr.rdma.remote_addr = remote;
      wr.wr.rdma.rkey = rkey;
    }
    (void)to;
    return from.post_send(wr);
  }

  static void expect_event(Pair& p, ibv_event_type event) {
    EXPECT_TRUE(p.b.wait_event_of(event, 1000)) << ibv_event_type_str(event) << "\n"
                                                << Lab::get().trace_text();
    EXPECT_EQ(p.b.state(), IBV_QPS_ERR);
    EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
  }
};

TEST_F(Both, Send_BadReceiveKey) {
  Pair p;
  ibv_sge sge = p.b.sge(0, 64);
  sge.lkey ^= 0x5a5a00;
  ASSERT_EQ(p.b.post_recv(1, std::vector<ibv_sge>{sge}), 0);
  ASSERT_EQ(p.a.send(2, 0, 64), 0);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_LOC_PROT_ERR, 1);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_OP_ERR, 2);
  EXPECT_EQ(p.b.state(), IBV_QPS_ERR);
}

TEST_F(Both, Send_ReceiveTooShort) {
  Pair p;
  ASSERT_EQ(p.b.post_recv(1, 0, 63), 0);
  ASSERT_EQ(p.a.send(2, 0, 64), 0);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_LOC_LEN_ERR, 1);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_INV_REQ_ERR, 2);
  EXPECT_EQ(p.b.state(), IBV_QPS_ERR);
}

TEST_F(Both, Send_OverTheLongestMessage) {
  // A real responder sees it only from a requester with a larger limit; here the rule makes the answer.
  Pair p;
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  Lab::get().inject("when opcode=SEND message=1 direction=rx do complete LOC_LEN_ERR");
  ASSERT_EQ(p.a.send(2, 0, 64), 0);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_LOC_LEN_ERR, 1);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_INV_REQ_ERR, 2);
}

TEST_F(Both, Send_OtherFailureOfTheResponder) {
  Pair p;
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  Lab::get().inject("when opcode=SEND message=1 direction=rx do complete LOC_QP_OP_ERR");
  ASSERT_EQ(p.a.send(2, 0, 64), 0);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_LOC_QP_OP_ERR, 1);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_OP_ERR, 2);
}

TEST_F(Both, Write_BadKey) {
  Pair p;
  ASSERT_EQ(request(p.a, p.b, IBV_WR_RDMA_WRITE, 64, p.b.address(0), p.b.mr->rkey ^ 0x5a5a00), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_ACCESS_ERR, 2);
  expect_event(p, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_TRUE(p.b.quiet(p.b.recv_cq));
}

TEST_F(Both, Write_OutsideTheRegion) {
  Pair p;
  ASSERT_EQ(request(p.a, p.b, IBV_WR_RDMA_WRITE, 64, p.b.address(kBufferBytes - 63), p.b.mr->rkey), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_ACCESS_ERR, 2);
  expect_event(p, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(Both, Write_WithoutPermission) {
  SideOptions read_only;
  read_only.mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  Pair p({}, read_only, {});
  ASSERT_EQ(request(p.a, p.b, IBV_WR_RDMA_WRITE, 64, p.b.address(0), p.b.mr->rkey), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_ACCESS_ERR, 2);
  expect_event(p, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(Both, Write_OverTheLongestMessage) {
  Pair p;
  Lab::get().inject("when opcode=WRITE message=1 direction=rx do complete LOC_LEN_ERR");
  ASSERT_EQ(request(p.a, p.b, IBV_WR_RDMA_WRITE, 64, p.b.address(0), p.b.mr->rkey), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_INV_REQ_ERR, 2);
  expect_event(p, IBV_EVENT_QP_REQ_ERR);
}

TEST_F(Both, WriteWithImmediate_OverTheLongestMessage) {
  Pair p;
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  Lab::get().inject("when opcode=WRITE_IMM message=1 direction=rx do complete LOC_LEN_ERR");
  ASSERT_EQ(request(p.a, p.b, IBV_WR_RDMA_WRITE_WITH_IMM, 64, p.b.address(0), p.b.mr->rkey), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_INV_REQ_ERR, 2);
  const auto at_responder = p.b.wait_recv();
  ASSERT_TRUE(at_responder.has_value());
  if (at_responder->status != IBV_WC_LOC_LEN_ERR) {
    EXPECT_TRUE(p.b.wait_event_of(IBV_EVENT_QP_REQ_ERR));
  }
}

TEST_F(Both, Read_BadKey) {
  Pair p;
  ASSERT_EQ(request(p.a, p.b, IBV_WR_RDMA_READ, 64, p.b.address(0), p.b.mr->rkey ^ 0x5a5a00), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_ACCESS_ERR, 2);
  expect_event(p, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(Both, Read_WithoutPermission) {
  SideOptions write_only;
  write_only.mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  Pair p({}, write_only, {});
  ASSERT_EQ(request(p.a, p.b, IBV_WR_RDMA_READ, 64, p.b.address(0), p.b.mr->rkey), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_ACCESS_ERR, 2);
  expect_event(p, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(Both, Atomic_BadKey) {
  Pair p;
  ASSERT_EQ(request(p.a, p.b, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, p.b.address(0), p.b.mr->rkey ^ 0x5a5a00), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_ACCESS_ERR, 2);
  expect_event(p, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(Both, Read_MoreThanTheResponderTracks) {
  LinkOptions link;
  link.max_dest_rd_atomic = 0;
  Pair p({}, link);
  ASSERT_EQ(request(p.a, p.b, IBV_WR_RDMA_READ, 64, p.b.address(0), p.b.mr->rkey), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_INV_REQ_ERR, 2);
  expect_event(p, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(Both, Read_MoreInFlightThanTheResponderTracks) {
  LinkOptions link;
  link.max_rd_atomic = 4;
  link.max_dest_rd_atomic = 2;
  Pair p({}, link);
  Lab::get().inject("when opcode=ACK do delay 20ms");
  for (int i = 0; i < 4; ++i)
    ASSERT_EQ(request(p.a, p.b, IBV_WR_RDMA_READ, 64, p.b.address(0), p.b.mr->rkey), 0);
  bool refused = false;
  for (int i = 0; i < 4; ++i) {
    const auto wc = p.a.wait_send();
    ASSERT_TRUE(wc.has_value());
    refused = refused || wc->status == IBV_WC_REM_INV_REQ_ERR;
  }
  EXPECT_TRUE(refused) << Lab::get().trace_text();
  expect_event(p, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(Both, Atomic_Misaligned) {
  Pair p;
  ASSERT_EQ(request(p.a, p.b, IBV_WR_ATOMIC_CMP_AND_SWP, 8, (p.b.address(0) | 7) - 3, p.b.mr->rkey), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_INV_REQ_ERR, 2);
  expect_event(p, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(Both, Read_OtherFailureOfTheResponder) {
  Pair p;
  Lab::get().inject("when opcode=READ message=1 direction=rx do complete LOC_QP_OP_ERR");
  ASSERT_EQ(request(p.a, p.b, IBV_WR_RDMA_READ, 64, p.b.address(0), p.b.mr->rkey), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_OP_ERR, 2);
  expect_event(p, IBV_EVENT_QP_REQ_ERR);
}

TEST_F(Both, LostNak_BecomesRetryExceeded) {
  LinkOptions link;
  link.retry_cnt = 2;
  Pair p({}, link);
  Lab::get().inject("when opcode=ACK do drop");
  ASSERT_EQ(request(p.a, p.b, IBV_WR_RDMA_WRITE, 64, p.b.address(0), p.b.mr->rkey ^ 0x5a5a00), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 2);
  EXPECT_TRUE(p.b.wait_event_of(IBV_EVENT_QP_ACCESS_ERR));
}

TEST_F(Both, HealthyHalf_RetriesUntilItGivesUp) {
  LinkOptions link;
  link.retry_cnt = 4;
  Pair p({}, link);
  ASSERT_EQ(p.b.to_state(IBV_QPS_ERR), 0);
  ASSERT_EQ(p.a.send(2, 0, 64, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 2);
  const auto sent = Lab::get().trace([](const MessageRecord& r) { return is_attempt(r, Opcode::kWrite); });
  EXPECT_EQ(sent.size(), 5u) << Lab::get().trace_text();
  EXPECT_EQ(p.b.state(), IBV_QPS_ERR);
}

TEST_F(Both, WrongDestination_IsDroppedSilently) {
  LinkOptions link;
  link.retry_cnt = 1;
  Side a;
  Side b;
  Side stranger;
  for (Side* side : {&a, &b, &stranger}) ASSERT_EQ(side->to_init(), 0);
  ASSERT_EQ(b.to_rtr(stranger.lid, stranger.qpn, link.sq_psn, link), 0);
  ASSERT_EQ(a.to_rtr(b.lid, b.qpn, link.sq_psn, link), 0);
  ASSERT_EQ(a.to_rts(link), 0);
  ASSERT_EQ(b.post_recv(1, 0, 64), 0);
  ASSERT_EQ(a.send(2, 0, 64), 0);
  EXPECT_WC(a.wait_send(), IBV_WC_RETRY_EXC_ERR, 2);
  EXPECT_EQ(b.state(), IBV_QPS_RTR);
  EXPECT_TRUE(b.quiet(b.recv_cq));
}

}  // namespace
}  // namespace bfo::conformance
