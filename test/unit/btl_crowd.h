// SPDX-License-Identifier: BSD-3-Clause
//
// btl_crowd.h: a port with two hundred peers. With some of them its process speaks over another rail.
#pragma once

#include <algorithm>
#include <map>
#include <memory>

#include "btl/verbs/engine/progress/contract.h"
#include "btl/verbs/engine/connect/handshakes.h"
#include "test/unit/btl_world.h"

namespace bfo::test {

inline constexpr size_t kPeers = 200;

inline engine::Config crowd_config() {
  engine::Config config = small_config();
  config.control = engine::ControlMode::kDeferred;
  config.cq_entries = 4096;
  config.receive_depth = 16;
  config.receive_bytes = 512;
  return config;
}

/// A second rail between the hub and one of its peers.
struct Talk {
  Process hub;
  Process peer;

  Talk(TestFabric& fabric, uint64_t hub_name, uint64_t peer_name) {
    hub.open(fabric, "hub-to-" + std::to_string(peer_name), hub_name, small_config());
    peer.open(fabric, "from-" + std::to_string(peer_name), peer_name, small_config());
    hub.meet(peer, peer_name);
    peer.meet(hub, hub_name);
    engine::cm_connect(hub.endpoint);
  }
  ~Talk() {
    hub.port.remove(hub.endpoint);
    peer.port.remove(peer.endpoint);
    hub.port.close();
    peer.port.close();
  }
  void poll() {
    for (int k = 0; k < 33; ++k) {
      hub.poll();
      peer.poll();
    }
  }
  /// The hub says something.
  void say() {
    char* const slot = engine::slot_reserve(hub.endpoint, 1);
    ASSERT_NE(slot, nullptr);
    *slot = 'x';
    ASSERT_TRUE(engine::slot_commit(hub.endpoint, slot, 1, 65));
  }
};

/// A process, the hub, and its peers, each of which knows the hub only.
struct Crowd {
  TestFabric fabric;
  Process hub;
  std::vector<std::unique_ptr<Process>> peers;
  std::vector<std::unique_ptr<engine::Endpoint>> ends;  // the hub's, in the order of `peers`
  std::map<size_t, std::unique_ptr<Talk>> talks;        // by the peer's place in `peers`
  bool talking = false;                                 // over these, in every turn
  std::list<std::string> payloads;
  std::list<engine::Frag> frags;
  size_t most = 0;      // handshakes that the hub began, under way in one turn
  size_t answered = 0;  // the same of those that it answers

  explicit Crowd(uint64_t hub_name, bool initially_down = false) {
    hub.initially_down = initially_down;
    hub.open(fabric, "hub", hub_name, crowd_config());
    for (size_t i = 0; i < kPeers; ++i) {
      auto peer = std::make_unique<Process>();
      const uint64_t name = 1000 + i;
      peer->open(fabric, "p" + std::to_string(i), name, crowd_config());
      auto end = std::make_unique<engine::Endpoint>();
      end->peer.name = name;
      end->peer.nonce = peer->port.nonce();
      end->peer.key = peer->port.key();
      end->peer.address = peer->port.address();
      EXPECT_TRUE(hub.port.add(*end));
      peer->meet(hub, hub_name);
      peers.push_back(std::move(peer));
      ends.push_back(std::move(end));
    }
  }
  void add_talk(size_t i) {
    talks[i] = std::make_unique<Talk>(fabric, hub.port.config().own_name, ends[i]->peer.name);
    hub.elsewhere[ends[i]->peer.name] = &talks[i]->hub.endpoint;
    peers[i]->siblings = {&talks[i]->peer};
  }
  ~Crowd() {
    talks.clear();
    for (auto& end : ends) hub.port.remove(*end);
    for (auto& peer : peers) {
      peer->port.remove(peer->endpoint);
      peer->port.close();
    }
    hub.port.close();
  }
  bool send(size_t i) {
    payloads.push_back("m" + std::to_string(i));
    engine::Frag& frag = frags.emplace_back();
    frag.data = payloads.back().data();
    frag.length = static_cast<uint32_t>(payloads.back().size());
    frag.tag = 65;
    frag.signaled = true;
    return engine::send(*ends[i], &frag) == engine::Accepted::kQueued;
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
      const engine::Phase phase = end->phase;
      making += phase == engine::Phase::kMaking && !end->initiator;
      begun += phase == engine::Phase::kSoliciting || phase == engine::Phase::kRequesting ||
               phase == engine::Phase::kBinding || phase == engine::Phase::kProbing ||
               (phase == engine::Phase::kMaking && end->initiator);
    }
    most = std::max(most, begun);
    answered = std::max(answered, making);
  }
  void turns(int count, uint64_t ns = 300'000) {
    for (int i = 0; i < count; ++i) {
      test_now() += ns;
      for (auto& [peer, talk] : talks) {
        if (talking) talk->say();
        talk->poll();
      }
      for (int k = 0; k < 33; ++k) hub.poll();
      note();
      fabric.run();
      for (auto& peer : peers) {
        peer->poll();
        for (int k = 0; k < 32; ++k) peer->port.poll();
        serve(*peer);
      }
      fabric.run();
      serve(hub);
    }
  }
  size_t up() const {
    return static_cast<size_t>(std::count_if(
        ends.begin(), ends.end(), [](const auto& end) { return end->phase == engine::Phase::kUp; }));
  }
  void until_all_up(int most_turns) {
    for (int i = 0; i < most_turns && up() < kPeers; ++i) turns(1);
    ASSERT_EQ(up(), kPeers);
  }
  void flap() {
    hub.hca->port.state = IBV_PORT_DOWN;
    fabric.raise(*hub.hca, IBV_EVENT_PORT_ERR, 1);
    turns(40, 1'000'000);
    for (const auto& end : ends) ASSERT_EQ(end->phase, engine::Phase::kClosed);
  }
  void come_back() {
    hub.hca->port.state = IBV_PORT_ACTIVE;
    fabric.raise(*hub.hca, IBV_EVENT_PORT_ACTIVE, 1);
    most = 0;
  }
};

}  // namespace bfo::test
