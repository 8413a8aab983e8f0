// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_short_test.cc: short messages are timed now and then, and a rail over which they take much longer is
// not the one that carries them.
#include "pml/bfo/xfer/rails/short_time.h"

#include <gtest/gtest.h>

#include "pml/bfo/xfer/rails/order.h"
#include "test/unit/tiny_port.h"

namespace bfo::xfer {
namespace {

using test::TinyPeer;
using test::TinyPort;

constexpr uint64_t kUs = 1000;
constexpr uint64_t kShort = 256;

void time_some(ShortTime& t, std::initializer_list<uint64_t> us, uint64_t now_ns = 0) {
  for (const uint64_t each : us) t.ended(each * kUs, now_ns);
}

TEST(ShortTime, IsTheLeastOfTheLastFew) {
  ShortTime t;
  time_some(t, {9, 5, 7});
  EXPECT_FALSE(t.known()) << "three tell too little";
  time_some(t, {8});
  EXPECT_TRUE(t.known());
  EXPECT_EQ(t.ns(), 5 * kUs);
  time_some(t, {50, 50, 50});
  EXPECT_EQ(t.ns(), 5 * kUs) << "somebody may have looked late";
  time_some(t, {60});
  EXPECT_EQ(t.ns(), 50 * kUs) << "the rail has become slow";
  time_some(t, {4});
  EXPECT_EQ(t.ns(), 4 * kUs) << "at once";
}

TEST(ShortTime, WhatIsMuchLongerOrShorter_IsNews) {
  ShortTime t;
  EXPECT_TRUE(t.ended(5 * kUs, 0)) << "the first one";
  time_some(t, {5, 5, 5});
  EXPECT_FALSE(t.ended(9 * kUs, 0));
  EXPECT_TRUE(t.ended(10 * kUs, 0));
  EXPECT_FALSE(t.ended(3 * kUs, 0));
  ShortTime far;
  time_some(far, {900, 900, 900, 900});
  EXPECT_TRUE(far.ended(10 * kUs, 0));
}

TEST(ShortTime, IsTriedForLessThanAHundredthOfTheTime) {
  ShortTime t;
  EXPECT_TRUE(t.forgotten(0));
  time_some(t, {10, 10, 10, 10}, 1'000'000);
  EXPECT_FALSE(t.forgotten(1'000'000 + 1000 * kUs));
  EXPECT_TRUE(t.forgotten(1'000'000 + 1300 * kUs));
}

TEST(ShortTime, TooLargeATime_IsTheLargest) {
  ShortTime t;
  for (int i = 0; i < 4; ++i) t.ended(UINT64_MAX, 0);
  EXPECT_TRUE(t.known() || t.ns() == UINT32_MAX);
  for (int i = 0; i < 4; ++i) t.ended(0, 0);
  EXPECT_EQ(t.ns(), 1u);
}

/// A peer of some rails, all up. The usual rail is the first one.
struct Some : TinyPeer {
  explicit Some(unsigned n) : TinyPeer(n) {
    for (auto& r : rails) r.late = kLate, r.limits.weight = 100'000;
    settle_preferred(peer);
  }
  RailChoice<TinyPort>& choice() { return peer.choice; }
  /// A message is to be timed, takes so long over the rail it gets, and ends. Returns the rail.
  Rail<TinyPort>* sample(const std::vector<uint64_t>& us, uint32_t messages = 0) {
    now_ns += messages == 0 ? 1'000'000'000 : messages * gap_ns;
    choice().sample_short(messages, now_ns);
    Rail<TinyPort>* const rail = choice().spread(8, kShort);
    EXPECT_TRUE(choice().samples());
    choice().sampled();
    settle_preferred(peer);
    choice().short_ended(*rail, us[rail->index] * kUs, now_ns);
    settle_preferred(peer);
    return rail;
  }
  void sample_all(const std::vector<uint64_t>& us) {
    for (unsigned i = 0; i < 8 * us.size(); ++i) sample(us);
  }
  uint64_t now_ns = 1'000'000;
  uint64_t gap_ns = 100;
};

TEST(ShortChoice, AllRailsAreTimedInTurn_SoonAtFirst) {
  Some t(3);
  EXPECT_EQ(t.choice().for_short(8, kShort), &t.rails[0]);
  unsigned times[3] = {};
  for (int i = 0; i < 12; ++i) {
    EXPECT_LE(t.choice().short_every(true), 3u);
    EXPECT_GE(t.choice().short_every(false), 200u) << "a longer one tells nothing";
    ++times[t.sample({5, 5, 5})->index];
  }
  EXPECT_EQ(times[0], 4u);
  EXPECT_EQ(times[1], 4u);
  EXPECT_EQ(times[2], 4u);
  for (int i = 0; i < 5; ++i) t.sample({5, 5, 5});
  EXPECT_GE(t.choice().short_every(true), 200u) << "all is known";
  EXPECT_EQ(t.choice().for_short(8, kShort), &t.rails[0]) << "and the same";
}

TEST(ShortChoice, UsualRailIsFar_AnotherOneIsPreferred_UntilItIsAsNearAgain) {
  Some t(2);
  t.sample_all({1000, 3});
  EXPECT_EQ(t.choice().for_short(8, kShort), &t.rails[1]);
  EXPECT_EQ(t.choice().default_preferred(), &t.rails[1]);
  t.sample_all({6, 4});
  EXPECT_EQ(t.choice().for_short(8, kShort), &t.rails[1]) << "not worth a change";
  t.sample_all({4, 4});
  EXPECT_EQ(t.choice().for_short(8, kShort), &t.rails[0]);
}

TEST(ShortChoice, LittleMore_ChangesNothing) {
  Some t(2);
  t.sample_all({6, 3});
  EXPECT_EQ(t.choice().for_short(8, kShort), &t.rails[0]);
}

/// Who sends without waiting has others before it on the rail of short messages: that says nothing of it.
TEST(ShortChoice, MessageBehindManyOthers_IsNotCounted) {
  Some t(2);
  t.gap_ns = 100;
  for (int i = 0; i < 40; ++i) t.sample({30, 3}, 256);
  EXPECT_FALSE(t.rails[0].short_time.known());
  EXPECT_GE(t.choice().short_every(true), 200u) << "and is seldom tried";
  EXPECT_EQ(t.choice().for_short(8, kShort), &t.rails[0]);
  t.gap_ns = 20 * kUs;
  for (int i = 0; i < 40; ++i) t.sample({30, 3}, 256);
  EXPECT_EQ(t.choice().for_short(8, kShort), &t.rails[1]);
}

TEST(ShortChoice, FixedWeightsOrOneRail_NothingIsTimed) {
  Some one(1);
  one.choice().sample_short(0, 1);
  EXPECT_FALSE(one.choice().samples());
  EXPECT_LE(one.choice().short_every(true), 20u) << "there may be another one soon";
  EXPECT_GE(one.choice().short_every(true), 4u);
  EXPECT_EQ(one.choice().preferred(), &one.rails[0]);
  Weighing weighing;
  weighing.weights = Weights::kNominal;
  Some two(2);
  two.choice().set_weighing(weighing);
  two.choice().sample_short(0, 1);
  EXPECT_FALSE(two.choice().samples());
  EXPECT_EQ(two.choice().short_every(true), 0u);
}

TEST(ShortChoice, WhileNoRailIsPreferred_NothingIsTimed) {
  Some t(2);
  t.choice().prefer(nullptr);
  t.choice().sample_short(0, 1);
  EXPECT_FALSE(t.choice().samples());
}

/// Each look takes a message out of the inline path.
TEST(ShortChoice, MessageThatCannotBeTimed_IsNotFollowedByOthersSoon) {
  Some t(2);
  EXPECT_LE(t.choice().short_every(true), 3u);
  t.choice().short_untimed();
  EXPECT_GE(t.choice().short_every(true), 200u);
  Some waits(2);
  waits.choice().prefer(nullptr);
  waits.choice().sample_short(0, 1);
  EXPECT_GE(waits.choice().short_every(true), 200u);
}

TEST(ShortChoice, RailThatHasOtherWork_IsNotTimed) {
  Some t(2);
  t.rails[0].inflight_bytes = 1 << 20;
  t.choice().sample_short(0, 1);
  EXPECT_EQ(t.choice().spread(8, kShort), &t.rails[1]);
  t.choice().sampled();
  settle_preferred(t.peer);
  t.rails[1].samples_out = 1;
  t.choice().sample_short(0, 2);
  EXPECT_FALSE(t.choice().samples());
  EXPECT_LE(t.choice().short_every(true), 3u) << "one is timed, and will end";
  t.rails[1].samples_out = 0;
  t.rails[1].inflight_bytes = 1;
  t.choice().sample_short(0, 3);
  EXPECT_FALSE(t.choice().samples());
  EXPECT_GE(t.choice().short_every(true), 200u) << "maybe for long";
}

/// A rail that carries no short messages, because it moves little, is not preferred for being near.
TEST(ShortChoice, NearRailThatMovesLittle_IsNotPreferred) {
  Some t(2);
  t.sample_all({20, 3});
  EXPECT_EQ(t.choice().for_short(8, kShort), &t.rails[1]);
  t.rails[0].goodput.told(8000, 1);
  t.rails[1].goodput.told(800, 1);
  for (int i = 0; i < 3; ++i) t.choice().weigh();
  settle_preferred(t.peer);
  EXPECT_EQ(t.choice().for_short(8, kShort), &t.rails[0]);
}

TEST(ShortChoice, RailsChange_TheUsualOneUntilTheyAreTimedAgain) {
  Some t(2);
  t.sample_all({1000, 3});
  t.rails[0].short_time = ShortTime();
  t.choice().rebuild(t.peer.rails, 2);
  settle_preferred(t.peer);
  EXPECT_EQ(t.choice().for_short(8, kShort), &t.rails[0]);
  t.sample_all({1000, 3});
  EXPECT_EQ(t.choice().for_short(8, kShort), &t.rails[1]);
}

}  // namespace
}  // namespace bfo::xfer
