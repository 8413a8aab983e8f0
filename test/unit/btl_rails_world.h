// SPDX-License-Identifier: BSD-3-Clause
//
// btl_rails_world.h: two processes with one or two rails between them, and a messaging layer of a few lines
// above each: it sends over rails that are up, else over one that may come up, sends again what comes back,
// and ends with an error when no rail is left for long.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "btl/verbs/engine/connect/cm.h"
#include "btl/verbs/engine/send/send.h"
#include "test/unit/btl_fabric.h"

namespace bfo::test {

struct Node;

/// One rail of a node: a device with one port and the endpoint to the other node.
struct NodeRail {
  enum class State { kIdle, kUp, kDown };
  Node* node = nullptr;
  stack::Device* hca = nullptr;
  engine::Device device;
  engine::Port port;
  engine::Endpoint endpoint;
  bool open = false;    // the port could be opened
  bool joined = false;  // and meets one of the peer
  State state = State::kIdle;
  bool answers = false;
  std::string failure;            // of opening
  std::string down_text;          // of the last rail_down
  std::vector<std::string> said;  // rail_missing
};

/// A message of the node to the other one.
struct Letter {
  std::string text;
  engine::Frag frag;
  bool out = false;
  bool done = false;
};

struct Node {
  uint64_t name = 0;
  std::array<NodeRail, 2> rails;
  size_t count = 0;
  std::list<Letter> letters;
  std::set<const engine::Endpoint*> alone;  // of other peers, which have no other rail
  std::multiset<std::string> received;
  uint64_t alone_since_ns = 0;  // no rail to use since then; 0: there is one
  std::string error;            // the end, in words
  static constexpr uint64_t kParkNs = 300'000'000;

  static NodeRail& of(void* ctx) { return *static_cast<NodeRail*>(ctx); }

  bool any_up(const NodeRail* but = nullptr) const {
    for (const NodeRail& rail : rails) {
      if (&rail != but && rail.joined && rail.state == NodeRail::State::kUp) return true;
    }
    return false;
  }

  static engine::Host host(NodeRail& rail) {
    engine::Host host{};
    host.ctx = &rail;
    host.deliver = [](void* ctx, engine::Endpoint&, uint8_t, char* data, uint32_t length) {
      of(ctx).node->received.insert(std::string(data, length));
    };
    host.frag_done = [](void* ctx, engine::Endpoint&, engine::Frag* frag, int status) {
      for (Letter& letter : of(ctx).node->letters) {
        if (&letter.frag != frag) continue;
        letter.out = false;
        letter.done = status == BFO_RC_DELIVERED;
      }
    };
    host.payload_failed = [](void*, engine::Endpoint&, uint8_t, const void*, uint32_t, int) {};
    host.rail_up = [](void* ctx, engine::Endpoint&, const bfo_rail_event_t&) {
      of(ctx).state = NodeRail::State::kUp;
      for (NodeRail& other : of(ctx).node->rails) {
        if (other.joined && other.state == NodeRail::State::kIdle) engine::cm_connect(other.endpoint);
      }
    };
    host.rail_suspect = [](void*, engine::Endpoint&, const bfo_rail_event_t&) {};
    host.rail_down = [](void* ctx, engine::Endpoint&, const bfo_rail_event_t& event) {
      of(ctx).state = NodeRail::State::kDown;
      of(ctx).down_text = event.text;
    };
    host.rail_closed = [](void*, engine::Endpoint&, const bfo_rail_event_t&, bfo_fence_result_t, uint64_t) {};
    host.gap_lost = [](void*, engine::Endpoint&, const bfo_rail_name_t&, uint64_t) {};
    host.find_peer = [](void*, uint64_t) -> engine::Endpoint* { return nullptr; };
    host.connect_other_rails = [](void* ctx, engine::Endpoint&) {
      for (NodeRail& other : of(ctx).node->rails) {
        if (&other != &of(ctx) && other.joined && other.endpoint.phase == engine::Phase::kIdle)
          engine::cm_connect(other.endpoint);
      }
    };
    host.other_rail_up = [](void* ctx, engine::Endpoint& endpoint) {
      return of(ctx).node->alone.count(&endpoint) == 0 && of(ctx).node->any_up(&of(ctx));
    };
    host.peer_answers = [](void* ctx, engine::Endpoint&, bool answers) { of(ctx).answers = answers; };
    host.rail_missing = [](void* ctx, engine::Endpoint& endpoint) {
      char what[96];
      char remedy[400];
      engine::resource_text(endpoint.shortage(), what, sizeof what);
      engine::resource_remedy(endpoint.shortage(), 65536, remedy, sizeof remedy);
      of(ctx).said.push_back(std::string(what) + ". " + remedy);
    };
    return host;
  }

  /// Makes the devices and opens what can be opened.
  void open(TestFabric& fabric, uint64_t own_name, size_t rail_count, engine::Config config) {
    name = own_name;
    count = rail_count;
    config.own_name = own_name;
    for (size_t i = 0; i < count; ++i) {
      NodeRail& rail = rails[i];
      rail.node = this;
      const char* what = "device";
      rail.open = rail.device.open(test_verbs(), rail.hca) &&
                  rail.port.open(rail.device, 1, config, host(rail), test_environment(), &what);
      if (!rail.open) rail.failure = std::string(what) + ": " + strerror(errno);
      if (rail.open) rail.port.set_failover(true);
    }
    static_cast<void>(fabric);
  }

