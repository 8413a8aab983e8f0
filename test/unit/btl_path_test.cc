// SPDX-License-Identifier: BSD-3-Clause
//
// btl_path_test.cc: the service level of a path is asked of the subnet administrator: what becomes of
// connections while it is asked, refused or not answered, and of answers that are none.
#include <cerrno>

#include "btl/verbs/engine/port/path.h"
#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Drop;
using engine::PathRecords;
using engine::PathTrouble;
using engine::Phase;

constexpr uint8_t kConfigured = 6;

engine::Config path_config(bool asks = true) {
  engine::Config config = small_config();
  config.path_service_level = asks;
  config.qp.service_level = kConfigured;
  return config;
}

std::vector<PathTrouble> troubles;

/// Two processes, of which one asks.
struct Paths {
  TestFabric fabric;
  Process a;
  Process b;

  explicit Paths(const engine::Config& config = path_config()) {
    troubles.clear();
    for (Process* p : {&a, &b}) {
      p->hca = &fabric.add_device(p == &a ? "left" : "right");
      engine::Config own = config;
      own.own_name = p == &a ? 1 : 2;
      engine::Host host = p->host();
      host.path_unknown = [](void*, const PathTrouble& trouble) { troubles.push_back(trouble); };
      const char* what = "";
      EXPECT_TRUE(p->device.open(test_verbs(), p->hca));
      EXPECT_TRUE(p->port.open(p->device, 1, own, host, test_environment(), &what)) << what;
      p->port.set_failover(true);
    }
    a.meet(b, 2);
    b.meet(a, 1);
    set_level(a, b, 3);
    set_level(b, a, 4);
  }
  ~Paths() {
    for (Process* p : {&a, &b}) p->port.remove(p->endpoint);
    for (Process* p : {&a, &b}) EXPECT_TRUE(p->port.close());
    EXPECT_TRUE(fabric.handles.empty());
    for (stack::Qp* const qp : fabric.live()) ADD_FAILURE() << "queue pair " << qp->qp_num << " is left";
  }
  void set_level(const Process& from, const Process& to, uint8_t level) {
    fabric.administrator.level[from.port.address().lid << 16 | to.port.address().lid] = level;
  }
  void pass(uint64_t ms) {
    const uint64_t step_us = ms <= 50 ? 100 : 2'000;
    for (uint64_t i = 0; i < ms * 1000 / step_us; ++i) {
      test_now() += step_us * 1000;
      a.serve_heartbeat();
      b.serve_heartbeat();
      for (int k = 0; k < 32; ++k) {
        fabric.run();
        a.poll();
        b.poll();
      }
    }
  }
  void connect(uint64_t ms = 50) {
    engine::cm_connect(a.endpoint);
    pass(ms);
  }
  /// Ends the connection; both connect again.
  void again() {
    engine::close_order(a.endpoint, a.endpoint.epoch, BFO_CAUSE_FENCE, 0, 0);
    pass(700);
  }
  /// The service level in the address vector of the newest connection of `p`: of its data or its probe queue
  /// pair. -1: none.
  int level_of(const Process& p, bool probe = false) const {
    const engine::QueuePairs& qps = p.endpoint.qps();
    const uint32_t qpn = probe ? qps.probe.number() : qps.data.number();
    int level = -1;
    for (const auto& [number, attr] : fabric.modifications) {
      if (number == qpn && attr.qp_state == IBV_QPS_RTR) level = attr.ah_attr.sl;
    }
    return level;
  }
  /// The same of the newest address handle towards `p`.
  int handle_level(const Process& p) const {
    int level = -1;
    for (const ibv_ah_attr& ah : fabric.ahs) {
      if (ah.dlid == p.port.address().lid) level = ah.sl;
    }
    return level;
  }
  size_t requests() const { return fabric.administrator.requests.size(); }
  bool up() const { return a.endpoint.phase == Phase::kUp && b.endpoint.phase == Phase::kUp; }
};

// ---- connections

TEST(Path, ServiceLevel_IsInTheQueuePairsAndTheHandles) {
  Paths w;
  w.connect();
  ASSERT_TRUE(w.up());
  EXPECT_EQ(w.level_of(w.a), 3);
  EXPECT_EQ(w.level_of(w.a, true), 3);
  EXPECT_EQ(w.level_of(w.b), 4) << "each direction is a path";
  EXPECT_EQ(w.level_of(w.b, true), 4);
  EXPECT_EQ(w.handle_level(w.b), 3);
  EXPECT_EQ(w.handle_level(w.a), 4);
  EXPECT_EQ(w.requests(), 2u);
  EXPECT_TRUE(troubles.empty());
}

