// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_owner_failover_test.cc: Failover, made over the owners below it, without an engine.
#include "pml/bfo/xfer/failover/failover.h"

#include <gtest/gtest.h>

#include "test/unit/alone_port.h"

template class bfo::xfer::Failover<bfo::test::AlonePort>;

namespace bfo::test {
namespace {

using core::MsgType;

struct FailoverAlone : testing::Test {
  ~FailoverAlone() override {
    rails.drop_stored(g.peer);
    for (auto& rail : {&g.rails[0], &g.rails[1]}) g.base.records.free(*rail);
    while (g.base.exit_work.take_message()) {
    }
    g.base.failing.free_all();
  }
  xfer::RailEvent event(unsigned rail) const {
    xfer::RailEvent e;
    e.name = g.rails[rail].name;
    return e;
  }
  Ground g;
  xfer::Rails<AlonePort> rails{g.base};
  xfer::Matching<AlonePort> matching{g.base};
  xfer::Moves<AlonePort> moves{g.base, rails, matching};
  xfer::Failover<AlonePort> failover{g.base, rails, matching, moves};
};

TEST_F(FailoverAlone, RailThatDies_IsUsedNoMoreAndThePeerIsNotified) {
  failover.down(&g.rails[0], event(0));
  EXPECT_EQ(g.rails[0].state, RailState::kDown);
  ASSERT_EQ(g.peer.choice.size(), 1u);
  EXPECT_EQ(&g.peer.choice[0], &g.rails[1]);
  failover.post_notices(g.peer);
  EXPECT_TRUE(rails.post_stored(g.peer));
  ASSERT_FALSE(g.port.posted.empty());
  EXPECT_EQ(g.port.posted[0].type, static_cast<uint8_t>(MsgType::kRailDown));
  EXPECT_EQ(g.port.posted[0].rail, 1u);
  for (const auto& sent : g.port.posted) {
    rails.ended(*sent.frag);
    g.port.frag_free(*sent.frag);
  }
  EXPECT_EQ(g.rails[1].control_out, 0u);
}

TEST_F(FailoverAlone, EventOfAnOlderEpoch_ChangesNothing) {
  g.rails[0].name.epoch = 5;
  xfer::RailEvent old = event(0);
  old.name.epoch = 4;
  failover.down(&g.rails[0], old);
  EXPECT_EQ(g.rails[0].state, RailState::kUp);
  EXPECT_EQ(g.peer.choice.size(), 2u);
}

/// The BTL had given the connection up before the record of the peer was made: the device of this process
/// broke, and with it messages that it had acknowledged. Only the count of what was delivered tells the peer.
TEST_F(FailoverAlone, RailThatWasOverWhenItsRecordWasMade_HowMuchItDeliveredIsTold) {
  g.rails[0].name.epoch = 1;
  failover.begin(g.rails[0], RailState::kUnusable, g.rails[0].name);
  failover.closed(&g.rails[0], event(0), FenceResult::kFenced, 3);
  EXPECT_EQ(g.rails[0].state, RailState::kUnusable);
  failover.post_notices(g.peer);
  EXPECT_TRUE(rails.post_stored(g.peer));
  ASSERT_FALSE(g.port.posted.empty());
  EXPECT_EQ(g.port.posted[0].type, static_cast<uint8_t>(MsgType::kEpochClosed));
  EXPECT_EQ(g.rails[0].dead_delivered, 3u);
  for (const auto& sent : g.port.posted) {
    rails.ended(*sent.frag);
    g.port.frag_free(*sent.frag);
  }
}

/// The same of a rail that was being connected again when the record was made.
TEST_F(FailoverAlone, EpochThatWasOverWhenTheRecordWasMade_IsToldOnce) {
  g.rails[0].name.epoch = 1;
  const xfer::RailEvent over = event(0);
  RailName next = g.rails[0].name;
  next.epoch = 2;
  failover.begin(g.rails[0], RailState::kConnecting, next);
  for (int times = 0; times < 2; ++times) {
    failover.closed(&g.rails[0], over, FenceResult::kFenced, 3);
    failover.post_notices(g.peer);
    EXPECT_TRUE(rails.post_stored(g.peer));
  }
  EXPECT_EQ(g.rails[0].state, RailState::kConnecting);
  ASSERT_EQ(g.port.posted.size(), 1u);
  EXPECT_EQ(g.port.posted[0].type, static_cast<uint8_t>(MsgType::kEpochClosed));
  EXPECT_EQ(g.rails[0].dead.epoch, 1u);
  for (const auto& sent : g.port.posted) {
    rails.ended(*sent.frag);
    g.port.frag_free(*sent.frag);
  }
}

TEST_F(FailoverAlone, PeerThatIsDeclaredFailed_IsToldOnce) {
  failover.declare_failed(g.peer);
  failover.declare_failed(g.peer);
  EXPECT_TRUE(g.peer.standing.failed());
  EXPECT_EQ(g.port.failed, 1);
}

}  // namespace
}  // namespace bfo::test
