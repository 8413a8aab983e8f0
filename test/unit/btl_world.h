// SPDX-License-Identifier: BSD-3-Clause
//
// btl_world.h: two processes on a simulated fabric, one port each, and a host that writes down every call it
// gets.
//
// P1..P8: contrib/doc/design.md
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "btl/verbs/engine/connect/cm.h"
#include "btl/verbs/engine/drain/drain.h"
#include "btl/verbs/engine/datagram/cm_packet.h"
#include "btl/verbs/engine/rail/patience.h"
#include "btl/verbs/engine/send/rdma.h"
#include "btl/verbs/engine/send/send.h"
#include "test/unit/btl_fabric.h"

namespace bfo::test {

/// A process with one device, one port and one endpoint to its peer.
struct Process {
  stack::Device* hca = nullptr;
  engine::Device device;
  engine::Port port;
  engine::Endpoint endpoint;
  std::vector<std::string> log;
  std::vector<Process*> siblings;                   // the other ports of the same process
  std::map<uint64_t, engine::Endpoint*> elsewhere;  // further rails, by the name of the peer
  bool other_rail = true;
  std::set<const engine::Endpoint*> alone;  // all the same without another rail
  bool alive = true;                        // its event thread runs
  bool initially_down = false;              // its port is not active when it opens it
  std::function<void()> on_other_rail;      // called once, from the next other_rail_up
  std::function<void()> on_done;            // called once, from the next frag_done
  int others_asked = 0;
  int up = 0;
  int down = 0;
  int closed = 0;
  bfo_rail_event_t last_event{};
  bfo_rail_event_t closed_event{};
  bfo_fence_result_t last_result = BFO_FENCED;
  uint64_t last_delivered = 0;
  uint64_t gap = 0;
  engine::Patience patience;
  uint64_t stay_ns = 0;              // comes_seldom(), since it was last set to 0
  std::vector<std::string> packets;  // of connections, sent and believed, in words
  std::vector<std::string> rates;    // of its port, before and after a change
  std::vector<std::string> losses;   // of packets, as its port was told to lose them, or not any more
  engine::LossTurn loss_turn = engine::LossTurn::kKept;
  int turns_asked = 0;
  bool loss_goes_on[2] = {};       // out, in: another process has told
  std::vector<std::string> drops;  // reasons of what was dropped or put off

  static Process& of(void* ctx) { return *static_cast<Process*>(ctx); }

  engine::Host host() {
    engine::Host host{};
    host.ctx = this;
    host.deliver = [](void* ctx, engine::Endpoint&, uint8_t tag, char* data, uint32_t length) {
      of(ctx).log.push_back("recv " + std::to_string(tag) + " " + std::string(data, length));
    };
    host.frag_done = [](void* ctx, engine::Endpoint&, engine::Frag* frag, int status) {
      of(ctx).log.push_back("done " + std::string(static_cast<char*>(frag->data), frag->length) + " " +
                            std::to_string(status));
      if (of(ctx).on_done) std::exchange(of(ctx).on_done, nullptr)();
    };
    host.payload_failed = [](void* ctx, engine::Endpoint&, uint8_t, const void* data, uint32_t length,
                             int status) {
      of(ctx).log.push_back("payload " + std::string(static_cast<const char*>(data), length) + " " +
                            std::to_string(status));
    };
    host.rail_up = [](void* ctx, engine::Endpoint&, const bfo_rail_event_t& event) {
      ++of(ctx).up;
      of(ctx).log.push_back("up " + std::to_string(event.info.name.epoch));
    };
    host.rail_suspect = [](void* ctx, engine::Endpoint&, const bfo_rail_event_t&) {
      of(ctx).log.push_back("suspect");
    };
    host.rail_down = [](void* ctx, engine::Endpoint&, const bfo_rail_event_t& event) {
      ++of(ctx).down;
      of(ctx).last_event = event;
      of(ctx).log.push_back("down " + std::to_string(event.info.name.epoch));
    };
    host.rail_closed = [](void* ctx, engine::Endpoint&, const bfo_rail_event_t& event,
                          bfo_fence_result_t result, uint64_t delivered) {
      ++of(ctx).closed;
      of(ctx).closed_event = event;
      of(ctx).last_result = result;
      of(ctx).last_delivered = delivered;
      of(ctx).log.push_back("closed " + std::to_string(event.info.name.epoch));
    };
    host.cause_known = [](void* ctx, engine::Endpoint&, const bfo_rail_event_t& event) {
      of(ctx).last_event = event;
      of(ctx).log.push_back(std::string("because ") + event.text);
    };
    host.gap_lost = [](void* ctx, engine::Endpoint&, const bfo_rail_name_t&, uint64_t lost) {
      of(ctx).gap = lost;
    };
    host.rate_changed = [](void* ctx, const engine::PortRate& before, const engine::PortRate& now,
                           int32_t event) {
      of(ctx).rates.push_back(std::to_string(before.mbit) + " > " + std::to_string(now.mbit) + " " +
                              engine::event_name(event) + (now.guessed ? ", guessed" : ""));
    };
    host.loss_turn = [](void* ctx, uint64_t) {
      ++of(ctx).turns_asked;
      return of(ctx).loss_turn;
    };
    host.loss_goes_on = [](void* ctx, bool in) { return of(ctx).loss_goes_on[in ? 1 : 0]; };
    host.packet_loss = [](void* ctx, const engine::PortLoss& loss) {
      if (loss.stage == engine::LossStage::kGoesOn) return;
      of(ctx).losses.push_back(std::string(loss.in ? "in" : "out") +
                               (loss.stage == engine::LossStage::kBegins ? " begins" : " is over"));
    };
    host.find_peer = [](void*, uint64_t) -> engine::Endpoint* { return nullptr; };
    host.connect_other_rails = [](void* ctx, engine::Endpoint&) { ++of(ctx).others_asked; };
    host.comes_seldom = [](void* ctx, uint64_t ns) { of(ctx).stay_ns = ns; };
    host.packet = [](void* ctx, engine::Endpoint&, const engine::Packet& packet, bool out) {
      char text[200];
      engine::describe_packet(text, sizeof text, packet);
      of(ctx).packets.push_back((out ? "to: " : "from: ") + std::string(text));
    };
    host.dropped = [](void* ctx, const engine::DropNote& note) { of(ctx).drops.emplace_back(note.why); };
    host.peer_answers = [](void* ctx, engine::Endpoint&, bool answers) {
      of(ctx).log.push_back(answers ? "peer answers" : "peer does not answer");
    };
    host.rails = [](void* ctx, uint64_t name, engine::Endpoint** out, int room) {
      int count = 0;
      if (room > count) out[count++] = &of(ctx).endpoint;
      for (Process* sibling : of(ctx).siblings) {
        if (room > count) out[count++] = &sibling->endpoint;
      }
      const auto other = of(ctx).elsewhere.find(name);
      if (other != of(ctx).elsewhere.end() && room > count) out[count++] = other->second;
      return count;
    };
    host.other_rail_up = [](void* ctx, engine::Endpoint& endpoint) {
      if (of(ctx).on_other_rail) std::exchange(of(ctx).on_other_rail, nullptr)();
      return of(ctx).other_rail && of(ctx).alone.count(&endpoint) == 0;
    };
    return host;
  }