TEST(Path, NotAskedFor_NothingIsSent) {
  Paths w(path_config(false));
  w.connect();
  ASSERT_TRUE(w.up());
  EXPECT_EQ(w.level_of(w.a), kConfigured);
  EXPECT_EQ(w.handle_level(w.b), kConfigured);
  EXPECT_EQ(w.requests(), 0u);
}

TEST(Path, Ethernet_NothingIsAsked) {
  Paths w;
  for (Process* p : {&w.a, &w.b}) {
    p->hca->port.link_layer = IBV_LINK_LAYER_ETHERNET;
    p->port.refresh();
  }
  w.a.endpoint.peer.address = w.b.port.address();
  w.b.endpoint.peer.address = w.a.port.address();
  w.connect();
  ASSERT_TRUE(w.up());
  EXPECT_EQ(w.requests(), 0u);
  EXPECT_EQ(w.level_of(w.a), kConfigured);
}

TEST(Path, AdministratorIsAddressed_AsThePortSays) {
  Paths w;
  w.connect();
  int seen = 0;
  for (const ibv_ah_attr& ah : w.fabric.ahs) {
    if (ah.dlid != TestFabric::kManagerLid) continue;
    ++seen;
    EXPECT_EQ(ah.sl, 2) << "sm_sl";
    EXPECT_EQ(ah.is_global, 0);
  }
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(w.fabric.wrong_qkeys, 0);
}

TEST(Path, GrhRequired_TheAdministratorHasItsOwnGid) {
  engine::Config config = path_config();
  config.qp.always_global = true;
  Paths w(config);
  w.connect();
  ASSERT_TRUE(w.up());
  for (const ibv_ah_attr& ah : w.fabric.ahs) {
    if (ah.dlid != TestFabric::kManagerLid) continue;
    EXPECT_EQ(ah.is_global, 1);
    EXPECT_EQ(ah.grh.dgid.raw[0], 0xfe);
    EXPECT_EQ(ah.grh.dgid.raw[8], 0x02);
    EXPECT_EQ(ah.grh.dgid.raw[15], 0x02);
  }
}

TEST(Path, KnownPath_IsNotAskedAgain) {
  Paths w;
  w.connect();
  w.again();
  ASSERT_TRUE(w.up());
  EXPECT_GT(w.a.endpoint.epoch, 1u);
  EXPECT_EQ(w.requests(), 2u);
  EXPECT_EQ(w.level_of(w.a), 3);
}

