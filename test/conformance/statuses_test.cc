// SPDX-License-Identifier: BSD-3-Clause
//
// Completion statuses, each from its real cause; those that no cause on this device can have come by rule.
#include "test/conformance/rig.h"

namespace bfo::conformance {
namespace {

class Status : public Conformance {};

/// Quick give-up: three transmissions.
LinkOptions impatient() {
  LinkOptions link;
  link.retry_cnt = 2;
  link.rnr_retry = 1;
  return link;
}

SideOptions of_type(ibv_qp_type type) {
  SideOptions options;
  options.type = type;
  return options;
}

/// An address handle to the other side, for UD.
struct Handle {
  Handle(const Side& from, const Side& to) {
    ibv_ah_attr attr = address_of(to.lid);
    ah = ibv_create_ah(from.pd, &attr);
  }
  ~Handle() { ibv_destroy_ah(ah); }
  ibv_ah* ah;
};

int send_ud(Side& from, const Side& to, const Handle& handle, uint64_t wr_id, const ibv_sge& sge) {
  ibv_sge list = sge;
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &list;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.ud.ah = handle.ah;
  wr.wr.ud.remote_qpn = to.qpn;
  wr.wr.ud.remote_qkey = 0x1234;
  return from.post_send(wr);
}

TEST_F(Status, Success_EveryOperationOnRc) {
  Pair p;
  ASSERT_EQ(p.b.post_recv(1, 0, 4096), 0);
  p.a.buffer[0] = 42;
  ASSERT_EQ(p.a.send(2, 0, 4096), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 2);
  const auto received = p.b.wait_recv();
  EXPECT_WC(received, IBV_WC_SUCCESS, 1);
  EXPECT_EQ(received->opcode, IBV_WC_RECV);
  EXPECT_EQ(received->byte_len, 4096u);
  EXPECT_EQ(p.b.buffer[0], 42);
  p.a.buffer[8192] = 43;
  ASSERT_EQ(p.a.send(3, 8192, 5000, IBV_WR_RDMA_WRITE, &p.b, 8192), 0);
  const auto written = p.a.wait_send();
  EXPECT_WC(written, IBV_WC_SUCCESS, 3);
  EXPECT_EQ(written->opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(p.b.buffer[8192], 43);
  p.b.buffer[20000] = 44;
  ASSERT_EQ(p.a.send(4, 30000, 100, IBV_WR_RDMA_READ, &p.b, 20000), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 4);
  EXPECT_EQ(p.a.buffer[30000], 44);
}

TEST_F(Status, Success_UcAndUd) {
  Pair uc(of_type(IBV_QPT_UC));
  ASSERT_EQ(uc.b.post_recv(1, 0, 4096), 0);
  ASSERT_EQ(uc.a.send(2, 0, 4096), 0);
  EXPECT_WC(uc.a.wait_send(), IBV_WC_SUCCESS, 2);
  EXPECT_WC(uc.b.wait_recv(), IBV_WC_SUCCESS, 1);
  Pair ud(of_type(IBV_QPT_UD));
  ASSERT_EQ(ud.b.post_recv(3, 0, 1024), 0);
  const Handle handle(ud.a, ud.b);
  ASSERT_EQ(send_ud(ud.a, ud.b, handle, 4, ud.a.sge(0, 64)), 0);
  EXPECT_WC(ud.a.wait_send(), IBV_WC_SUCCESS, 4);
  const auto received = ud.b.wait_recv();
  EXPECT_WC(received, IBV_WC_SUCCESS, 3);
  EXPECT_EQ(received->byte_len, 64u + 40u);
  EXPECT_EQ(received->src_qp, ud.a.qpn);
}

TEST_F(Status, LocLenErr_ReceiveShorterThanSendRc) {
  Pair p;
  ASSERT_EQ(p.b.post_recv(1, 0, 100), 0);
  ASSERT_EQ(p.a.send(2, 0, 101), 0);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_LOC_LEN_ERR, 1);
  EXPECT_EQ(p.b.state(), IBV_QPS_ERR);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_INV_REQ_ERR, 2);
}

TEST_F(Status, LocLenErr_SharedReceiveShorterThanSend) {
  SideOptions options;
  options.srq = true;
  Pair p(options);
  ASSERT_EQ(p.b.post_recv(1, 0, 100), 0);
  ASSERT_EQ(p.a.send(2, 0, 101), 0);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_LOC_LEN_ERR, 1);
  EXPECT_EQ(p.b.state(), IBV_QPS_ERR);
}