  void open(TestFabric& fabric, const std::string& name, uint64_t own_name, const engine::Config& base) {
    hca = &fabric.add_device(name);
    if (initially_down) hca->port.state = IBV_PORT_DOWN;
    engine::Config config = base;
    config.own_name = own_name;
    config.may_be_down = initially_down;
    const char* what = "";
    ASSERT_TRUE(device.open(test_verbs(), hca));
    ASSERT_TRUE(port.open(device, 1, config, host(), test_environment(), &what)) << what;
    port.set_failover(true);
  }

  void poll() {
    TestFabric::current()->in_progress = true;
    poll_port();
    TestFabric::current()->in_progress = false;
  }
  void poll_port() {
    while (engine::read_event(test_verbs(), device.context(), test_environment().now_ns, &device.events())) {
    }
    engine::Port* ports[] = {&port};
    engine::Port::take_events(device, ports, 1);
    port.poll();
  }

  /// A turn of the event thread, if there is anything to do for it.
  void serve_heartbeat() {
    pollfd fd = {port.heartbeat().fd(), POLLIN, 0};
    if (alive && ::poll(&fd, 1, 0) == 1) port.heartbeat().serve();
  }

  void meet(Process& peer, uint64_t peer_name) {
    endpoint.peer.name = peer_name;
    endpoint.peer.nonce = peer.port.nonce();
    endpoint.peer.key = peer.port.key();
    endpoint.peer.address = peer.port.address();
    endpoint.peer.initially_down = peer.initially_down;
    ASSERT_TRUE(port.add(endpoint));
  }

  /// True when every piece of work is accounted for (P3).
  bool balanced() {
    const bfo_accounting_t& accounting = port.accounting();
    for (int kind = 0; kind < BFO_KIND_COUNT; ++kind) {
      const uint64_t ended = accounting.delivered[kind] + accounting.unknown[kind];
      if (accounting.posted[kind] != ended ||
          accounting.accepted[kind] != ended + accounting.never_sent[kind])
        return false;
    }
    return true;
  }

  int count(const std::string& prefix) const {
    int n = 0;
    for (const std::string& line : log) n += line.compare(0, prefix.size(), prefix) == 0;
    return n;
  }
};

inline engine::Config small_config() {
  engine::Config config;
  config.send_depth = 16;
  config.receive_depth = 64;
  config.receive_bytes = 4096;
  config.signal_interval = 4;
  config.cq_entries = 512;
  return config;
}

/// Two processes: a (name 1) initiates, b (name 2) responds.
struct World {
  TestFabric fabric;
  Process a;
  Process b;
  std::list<engine::Frag> frags;
  std::list<std::string> payloads;

