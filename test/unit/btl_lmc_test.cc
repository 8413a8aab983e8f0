// SPDX-License-Identifier: BSD-3-Clause
//
// btl_lmc_test.cc: ports with several LIDs (LID mask control, LMC): which of the paths between two such ports
// a connection takes, that both ends take the same, and that one that is cut is left for another.
#include "btl/verbs/engine/port/address.h"
#include "btl/verbs/engine/port/path.h"
#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Phase;

constexpr uint16_t kLeft = 16;
constexpr uint16_t kRight = 32;

/// Two processes whose ports have 2^left and 2^right LIDs.
struct Paths {
  TestFabric fabric;
  Process a;
  Process b;

  Paths(uint8_t left, uint8_t right, const engine::Config& config = small_config()) {
    for (Process* p : {&a, &b}) {
      const bool first = p == &a;
      p->hca = &fabric.add_device(first ? "left" : "right");
      p->hca->port.lid = first ? kLeft : kRight;
      p->hca->port.lmc = first ? left : right;
      engine::Config own = config;
      own.own_name = first ? 1 : 2;
      const char* what = "";
      EXPECT_TRUE(p->device.open(test_verbs(), p->hca));
      EXPECT_TRUE(p->port.open(p->device, 1, own, p->host(), test_environment(), &what)) << what;
      p->port.set_failover(true);
    }
    a.meet(b, 2);
    b.meet(a, 1);
  }
  ~Paths() {
    for (Process* p : {&a, &b}) p->port.remove(p->endpoint);
    for (Process* p : {&a, &b}) EXPECT_TRUE(p->port.close());
    EXPECT_TRUE(fabric.handles.empty());
  }
  void pass(uint64_t ms) {
    for (uint64_t i = 0; i < ms * 10; ++i) {
      test_now() += 100'000;
      a.serve_heartbeat();
      b.serve_heartbeat();
      for (int k = 0; k < 8; ++k) {
        for (Process* p : {&a, &b}) run_commands(p->port);
        fabric.run();
        a.poll();
        b.poll();
      }
    }
  }
  /// Of deferred lanes; the others have none.
  static void run_commands(engine::Port& port) {
    while (port.addresses().lane().run_one() || port.setups().run_one() || port.upkeep().run_one() ||
           port.stops().run_one() || port.queue_pairs().run_one() || port.registrations().run_one()) {
    }
  }
  bool connect(uint64_t ms = 50) {
    engine::cm_connect(a.endpoint);
    pass(ms);
    return up();
  }
  bool up() const { return a.endpoint.phase == Phase::kUp && b.endpoint.phase == Phase::kUp; }
  /// Ends the connection; both connect again.
  bool again() {
    engine::close_order(a.endpoint, a.endpoint.epoch, BFO_CAUSE_FENCE, 0, 0);
    pass(700);
    return up();
  }
  /// The address vector of the newest connection of `p`.
  ibv_ah_attr vector_of(const Process& p, bool probe = false) const {
    const engine::QueuePairs& qps = p.endpoint.qps();
    const uint32_t qpn = probe ? qps.probe.number() : qps.data.number();
    ibv_ah_attr found{};
    for (const auto& [number, attr] : fabric.modifications) {
      if (number == qpn && attr.qp_state == IBV_QPS_RTR) found = attr.ah_attr;
    }
    return found;
  }
  /// The number of the path that both ends of the connection take; -1: they differ.
  int path() const {
    const ibv_ah_attr out = vector_of(a);
    const ibv_ah_attr back = vector_of(b);
    for (const ibv_ah_attr& probe : {vector_of(a, true), vector_of(b, true)}) {
      if (probe.src_path_bits != out.src_path_bits) return -1;
    }
    const bool same = out.dlid == kRight + out.src_path_bits && back.dlid == kLeft + back.src_path_bits &&
                      out.src_path_bits == back.src_path_bits;
    return same ? out.src_path_bits : -1;
  }
};