TEST_F(Status, LocLenErr_ReceiveShorterThanSendUc) {
  Pair p(of_type(IBV_QPT_UC));
  ASSERT_EQ(p.b.post_recv(1, 0, 100), 0);
  ASSERT_EQ(p.a.send(2, 0, 101), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 2);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_LOC_LEN_ERR, 1);
  EXPECT_EQ(p.b.state(), IBV_QPS_ERR);
}

TEST_F(Status, LocLenErr_MessageLongerThanThePortAllows) {
  Pair p;
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(p.a.context, 1, &port), 0);
  ibv_sge list[2] = {p.a.sge(0, 0x60000000), p.a.sge(0, 0x60000000)};
  ASSERT_GT(uint64_t{list[0].length} + list[1].length, port.max_msg_sz);
  ibv_send_wr wr{};
  wr.wr_id = 5;
  wr.sg_list = list;
  wr.num_sge = 2;
  wr.opcode = IBV_WR_SEND;
  ASSERT_EQ(p.a.post_send(wr), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_LOC_LEN_ERR, 5);
  EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
}

TEST_F(Status, LocLenErr_UdMessageLongerThanTheMtuEntersSqe) {
  Pair p(of_type(IBV_QPT_UD));
  const Handle handle(p.a, p.b);
  ASSERT_EQ(send_ud(p.a, p.b, handle, 4, p.a.sge(0, 8192)), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_LOC_LEN_ERR, 4);
  EXPECT_EQ(p.a.state(), IBV_QPS_SQE);
}

