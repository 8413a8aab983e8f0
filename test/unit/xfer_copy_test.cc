// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_copy_test.cc: copied messages: what of them is in flight, is timed, and how much of one is.
#include <gtest/gtest.h>

#include "test/unit/fake_world.h"
#include "test/unit/pattern.h"

namespace bfo::test {
namespace {

constexpr size_t kLong = 1'000'000;
constexpr size_t kFirst = 12'000;

World::Options copying() {
  World::Options o;
  o.eager = 512;
  o.rndv_eager = kFirst;
  o.max_send = 64 * 1024;
  o.config.send_depth = 3;
  return o;
}

/// Bytes that rank 0 has in flight to rank 1.
uint64_t in_flight(World& w) {
  return w.rail(0, 1, 0)->inflight_bytes + w.rail(0, 1, 1)->inflight_bytes;
}

size_t frags(const World& w) {
  size_t n = 0;
  for (const Flight& f : w.flights) n += f.from == 0 && f.bytes.size() > kFirst;
  return n;
}

/// Rank 0 finds that rail 1 moves a tenth of rail 0.
void slow_down(World& w) {
  auto& peer = *w.rail(0, 1, 0)->peer;
  w.rail(0, 1, 0)->goodput.told(10'000, w.now);
  w.rail(0, 1, 1)->goodput.told(1'000, w.now);
  for (int i = 0; i < 3; ++i) peer.choice.weigh();
  ASSERT_TRUE(peer.choice.uneven());
}

TEST(Copy, FirstBytes_AreInFlightUntilTheyHaveEnded) {
  World w(copying());
  RecvReq* const r = w.irecv(1, 0, 1, kLong);
  SendReq* const s = w.isend(0, 1, 1, pattern(kLong, 1));
  const uint64_t first = in_flight(w);
  EXPECT_GT(first, kFirst - 100);
  EXPECT_LE(first, kFirst);
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(s->done && r->done);
  EXPECT_EQ(in_flight(w), 0u);
}

TEST(Copy, FirstBytesAreLost_NothingIsInFlightAnyMore) {
  World w(copying());
  RecvReq* const r = w.irecv(1, 0, 1, kLong);
  SendReq* const s = w.isend(0, 1, 1, pattern(kLong, 1));
  ASSERT_EQ(w.flights.size(), 1u);
  w.kill(0, 1, w.flights.front().rail);
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(s->done && r->done);
  EXPECT_EQ(in_flight(w), 0u);
}

/// The first bytes of many messages are on the rail when the first FRAG is posted: it ends late, and the rail
/// moves as much as ever.
TEST(Copy, FragBehindFirstBytes_RailIsNotTakenForSlow) {
  World w(copying());
  w.now = 1'000'000;
  slow_down(w);
  constexpr int kMessages = 60;
  for (int i = 0; i < kMessages; ++i) {
    w.irecv(1, 0, 1, kLong);
    w.isend(0, 1, 1, pattern(kLong, 1));
  }
  const auto& rail = *w.rail(0, 1, 0);
  ASSERT_EQ(rail.inflight_bytes, in_flight(w)) << "the fast one carries them";
  for (int i = 0; i < kMessages; ++i) {
    w.now += kFirst * 8 / 10;  // nanoseconds, at 10 Gbit/s
    w.engines[0]->turn();
    w.take(w.first_of(0, 1, 0));
    if (i % 10 == 0) w.take(w.first_of(1, 0, 0));  // an ACK: FRAGs are posted
    ASSERT_NE(frags(w), 0u);
    EXPECT_GT(rail.peer->choice.estimate_now(rail).cost.rate, 5'000u) << i;
  }
}

TEST(Copy, EvenRails_AMessageHasItsDepthOnEach) {
  World w(copying());
  w.irecv(1, 0, 1, kLong);
  w.isend(0, 1, 1, pattern(kLong, 1));
  w.take();                     // RNDV
  w.take(w.first_of(1, 0, 0));  // ACK
  EXPECT_EQ(frags(w), 6u);
}

/// More than its depth on the fast one would only queue there.
TEST(Copy, SlowRail_AMessageHasLessThanItsDepthThere) {
  World w(copying());
  slow_down(w);
  w.irecv(1, 0, 1, kLong);
  w.isend(0, 1, 1, pattern(kLong, 1));
  w.take();
  w.take(w.first_of(1, 0, 0));
  EXPECT_EQ(frags(w), 4u) << "3 for a rail, and 0.3 for a tenth of one";
}

}  // namespace
}  // namespace bfo::test