TEST(Path, LostRequests_AreRepeated) {
  Paths w;
  w.fabric.administrator.silent = 3;
  w.connect(2'000);
  ASSERT_TRUE(w.up());
  EXPECT_EQ(w.level_of(w.a), 3);
  EXPECT_EQ(w.level_of(w.b), 4);
  EXPECT_EQ(w.requests(), 5u);
  EXPECT_TRUE(troubles.empty());
}

TEST(Path, BusyAdministrator_IsAskedAgain) {
  Paths w;
  w.fabric.administrator.status = 1;
  w.connect(100);
  EXPECT_FALSE(w.up());
  w.fabric.administrator.status = 0;
  w.pass(2'000);
  ASSERT_TRUE(w.up());
  EXPECT_EQ(w.level_of(w.a), 3);
  EXPECT_TRUE(troubles.empty());
}

TEST(Path, SilentAdministrator_TheConfiguredLevelIsUsedAndSaidOnce) {
  Paths w;
  w.fabric.administrator.silent = 1'000'000;
  w.connect(100);
  EXPECT_FALSE(w.up()) << "the connection is worth waiting for";
  w.pass(8'000);
  ASSERT_TRUE(w.up());
  EXPECT_EQ(w.level_of(w.a), kConfigured);
  EXPECT_EQ(w.level_of(w.b), kConfigured);
  EXPECT_EQ(w.requests(), 2u * PathRecords::kTries);
  ASSERT_EQ(troubles.size(), 2u) << "one of each port";
  EXPECT_EQ(troubles[0].why, PathTrouble::Why::kNoAnswer);
  EXPECT_EQ(troubles[0].manager, TestFabric::kManagerLid);
  const size_t asked = w.requests();
  w.again();
  ASSERT_TRUE(w.up());
  EXPECT_EQ(w.requests(), asked) << "it is left alone for a while";
  EXPECT_EQ(troubles.size(), 2u);
  w.fabric.administrator.silent = 0;
  test_now() += PathRecords::kQuietNs;
  w.again();
  ASSERT_TRUE(w.up());
  EXPECT_EQ(w.level_of(w.a), 3);
}

TEST(Path, RefusedPath_TheConfiguredLevelIsUsed) {
  Paths w;
  w.fabric.administrator.status = 0x0300;  // no records
  w.connect();
  ASSERT_TRUE(w.up());
  EXPECT_EQ(w.level_of(w.a), kConfigured);
  ASSERT_EQ(troubles.size(), 2u);
  EXPECT_EQ(troubles[0].why, PathTrouble::Why::kRefused);
  EXPECT_EQ(troubles[0].code, 0x0300);
  EXPECT_EQ(troubles[0].destination, w.b.port.address().lid);
  test_now() += PathRecords::kQuietNs;
  w.again();
  ASSERT_TRUE(w.up());
  EXPECT_EQ(w.requests(), 4u) << "asked again, a minute later";
  EXPECT_EQ(troubles.size(), 2u) << "and refused again, of which nothing is said";
}

TEST(Path, NoManager_TheConfiguredLevelIsUsed) {
  Paths w;
  for (Process* p : {&w.a, &w.b}) {
    p->hca->port.sm_lid = 0;
    p->port.refresh();
  }
  w.connect();
  ASSERT_TRUE(w.up());
  EXPECT_EQ(w.requests(), 0u);
  ASSERT_EQ(troubles.size(), 2u);
  EXPECT_EQ(troubles[0].why, PathTrouble::Why::kNoManager);
}

TEST(Path, QueuePairCannotBeMade_TheConfiguredLevelIsUsed) {
  for (const char* verb : {"create_cq", "create_qp", "create_ah", "modify_qp"}) {
    SCOPED_TRACE(verb);
    Paths w;
    w.fabric.refusals = {{verb, 1, 1, EPERM, w.a.hca}};
    // Nothing else is made before its answer: the handle to the peer waits for it.
    uint8_t level = 0;
    EXPECT_FALSE(w.a.port.paths().service_level(w.b.port.address(), 0, test_now(), &level));
    w.pass(1);
    EXPECT_EQ(w.fabric.refusals[0].refused, 1);
    w.connect();
    ASSERT_TRUE(w.up());
    EXPECT_EQ(w.level_of(w.a), kConfigured);
    ASSERT_EQ(troubles.size(), 1u);
    EXPECT_EQ(troubles[0].why, PathTrouble::Why::kQueuePair);
    EXPECT_EQ(troubles[0].code, EPERM);
  }
}

// ---- answers that are none

struct Spoiled {
  const char* name;
  void (*spoil)(std::string& mad, uint32_t& source_qpn);
  Drop counted;
};

class WrongAnswer : public testing::TestWithParam<Spoiled> {};

TEST_P(WrongAnswer, IsDroppedAndCounted) {
  Paths w;
  w.fabric.administrator.spoil = GetParam().spoil;
  w.connect(100);
  EXPECT_FALSE(w.up());
  EXPECT_EQ(w.a.port.drops()[static_cast<size_t>(GetParam().counted)], 1u);
  w.fabric.administrator.spoil = nullptr;
  w.pass(2'000);
  ASSERT_TRUE(w.up());
  EXPECT_EQ(w.level_of(w.a), 3);
  EXPECT_TRUE(troubles.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Path, WrongAnswer,
    testing::Values(Spoiled{"Version", [](std::string& mad, uint32_t&) { mad[0] = 2; }, Drop::kShape},
                    Spoiled{"Method", [](std::string& mad, uint32_t&) { mad[3] = 1; }, Drop::kShape},
                    Spoiled{"Short", [](std::string& mad, uint32_t&) { mad.resize(255); }, Drop::kShape},
                    Spoiled{"Empty", [](std::string& mad, uint32_t&) { mad.clear(); }, Drop::kShape},
                    Spoiled{"Transaction", [](std::string& mad, uint32_t&) { ++mad[8]; }, Drop::kForeign},
                    Spoiled{"Sender", [](std::string&, uint32_t& qpn) { qpn = 77; }, Drop::kForeign},
                    Spoiled{"Destination", [](std::string& mad, uint32_t&) { ++mad[97]; }, Drop::kShape},
                    Spoiled{"Source", [](std::string& mad, uint32_t&) { ++mad[99]; }, Drop::kShape}),
    [](const testing::TestParamInfo<Spoiled>& info) { return info.param.name; });

TEST(Path, DoubledAnswer_CountsOnce) {
  Paths w;
  std::string first;
  w.fabric.administrator.spoil = [&](std::string& mad, uint32_t&) { first = mad; };
  w.connect();
  ASSERT_TRUE(w.up());
  first[109] = 9;
  for (stack::Qp* const qp : w.fabric.live()) {
    if (qp->attr.qkey == 0x80010000) w.fabric.receive_datagram(*qp, first.data(), first.size(), 1);
  }
  w.a.port.need_service();
  w.b.port.need_service();
  w.pass(1);
  EXPECT_EQ(w.a.port.drops()[static_cast<size_t>(Drop::kForeign)], 1u);
  EXPECT_EQ(w.b.port.drops()[static_cast<size_t>(Drop::kForeign)], 1u);
  w.again();
  EXPECT_EQ(w.level_of(w.a), 3);
}

// ---- the subnet changes

class SubnetEvent : public testing::TestWithParam<ibv_event_type> {};

TEST_P(SubnetEvent, PathsAreAskedAnew) {
  Paths w;
  w.connect();
  ASSERT_TRUE(w.up());
  w.set_level(w.a, w.b, 7);
  w.set_level(w.b, w.a, 8);
  for (Process* p : {&w.a, &w.b}) w.fabric.raise(*p->hca, GetParam(), 1);
  w.pass(20);
  EXPECT_EQ(w.a.endpoint.epoch, 1u) << "connections stay as they are";
  w.pass(1'000);
  w.again();
  ASSERT_TRUE(w.up());
  EXPECT_EQ(w.requests(), 4u);
  EXPECT_EQ(w.level_of(w.a), 7);
  EXPECT_EQ(w.level_of(w.b), 8);
  EXPECT_EQ(w.handle_level(w.b), 7);
}

INSTANTIATE_TEST_SUITE_P(Path, SubnetEvent,
                         testing::Values(IBV_EVENT_SM_CHANGE, IBV_EVENT_CLIENT_REREGISTER,
                                         IBV_EVENT_LID_CHANGE));

TEST(Path, AnotherManager_IsAskedAtItsAddress) {
  Paths w;
  w.connect();
  w.a.hca->port.sm_lid = 55;
  w.fabric.raise(*w.a.hca, IBV_EVENT_SM_CHANGE, 1);
  w.pass(20);
  w.again();
  ASSERT_TRUE(w.up());
  int seen = 0;
  for (const ibv_ah_attr& ah : w.fabric.ahs) seen += ah.dlid == 55;
  EXPECT_EQ(seen, 1);
}

TEST(Path, ManagerChangesWhileItIsAsked_TheNewOneAnswers) {
  Paths w;
  w.fabric.administrator.silent = 2;
  w.connect(20);
  EXPECT_FALSE(w.up());
  w.fabric.administrator.silent = 0;
  for (Process* p : {&w.a, &w.b}) w.fabric.raise(*p->hca, IBV_EVENT_SM_CHANGE, 1);
  w.pass(150);
  ASSERT_TRUE(w.up()) << "nobody waits for the answer of the old one";
  EXPECT_EQ(w.level_of(w.a), 3);
}

TEST(Path, PortGoesDownWhileItIsAsked_NothingIsSaid) {
  Paths w;
  w.fabric.administrator.silent = 1;
  w.connect(20);
  w.a.hca->port.state = IBV_PORT_DOWN;
  w.fabric.raise(*w.a.hca, IBV_EVENT_PORT_ERR, 1);
  w.pass(8'000);
  EXPECT_TRUE(troubles.empty());
  w.a.hca->port.state = IBV_PORT_ACTIVE;
  w.fabric.raise(*w.a.hca, IBV_EVENT_PORT_ACTIVE, 1);
  w.pass(700);
  ASSERT_TRUE(w.up());
  EXPECT_EQ(w.level_of(w.a), 3);
}

TEST(Path, QueuePairBreaks_AnotherOneIsMade) {
  Paths w;
  w.fabric.administrator.silent = 1;
  w.connect(20);
  EXPECT_FALSE(w.up());
  for (stack::Qp* const qp : w.fabric.live()) {
    if (qp->attr.qkey == 0x80010000) w.fabric.to_error(*qp);
  }
  w.pass(1'000);
  ASSERT_TRUE(w.up());
  EXPECT_EQ(w.level_of(w.a), 3);
  EXPECT_TRUE(troubles.empty());
}

// ---- control threads

TEST(Path, VerbsOfItsQueuePair_AreNotCalledInProgress) {
  engine::Config config = path_config();
  config.control = engine::ControlMode::kDeferred;
  Paths w(config);
  uint8_t level = 0;
  EXPECT_FALSE(w.a.port.paths().service_level(w.b.port.address(), 0, test_now(), &level));
  const size_t handles = w.fabric.ahs.size();
  w.pass(5);
  EXPECT_EQ(w.fabric.ahs.size(), handles);
  EXPECT_EQ(w.fabric.progress_verbs, 0);
  EXPECT_FALSE(w.a.port.paths().service_level(w.b.port.address(), 0, test_now(), &level));
  EXPECT_TRUE(w.a.port.upkeep().run_one());
  w.pass(5);
  EXPECT_TRUE(w.a.port.paths().service_level(w.b.port.address(), 0, test_now(), &level));
  EXPECT_EQ(level, 3);
  EXPECT_EQ(w.fabric.progress_verbs, 0);
}

TEST(Path, VerbsThatDoNotReturn_AreNotWaitedForLong) {
  engine::Config config = path_config();
  config.control = engine::ControlMode::kDeferred;
  Paths w(config);
  uint8_t level = 0;
  EXPECT_FALSE(w.a.port.paths().service_level(w.b.port.address(), 0, test_now(), &level));
  w.pass(4'000);
  EXPECT_TRUE(w.a.port.paths().service_level(w.b.port.address(), 0, test_now(), &level));
  EXPECT_EQ(level, kConfigured);
  ASSERT_EQ(troubles.size(), 1u);
  EXPECT_EQ(troubles[0].code, ETIMEDOUT);
}

TEST(Path, ManyDestinations_AreAskedInTurns) {
  Paths w;
  w.fabric.administrator.silent = 1'000;
  uint8_t level = 0;
  engine::PortAddress to = w.b.port.address();
  for (uint16_t lid = 1000; lid < 1100; ++lid) {
    to.lid = lid;
    EXPECT_FALSE(w.a.port.paths().service_level(to, 0, test_now(), &level));
  }
  w.pass(20);
  EXPECT_EQ(w.requests(), PathRecords::kAtOnce);
  w.fabric.administrator.silent = 0;
  w.pass(600);
  for (uint16_t lid = 1000; lid < 1100; ++lid) {
    to.lid = lid;
    EXPECT_TRUE(w.a.port.paths().service_level(to, 0, test_now(), &level));
  }
}

// ---- texts

TEST(Path, TextsNameTheRemedy) {
  char text[300];
  PathTrouble trouble;
  trouble.manager = 12;
  engine::path_trouble_text(trouble, text, sizeof text);
  EXPECT_STREQ(text, "the subnet administrator (lid 12) does not answer");
  trouble = {PathTrouble::Why::kQueuePair, EPERM, 12, 0};
  engine::path_trouble_text(trouble, text, sizeof text);
  EXPECT_STREQ(text,
               "the queue pair that asks the subnet administrator cannot be made (Operation not permitted)");
  engine::path_trouble_remedy(trouble, text, sizeof text);
  EXPECT_NE(std::string(text).find("rdma system set privileged-qkey on"), std::string::npos);
  trouble = {PathTrouble::Why::kRefused, 0x300, 12, 7};
  engine::path_trouble_text(trouble, text, sizeof text);
  EXPECT_STREQ(text, "the subnet administrator (lid 12) refuses the path to lid 7 with status 0x0300");
}

}  // namespace
}  // namespace bfo::test