TEST_F(Status, LocQpOpErr_ReadWithoutInitiatorDepth) {
  LinkOptions link;
  link.max_rd_atomic = 0;
  Pair p({}, link);
  ASSERT_EQ(p.a.send(1, 0, 8, IBV_WR_RDMA_READ, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_LOC_QP_OP_ERR, 1);
  EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
}

TEST_F(Status, LocProtErr_BadLocalKeyOnRc) {
  Pair p;
  ASSERT_EQ(p.b.post_recv(1, 0, 100), 0);
  ibv_sge sge = p.a.sge(0, 64);
  sge.lkey ^= 0x5a5a00;
  ibv_send_wr wr{};
  wr.wr_id = 3;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  ASSERT_EQ(p.a.post_send(wr), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_LOC_PROT_ERR, 3);
  EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
}

TEST_F(Status, LocProtErr_OnUcAndUdEntersSqe) {
  Pair uc(of_type(IBV_QPT_UC));
  ibv_sge sge = uc.a.sge(0, 64);
  sge.lkey ^= 0x5a5a00;
  ibv_send_wr wr{};
  wr.wr_id = 3;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  ASSERT_EQ(uc.a.post_send(wr), 0);
  EXPECT_WC(uc.a.wait_send(), IBV_WC_LOC_PROT_ERR, 3);
  EXPECT_EQ(uc.a.state(), IBV_QPS_SQE);
  Pair ud(of_type(IBV_QPT_UD));
  const Handle handle(ud.a, ud.b);
  sge = ud.a.sge(0, 64);
  sge.lkey ^= 0x5a5a00;
  ASSERT_EQ(send_ud(ud.a, ud.b, handle, 4, sge), 0);
  EXPECT_WC(ud.a.wait_send(), IBV_WC_LOC_PROT_ERR, 4);
  EXPECT_EQ(ud.a.state(), IBV_QPS_SQE);
}

TEST_F(Status, WrFlushErr_QueuedAndLaterPosted) {
  Pair p;
  ASSERT_EQ(p.a.post_recv(1, 0, 64), 0);
  ASSERT_EQ(p.a.post_recv(2, 0, 64), 0);
  ASSERT_EQ(p.a.to_state(IBV_QPS_ERR), 0);
  EXPECT_WC(p.a.wait_recv(), IBV_WC_WR_FLUSH_ERR, 1);
  EXPECT_WC(p.a.wait_recv(), IBV_WC_WR_FLUSH_ERR, 2);
  ASSERT_EQ(p.a.post_recv(3, 0, 64), 0);
  EXPECT_WC(p.a.wait_recv(), IBV_WC_WR_FLUSH_ERR, 3);
  ASSERT_EQ(p.a.send(4, 0, 64), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_WR_FLUSH_ERR, 4);
}

TEST_F(Status, WrFlushErr_RequestsInFlightAndUnsignaledOnes) {
  SideOptions options;
  options.sig_all = 0;
  Pair p(options);
  Lab::get().inject("when opcode=SEND attempt=all do drop");
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_EQ(p.a.send(i, 0, 64, IBV_WR_SEND, nullptr, 0, 0), 0);
  ASSERT_EQ(p.a.to_state(IBV_QPS_ERR), 0);
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_WC(p.a.wait_send(), IBV_WC_WR_FLUSH_ERR, i);
}

TEST_F(Status, WrFlushErr_SharedReceivesStay) {
  SideOptions options;
  options.srq = true;
  Pair p(options);
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  ASSERT_EQ(p.b.to_state(IBV_QPS_ERR), 0);
  EXPECT_TRUE(p.b.quiet(p.b.recv_cq));
}

TEST_F(Status, WrFlushErr_SqeFlushesTheSendQueueOnly) {
  Pair p(of_type(IBV_QPT_UD));
  const Handle to_b(p.a, p.b);
  const Handle to_a(p.b, p.a);
  ASSERT_EQ(p.a.post_recv(7, 0, 1024), 0);
  ibv_sge bad = p.a.sge(0, 64);
  bad.lkey ^= 0x5a5a00;
  ASSERT_EQ(send_ud(p.a, p.b, to_b, 1, bad), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_LOC_PROT_ERR, 1);
  ASSERT_EQ(send_ud(p.a, p.b, to_b, 2, p.a.sge(0, 64)), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_WR_FLUSH_ERR, 2);
  ASSERT_EQ(send_ud(p.b, p.a, to_a, 3, p.b.sge(0, 64)), 0);
  EXPECT_WC(p.a.wait_recv(), IBV_WC_SUCCESS, 7);
}

TEST_F(Status, MwBindErr_WindowOnARegionWithoutTheRight) {
  Pair p;
  ibv_mw* mw = ibv_alloc_mw(p.a.pd, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  ibv_mw_bind bind{};
  bind.wr_id = 9;
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info.mr = p.a.mr;  // registered without IBV_ACCESS_MW_BIND
  bind.bind_info.addr = p.a.address(0);
  bind.bind_info.length = 4096;
  bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
  ASSERT_EQ(ibv_bind_mw(p.a.qp, mw, &bind), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_MW_BIND_ERR, 9);
  EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(Status, LocAccessErr_WriteWithImmediateAndBadKey) {
  Pair p;
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  ibv_sge sge = p.a.sge(0, 64);
  ibv_send_wr wr{};
  wr.wr_id = 2;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.wr.rdma.remote_addr = p.b.address(0);
  wr.wr.rdma.rkey = p.b.mr->rkey ^ 0x5a5a00;
  ASSERT_EQ(p.a.post_send(wr), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_ACCESS_ERR, 2);
  const auto at_responder = p.b.wait_recv(200);
  ASSERT_TRUE(at_responder.has_value());
  if (at_responder->status != IBV_WC_LOC_ACCESS_ERR) {
    EXPECT_EQ(at_responder->status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_TRUE(p.b.wait_event_of(IBV_EVENT_QP_ACCESS_ERR));
  }
  EXPECT_EQ(p.b.state(), IBV_QPS_ERR);
}

TEST_F(Status, BadRespErr_IllegalOpcodeInAnAnswer) {
  Pair p;
  Lab::get().inject("when opcode=ACK message=1 do corrupt");
  ASSERT_EQ(p.a.send(1, 0, 64, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_BAD_RESP_ERR, 1);
  EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
}

TEST_F(Status, RemInvReqErr_TooManyReadsForTheResponder) {
  LinkOptions link;
  link.max_dest_rd_atomic = 0;
  Pair p({}, link);
  ASSERT_EQ(p.a.send(1, 0, 64, IBV_WR_RDMA_READ, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_INV_REQ_ERR, 1);
  EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
}

TEST_F(Status, RemAccessErr_WriteWithBadKey) {
  Pair p;
  ibv_sge sge = p.a.sge(0, 64);
  ibv_send_wr wr{};
  wr.wr_id = 2;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.wr.rdma.remote_addr = p.b.address(0);
  wr.wr.rdma.rkey = p.b.mr->rkey ^ 0x5a5a00;
  ASSERT_EQ(p.a.post_send(wr), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_ACCESS_ERR, 2);
  EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
}

TEST_F(Status, RemOpErr_ReceiverCannotFinish) {
  Pair p;
  ibv_sge sge = p.b.sge(0, 64);
  sge.lkey ^= 0x5a5a00;
  ASSERT_EQ(p.b.post_recv(1, std::vector<ibv_sge>{sge}), 0);
  ASSERT_EQ(p.a.send(2, 0, 64), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_OP_ERR, 2);
  EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
}

TEST_F(Status, RetryExcErr_AfterRetryCountPlusOneTransmissions) {
  Pair p({}, impatient());
  Lab::get().inject("when opcode=WRITE attempt=all do drop");
  ASSERT_EQ(p.a.send(1, 0, 64, IBV_WR_RDMA_WRITE, &p.b), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RETRY_EXC_ERR, 1);
  EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
  const auto sent = Lab::get().trace([](const MessageRecord& r) { return is_attempt(r, Opcode::kWrite); });
  EXPECT_EQ(sent.size(), 3u) << Lab::get().trace_text();
}

TEST_F(Status, RnrRetryExcErr_NoReceivePosted) {
  Pair p({}, impatient());
  ASSERT_EQ(p.a.send(1, 0, 64), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_RNR_RETRY_EXC_ERR, 1);
  EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
  EXPECT_EQ(p.b.state(), IBV_QPS_RTS);
}

TEST_F(Status, RemAbortErr_PartOfAUcMessageIsLostOnAnSrq) {
  SideOptions options = of_type(IBV_QPT_UC);
  options.srq = true;
  Pair p(options);
  ASSERT_EQ(p.b.post_recv(1, 0, 8192), 0);
  ASSERT_EQ(p.b.post_recv(2, 0, 8192), 0);
  Lab::get().inject("when service=UC opcode=SEND message=1 offset=50% do drop");
  ASSERT_EQ(p.a.send(3, 0, 8192), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 3);
  ASSERT_EQ(p.a.send(4, 0, 8192), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 4);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_REM_ABORT_ERR, 1);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_SUCCESS, 2);
  EXPECT_EQ(p.b.state(), IBV_QPS_RTS);
}

/// Statuses that the device cannot cause by itself.
void expect_injected(const char* name, ibv_wc_status status) {
  Pair p;
  Lab::get().inject(std::string("when opcode=SEND message=1 do complete ") + name);
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  ASSERT_EQ(p.a.send(2, 0, 64), 0);
  EXPECT_WC(p.a.wait_send(), status, 2);
  EXPECT_EQ(p.a.state(), IBV_QPS_ERR);
  EXPECT_TRUE(p.b.quiet(p.b.recv_cq)) << "an injected failure sends nothing";
}

TEST_F(Status, FatalErr_ByRule) {
  expect_injected("FATAL_ERR", IBV_WC_FATAL_ERR);
}
TEST_F(Status, RespTimeoutErr_ByRule) {
  expect_injected("RESP_TIMEOUT_ERR", IBV_WC_RESP_TIMEOUT_ERR);
}
TEST_F(Status, GeneralErr_ByRule) {
  expect_injected("GENERAL_ERR", IBV_WC_GENERAL_ERR);
}
TEST_F(Status, LocEecOpErr_ByRule) {
  expect_injected("LOC_EEC_OP_ERR", IBV_WC_LOC_EEC_OP_ERR);
}
TEST_F(Status, LocRddViolErr_ByRule) {
  expect_injected("LOC_RDD_VIOL_ERR", IBV_WC_LOC_RDD_VIOL_ERR);
}
TEST_F(Status, RemInvRdReqErr_ByRule) {
  expect_injected("REM_INV_RD_REQ_ERR", IBV_WC_REM_INV_RD_REQ_ERR);
}
TEST_F(Status, InvEecnErr_ByRule) {
  expect_injected("INV_EECN_ERR", IBV_WC_INV_EECN_ERR);
}
TEST_F(Status, InvEecStateErr_ByRule) {
  expect_injected("INV_EEC_STATE_ERR", IBV_WC_INV_EEC_STATE_ERR);
}
TEST_F(Status, TmErr_ByRule) {
  expect_injected("TM_ERR", IBV_WC_TM_ERR);
}
TEST_F(Status, TmRndvIncomplete_ByRule) {
  expect_injected("TM_RNDV_INCOMPLETE", IBV_WC_TM_RNDV_INCOMPLETE);
}

}  // namespace
}  // namespace bfo::conformance
