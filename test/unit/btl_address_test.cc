// SPDX-License-Identifier: BSD-3-Clause
//
// btl_address_test.cc: address handles are made by control threads: no round of progress waits for a
// neighbour that does not answer, and none is asked too often.
#include <memory>

#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Phase;

engine::Config deferred() {
  engine::Config config = small_config();
  config.control = engine::ControlMode::kDeferred;
  return config;
}

/// A World whose control commands run when the test says so, outside of progress.
struct Slow : World {
  explicit Slow(const engine::Config& config = deferred()) : World(config) { fabric.progress_verbs = 0; }

  /// Runs what waits in the lanes of `p`. The number of address handles asked for.
  static int serve(Process& p) {
    int n = 0;
    while (p.port.addresses().lane().run_one()) ++n;
    while (p.port.upkeep().run_one() || p.port.setups().run_one() || p.port.stops().run_one() ||
           p.port.queue_pairs().run_one()) {
    }
    return n;
  }
  /// a gets a new endpoint for b, in place of one that was removed.
  void meet_again() {
    std::destroy_at(&a.endpoint);
    std::construct_at(&a.endpoint);
    a.meet(b, 2);
  }
  void turn(uint64_t ns = 100'000) {
    test_now() += ns;
    fabric.run();
    a.poll();
    b.poll();
  }
  /// As pass(), with the control threads of those that have one.
  void live(uint64_t ms, bool a_served = true, bool b_served = true) {
    const uint64_t step = ms <= 100 ? 100'000 : 2'000'000;
    for (const uint64_t end = test_now() + ms * 1'000'000; test_now() < end;) {
      if (a_served) serve(a);
      if (b_served) serve(b);
      for (int k = 0; k < 33; ++k) turn(k == 0 ? step : 0);
      a.serve_heartbeat();
      b.serve_heartbeat();
    }
  }
};

TEST(Address, NeighbourDoesNotAnswer_ProgressNeverWaits) {
  Slow w;
  w.fabric.refuse["create_ah"] = ETIMEDOUT;
  w.fabric.block["create_ah"] = 1'000'000'000;
  engine::cm_connect(w.a.endpoint);
  uint64_t longest = 0;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t before = test_now();
    w.turn();
    longest = std::max(longest, test_now() - before);
    if (i % 100 == 99) Slow::serve(w.a);
  }
  EXPECT_EQ(w.fabric.progress_verbs, 0);
  EXPECT_EQ(longest, 100'000u) << "a round of progress took the time of the verb";
  EXPECT_GE(w.fabric.ah_calls, 3) << "and it is asked again";
  // The neighbour is there after all.
  w.fabric.refuse["create_ah"] = 0;
  w.fabric.block["create_ah"] = 0;
  w.live(20'000);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
}

TEST(Address, Failure_IsNotRepeatedBeforeItsBackOffIsOver) {
  engine::Config config = deferred();
  config.peer_timeout_ns = 0;
  Slow w(config);
  w.fabric.refuse["create_ah"] = EHOSTUNREACH;
  engine::cm_connect(w.a.endpoint);
  std::vector<uint64_t> calls;
  const uint64_t start = test_now();
  while (test_now() - start < 60'000'000'000) {
    w.turn(1'000'000);
    if (Slow::serve(w.a) != 0) calls.push_back(test_now());
  }
  ASSERT_GE(calls.size(), 6u);
  EXPECT_LE(calls.size(), 20u);
  for (size_t i = 1; i < calls.size(); ++i) {
    const uint64_t base = std::min(config.address_retry_max_ns, config.address_retry_min_ns << (i - 1));
    EXPECT_GE(calls[i] - calls[i - 1], base / 2) << "call " << i;
    EXPECT_LE(calls[i] - calls[i - 1], base * 2) << "call " << i;
  }
  EXPECT_EQ(w.a.endpoint.outbox().address->error, EHOSTUNREACH);
}

TEST(Address, PortComesUp_FailuresAreForgiven) {
  Slow w;
  w.fabric.refuse["create_ah"] = ETIMEDOUT;
  engine::cm_connect(w.a.endpoint);
  w.live(30'000);
  ASSERT_GE(w.a.endpoint.outbox().address->failures, 4u);
  w.fabric.refuse["create_ah"] = 0;
  const int before = w.fabric.ah_calls;
  w.set_port(w.a, IBV_PORT_DOWN);
  w.live(1);
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.live(5);
  EXPECT_GT(w.fabric.ah_calls, before);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
}

TEST(Address, PeerIsHeard_TriedAgainSoon) {
  Slow w;
  w.fabric.refuse["create_ah"] = ETIMEDOUT;
  engine::cm_connect(w.a.endpoint);
  w.live(40'000, true, false);
  ASSERT_GE(w.a.endpoint.outbox().address->failures, 5u);
  w.a.endpoint.outbox().address->retry_ns = test_now() + 8'000'000'000;
  w.fabric.refuse["create_ah"] = 0;
  engine::cm_connect(w.b.endpoint);
  w.live(1500);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp) << "one second after the first SOLICIT";
}

TEST(Address, HandleComesLate_FirstPacketLeavesAtOnce) {
  Slow w;
  engine::cm_connect(w.a.endpoint);
  for (int i = 0; i < 3; ++i) w.turn(1000);
  EXPECT_TRUE(w.fabric.datagrams.empty());
  ASSERT_EQ(Slow::serve(w.a), 1);
  w.turn(1000);
  EXPECT_EQ(w.fabric.datagrams.size(), 1u) << "without waiting for the retransmission timer";
}

TEST(Address, PacketWaited_EpochIsOver_NotSent) {
  Slow w;
  engine::cm_connect(w.b.endpoint);
  for (int i = 0; i < 3; ++i) w.turn(1000);
  ASSERT_EQ(w.b.endpoint.phase, Phase::kSoliciting);
  ASSERT_TRUE(w.b.endpoint.outbox().waits);
  w.b.endpoint.epoch = 7;  // a REQ has come meanwhile
  Slow::serve(w.b);
  for (int i = 0; i < 3; ++i) w.turn(1000);
  EXPECT_TRUE(w.fabric.datagrams.empty());
  EXPECT_FALSE(w.b.endpoint.outbox().waits);
}

TEST(Address, EndpointGoesWhileItsHandleIsMade) {
  Slow w;
  engine::cm_connect(w.a.endpoint);
  for (int i = 0; i < 3; ++i) w.turn(1000);
  w.a.port.remove(w.a.endpoint);
  EXPECT_EQ(Slow::serve(w.a), 1);
  for (int i = 0; i < 3; ++i) w.turn(1000);
  EXPECT_NE(w.a.port.addresses().find(w.b.port.address())->handle, nullptr) << "kept for the next endpoint";
  w.meet_again();
  engine::cm_connect(w.a.endpoint);
  w.live(5);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.fabric.ah_calls, 2) << "one at each side";
}

TEST(Address, HandleStillBeingMade_ByeIsNotWaitedFor) {
  Slow w;
  engine::cm_connect(w.a.endpoint);
  for (int i = 0; i < 3; ++i) w.turn(1000);
  w.fabric.block["create_ah"] = 1'000'000'000;
  const uint64_t before = test_now();
  w.a.port.remove(w.a.endpoint);
  EXPECT_EQ(test_now(), before);
  w.meet_again();
}

}  // namespace
}  // namespace bfo::test