TEST(Lmc, BothEnds_TakeTheSamePath) {
  for (const auto& [left, right] : {std::pair<int, int>{0, 0}, {0, 3}, {3, 0}, {1, 3}, {3, 2}, {2, 2}}) {
    Paths w(static_cast<uint8_t>(left), static_cast<uint8_t>(right));
    ASSERT_TRUE(w.connect()) << left << " and " << right;
    EXPECT_GE(w.path(), 0) << left << " and " << right;
    EXPECT_LT(w.path(), 1 << std::min(left, right));
  }
}

TEST(Lmc, NextEpoch_TakesTheNextPath) {
  Paths w(2, 2);
  ASSERT_TRUE(w.connect());
  std::set<int> seen;
  for (int epoch = 0; epoch < 4; ++epoch) {
    const int before = w.path();
    seen.insert(before);
    ASSERT_TRUE(w.again());
    EXPECT_EQ(w.path(), (before + 1) % 4);
  }
  EXPECT_EQ(seen.size(), 4u);
}

TEST(Lmc, Connections_AreSpreadOverThePaths) {
  std::map<int, int> used;
  for (int i = 0; i < 64; ++i) {
    Paths w(2, 2);
    ASSERT_TRUE(w.connect(5));
    ++used[w.path()];
  }
  EXPECT_EQ(used.size(), 4u);
}

TEST(Lmc, MaxLmc_BoundsThePaths) {
  for (const uint8_t most : {0, 1}) {
    engine::Config config = small_config();
    config.max_lmc = most;
    Paths w(3, 3, config);
    ASSERT_TRUE(w.connect());
    for (int epoch = 0; epoch < 3; ++epoch) {
      EXPECT_GE(w.path(), 0);
      EXPECT_LT(w.path(), 1 << most);
      ASSERT_TRUE(w.again());
    }
  }
}

TEST(Lmc, DeadPathOfAConnection_IsLeftByTheNextEpoch) {
  Paths w(2, 2);
  ASSERT_TRUE(w.connect());
  const int dead = w.path();
  w.fabric.dead_lids = {static_cast<uint16_t>(kLeft + dead), static_cast<uint16_t>(kRight + dead)};
  ASSERT_TRUE(w.again());
  EXPECT_NE(w.path(), dead);
}

TEST(Lmc, DeadFirstLid_DatagramsAndConnectionsTakeAnother) {
  for (int i = 0; i < 16; ++i) {
    Paths w(2, 2);
    w.fabric.dead_lids = {kLeft, kRight};
    engine::cm_connect(w.a.endpoint);
    for (int turn = 0; turn < 40 && !w.up(); ++turn) {
      w.pass(50);
      // What its first write becomes on a device, when nobody answers.
      if (w.a.endpoint.phase == Phase::kProbing)
        w.fabric.fail(w.a.endpoint.qps().data.number(), IBV_WC_RETRY_EXC_ERR);
    }
    ASSERT_TRUE(w.up());
    EXPECT_GT(w.path(), 0);
  }
}

/// Datagrams have had no answer, so the next is due to take the next path; but nobody waits for its handle.
TEST(Lmc, LastWord_LeavesWhileTheNextPathHasNoHandle) {
  engine::Config config = small_config();
  config.control = engine::ControlMode::kDeferred;
  Paths w(2, 2, config);
  ASSERT_TRUE(w.connect());
  // The path that a connection takes has a handle.
  const auto next_path = [&w] { return (w.a.endpoint.outbox().address->path + 1) % 4; };
  for (int i = 0; i < 4 && w.path() == next_path(); ++i) ASSERT_TRUE(w.again());
  engine::Address* const way = w.a.endpoint.outbox().address;
  engine::AddressCache& addresses = w.a.port.addresses();
  ASSERT_EQ(addresses.find(w.a.endpoint.peer.address, static_cast<uint8_t>(next_path()))->handle, nullptr);
  way->unheard = engine::AddressCache::kPathUnheard;
  engine::cm_bye(w.a.endpoint);
  w.fabric.run();
  w.b.poll();
  EXPECT_TRUE(w.b.endpoint.peer.left);
  EXPECT_EQ(w.a.endpoint.outbox().address, way);
  Paths::run_commands(w.a.port);
  w.a.poll();
  way->unheard = engine::AddressCache::kPathUnheard;  // the answer has come over this path
  engine::cm_bye(w.a.endpoint);
  EXPECT_NE(w.a.endpoint.outbox().address, way) << "now it has one";
}

