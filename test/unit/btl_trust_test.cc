// SPDX-License-Identifier: BSD-3-Clause
//
// btl_trust_test.cc: what somebody can do who reads the datagrams of a job and sends his own: nothing. Each
// forged or repeated packet is dropped, counted by its reason, and without any effect.
#include "btl/verbs/engine/datagram/trust.h"

#include <memory>

#include "btl/verbs/engine/rail/rules.h"
#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Drop;
using engine::Packet;
using engine::PacketType;
using engine::Phase;
using engine::ReplayWindow;

uint64_t dropped(Process& p, Drop reason) {
  return p.port.drops()[static_cast<size_t>(reason)];
}

TEST(ReplayWindow, TakesEachNumberOnceInAnyOrder) {
  ReplayWindow window;
  EXPECT_FALSE(window.take(0));
  EXPECT_TRUE(window.take(1000));
  EXPECT_FALSE(window.take(1000));
  EXPECT_TRUE(window.take(937));
  EXPECT_FALSE(window.take(936)) << "too old to tell";
  EXPECT_TRUE(window.take(1063));
  EXPECT_FALSE(window.take(1000));
  EXPECT_TRUE(window.take(1001));
  EXPECT_TRUE(window.take(UINT64_MAX));
  EXPECT_FALSE(window.take(UINT64_MAX));
  EXPECT_TRUE(window.take(UINT64_MAX - 63));
  EXPECT_FALSE(window.take(UINT64_MAX - 64));
}

TEST(Epoch, JumpsAreBounded) {
  using engine::plausible_epoch;
  EXPECT_TRUE(plausible_epoch(0, 0));
  EXPECT_TRUE(plausible_epoch(0, UINT32_MAX));
  EXPECT_TRUE(plausible_epoch(engine::kEpochJump, 0));
  EXPECT_FALSE(plausible_epoch(engine::kEpochJump + 1, 0));
  EXPECT_FALSE(plausible_epoch(UINT32_MAX, 1));
  EXPECT_TRUE(plausible_epoch(UINT32_MAX, UINT32_MAX - 1));
}

/// All packets that reach the connection manager.
constexpr PacketType kDatagram[] = {PacketType::kSolicit, PacketType::kRequest,  PacketType::kReply,
                                    PacketType::kReady,   PacketType::kBye,      PacketType::kPong,
                                    PacketType::kRefuse,  PacketType::kQuestion, PacketType::kAnswer};

class AnyDatagram : public testing::TestWithParam<PacketType> {};
/// All but BYE: a rank may say that it leaves, whatever the epoch.
class DatagramOfAnEpoch : public AnyDatagram {};

/// Somebody who knows everything that a packet shows, and not the key.
TEST_P(AnyDatagram, ForgedWithoutTheKey_HasNoEffect) {
  for (Process World::*to : {&World::a, &World::b}) {
    World w;
    w.connect();
    Process& target = w.*to;
    Process& victim = &target == &w.a ? w.b : w.a;
    const engine::PortAddress known = target.endpoint.peer.address;
    for (uint32_t epoch : {0u, 1u, 2u, 3u, 0x7fffffffu, 0xffffffffu}) {
      const uint64_t before = dropped(target, Drop::kSum);
      Packet packet = packet_from(victim, target, GetParam(), epoch, [](Packet& p) { p.lid = 77; });
      --victim.endpoint.packets().sent;  // it never sent this
      engine::packet_seal(&packet, SipKey{});
      hand_over(target, packet);
      engine::packet_seal(&packet, victim.port.key());  // a key, and a wrong one
      hand_over(target, packet);
      EXPECT_EQ(dropped(target, Drop::kSum), before + 2);
    }
    w.pass(5);
    EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
    EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
    EXPECT_EQ(target.endpoint.epoch, 1u);
    EXPECT_EQ(target.endpoint.peer.address.lid, known.lid);
    EXPECT_FALSE(target.endpoint.peer.left);
    EXPECT_TRUE(target.log.empty());
  }
}

/// A genuine packet that comes a second time.
TEST_P(AnyDatagram, Replayed_HasNoEffect) {
  for (Process World::*to : {&World::a, &World::b}) {
    World w;
    w.connect();
    Process& target = w.*to;
    Process& sender = &target == &w.a ? w.b : w.a;
    // Of an epoch that is over, so that the first one changes nothing.
    const Packet packet = packet_from(sender, target, GetParam(), 0);
    hand_over(target, packet);
    const uint64_t stale = dropped(target, Drop::kStale);
    target.log.clear();
    for (int i = 0; i < 3; ++i) hand_over(target, packet);
    EXPECT_EQ(dropped(target, Drop::kReplayed), 3u);
    EXPECT_EQ(dropped(target, Drop::kStale), stale);
    w.pass(5);
    EXPECT_EQ(target.endpoint.phase, Phase::kUp);
    EXPECT_TRUE(target.log.empty());
  }
}

