// SPDX-License-Identifier: BSD-3-Clause
//
// The subnet administrator: what a program hears that asks for a path. Offsets are those of a MAD of subnet
// administration and of the PathRecord in it.
#include <array>

#include "contrib/softhca/fabric/fabric.h"
#include "test/conformance/rig.h"

namespace bfo::conformance {
namespace {

constexpr uint32_t kQkey = 0x80010000;
constexpr uint32_t kMad = 256;
constexpr uint32_t kGrh = 40;
constexpr uint32_t kAnswerAt = 4096;
constexpr int kSilenceMs = 50;

SideOptions datagrams() {
  SideOptions options;
  options.type = IBV_QPT_UD;
  return options;
}

/// A datagram queue pair that may speak to QP 1.
class Asker {
 public:
  Asker() : side(datagrams()) {
    EXPECT_EQ(side.to_init(), 0);
    ibv_qp_attr attr{};
    attr.qkey = kQkey;
    attr.qp_state = IBV_QPS_INIT;
    EXPECT_EQ(side.to_rtr(0, 0, 0), 0);
    EXPECT_EQ(side.to_rts(), 0);
    EXPECT_EQ(ibv_modify_qp(side.qp, &attr, IBV_QP_QKEY), 0);
    ibv_port_attr port{};
    ibv_query_port(side.context, 1, &port);
    manager_ = port.sm_lid;
    ibv_ah_attr to = address_of(port.sm_lid);
    handle_ = ibv_create_ah(side.pd, &to);
    EXPECT_NE(handle_, nullptr);
    const uint8_t header[] = {1, 3, 2, 1};
    std::copy(std::begin(header), std::end(header), mad.begin());
    mad[8] = 0x77;   // transaction
    mad[17] = 0x35;  // PathRecord
    mad[55] = 0x30;  // DLID and SLID
    set_lids(side.lid, side.lid);
  }
  ~Asker() { EXPECT_EQ(ibv_destroy_ah(handle_), 0); }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

  void set_lids(uint16_t to, uint16_t from) {
    mad[96] = static_cast<uint8_t>(to >> 8);
    mad[97] = static_cast<uint8_t>(to);
    mad[98] = static_cast<uint8_t>(from >> 8);
    mad[99] = static_cast<uint8_t>(from);
  }
  /// Sends `length` bytes of `mad`; true when an answer comes, which `answer` then has.
  bool ask(uint32_t length = kMad, uint32_t qkey = kQkey) {
    EXPECT_EQ(side.post_recv(1, kAnswerAt, kGrh + kMad), 0);
    std::copy(mad.begin(), mad.end(), side.buffer.begin());
    ibv_sge sge = side.sge(0, length);
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud.ah = handle_;
    wr.wr.ud.remote_qpn = 1;
    wr.wr.ud.remote_qkey = qkey;
    EXPECT_EQ(side.post_send(wr), 0);
    const auto sent = side.wait_send();
    EXPECT_TRUE(sent.has_value() && sent->status == IBV_WC_SUCCESS);
    const auto got = side.wait_recv(kSilenceMs);
    if (!got.has_value()) return false;
    EXPECT_EQ(got->status, IBV_WC_SUCCESS);
    EXPECT_EQ(got->byte_len, kGrh + kMad);
    EXPECT_EQ(got->src_qp, 1u);
    EXPECT_EQ(got->slid, manager_);
    std::copy_n(side.buffer.begin() + kAnswerAt + kGrh, kMad, answer.begin());
    return true;
  }
  int status() const { return answer[4] << 8 | answer[5]; }

  Side side;
  std::array<uint8_t, kMad> mad{};
  std::array<uint8_t, kMad> answer{};

 private:
  ibv_ah* handle_ = nullptr;
  uint16_t manager_ = 0;
};

class Subnet : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    level_ = Lab::get().header().path_level;
  }
  void TearDown() override {
    Lab::get().header().path_level = level_;
    Conformance::TearDown();
  }

 private:
  uint32_t level_ = 0;
};

TEST_F(Subnet, PathRecord_IsAnsweredWithTheServiceLevel) {
  Asker asker;
  Lab::get().header().path_level = 5;
  ASSERT_TRUE(asker.ask());
  EXPECT_EQ(asker.answer[3], 0x81) << "method GetResp";
  EXPECT_EQ(asker.status(), 0);
  EXPECT_EQ(asker.answer[8], 0x77) << "the transaction is the same";
  EXPECT_EQ(asker.answer[109] & 15, 5) << "service level";
  EXPECT_EQ(asker.answer[96] << 8 | asker.answer[97], asker.side.lid);
  EXPECT_EQ(asker.answer[110] & 63, IBV_MTU_4096);
}

TEST_F(Subnet, UnknownLidOrRefusal_HasTheStatusNoRecords) {
  Asker asker;
  asker.set_lids(0xbfff, asker.side.lid);
  ASSERT_TRUE(asker.ask());
  EXPECT_EQ(asker.status(), 0x0300);
  asker.set_lids(asker.side.lid, asker.side.lid);
  Lab::get().header().path_level = softhca::kPathRefused;
  ASSERT_TRUE(asker.ask());
  EXPECT_EQ(asker.status(), 0x0300);
}

TEST_F(Subnet, AnotherAttribute_IsNotSupported) {
  Asker asker;
  asker.mad[17] = 0x11;  // NodeRecord
  ASSERT_TRUE(asker.ask());
  EXPECT_EQ(asker.status(), 0x000c);
}

TEST_F(Subnet, WrongQkeyLengthOrClass_IsDropped) {
  Asker asker;
  EXPECT_FALSE(asker.ask(kMad, 0x1234)) << "QP 1 has another Q_Key";
  EXPECT_FALSE(asker.ask(kMad - 1));
  asker.mad[1] = 4;
  EXPECT_FALSE(asker.ask());
}

TEST_F(Subnet, RuleOnQp1_MakesItSilent) {
  Asker asker;
  Lab::get().inject("when service=UD peer-qpn=1 do drop");
  EXPECT_FALSE(asker.ask());
  Lab::get().clear_rules();
  EXPECT_TRUE(asker.ask());
}

}  // namespace
}  // namespace bfo::conformance
