// SPDX-License-Identifier: BSD-3-Clause
//
// Keys and regions: the four ways to fail protection look the same, and the immediate alternative.
#include "test/conformance/rig.h"

namespace bfo::conformance {
namespace {

class Key : public Conformance {
 protected:
  static ibv_wc_status write_to(Pair& p, uint64_t remote, uint32_t rkey) {
    ibv_sge sge = p.a.sge(0, 64);
    ibv_send_wr wr{};
    wr.wr_id = 2;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    EXPECT_EQ(p.a.post_send(wr), 0);
    const auto wc = p.a.wait_send();
    return wc ? wc->status : IBV_WC_GENERAL_ERR;
  }

  static ibv_wc_status send_with(Pair& p, const ibv_sge& sge) {
    EXPECT_EQ(p.b.post_recv(1, 0, 4096), 0);
    ibv_sge list = sge;
    ibv_send_wr wr{};
    wr.wr_id = 2;
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    EXPECT_EQ(p.a.post_send(wr), 0);
    const auto wc = p.a.wait_send();
    return wc ? wc->status : IBV_WC_GENERAL_ERR;
  }
};

TEST_F(Key, NotRegistered) {
  Pair p;
  uint32_t gone = 0;
  {
    std::vector<uint8_t> memory(4096);
    ibv_mr* mr = ibv_reg_mr(p.b.pd, memory.data(), memory.size(), kAllAccess);
    ASSERT_NE(mr, nullptr);
    gone = mr->rkey;
    ASSERT_EQ(ibv_dereg_mr(mr), 0);
  }
  EXPECT_EQ(write_to(p, p.b.address(0), gone), IBV_WC_REM_ACCESS_ERR);
  Pair q;
  ibv_sge sge = q.a.sge(0, 64);
  sge.lkey = gone;
  EXPECT_EQ(send_with(q, sge), IBV_WC_LOC_PROT_ERR);
}

TEST_F(Key, RangeLeavesTheRegion) {
  {
    Pair p;
    EXPECT_EQ(write_to(p, p.b.address(kBufferBytes) - 63, p.b.mr->rkey), IBV_WC_REM_ACCESS_ERR);
  }
  {
    Pair p;
    EXPECT_EQ(write_to(p, p.b.address(0) - 1, p.b.mr->rkey), IBV_WC_REM_ACCESS_ERR);
  }
  {
    Pair p;
    EXPECT_EQ(write_to(p, ~uint64_t{0} - 10, p.b.mr->rkey), IBV_WC_REM_ACCESS_ERR) << "wraps around";
  }
  Pair p;
  EXPECT_EQ(send_with(p, p.a.sge(kBufferBytes - 32, 64)), IBV_WC_LOC_PROT_ERR);
}

TEST_F(Key, OtherRegionOrOtherDomain) {
  {
    Pair p;
    EXPECT_EQ(write_to(p, p.b.address(0), p.a.mr->rkey), IBV_WC_REM_ACCESS_ERR) << "key of another domain";
  }
  {
    Pair p;
    std::vector<uint8_t> memory(4096);
    ibv_mr* mr = ibv_reg_mr(p.b.pd, memory.data(), memory.size(), kAllAccess);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(write_to(p, p.b.address(0), mr->rkey), IBV_WC_REM_ACCESS_ERR) << "key of another region";
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
  Pair p;
  ibv_sge sge = p.a.sge(0, 64);
  sge.lkey = p.b.mr->lkey;
  EXPECT_EQ(send_with(p, sge), IBV_WC_LOC_PROT_ERR);
}

TEST_F(Key, MissingAccessFlag) {
  SideOptions local;
  local.mr_access = IBV_ACCESS_LOCAL_WRITE;
  {
    Pair p({}, local, {});
    EXPECT_EQ(write_to(p, p.b.address(0), p.b.mr->rkey), IBV_WC_REM_ACCESS_ERR);
  }
  SideOptions qp_without;
  qp_without.qp_access = IBV_ACCESS_LOCAL_WRITE;
  {
    Pair p({}, qp_without, {});
    EXPECT_NE(write_to(p, p.b.address(0), p.b.mr->rkey), IBV_WC_SUCCESS)
        << "the queue pair does not allow it";
  }
  SideOptions read_only;
  read_only.mr_access = 0;
  Pair p({}, read_only, {});
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  ASSERT_EQ(p.a.send(2, 0, 8), 0);
  EXPECT_WC(p.b.wait_recv(), IBV_WC_LOC_PROT_ERR, 1);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_OP_ERR, 2);
}

TEST_F(Key, RemoteWriteNeedsLocalWrite) {
  Side side;
  std::vector<uint8_t> memory(4096);
  EXPECT_EQ(ibv_reg_mr(side.pd, memory.data(), memory.size(), IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_EQ(ibv_reg_mr(side.pd, memory.data(), memory.size(), IBV_ACCESS_REMOTE_ATOMIC), nullptr);
}

TEST_F(Key, ImmediateWithBadKey_CompletionOrEvent) {
  Pair p;
  ASSERT_EQ(p.b.post_recv(1, 0, 64), 0);
  ibv_sge sge = p.a.sge(0, 64);
  ibv_send_wr wr{};
  wr.wr_id = 2;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.wr.rdma.remote_addr = p.b.address(kBufferBytes) - 8;
  wr.wr.rdma.rkey = p.b.mr->rkey;
  ASSERT_EQ(p.a.post_send(wr), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_REM_ACCESS_ERR, 2);
  const auto wc = p.b.wait_recv(200);
  ASSERT_TRUE(wc.has_value()) << "completed or flushed";
  EXPECT_NE(wc->status, IBV_WC_SUCCESS);
  if (wc->status != IBV_WC_LOC_ACCESS_ERR) {
    EXPECT_TRUE(p.b.wait_event_of(IBV_EVENT_QP_ACCESS_ERR));
  }
}

TEST_F(Key, ZeroBytes_NeedNoValidKey) {
  Pair p;
  ibv_send_wr wr{};
  wr.wr_id = 2;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.wr.rdma.remote_addr = 1;
  wr.wr.rdma.rkey = 0xbad;
  ASSERT_EQ(p.a.post_send(wr), 0);
  EXPECT_WC(p.a.wait_send(), IBV_WC_SUCCESS, 2);
}

}  // namespace
}  // namespace bfo::conformance
