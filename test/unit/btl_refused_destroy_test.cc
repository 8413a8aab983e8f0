// SPDX-License-Identifier: BSD-3-Clause
//
// btl_refused_destroy_test.cc: the end of an epoch whose queue pair the device refuses to destroy: when it is
// asked again, for how long, and what follows (H12).
//
// H1..H23: contrib/doc/hazards.md
#include "btl/verbs/engine/drain/drain.h"

#include <cerrno>

#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

TEST(Drain, DestroyRefused_IsReportedUnfenceable) {
  World w;
  w.connect();
  w.fabric.raise(*w.a.hca, IBV_EVENT_DEVICE_FATAL);
  w.fabric.refuse["destroy_qp"] = EIO;
  w.fabric.refuse["stop_qp"] = EIO;
  w.pass(100);
  w.fabric.refuse["destroy_qp"] = 0;
  EXPECT_EQ(w.a.closed, 1);
  EXPECT_EQ(w.a.last_result, BFO_UNFENCEABLE);
  EXPECT_EQ(engine::rail_state(w.a.endpoint), BFO_RAIL_UNUSABLE);
}

/// The device lives, and its queue pair may go on: a later epoch of the rail would be fenced in its place.
TEST(Drain, DestroyRefusedByADeviceThatLives_NoEpochFollows) {
  World w;
  w.connect();
  w.fabric.refuse["destroy_qp"] = EIO;
  w.set_port(w.a, IBV_PORT_DOWN);
  w.pass(1);
  for (int i = 0; i < 120; ++i) {
    if (i < 100) {
      EXPECT_EQ(w.a.closed, 0) << "it is asked for ten seconds; " << i;
    }
    test_now() += 99'000'000;
    w.pass(1);
  }
  w.fabric.refuse["destroy_qp"] = 0;
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.pass(100);
  EXPECT_EQ(w.a.closed, 1);
  EXPECT_EQ(w.a.last_result, BFO_UNFENCEABLE);
  EXPECT_EQ(engine::rail_state(w.a.endpoint), BFO_RAIL_UNUSABLE);
}

/// The device had a reason that passed: nothing is lost but that time.
TEST(Drain, DestroyRefusedForAWhile_TheRailComesBack) {
  World w;
  w.connect();
  w.fabric.refuse["destroy_qp"] = EBUSY;
  w.set_port(w.a, IBV_PORT_DOWN);
  w.pass(100);
  EXPECT_EQ(w.a.down, 1);
  EXPECT_EQ(w.a.closed, 0);
  w.fabric.refuse["destroy_qp"] = 0;
  w.pass(100);
  EXPECT_EQ(w.a.closed, 1);
  EXPECT_EQ(w.a.last_result, BFO_FENCED);
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.pass(2000);
  EXPECT_EQ(w.a.up, 2);
  EXPECT_EQ(w.b.up, 2);
}

/// Fragments whose marker comes meanwhile need not wait for the device.
TEST(Drain, MarkerComesWhileTheDeviceIsAskedAgain_FragmentsComeBack) {
  World w;
  w.connect();
  w.fabric.hold = true;
  w.fabric.lose_marker = true;
  w.fabric.refuse["destroy_qp"] = EBUSY;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kPosted);
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  for (int i = 0; i < 20; ++i) w.a.poll();
  test_now() += 60'000'000;
  for (int i = 0; i < 20; ++i) w.a.poll();
  ASSERT_TRUE(w.a.endpoint.drain().asks_again());
  EXPECT_EQ(w.a.count("done"), 0);
  w.a.endpoint.drain().marker = engine::Drain::Marker::kBack;
  w.a.port.need_service();
  w.a.poll();
  EXPECT_EQ(w.a.count("done x -1"), 1);
  EXPECT_EQ(w.a.closed, 0);
  w.fabric.refuse["destroy_qp"] = 0;
  w.fabric.hold = false;
  w.pass(100);
  EXPECT_EQ(w.a.last_result, BFO_FENCED);
  EXPECT_EQ(w.a.count("done"), 1);
}

/// As the first time: what is on the queue would go with the queue pair.
TEST(Drain, TheDeviceIsAskedAgain_WithEmptyQueuesOnly) {
  World w;
  w.connect();
  w.fabric.refuse["destroy_qp"] = EBUSY;
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  for (int i = 0; i < 20; ++i) w.a.poll();
  ASSERT_TRUE(w.a.endpoint.drain().asks_again());
  w.fabric.refuse["destroy_qp"] = 0;
  const uint64_t due = test_now() + 20'000'000;
  engine::drain_step(w.a.endpoint, due, false);
  EXPECT_TRUE(w.a.endpoint.drain().asks_again());
  engine::drain_step(w.a.endpoint, due, true);
  EXPECT_FALSE(w.a.endpoint.drain().asks_again());
  w.pass(10);
  EXPECT_EQ(w.a.last_result, BFO_FENCED);
}

/// A device that blocks in the verb before it refuses is asked less often, not for longer.
TEST(Drain, DestroyAgain_IsBoundInTime) {
  EXPECT_EQ(engine::destroy_again_ns(1, 0), 10'000'000u);
  EXPECT_EQ(engine::destroy_again_ns(10, 5'000'000'000), 5'120'000'000u);
  EXPECT_EQ(engine::destroy_again_ns(200, 9'000'000'000), 5'120'000'000u);
  EXPECT_EQ(engine::destroy_again_ns(2, 60'000'000'000), 0u);
}

/// The device dies while it is asked again and again: there is no hope any more.
TEST(Drain, DeviceDiesWhileItIsAskedAgain_ThatIsTheEnd) {
  World w;
  w.connect();
  w.fabric.refuse["destroy_qp"] = EBUSY;
  w.set_port(w.a, IBV_PORT_DOWN);
  w.pass(100);
  EXPECT_EQ(w.a.closed, 0);
  w.fabric.raise(*w.a.hca, IBV_EVENT_DEVICE_FATAL);
  w.pass(2);
  w.fabric.refuse["destroy_qp"] = 0;
  EXPECT_EQ(w.a.closed, 1);
  EXPECT_EQ(w.a.last_result, BFO_UNFENCEABLE);
}

}  // namespace
}  // namespace bfo::test