/// A rank of the job, which has the key, about epochs that are not plausible. Only SOLICIT and REQUEST could
/// move the epoch of this side, and REFUSE end it; QUESTION and ANSWER act on an epoch that is equal to it,
/// or on none.
TEST_P(DatagramOfAnEpoch, ThatIsNotPlausible_MovesNoEpoch) {
  for (Process World::*to : {&World::a, &World::b}) {
    World w;
    w.connect();
    Process& target = w.*to;
    Process& sender = &target == &w.a ? w.b : w.a;
    const uint64_t rail = engine::connection_id(sender.port.nonce(), target.port.nonce());
    for (uint32_t epoch : {engine::kEpochJump + 2, 0x7fffffffu, 0x80000000u, 0xfffffffeu, 0xffffffffu})
      for (unsigned flags = 0; flags < 16; ++flags)
        hand_over(target, packet_from(sender, target, GetParam(), epoch, [&](Packet& p) {
                    p.flags = static_cast<uint8_t>(flags);
                    p.rail = rail;
                    p.number = p.carrier = epoch;
                    p.data_qpn = p.data_psn = epoch;
                    p.count = UINT64_MAX;
                  }));
    w.pass(20);
    EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
    EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
    EXPECT_EQ(target.endpoint.epoch, 1u);
    EXPECT_FALSE(target.endpoint.ending().asked);
    EXPECT_TRUE(target.log.empty());
    engine::close_order(target.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
    w.pass(60);
    EXPECT_EQ(w.a.endpoint.phase, Phase::kUp) << "and it comes up again";
    EXPECT_EQ(w.a.endpoint.epoch, 2u);
    EXPECT_EQ(w.b.endpoint.epoch, 2u);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, AnyDatagram, testing::ValuesIn(kDatagram));
INSTANTIATE_TEST_SUITE_P(Types, DatagramOfAnEpoch,
                         testing::Values(PacketType::kSolicit, PacketType::kRequest, PacketType::kReply,
                                         PacketType::kReady, PacketType::kPong, PacketType::kRefuse,
                                         PacketType::kQuestion, PacketType::kAnswer));

TEST(Trust, EveryPacketOfAHandshakeAgain_ChangesNothing) {
  World w;
  w.connect();
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  w.pass(20);
  ASSERT_EQ(w.b.endpoint.epoch, 2u);
  const std::vector<std::string> captured(w.fabric.datagrams.begin(), w.fabric.datagrams.end());
  ASSERT_GT(captured.size(), 5u);
  w.a.log.clear();
  w.b.log.clear();
  for (const std::string& packet : captured) {
    engine::cm_receive(w.a.port, packet.data(), packet.size());
    engine::cm_receive(w.b.port, packet.data(), packet.size());
  }
  w.pass(20);
  EXPECT_EQ(w.a.port.drops()[static_cast<size_t>(Drop::kReplayed)] +
                w.b.port.drops()[static_cast<size_t>(Drop::kReplayed)],
            captured.size());
  EXPECT_EQ(w.fabric.datagrams.size(), captured.size()) << "nothing is sent for them";
  EXPECT_TRUE(w.a.log.empty());
  EXPECT_TRUE(w.b.log.empty());
}

TEST(Trust, StalePacketFromElsewhere_RedirectsNothing) {
  World w;
  w.connect();
  const uint16_t lid = w.a.endpoint.peer.address.lid;
  hand_over(w.a, packet_from(w.b, w.a, PacketType::kSolicit, 0, [](Packet& p) { p.lid = 77; }));
  hand_over(w.a, packet_from(w.b, w.a, PacketType::kReply, 9, [](Packet& p) { p.lid = 77; }));
  EXPECT_EQ(w.a.endpoint.peer.address.lid, lid);
  EXPECT_EQ(dropped(w.a, Drop::kStale), 2u);
}

TEST(Trust, EpochAtTheEnd_IsRefusedAndTheRailComesUpAgain) {
  World w;
  w.connect();
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  for (int i = 0; i < 40; ++i) w.a.poll();
  hand_over(w.a, packet_from(w.b, w.a, PacketType::kSolicit, 0xffffffff));
  hand_over(w.b, packet_from(w.a, w.b, PacketType::kRequest, 0xffffffff));
  w.pass(500);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
  EXPECT_LT(w.a.endpoint.epoch, 10u);
}

TEST(Trust, NoEpochIsLeft_NothingIsStarted) {
  World w;
  w.a.endpoint.epoch = w.b.endpoint.epoch = UINT32_MAX - 1;
  w.connect();
  EXPECT_EQ(w.a.endpoint.epoch, UINT32_MAX);
  engine::close_order(w.a.endpoint, UINT32_MAX, BFO_CAUSE_FENCE, 0, 0);
  w.pass(500);
  EXPECT_EQ(w.a.endpoint.epoch, UINT32_MAX) << "0 is no epoch";
  EXPECT_EQ(w.a.endpoint.phase, Phase::kClosed);
}

TEST(Trust, PeerAddedAnew_IsStillBelieved) {
  World w;
  w.connect();
  w.a.port.remove(w.a.endpoint);
  w.pass(5);
  EXPECT_TRUE(w.b.endpoint.peer.left);
  w.b.port.remove(w.b.endpoint);
  for (Process* p : {&w.a, &w.b}) {
    std::destroy_at(&p->endpoint);
    std::construct_at(&p->endpoint);
  }
  w.a.meet(w.b, 2);
  w.b.meet(w.a, 1);
  w.connect();
}

// ---- the heartbeat

/// Hands a datagram to b's heartbeat. The number of datagrams it sends back.
size_t heartbeat_sends(World& w, const Packet& packet) {
  const size_t before = w.fabric.datagrams.size();
  w.fabric.receive_datagram(*w.fabric.find(w.b.port.heartbeat().number()), &packet, sizeof packet);
  w.b.serve_heartbeat();
  return w.fabric.datagrams.size() - before;
}

TEST(HeartbeatTrust, ForgedAndReplayedPings_AreNotAnswered) {
  World w;
  const Packet sound = packet_from(w.a, w.b, PacketType::kPing, 1);
  Packet forged = sound;
  forged.lid = 77;
  engine::packet_seal(&forged, SipKey{});
  const int handles = w.fabric.ah_calls;
  EXPECT_EQ(heartbeat_sends(w, forged), 0u);
  EXPECT_EQ(w.b.port.heartbeat().dropped(Drop::kSum), 1u);
  EXPECT_EQ(w.fabric.ah_calls, handles) << "no verb for a stranger";
  EXPECT_EQ(heartbeat_sends(w, sound), 1u);
  EXPECT_EQ(heartbeat_sends(w, sound), 0u);
  EXPECT_EQ(w.b.port.heartbeat().dropped(Drop::kReplayed), 1u);
  w.b.port.remove(w.b.endpoint);
  EXPECT_EQ(heartbeat_sends(w, packet_from(w.a, w.b, PacketType::kPing, 1)), 0u);
  EXPECT_EQ(w.b.port.heartbeat().dropped(Drop::kStranger), 1u);
}

TEST(HeartbeatTrust, OnePeerHasOneHandle) {
  World w;
  const int before = w.fabric.ah_calls;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(heartbeat_sends(w, packet_from(w.a, w.b, PacketType::kPing, 1)), 1u);
    for (int k = 0; k < 3; ++k) w.b.serve_heartbeat();
  }
  EXPECT_EQ(w.fabric.ah_calls, before + 1);
  const size_t kept = w.fabric.handles.size();
  for (uint16_t lid = 50; lid < 60; ++lid) {  // it moves
    EXPECT_EQ(
        heartbeat_sends(w, packet_from(w.a, w.b, PacketType::kPing, 1, [&](Packet& p) { p.lid = lid; })), 1u);
    w.fabric.run();
    for (int k = 0; k < 3; ++k) w.b.serve_heartbeat();
  }
  EXPECT_LE(w.fabric.handles.size(), kept + 2) << "what is replaced is destroyed";
}

TEST(HeartbeatTrust, PeerWithoutAHandle_IsTriedAgainAfterAWhileOnly) {
  World w;
  w.fabric.refuse["create_ah"] = EHOSTUNREACH;
  const int before = w.fabric.ah_calls;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(heartbeat_sends(w, packet_from(w.a, w.b, PacketType::kPing, 1)), 0u);
  EXPECT_EQ(w.fabric.ah_calls, before + 1);
  w.fabric.refuse["create_ah"] = 0;
  test_now() += engine::Heartbeat::kRetryNs;
  EXPECT_EQ(heartbeat_sends(w, packet_from(w.a, w.b, PacketType::kPing, 1)), 1u);
}

}  // namespace
}  // namespace bfo::test