/// The last packet of the peer came over a path that has no handle here.
TEST(Lmc, LastWord_TakesAnyPathThatHasAHandle) {
  engine::Config config = small_config();
  config.control = engine::ControlMode::kDeferred;
  Paths w(2, 2, config);
  ASSERT_TRUE(w.connect());
  engine::AddressCache& addresses = w.a.port.addresses();
  for (uint8_t path = 0; path < 4; ++path) {
    engine::Address* const other = addresses.find(w.a.endpoint.peer.address, path);
    if (other->handle == nullptr) w.a.endpoint.outbox().address = other;
  }
  ASSERT_EQ(w.a.endpoint.outbox().address->handle, nullptr);
  engine::cm_bye(w.a.endpoint);
  w.fabric.run();
  w.b.poll();
  EXPECT_TRUE(w.b.endpoint.peer.left);
}

TEST(Lmc, PathWithoutHandle_IsPassedOver) {
  Paths w(2, 2);
  engine::AddressCache& addresses = w.a.port.addresses();
  const engine::PortAddress to = w.b.port.address();
  engine::Address* const first = addresses.find(to);
  w.fabric.refusals.push_back({.verb = "create_ah", .first = 1, .last = 2, .error = EINVAL});
  ASSERT_EQ(addresses.handle(*first, test_now()), nullptr);
  ASSERT_NE(first->failures, 0u);
  const engine::Address* const next = addresses.way_to(to, first, test_now());
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next->path, 2) << "path 1 failed, too";
  EXPECT_NE(next->handle, nullptr);
}

TEST(Lmc, AllPathsDead_NothingComesUpAndNothingIsLost) {
  Paths w(2, 2);
  for (uint16_t path = 0; path < 4; ++path) {
    w.fabric.dead_lids.insert(static_cast<uint16_t>(kLeft + path));
    w.fabric.dead_lids.insert(static_cast<uint16_t>(kRight + path));
  }
  EXPECT_FALSE(w.connect(2000));
  EXPECT_LE(w.fabric.handles.size(), 8u) << "one handle for each path and side";
  w.fabric.dead_lids.clear();
  w.pass(2000);
  EXPECT_TRUE(w.up());
}

TEST(Lmc, LmcThatChanges_IsLearned) {
  Paths w(2, 2);
  ASSERT_TRUE(w.connect());
  w.a.hca->port.lmc = 0;
  w.fabric.raise(*w.a.hca, IBV_EVENT_LID_CHANGE, 1);
  w.pass(700);
  ASSERT_TRUE(w.again());
  EXPECT_EQ(w.path(), 0);
  w.a.hca->port.lmc = 1;
  w.fabric.raise(*w.a.hca, IBV_EVENT_LID_CHANGE, 1);
  w.pass(700);
  std::set<int> seen;
  for (int epoch = 0; epoch < 2; ++epoch) {
    ASSERT_TRUE(w.again());
    seen.insert(w.path());
  }
  EXPECT_EQ(seen, (std::set<int>{0, 1}));
}

