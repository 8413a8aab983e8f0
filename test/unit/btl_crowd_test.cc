// SPDX-License-Identifier: BSD-3-Clause
//
// btl_crowd_test.cc: a port with two hundred peers: how many handshakes are under way at a time, and which
// come first.
#include <algorithm>
#include <memory>

#include "btl/verbs/engine/contract.h"
#include "btl/verbs/engine/handshakes.h"
#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::kHandshakes;
using engine::Phase;

constexpr size_t kPeers = 200;

engine::Config crowd_config() {
  engine::Config config = small_config();
  config.control = engine::ControlMode::kDeferred;
  config.cq_entries = 4096;
  config.receive_depth = 16;
  config.receive_bytes = 512;
  return config;
}

/// A process, the hub, and its peers, each of which knows the hub only.
struct Crowd {
  FakeFabric fabric;
  Process hub;
  std::vector<std::unique_ptr<Process>> peers;
  std::vector<std::unique_ptr<engine::Endpoint>> ends;  // the hub's, in the order of `peers`
  std::list<std::string> payloads;
  std::list<engine::Frag> frags;
  size_t most = 0;      // handshakes that the hub began, under way in one turn
  size_t answered = 0;  // the same of those that it answers

  explicit Crowd(uint64_t hub_name) {
    hub.open(fabric, "hub", hub_name, crowd_config());
    for (size_t i = 0; i < kPeers; ++i) {
      auto peer = std::make_unique<Process>();
      const uint64_t name = 1000 + i;
      peer->open(fabric, "p" + std::to_string(i), name, crowd_config());
      auto end = std::make_unique<engine::Endpoint>();
      end->peer_name = name;
      end->peer_nonce = peer->port.nonce();
      end->peer_key = peer->port.key();
      end->peer = peer->port.address();
      EXPECT_TRUE(hub.port.add(*end));
      peer->meet(hub, hub_name);
      peers.push_back(std::move(peer));
      ends.push_back(std::move(end));
    }
  }
  ~Crowd() {
    for (auto& end : ends) hub.port.remove(*end);
    for (auto& peer : peers) {
      peer->port.remove(peer->endpoint);
      peer->port.close();
    }
    hub.port.close();
    EXPECT_FALSE(fabric.overrun);
  }
  bool send(size_t i) {
    payloads.push_back("m" + std::to_string(i));
    engine::Frag& frag = frags.emplace_back();
    frag.data = payloads.back().data();
    frag.length = static_cast<uint32_t>(payloads.back().size());
    frag.tag = 65;
    frag.signaled = true;
    return engine::send(*ends[i], &frag) == engine::Accepted::kParked;
  }
  static void serve(Process& p) {
    while (p.port.addresses().lane().run_one() || p.port.upkeep().run_one() || p.port.stops().run_one() ||
           p.port.setups().run_one() || p.port.queue_pairs().run_one() || p.port.registrations().run_one()) {
    }
  }
  void note() {
    size_t begun = 0;
    size_t making = 0;
    for (const auto& end : ends) {
      const Phase phase = end->phase;
      making += phase == Phase::kMaking && !end->initiator;
      begun += phase == Phase::kKnocking || phase == Phase::kRequesting || phase == Phase::kBinding ||
               phase == Phase::kProbing || (phase == Phase::kMaking && end->initiator);
    }
    most = std::max(most, begun);
    answered = std::max(answered, making);
  }
  void turns(int count, uint64_t ns = 300'000) {
    for (int i = 0; i < count; ++i) {
      fake_now() += ns;
      for (int k = 0; k < 33; ++k) hub.poll();
      note();
      fabric.run();
      for (auto& peer : peers) {
        for (int k = 0; k < 33; ++k) peer->poll();
        serve(*peer);
      }
      fabric.run();
      serve(hub);
    }
  }
  size_t up() const {
    return static_cast<size_t>(
        std::count_if(ends.begin(), ends.end(), [](const auto& end) { return end->phase == Phase::kUp; }));
  }
  void until_all_up(int most_turns) {
    for (int i = 0; i < most_turns && up() < kPeers; ++i) turns(1);
    ASSERT_EQ(up(), kPeers);
  }
  void flap() {
    hub.fake->ports[1].state = IBV_PORT_DOWN;
    fabric.raise(*hub.fake, IBV_EVENT_PORT_ERR, 1);
    turns(40, 1'000'000);
    for (const auto& end : ends) ASSERT_EQ(end->phase, Phase::kClosed);
  }
  void come_back() {
    hub.fake->ports[1].state = IBV_PORT_ACTIVE;
    fabric.raise(*hub.fake, IBV_EVENT_PORT_ACTIVE, 1);
    most = 0;
  }
};

