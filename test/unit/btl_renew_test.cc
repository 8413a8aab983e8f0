// SPDX-License-Identifier: BSD-3-Clause
//
// btl_renew_test.cc: address handles on Ethernet are made anew when what they hold may have changed: a bond
// that failed over, another gateway, a cable put elsewhere.
#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Phase;

/// A World of RoCE ports, or InfiniBand ones.
struct Wires : World {
  explicit Wires(uint8_t link_layer = IBV_LINK_LAYER_ETHERNET) {
    for (Process* p : {&a, &b}) {
      p->hca->port.link_layer = link_layer;
      p->port.refresh();
    }
    a.endpoint.peer.address = b.port.address();
    b.endpoint.peer.address = a.port.address();
  }
  /// As pass(), in steps of 1 ms, for long times.
  void live(uint64_t ms) {
    for (uint64_t i = 0; i < ms; ++i) {
      test_now() += 1'000'000;
      a.serve_heartbeat();
      b.serve_heartbeat();
      for (int k = 0; k < 33; ++k) {
        fabric.run();
        a.poll();
        b.poll();
      }
    }
  }
  /// All handles there are hold an address that nobody has any more.
  void move_neighbours() { fabric.lost_handles = fabric.handles; }
  /// Both queue pairs of the connection find nobody any more.
  void lose_connection() {
    a.other_rail = b.other_rail = false;  // what waits has no other way
    sendi(a, "lost");
    fabric.fail_next(a.endpoint.qps().data.number(), IBV_WC_RETRY_EXC_ERR);
    fabric.fail_next(b.endpoint.qps().data.number(), IBV_WC_RETRY_EXC_ERR);
    sendi(a, "lost too");
    sendi(b, "lost as well");
  }
};

TEST(Renew, NeighbourHasAnotherMacAddress_TheConnectionComesBack) {
  Wires w;
  w.connect();
  const uint32_t before = w.a.endpoint.epoch;
  w.move_neighbours();
  w.lose_connection();
  w.live(1'000);
  EXPECT_NE(w.a.endpoint.phase, Phase::kUp) << "the old handles cannot work";
  w.live(12'000);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
  EXPECT_GT(w.a.endpoint.epoch, before);
  EXPECT_LE(w.fabric.handles.size(), 6u) << "of each side one in use, one retired, one of its heartbeat";
}

/// What the peer says arrives, and nothing of what it is told: hearing it proves nothing of the own handle.
TEST(Renew, NeighbourIsHeardButDoesNotHear_TheConnectionComesBack) {
  for (const bool initiator : {true, false}) {
    Wires w;
    w.connect();
    const uint32_t before = w.a.endpoint.epoch;
    const Process& deaf = initiator ? w.a : w.b;
    w.fabric.lost_handles = {deaf.endpoint.outbox().address->handle};
    w.lose_connection();
    w.live(13'000);
    EXPECT_EQ(w.a.endpoint.phase, Phase::kUp) << initiator;
    EXPECT_EQ(w.b.endpoint.phase, Phase::kUp) << initiator;
    EXPECT_GT(w.a.endpoint.epoch, before) << initiator;
  }
}

TEST(Renew, OwnPortComesUp_HandlesAreMadeAnewAtOnce) {
  Wires w;
  w.connect();
  w.live(2'000);
  const int before = w.fabric.ah_calls;
  w.move_neighbours();
  for (Process* p : {&w.a, &w.b}) w.set_port(*p, IBV_PORT_DOWN);
  w.live(10);
  for (Process* p : {&w.a, &w.b}) w.set_port(*p, IBV_PORT_ACTIVE);
  w.live(600);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_GE(w.fabric.ah_calls, before + 2);
}

/// What a bond does that changes over to its other port: the address stays the same.
TEST(Renew, GidTableChanges_HandlesAreMadeAnewThoughTheAddressIsTheSame) {
  Wires w;
  w.connect();
  w.live(2'000);
  const int before = w.fabric.ah_calls;
  w.fabric.raise(*w.a.hca, IBV_EVENT_GID_CHANGE, 1);
  w.live(10);
  EXPECT_EQ(w.a.down, 0);
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  w.live(700);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.fabric.ah_calls, before + 1);
}

TEST(Renew, PortThatFlaps_DoesNotMakeHandlesEachTime) {
  Wires w;
  w.connect();
  const int before = w.fabric.ah_calls;
  for (int flap = 0; flap < 20; ++flap) {
    w.set_port(w.a, IBV_PORT_DOWN);
    w.live(5);
    w.set_port(w.a, IBV_PORT_ACTIVE);
    w.live(20);
  }
  EXPECT_LE(w.fabric.ah_calls, before + 2);
}

TEST(Renew, SilentPeer_AsksAtMostOnceInFiveSeconds) {
  Wires w;
  w.connect();
  const int before = w.fabric.ah_calls;
  w.move_neighbours();
  w.lose_connection();
  w.b.alive = false;
  for (int i = 0; i < 30'000; ++i) {  // b does nothing at all for a minute
    test_now() += 2'000'000;
    for (int k = 0; k < 32; ++k) w.a.poll();
  }
  EXPECT_GE(w.fabric.ah_calls, before + 5);
  EXPECT_LE(w.fabric.ah_calls, before + 13);
}

TEST(Renew, NeighbourCannotBeResolvedNow_TheOldHandleStays) {
  Wires w;
  w.connect();
  w.fabric.refuse["create_ah"] = EHOSTUNREACH;
  w.a.port.addresses().renew();
  w.b.port.addresses().renew();
  w.live(2'000);
  w.lose_connection();
  w.live(2'000);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp) << "it is still good";
  EXPECT_EQ(w.fabric.handles.size(), 2u);
}

TEST(Renew, PeerThatComputes_IsHeardByItsHeartbeat) {
  Wires w;
  w.connect();
  w.lose_connection();
  const int before = w.fabric.ah_calls;
  for (int i = 0; i < 30'000; ++i) {  // b computes for a minute: its heartbeat alone answers
    test_now() += 2'000'000;
    w.fabric.run();
    for (int k = 0; k < 32; ++k) w.a.poll();
    w.b.serve_heartbeat();
  }
  const auto pongs =
      std::count_if(w.fabric.datagrams.begin(), w.fabric.datagrams.end(), [](const std::string& p) {
        engine::Packet packet;
        return engine::packet_read(p.data(), p.size(), &packet) &&
               packet.type == static_cast<uint8_t>(engine::PacketType::kPong);
      });
  EXPECT_GT(pongs, 3);
  EXPECT_LE(w.fabric.ah_calls - before, 13) << "the heartbeat keeps its handle";
}

TEST(Renew, Infiniband_KeepsItsHandles) {
  Wires w(IBV_LINK_LAYER_INFINIBAND);
  w.connect();
  const int before = w.fabric.ah_calls;
  w.set_port(w.a, IBV_PORT_DOWN);
  w.live(2'000);
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.live(2'000);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.fabric.ah_calls, before);
}

TEST(Renew, AllHandles_AreDestroyedAtTheEnd) {
  Wires w;
  w.connect();
  w.live(1'500);
  w.a.port.addresses().renew();
  w.lose_connection();
  w.live(2'000);
  EXPECT_EQ(w.fabric.handles.size(), 3u);
  w.a.port.remove(w.a.endpoint);
  w.a.port.close();
  EXPECT_EQ(w.fabric.handles.size(), 1u);
  EXPECT_TRUE(w.a.device.close());
  w.a.open(w.fabric, "left again", 1, small_config());
  w.a.meet(w.b, 2);
}

}  // namespace
}  // namespace bfo::test