TEST(Lmc, EthernetAndOtherSubnets_HaveOnePath) {
  engine::PortAddress own;
  engine::PortAddress to;
  own.lmc = to.lmc = 3;
  EXPECT_EQ(engine::path_count(own, to), 8);
  to.gid.global.subnet_prefix = 1;
  EXPECT_EQ(engine::path_count(own, to), 1);
  own.gid.global.subnet_prefix = 1;
  EXPECT_EQ(engine::path_count(own, to), 8);
  own.link_layer = to.link_layer = IBV_LINK_LAYER_ETHERNET;
  EXPECT_EQ(engine::path_count(own, to), 1);
}

TEST(Lmc, ForgedLmc_IsBounded) {
  Paths w(7, 0);
  ASSERT_TRUE(w.connect());
  engine::Packet packet = packet_from(w.b, w.a, engine::PacketType::kSolicit, w.a.endpoint.epoch,
                                      [](engine::Packet& p) { p.lmc = 255; });
  hand_over(w.a, packet);
  EXPECT_LE(w.a.endpoint.peer.address.lmc, engine::kMaxLmc);
  EXPECT_LE(engine::path_count(w.a.port.address(), w.a.endpoint.peer.address), 128);
}

TEST(Lmc, ServiceLevel_IsAskedForEachPath) {
  engine::Config config = small_config();
  config.path_service_level = true;
  Paths w(1, 1, config);
  for (int path = 0; path < 2; ++path) {
    w.fabric.administrator.level[(kLeft + path) << 16 | (kRight + path)] = static_cast<uint8_t>(3 + path);
    w.fabric.administrator.level[(kRight + path) << 16 | (kLeft + path)] = static_cast<uint8_t>(5 + path);
  }
  ASSERT_TRUE(w.connect());
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_EQ(w.vector_of(w.a).sl, 3 + w.path());
    EXPECT_EQ(w.vector_of(w.b).sl, 5 + w.path());
    ASSERT_TRUE(w.again());
  }
}

TEST(Lmc, LidThatIsAnotherPortsNow_IsAskedForAgain) {
  engine::Config config = small_config();
  config.path_service_level = true;
  Paths w(1, 1, config);
  w.fabric.administrator.level[(kLeft + 1) << 16 | 65] = 3;
  w.fabric.administrator.level[kLeft << 16 | 65] = 4;
  engine::PortAddress to = w.b.port.address();
  to.lid = 64;
  uint8_t level = 0;
  EXPECT_FALSE(w.a.port.paths().service_level(to, 1, test_now(), &level));
  w.pass(50);
  EXPECT_TRUE(w.a.port.paths().service_level(to, 1, test_now(), &level));
  EXPECT_EQ(level, 3);
  to.lid = 65;
  EXPECT_FALSE(w.a.port.paths().service_level(to, 0, test_now(), &level));
  w.pass(50);
  EXPECT_TRUE(w.a.port.paths().service_level(to, 0, test_now(), &level));
  EXPECT_EQ(level, 4);
}

/// A stale destination and a present one end at the same LID, over paths of their own: both get their
/// answers.
TEST(Lmc, TwoPathsToOneLid_HaveRecordsOfTheirOwn) {
  engine::Config config = small_config();
  config.path_service_level = true;
  Paths w(1, 1, config);
  w.fabric.administrator.level[(kLeft + 1) << 16 | 65] = 3;
  w.fabric.administrator.level[kLeft << 16 | 65] = 4;
  engine::PortAddress present = w.b.port.address();
  present.lid = 64;
  engine::PortAddress stale = present;
  stale.lid = 65;
  uint8_t level = 0;
  engine::PathRecords& paths = w.a.port.paths();
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(paths.service_level(present, 1, test_now(), &level));
    EXPECT_FALSE(paths.service_level(stale, 0, test_now(), &level));
  }
  w.pass(50);
  EXPECT_TRUE(paths.service_level(present, 1, test_now(), &level));
  EXPECT_EQ(level, 3);
  EXPECT_TRUE(paths.service_level(stale, 0, test_now(), &level));
  EXPECT_EQ(level, 4);
}

}  // namespace
}  // namespace bfo::test