  void meet(Node& peer) {
    for (size_t i = 0; i < count; ++i) {
      NodeRail& rail = rails[i];
      const NodeRail& theirs = peer.rails[i];
      rail.joined = rail.open && theirs.open;
      if (!rail.joined) continue;
      rail.endpoint.peer.name = peer.name;
      rail.endpoint.peer.nonce = theirs.port.nonce();
      rail.endpoint.peer.key = theirs.port.key();
      rail.endpoint.peer.address = theirs.port.address();
      ASSERT_TRUE(rail.port.add(rail.endpoint));
    }
  }

  void write(const std::string& text) {
    Letter& letter = letters.emplace_back();
    letter.text = text;
    letter.frag.data = letter.text.data();
    letter.frag.length = static_cast<uint32_t>(text.size());
    letter.frag.tag = 65;
    letter.frag.signaled = true;
  }

  NodeRail* usable() {
    for (const NodeRail::State want : {NodeRail::State::kUp, NodeRail::State::kIdle}) {
      for (NodeRail& rail : rails) {
        if (rail.joined && rail.state == want) return &rail;
      }
    }
    return nullptr;
  }

  void pump() {
    if (!error.empty()) return;
    NodeRail* rail = usable();
    bool answers = false;
    for (const NodeRail& each : rails) answers = answers || (each.joined && each.answers);
    if (rail != nullptr || answers) {
      alone_since_ns = 0;
    } else if (alone_since_ns == 0) {
      alone_since_ns = test_now();
    } else if (test_now() - alone_since_ns > kParkNs && !finished()) {
      error = "no rail left";
      for (const NodeRail& each : rails) error += "; " + (each.open ? each.down_text : each.failure);
    }
    for (Letter& letter : letters) {
      if (rail == nullptr || letter.out || letter.done) continue;
      if (engine::send(rail->endpoint, &letter.frag) != engine::Accepted::kRefused) letter.out = true;
    }
  }

  bool finished() const {
    for (const Letter& letter : letters) {
      if (!letter.done) return false;
    }
    return true;
  }

  void poll() {
    for (NodeRail& rail : rails) {
      if (!rail.open) continue;
      while (engine::read_event(test_verbs(), rail.device.context(), test_environment().now_ns,
                                &rail.device.events())) {
      }
      engine::Port* ports[] = {&rail.port};
      engine::Port::take_events(rail.device, ports, 1);
      rail.port.poll();
    }
  }
  void serve_heartbeats() {
    for (NodeRail& rail : rails) {
      if (!rail.open) continue;
      pollfd fd = {rail.port.heartbeat().fd(), POLLIN, 0};
      if (fd.fd >= 0 && ::poll(&fd, 1, 0) == 1) rail.port.heartbeat().serve();
    }
  }

  void close() {
    for (NodeRail& rail : rails) {
      if (rail.joined) rail.port.remove(rail.endpoint);
    }
    for (NodeRail& rail : rails) {
      if (rail.open) rail.port.close();
    }
  }
  ~Node() {
    for (NodeRail& rail : rails) rail.device.close();
  }
};

/// left (name 1) initiates, right (name 2) responds.
struct RailsWorld {
  TestFabric fabric;
  Node left;
  Node right;

  static engine::Config config() {
    engine::Config config;
    config.send_depth = 16;
    config.receive_depth = 64;
    config.receive_bytes = 4096;
    config.signal_interval = 4;
    config.cq_entries = 512;
    config.connect_timeout_ns = 200'000'000;
    config.peer_timeout_ns = 1'000'000'000;
    config.retry_max_ns = 64'000'000;
    return config;
  }

  explicit RailsWorld(size_t rails) {
    for (size_t i = 0; i < rails; ++i) {
      left.rails[i].hca = &fabric.add_device("left" + std::to_string(i));
      right.rails[i].hca = &fabric.add_device("right" + std::to_string(i));
    }
    left.count = right.count = rails;
  }
  void open(const engine::Config& config = RailsWorld::config()) {
    left.open(fabric, 1, left.count, config);
    right.open(fabric, 2, right.count, config);
    left.meet(right);
    right.meet(left);
  }
  ~RailsWorld() {
    left.close();
    right.close();
  }

  void step(uint64_t ns) {
    test_now() += ns;
    left.serve_heartbeats();
    right.serve_heartbeats();
    for (int k = 0; k < 34; ++k) {
      fabric.run();
      left.poll();
      right.poll();
    }
    left.pump();
    right.pump();
  }
  static bool decided(const Node& node) { return node.finished() || !node.error.empty(); }
  /// Until both sides have come to an end, at most `ms` of virtual time. False: they have not.
  bool run(uint64_t ms) {
    const uint64_t end = test_now() + ms * 1'000'000;
    while (test_now() < end) {
      step(1'000'000);
      if (decided(left) && decided(right)) return true;
    }
    return false;
  }
};

}  // namespace bfo::test
