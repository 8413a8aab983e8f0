// SPDX-License-Identifier: BSD-3-Clause
//
// btl_cm_test.cc: the connection manager: who opens, what is lost, doubled or tried again, until both
// sides are up.
#include "btl/verbs/engine/connect/cm.h"

#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Phase;

TEST(Cm, InitiatorWants_BothComeUpWithEqualNames) {
  World w;
  engine::cm_connect(w.a.endpoint);
  w.pass(2);
  EXPECT_EQ(w.a.log, Log{"up 1"});
  EXPECT_EQ(w.b.log, Log{"up 1"});
  bfo_rail_info_t left;
  bfo_rail_info_t right;
  engine::rail_info(w.a.endpoint, &left);
  engine::rail_info(w.b.endpoint, &right);
  EXPECT_EQ(left.name.conn, right.name.conn);
  EXPECT_EQ(left.name.epoch, right.name.epoch);
  EXPECT_EQ(left.state, BFO_RAIL_UP);
  EXPECT_STREQ(left.device, "left");
}

TEST(Cm, ResponderWants_SolicitsAndTheInitiatorOpens) {
  World w;
  engine::cm_connect(w.b.endpoint);
  w.pass(2);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
}

TEST(Cm, BothWantAtOnce_OneConnectionResults) {
  World w;
  engine::cm_connect(w.a.endpoint);
  engine::cm_connect(w.b.endpoint);
  w.pass(10);
  EXPECT_EQ(w.a.log, Log{"up 1"});
  EXPECT_EQ(w.b.log, Log{"up 1"});
}

TEST(Cm, FirstSend_ConnectsAndIsDelivered) {
  World w;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("hello")), engine::Accepted::kQueued);
  EXPECT_EQ(engine::rail_state(w.a.endpoint), BFO_RAIL_IDLE);
  w.pass(5);
  EXPECT_EQ(w.b.count("recv 65 hello"), 1);
  EXPECT_EQ(w.a.count("done hello 0"), 1);
}

class LostPacket : public testing::TestWithParam<int> {};

TEST_P(LostPacket, IsRepeated) {
  World w;
  // Lose everything from the k-th datagram on, for three datagrams.
  w.fabric.drop_datagrams = GetParam();
  engine::cm_connect(w.b.endpoint);
  for (int i = 0; i < 200 && !(w.a.endpoint.usable && w.b.endpoint.usable); ++i) w.pass(1);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.a.endpoint.epoch, w.b.endpoint.epoch);
}

INSTANTIATE_TEST_SUITE_P(FirstN, LostPacket, testing::Range(1, 7));

TEST(Cm, EveryPacketDoubled_OneConnectionResults) {
  World w;
  w.fabric.duplicate_datagrams = true;
  engine::cm_connect(w.b.endpoint);
  w.pass(20);
  EXPECT_EQ(w.a.up, 1);
  EXPECT_EQ(w.b.up, 1);
  EXPECT_EQ(w.a.down + w.b.down, 0);
}

TEST(Cm, ReadyLost_FirstMessageBringsTheResponderUp) {
  World w;
  engine::cm_connect(w.a.endpoint);
  w.until_replied();
  w.fabric.drop_datagrams = 1;  // READY
  w.a.poll();
  w.a.poll();
  ASSERT_EQ(w.a.endpoint.phase, Phase::kUp);
  ASSERT_TRUE(w.sendi(w.a, "first"));
  w.b.poll();
  EXPECT_EQ(w.b.log, (Log{"up 1", "recv 65 first"}));
}

TEST(Cm, ProbeFails_NothingIsReportedAndItIsTriedAgain) {
  World w;
  w.fabric.hold = true;  // the zero-byte write hangs
  engine::cm_connect(w.a.endpoint);
  w.pass(3);
  ASSERT_EQ(w.a.endpoint.phase, Phase::kProbing);
  ASSERT_TRUE(w.fabric.fail(w.a.endpoint.qps().data.number(), IBV_WC_RETRY_EXC_ERR));
  w.a.poll();
  EXPECT_NE(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.a.up, 0);
  w.fabric.hold = false;
  w.pass(50);
  EXPECT_EQ(w.a.up, 1);
  EXPECT_EQ(w.a.down, 0);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.a.endpoint.epoch, w.b.endpoint.epoch);
}

TEST(Cm, ResponderSendsBeforeReady_WaitsAndIsDelivered) {
  World w;
  test_now() += 3'600'000'000'000;  // long after the process began
  engine::cm_connect(w.a.endpoint);
  w.until_replied();
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("early")), engine::Accepted::kQueued);
  w.b.poll();
  EXPECT_EQ(w.b.down, 0);
  w.pass(5);
  EXPECT_EQ(w.a.count("recv 65 early"), 1);
  EXPECT_EQ(w.b.down + w.a.down, 0);
}

TEST(Cm, WithoutFailoverAbove_AClosedRailStaysClosed) {
  World w;
  w.a.port.set_failover(false);
  w.connect();
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_WC_ERROR, 12, 0);
  w.pass(1);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kClosed);
  EXPECT_FALSE(w.a.endpoint.connect_wanted);
}

TEST(Cm, QueuePairsCannotBeMade_TriedAgainLater) {
  World w;
  w.fabric.refuse["create_qp"] = ENOMEM;
  engine::cm_connect(w.a.endpoint);
  w.pass(5);
  EXPECT_EQ(w.a.up, 0);
  w.fabric.refuse["create_qp"] = 0;
  w.pass(100);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
}

TEST(Cm, HundredFlaps_EpochsAgreeAndNothingLeaks) {
  engine::Config config = small_config();
  config.retry_max_ns = 2'000'000;
  World w(config);
  w.connect();
  const size_t qps = w.fabric.live().size();
  for (int i = 0; i < 100; ++i) {
    Process& side = i % 3 == 0 ? w.b : w.a;
    engine::close_order(side.endpoint, side.endpoint.epoch, BFO_CAUSE_FENCE, 0, 0);
    for (int k = 0; k < 400 && !(w.a.endpoint.usable && w.b.endpoint.usable &&
                                 w.a.endpoint.epoch == w.b.endpoint.epoch &&
                                 w.a.endpoint.epoch > static_cast<uint32_t>(i) + 1);
         ++k) {
      w.pass(2);
    }
    ASSERT_TRUE(w.a.endpoint.usable && w.b.endpoint.usable) << i;
    ASSERT_EQ(w.a.endpoint.epoch, w.b.endpoint.epoch) << i;
  }
  EXPECT_EQ(w.fabric.live().size(), qps);
  EXPECT_EQ(w.a.up, w.a.closed + 1);
  EXPECT_EQ(w.b.up, w.b.closed + 1);
}

}  // namespace
}  // namespace bfo::test