class CrowdRoles : public testing::TestWithParam<uint64_t> {};

TEST_P(CrowdRoles, FirstMessagesToAll_FewHandshakesAtATime) {
  Crowd crowd(GetParam());
  for (size_t i = 0; i < kPeers; ++i) ASSERT_TRUE(crowd.send(i));
  crowd.until_all_up(4000);
  EXPECT_EQ(crowd.most, size_t{kHandshakes});
  EXPECT_LE(crowd.answered, size_t{kHandshakes});
  crowd.turns(20);
  EXPECT_EQ(crowd.hub.count("done m"), static_cast<int>(kPeers));
  EXPECT_EQ(crowd.hub.down, 0);
}

TEST_P(CrowdRoles, PortGoesDownAndUp_FewAtATimeAndMessagesFirst) {
  constexpr size_t kUrgent = 40;
  Crowd crowd(GetParam());
  for (size_t i = 0; i < kPeers; ++i) ASSERT_TRUE(crowd.send(i));
  crowd.until_all_up(4000);
  crowd.flap();
  // Those that were met first are the last ones in the port's list.
  for (size_t i = 0; i < kUrgent; ++i) {
    if (i % 2 == 0) {
      engine::rail_connect(*crowd.ends[i]);
    } else {
      crowd.hub.alone.insert(crowd.ends[i].get());
    }
  }
  crowd.come_back();
  size_t urgent = 0;
  for (int i = 0; i < 4000 && urgent < kUrgent; ++i) {
    crowd.turns(1);
    urgent = 0;
    size_t unhurried = 0;
    for (size_t k = 0; k < kPeers; ++k) {
      const bool begun = crowd.ends[k]->phase != Phase::kClosed;
      (k < kUrgent ? urgent : unhurried) += begun;
    }
    if (urgent < kUrgent) {
      ASSERT_EQ(unhurried, 0u) << urgent;
    }
  }
  ASSERT_EQ(urgent, kUrgent);
  crowd.until_all_up(8000);
  EXPECT_LE(crowd.most, size_t{kHandshakes});
  EXPECT_LE(crowd.answered, size_t{kHandshakes});
}

INSTANTIATE_TEST_SUITE_P(Role, CrowdRoles, testing::Values(uint64_t{1}, uint64_t{5000}),
                         [](const auto& which) { return which.param == 1 ? "Initiator" : "Responder"; });

TEST(Crowd, NothingIsSent_NothingIsConnected) {
  Crowd crowd(1);
  crowd.turns(50);
  EXPECT_EQ(crowd.most, 0u);
  EXPECT_TRUE(crowd.hub.port.quiet() || crowd.fabric.packets.empty());
}

TEST(Crowd, DeadPeers_DoNotKeepThePlaces) {
  Crowd crowd(1);
  crowd.hub.other_rail = false;  // none is given up
  // Those that were met last are the first ones in the port's list.
  for (size_t i = 100; i < kPeers; ++i) crowd.fabric.deaf.insert(crowd.peers[i]->port.ud().number());
  for (size_t i = 0; i < kPeers; ++i) ASSERT_TRUE(crowd.send(i));
  for (int i = 0; i < 9000 && crowd.up() < kPeers - 100; ++i) crowd.turns(1);
  EXPECT_EQ(crowd.up(), kPeers - 100);
}

TEST(Crowd, PeersBeginAllAtOnce_FewAreAnsweredAtATime) {
  Crowd crowd(5000);
  for (auto& peer : crowd.peers) engine::connect_want(peer->endpoint);
  crowd.until_all_up(8000);
  EXPECT_EQ(crowd.answered, size_t{kHandshakes});
  EXPECT_EQ(crowd.most, 0u);
}

}  // namespace
}  // namespace bfo::test
