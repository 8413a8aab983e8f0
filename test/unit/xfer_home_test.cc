// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_home_test.cc: which rail an eager message takes: short ones the pair's home rail while it has room,
// longer ones all rails; and that a rail that dies is left at once.
#include <gtest/gtest.h>

#include "test/unit/fake_world.h"

namespace bfo::test {
namespace {

World::Options with_home() {
  World::Options o;
  o.rails = 3;
  o.eager = 4096;
  o.config.short_limit = 256;
  o.home_key = 4;  // the second of three rails
  return o;
}

std::vector<std::uint8_t> bytes(std::size_t n) {
  return std::vector<std::uint8_t>(n, 7);
}

/// The rails of all messages under way, in the order in which they were posted; forgets nothing.
std::vector<int> rails(const World& w) {
  std::vector<int> r;
  for (const Flight& f : w.flights) r.push_back(f.rail);
  return r;
}

using Rails = std::vector<int>;

TEST(Home, ShortMessages_StayOnOneRailInBothDirections) {
  World w(with_home());
  for (int i = 0; i < 100; ++i) {
    w.isend(0, 1, 1, bytes(255));
    w.isend(1, 0, 1, bytes(0));
  }
  EXPECT_EQ(rails(w), Rails(200, 1));
}

TEST(Home, SendInline_TakesItToo) {
  World w(with_home());
  const auto data = bytes(8);
  FakePort::InlineSource source{data.data()};
  xfer::SendArgs<FakePort> args;
  args.comm = w.comms[0];
  args.dst = 1;
  args.length = data.size();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(w.engines[0]->send_inline(args, source));
  EXPECT_EQ(rails(w), Rails(5, 1));
}

TEST(Home, LongerEagerMessagesOfASenderThatIsAhead_Spread) {
  World w(with_home());
  for (int i = 0; i < 10; ++i) w.isend(0, 1, 1, bytes(256));
  EXPECT_EQ(rails(w), (Rails{1, 1, 1, 1, 0, 1, 2, 0, 1, 2}));
}

TEST(Home, LongerEagerMessagesThatAreAnswered_StayOnOneRail) {
  World w(with_home());
  for (int i = 0; i < 20; ++i) {
    for (int from = 0; from < 2; ++from) {
      w.isend(from, 1 - from, 1, bytes(4000));
      EXPECT_EQ(w.flights.back().rail, 1) << i;
      ASSERT_TRUE(w.run());
    }
  }
}

TEST(Home, WithoutALimit_ShortOnesSpreadAsWell) {
  World::Options o = with_home();
  o.config.short_limit = 0;
  World w(o);
  for (int i = 0; i < 4; ++i) w.isend(0, 1, 1, bytes(0));
  EXPECT_EQ(rails(w), (Rails{0, 1, 2, 0}));
}

TEST(Home, RailDies_TheNextMessageIsElsewhereAndNoneIsLost) {
  World w(with_home());
  for (int i = 0; i < 3; ++i) w.isend(0, 1, 1, bytes(8));
  w.hold_close = true;
  w.kill(0, 1, 1);
  for (int i = 0; i < 3; ++i) w.isend(0, 1, 1, bytes(8));
  ASSERT_GE(w.flights.size(), 3u);
  for (const int rail : rails(w)) EXPECT_NE(rail, 1);
  w.hold_close = false;
  ASSERT_TRUE(w.run());
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(w.irecv(1, 0, 1, 8)->done) << i;
}

TEST(Home, BothSides_AgreeAgainAfterALossAndAReturn) {
  World w(with_home());
  w.isend(0, 1, 1, bytes(8));
  w.isend(1, 0, 1, bytes(8));
  w.kill(0, 1, 1);
  ASSERT_TRUE(w.run());
  w.isend(0, 1, 1, bytes(8));
  w.isend(1, 0, 1, bytes(8));
  ASSERT_EQ(w.flights.size(), 2u);
  EXPECT_EQ(w.flights[0].rail, w.flights[1].rail);
  w.revive(0, 1, 1);
  ASSERT_TRUE(w.run());
  w.isend(0, 1, 1, bytes(8));
  w.isend(1, 0, 1, bytes(8));
  EXPECT_EQ(rails(w), (Rails{1, 1}));
}

TEST(Home, Crowded_OthersTakeOverAndThenItIsHomeAgain) {
  World::Options o = with_home();
  o.capacity = 2;
  World w(o);
  for (int i = 0; i < 6; ++i) w.isend(0, 1, 1, bytes(8));
  const Rails all = rails(w);
  ASSERT_EQ(all.size(), 6u) << "a rail with room was not used";
  EXPECT_EQ(Rails(all.begin(), all.begin() + 2), (Rails{1, 1}));
  ASSERT_TRUE(w.run());
  // Home is tried again after a while, not never.
  for (int i = 0; i < 200; ++i) {
    w.isend(0, 1, 1, bytes(8));
    ASSERT_TRUE(w.run());
  }
  w.isend(0, 1, 1, bytes(8));
  w.isend(0, 1, 1, bytes(8));
  EXPECT_EQ(rails(w), (Rails{1, 1}));
}

TEST(Home, CrowdedAndDead_IsNotReturnedTo) {
  World::Options o = with_home();
  o.capacity = 1;
  World w(o);
  for (int i = 0; i < 2; ++i) w.isend(0, 1, 1, bytes(8));
  w.kill(0, 1, 1);
  ASSERT_TRUE(w.run());
  for (int i = 0; i < 200; ++i) {
    w.isend(0, 1, 1, bytes(8));
    for (const int rail : rails(w)) ASSERT_NE(rail, 1);
    ASSERT_TRUE(w.run());
  }
}

}  // namespace
}  // namespace bfo::test
