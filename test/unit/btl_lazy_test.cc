// SPDX-License-Identifier: BSD-3-Clause
//
// btl_lazy_test.cc: rails that come back: at once to peers that are talked to, in the background to the
// others.
#include "test/unit/btl_crowd.h"

namespace bfo::test {
namespace {

using engine::Phase;

constexpr uint64_t kMs = 1'000'000;
constexpr size_t kTalkers = 2;
constexpr uint64_t kIdleBoundMs =
    4'000;  // of a rail that nobody needs, on a port where no other one comes back

struct LazyCrowd : Crowd {
  size_t begun = 0;  // rails of idle peers that have left kClosed at the hub, or whose REQ was taken there

  explicit LazyCrowd(uint64_t hub_name, bool initially_down = false) : Crowd(hub_name, initially_down) {
    fabric.refusals = {{"create_qp", 1 << 30, 1 << 30, ENOMEM, hub.hca}};
    for (size_t i = 0; i < kTalkers; ++i) add_talk(i);
  }
  int queue_pairs() const { return fabric.refusals.front().seen; }
  /// All have been connected, and the hub's port goes down; so its peers hear.
  void lose_port() {
    for (size_t i = 0; i < kPeers; ++i) ASSERT_TRUE(send(i));
    until_all_up(4000);
    talking = true;
    turns(20);
    for (size_t i = 0; i < kPeers; ++i) {
      bfo_rail_info_t info;
      engine::rail_info(peers[i]->endpoint, &info);
      engine::rail_peer_down(peers[i]->endpoint, info.name, IBV_EVENT_PORT_ERR);
    }
    flap();
  }
  size_t talkers_up() const {
    size_t count = 0;
    for (size_t i = 0; i < kTalkers; ++i) count += ends[i]->phase == Phase::kUp;
    return count;
  }
};

class LazyRoles : public testing::TestWithParam<uint64_t> {};

TEST_P(LazyRoles, PortIsDown_IdlePeersAskSeldom) {
  LazyCrowd crowd(GetParam());
  crowd.lose_port();
  crowd.turns(1'200, 10 * kMs);
  crowd.talking = false;
  crowd.turns(300, 10 * kMs);
  size_t before = crowd.fabric.datagrams.size();
  crowd.turns(400, 10 * kMs);
  const size_t each_second = (crowd.fabric.datagrams.size() - before) / 4;
  RecordProperty("datagrams_per_second", static_cast<int>(each_second));
  EXPECT_LE(each_second, kPeers * 4 / 5);
}

TEST_P(LazyRoles, PortReturns_TalkersAtOnceOthersInTheBackground) {
  LazyCrowd crowd(GetParam());
  crowd.lose_port();
  crowd.turns(1'000, 10 * kMs);
  crowd.come_back();
  const uint64_t since = test_now();
  const int made = crowd.queue_pairs();
  uint64_t talkers_ms = 0;
  for (int i = 0; i < 400 && talkers_ms == 0; ++i) {
    crowd.turns(1);
    if (crowd.talkers_up() == kTalkers) talkers_ms = std::max(uint64_t{1}, (test_now() - since) / kMs);
  }
  RecordProperty("talkers_up_ms", static_cast<int>(talkers_ms));
  RecordProperty("idle_up_before", static_cast<int>(crowd.up() - kTalkers));
  EXPECT_NE(talkers_ms, 0u);
  EXPECT_LE(talkers_ms, 5u);
  EXPECT_LE(crowd.up(), kTalkers + 2);
  size_t last = crowd.fabric.datagrams.size();
  size_t most_packets = 0;
  uint64_t all_ms = 0;
  for (int i = 0; i < 100 && all_ms == 0; ++i) {
    crowd.turns(100, kMs);
    const uint64_t passed = (test_now() - since) / kMs;
    EXPECT_LE(static_cast<uint64_t>(crowd.queue_pairs() - made), 2 * (kTalkers + 2 + passed / 10));
    most_packets = std::max(most_packets, crowd.fabric.datagrams.size() - last);
    last = crowd.fabric.datagrams.size();
    if (crowd.up() == kPeers) all_ms = passed;
  }
  RecordProperty("datagrams_in_100_ms", static_cast<int>(most_packets));
  RecordProperty("all_up_ms", static_cast<int>(all_ms));
  EXPECT_LE(most_packets, 80u);
  EXPECT_NE(all_ms, 0u);
  EXPECT_LE(all_ms, kPeers * 10 + kIdleBoundMs);
}

INSTANTIATE_TEST_SUITE_P(Role, LazyRoles, testing::Values(uint64_t{1}, uint64_t{5000}),
                         [](const auto& which) { return which.param == 1 ? "Initiator" : "Responder"; });

/// One peer, to which two rails lead; the one in question has been without a path for long, and no port
/// knows.
class LazyPair : public testing::TestWithParam<uint64_t> {
 protected:
  TestFabric fabric;
  Process a;
  Process b;
  std::unique_ptr<Talk> talk;

  void SetUp() override {
    a.open(fabric, "left", GetParam(), small_config());
    b.open(fabric, "right", 100, small_config());
    a.meet(b, 100);
    b.meet(a, GetParam());
    talk = std::make_unique<Talk>(fabric, GetParam(), 100);
    a.siblings = {&talk->hub};
    b.siblings = {&talk->peer};
    engine::cm_connect(a.endpoint);
    pass(20);
    ASSERT_TRUE(both_up());
    lose_path();
  }
  void TearDown() override {
    talk.reset();
    a.port.remove(a.endpoint);
    b.port.remove(b.endpoint);
    a.port.close();
    b.port.close();
  }
  bool both_up() const { return a.endpoint.phase == Phase::kUp && b.endpoint.phase == Phase::kUp; }
  void lose_path() {
    fabric.deaf.insert(a.port.cm_qp().number());
    for (Process* p : {&a, &b}) {
      bfo_rail_info_t info;
      engine::rail_info(p->endpoint, &info);
      engine::rail_peer_down(p->endpoint, info.name, IBV_EVENT_PORT_ERR);
    }
    pass(20'000, 10 * kMs);
    ASSERT_FALSE(both_up());
  }
  void turn(uint64_t ns) {
    test_now() += ns;
    fabric.run();
    for (int k = 0; k < 33; ++k) {
      a.poll();
      b.poll();
    }
    a.serve_heartbeat();
    b.serve_heartbeat();
    talk->poll();
    fabric.run();
  }
  void pass(uint64_t ms, uint64_t step = kMs / 2) {
    for (const uint64_t end = test_now() + ms * kMs; test_now() < end;) turn(step);
  }
  void talk_for(uint64_t ms) {
    for (uint64_t i = 0; i < ms; ++i) {
      talk->say();
      pass(1);
    }
  }
  void set_port(Process& p, ibv_port_state state, ibv_event_type event) {
    p.hca->port.state = state;
    fabric.raise(*p.hca, event, 1);
  }
  /// Until both ends are up; 0: not within `ms`.
  uint64_t until_up(uint64_t ms) {
    const uint64_t since = test_now();
    while (test_now() < since + ms * kMs) {
      turn(kMs / 2);
      if (both_up()) return std::max(uint64_t{1}, (test_now() - since) / kMs);
    }
    return 0;
  }
};

TEST_P(LazyPair, NobodyNeedsIt_AskedForSeldom) {
  const size_t before = fabric.datagrams.size();
  pass(20'000, 10 * kMs);
  EXPECT_LE(fabric.datagrams.size() - before, 50u);
}

TEST_P(LazyPair, PathHealsAndNobodyNeedsIt_BackInBoundedTime) {
  fabric.deaf.clear();
  const uint64_t ms = until_up(2 * kIdleBoundMs);
  EXPECT_NE(ms, 0u);
  EXPECT_LE(ms, kIdleBoundMs);
}

TEST_P(LazyPair, PathHealsAndOneMessageMovesElsewhere_BackAtOnce) {
  fabric.deaf.clear();
  talk->say();
  const uint64_t ms = until_up(kIdleBoundMs);
  EXPECT_NE(ms, 0u);
  EXPECT_LE(ms, 12u);
}

TEST_P(LazyPair, PathHealsUnderTraffic_BackAsSoonAsEver) {
  for (int i = 0; i < 1'000; ++i) {
    talk->say();
    pass(5, kMs);
  }
  fabric.deaf.clear();
  const uint64_t ms = until_up(kIdleBoundMs);
  EXPECT_NE(ms, 0u);
  EXPECT_LE(ms, 400u);
}

/// A port of either end that flaps, while messages take the other rail.
TEST_P(LazyPair, PortFlapsUnderTraffic_BackAsSoonAsEver) {
  fabric.deaf.clear();
  ASSERT_NE(until_up(kIdleBoundMs), 0u);
  uint64_t sum = 0;
  uint64_t most = 0;
  constexpr int kFlaps = 20;
  for (int flap = 0; flap < kFlaps; ++flap) {
    Process& lost = flap % 2 == 0 ? a : b;
    Process& other = flap % 2 == 0 ? b : a;
    bfo_rail_info_t info;
    engine::rail_info(other.endpoint, &info);
    set_port(lost, IBV_PORT_DOWN, IBV_EVENT_PORT_ERR);
    talk_for(2);
    engine::rail_peer_down(other.endpoint, info.name, IBV_EVENT_PORT_ERR);
    talk_for(static_cast<uint64_t>(20 + 35 * flap));
    set_port(lost, IBV_PORT_ACTIVE, IBV_EVENT_PORT_ACTIVE);
    const uint64_t since = test_now();
    while (!both_up() && test_now() < since + kIdleBoundMs * kMs) talk_for(1);
    ASSERT_TRUE(both_up());
    const uint64_t ms = (test_now() - since) / kMs;
    sum += ms;
    most = std::max(most, ms);
    talk_for(300);
  }
  RecordProperty("mean_ms", static_cast<int>(sum / kFlaps));
  RecordProperty("most_ms", static_cast<int>(most));
  EXPECT_LE(sum / kFlaps, 8u);
}

TEST_P(LazyPair, PathHealsAndItIsAskedFor_BackAtOnce) {
  fabric.deaf.clear();
  engine::rail_connect(a.endpoint);
  const uint64_t ms = until_up(kIdleBoundMs);
  EXPECT_NE(ms, 0u);
  EXPECT_LE(ms, 12u);
}

/// When the last other rail is lost, what waits above waits for this one.
TEST_P(LazyPair, PathHealsAndNoOtherRailIsUp_BackAtOnce) {
  fabric.deaf.clear();
  a.other_rail = false;
  const uint64_t ms = until_up(kIdleBoundMs);
  EXPECT_NE(ms, 0u);
  EXPECT_LE(ms, 12u);
}

INSTANTIATE_TEST_SUITE_P(Role, LazyPair, testing::Values(uint64_t{1}, uint64_t{200}),
                         [](const auto& which) { return which.param == 1 ? "Initiator" : "Responder"; });

/// A port that comes up long after its process started: its peers are met one after the other, and none of
/// those that wait for their turn counts as one that never came up.
TEST(Lazy, InitiallyDownPort_WaitingForATurnIsNoFailure) {
  LazyCrowd crowd(1, true);
  crowd.turns(20);
  crowd.come_back();
  bool some_waited = false;
  for (int i = 0; i < 3'000 && crowd.up() < kPeers; ++i) {
    crowd.turns(1, kMs);
    some_waited = some_waited || (i > 50 && crowd.up() < kPeers);
    if (i % 50 != 49) continue;
    for (const auto& end : crowd.ends) {
      char why[96];
      ASSERT_EQ(engine::never_up(*end, why, sizeof why), 0u) << why;
    }
  }
  EXPECT_TRUE(some_waited);
  EXPECT_EQ(crowd.up(), kPeers);
}

}  // namespace
}  // namespace bfo::test