  explicit World(const engine::Config& config = small_config(), bool a_initially_down = false,
                 bool b_initially_down = false) {
    a.initially_down = a_initially_down;
    b.initially_down = b_initially_down;
    a.open(fabric, "left", 1, config);
    b.open(fabric, "right", 2, config);
    a.meet(b, 2);
    b.meet(a, 1);
  }
  ~World() {
    a.port.remove(a.endpoint);
    b.port.remove(b.endpoint);
    EXPECT_TRUE(a.balanced());
    EXPECT_TRUE(b.balanced());
    a.port.close();
    b.port.close();
  }

  /// Lets `ms` of virtual time pass, polling both sides often.
  void pass(uint64_t ms) {
    for (uint64_t i = 0; i < ms * 10; ++i) {
      test_now() += 100'000;
      a.serve_heartbeat();
      b.serve_heartbeat();
      for (int k = 0; k < 32; ++k) {
        fabric.run();
        a.poll();
        b.poll();
      }
    }
  }
  void connect() {
    engine::cm_connect(a.endpoint);
    pass(5);
    ASSERT_EQ(a.endpoint.phase, engine::Phase::kUp);
    ASSERT_EQ(b.endpoint.phase, engine::Phase::kUp);
    a.log.clear();
    b.log.clear();
  }
  /// Turns in quick succession until b, the responder, has replied.
  void until_replied() {
    for (int i = 0; i < 400 && b.endpoint.phase != engine::Phase::kReplied; ++i) {
      test_now() += 10'000;
      a.poll();
      b.poll();
    }
    ASSERT_EQ(b.endpoint.phase, engine::Phase::kReplied);
  }
  /// The port of `p` goes down or comes back, and its device says so.
  void set_port(Process& p, ibv_port_state state) {
    p.hca->port.state = state;
    fabric.raise(*p.hca, state == IBV_PORT_ACTIVE ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, 1);
  }
  engine::Frag* frag(const std::string& text, bool signaled = true) {
    payloads.push_back(text);
    engine::Frag& frag = frags.emplace_back();
    frag.data = payloads.back().data();
    frag.length = static_cast<uint32_t>(text.size());
    frag.tag = 65;
    frag.signaled = signaled;
    return &frag;
  }
  bool sendi(Process& from, const std::string& text) {
    char* slot = engine::slot_reserve(from.endpoint, static_cast<uint32_t>(text.size()));
    if (slot == nullptr) return false;
    memcpy(slot, text.data(), text.size());
    return engine::slot_commit(from.endpoint, slot, static_cast<uint32_t>(text.size()), 65);
  }
};

using Log = std::vector<std::string>;

/// Memory of a process that its peers may read and write.
struct Exposed {
  Exposed(Process& owner, std::string text) : bytes(std::move(text)) {
    constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    mr = test_verbs().reg_mr(owner.device.pd(), bytes.data(), bytes.size(), kAccess);
  }
  ~Exposed() { test_verbs().dereg_mr(mr); }
  /// `frag` writes or reads it from its byte `offset` on.
  void name_in(engine::Frag* frag, size_t offset = 0) {
    frag->remote_address = reinterpret_cast<uint64_t>(bytes.data()) + offset;
    frag->rkey = mr->rkey;
  }
  std::string bytes;
  ibv_mr* mr;
};

/// The next packet of `from` to `to`, as `from` itself would make it; `change` comes before the sum.
template <class Change>
engine::Packet packet_from(Process& from, Process& to, engine::PacketType type, uint32_t epoch,
                           Change change) {
  engine::Packet packet{};
  packet.type = static_cast<uint8_t>(type);
  packet.source = from.port.config().own_name;
  packet.target = to.port.config().own_name;
  packet.source_nonce = from.port.nonce();
  packet.target_nonce = to.port.nonce();
  packet.epoch = epoch;
  packet.lid = from.port.address().lid;
  packet.link_layer = from.port.address().link_layer;
  memcpy(packet.gid, from.port.address().gid.raw, sizeof packet.gid);
  packet.mtu = from.port.address().mtu;
  packet.cm_qpn = from.port.cm_qp().number();
  EXPECT_TRUE(from.endpoint.make_resources());
  packet.sequence = ++from.endpoint.packets().sent;
  change(packet);
  engine::packet_seal(&packet, to.port.key());
  return packet;
}
inline engine::Packet packet_from(Process& from, Process& to, engine::PacketType type, uint32_t epoch) {
  return packet_from(from, to, type, epoch, [](engine::Packet&) {});
}
inline void hand_over(Process& to, const engine::Packet& packet) {
  engine::cm_receive(to.port, reinterpret_cast<const char*>(&packet), sizeof packet);
}

}  // namespace bfo::test
