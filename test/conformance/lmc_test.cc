// SPDX-License-Identifier: BSD-3-Clause
//
// Ports with several LIDs (LID mask control): which of them reach the port, what a completion says of them,
// and that a rule can cut one of the paths that they stand for.
#include "contrib/softhca/fabric/fabric.h"
#include "test/conformance/rig.h"

namespace bfo::conformance {
namespace {

constexpr uint16_t kLid = 64;
constexpr uint32_t kGrh = 40;

/// The port of every Side has the LIDs kLid to kLid + 3.
class Lmc : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    const Side any;
    before_ = any.lid;
    Lab::get().inject("when device=0 node=0 do lid " + std::to_string(kLid));
    softhca::FabricHeader& h = Lab::get().header();
    h.lmc = 2;
    softhca::assign_lids(h, kLid, h.lid_to_port[kLid].load() - 1u);
  }
  void TearDown() override {
    softhca::FabricHeader& h = Lab::get().header();
    const uint32_t port = h.lid_to_port[kLid].load() - 1u;
    softhca::assign_lids(h, kLid, softhca::kNone);
    h.lmc = 0;
    softhca::assign_lids(h, kLid, port);
    Lab::get().clear_rules();
    Lab::get().inject("when device=0 node=0 do lid " + std::to_string(before_));
    Conformance::TearDown();
  }
  /// What becomes of a message over a connection to `lid`.
  static ibv_wc_status send_to(uint16_t lid) {
    Side a;
    Side b;
    LinkOptions link;
    link.retry_cnt = 1;
    for (Side* side : {&a, &b}) {
      const Side& peer = side == &a ? b : a;
      EXPECT_EQ(side->to_init(), 0);
      EXPECT_EQ(side->to_rtr(lid, peer.qpn, link.sq_psn, link), 0);
      EXPECT_EQ(side->to_rts(link), 0);
    }
    EXPECT_EQ(b.post_recv(1, 0, 64), 0);
    EXPECT_EQ(a.send(2, 0, 64), 0);
    const auto sent = a.wait_send();
    EXPECT_TRUE(sent.has_value());
    return sent ? sent->status : IBV_WC_GENERAL_ERR;
  }

 private:
  uint16_t before_ = 0;
};

TEST_F(Lmc, EveryLid_ReachesThePort) {
  const Side side;
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(side.context, 1, &port), 0);
  EXPECT_EQ(port.lid, kLid);
  EXPECT_EQ(port.lmc, 2);
  for (uint16_t path = 0; path < 4; ++path)
    EXPECT_EQ(send_to(static_cast<uint16_t>(kLid + path)), IBV_WC_SUCCESS) << "path " << path;
  EXPECT_EQ(send_to(kLid + 4), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Lmc, Completion_NamesTheLidsOfADatagram) {
  SideOptions options;
  options.type = IBV_QPT_UD;
  Side a(options);
  Side b(options);
  for (Side* side : {&a, &b}) {
    ASSERT_EQ(side->to_init(), 0);
    ASSERT_EQ(side->to_rtr(0, 0, 0), 0);
    ASSERT_EQ(side->to_rts(), 0);
  }
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(b.qp, &attr, IBV_QP_QKEY, &init), 0);
  ibv_ah_attr to{};
  to.port_num = 1;
  to.dlid = kLid + 2;
  to.src_path_bits = 1;
  ibv_ah* const handle = ibv_create_ah(a.pd, &to);
  ASSERT_NE(handle, nullptr);
  ASSERT_EQ(b.post_recv(1, 0, kGrh + 64), 0);
  ibv_sge sge = a.sge(0, 64);
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.ud.ah = handle;
  wr.wr.ud.remote_qpn = b.qpn;
  wr.wr.ud.remote_qkey = attr.qkey;
  ASSERT_EQ(a.post_send(wr), 0);
  const auto got = b.wait_recv();
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->slid, kLid + 1);
  EXPECT_EQ(got->dlid_path_bits, 2);
  EXPECT_EQ(ibv_destroy_ah(handle), 0);
}

TEST_F(Lmc, RuleWithPath_CutsThatPathOnly) {
  Lab::get().inject("when path=3 attempt=all do drop");
  EXPECT_EQ(send_to(kLid + 3), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(send_to(kLid), IBV_WC_SUCCESS);
  EXPECT_EQ(send_to(kLid + 2), IBV_WC_SUCCESS);
}

TEST_F(Lmc, LidChange_TakesAllLidsAlong) {
  Lab::get().inject("when device=0 node=0 do lid 131");
  const Side side;
  EXPECT_EQ(side.lid, 128) << "the low bits are the path's";
  EXPECT_EQ(send_to(131), IBV_WC_SUCCESS);
  EXPECT_EQ(send_to(kLid + 1), IBV_WC_RETRY_EXC_ERR);
  Lab::get().inject("when device=0 node=0 do lid " + std::to_string(kLid));
  EXPECT_EQ(send_to(kLid + 1), IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace bfo::conformance
