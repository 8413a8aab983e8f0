// SPDX-License-Identifier: BSD-3-Clause
//
// btl_heartbeat_test.cc: what the heartbeat of a port answers and drops, for peers and in spite of strangers.
#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Packet;
using engine::PacketType;

/// A PING from a to b, as a sends it.
Packet ping(World& w) {
  return packet_from(w.a, w.b, PacketType::kPing, 1);
}

/// Hands `bytes` to b's heartbeat. The number of datagrams it sends back.
size_t heartbeat_sends(World& w, const void* data, size_t length) {
  const size_t before = w.fabric.datagrams.size();
  w.fabric.receive_datagram(*w.fabric.find(w.b.port.heartbeat().number()), data, length);
  w.b.serve_heartbeat();
  return w.fabric.datagrams.size() - before;
}

TEST(Heartbeat, Ping_IsAnsweredWithoutProgress) {
  World w;
  const Packet sound = ping(w);
  EXPECT_EQ(heartbeat_sends(w, &sound, sizeof sound), 1u);
  Packet pong;
  const std::string& sent = w.fabric.datagrams.back();
  ASSERT_TRUE(engine::packet_read(sent.data(), sent.size(), &pong));
  EXPECT_EQ(pong.type, static_cast<uint8_t>(PacketType::kPong));
  EXPECT_EQ(pong.target_nonce, w.a.port.nonce());
  EXPECT_EQ(w.b.port.heartbeat().dropped(), 0u);
}

TEST(Heartbeat, AnythingElse_IsDroppedAndCounted) {
  World w;
  uint64_t dropped = 0;
  const auto refused = [&](auto change) {
    Packet packet = ping(w);
    change(packet);
    engine::packet_seal(&packet, w.b.port.key());
    EXPECT_EQ(heartbeat_sends(w, &packet, sizeof packet), 0u);
    EXPECT_EQ(w.b.port.heartbeat().dropped(), ++dropped);
  };
  refused([](Packet& p) { p.type = static_cast<uint8_t>(PacketType::kPong); });
  refused([](Packet& p) { p.type = static_cast<uint8_t>(PacketType::kRequest); });
  refused([](Packet& p) { p.type = 99; });
  refused([](Packet& p) { p.target = 7; });
  refused([](Packet& p) { ++p.target_nonce; });
  Packet damaged = ping(w);
  damaged.epoch ^= 1;
  EXPECT_EQ(heartbeat_sends(w, &damaged, sizeof damaged), 0u);
  const Packet whole = ping(w);
  for (size_t length = 1; length < sizeof whole; ++length) EXPECT_EQ(heartbeat_sends(w, &whole, length), 0u);
  EXPECT_EQ(w.b.port.heartbeat().dropped(), dropped + sizeof whole);
}

TEST(Heartbeat, PingToTheConnectionManager_IsDropped) {
  World w;
  Packet packet = ping(w);
  const size_t before = w.fabric.datagrams.size();
  engine::cm_receive(w.b.port, reinterpret_cast<const char*>(&packet), sizeof packet);
  EXPECT_EQ(w.b.port.accounting().dropped, 1u);
  EXPECT_EQ(w.fabric.datagrams.size(), before);
}

TEST(Heartbeat, FloodOfPings_IsAnsweredInTurnsAndLosesNoBuffer) {
  World w;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 300; ++i) {
      const Packet sound = ping(w);
      w.fabric.receive_datagram(*w.fabric.find(w.b.port.heartbeat().number()), &sound, sizeof sound);
    }
    for (int i = 0; i < 50; ++i) w.b.serve_heartbeat();
    w.a.poll();
  }
  EXPECT_EQ(w.fabric.find(w.b.port.heartbeat().number())->rq.size(), engine::DatagramQp::kReceives);
  const Packet sound = ping(w);
  EXPECT_EQ(heartbeat_sends(w, &sound, sizeof sound), 1u);
}

TEST(Heartbeat, QueuePairBreaks_IsRepairedAndAnswersAgain) {
  World w;
  const uint32_t qpn = w.b.port.heartbeat().number();
  stack::Qp& qp = *w.fabric.find(qpn);
  ibv_wc wc{};
  wc.wr_id = engine::work_id(engine::WorkKind::kDatagramReceive, 0);
  wc.status = IBV_WC_WR_FLUSH_ERR;
  wc.qp_num = qpn;
  w.fabric.push(qp.init.recv_cq, wc);
  EXPECT_FALSE(w.b.port.heartbeat().serve()) << "asks for another turn";
  EXPECT_EQ(w.b.port.heartbeat().number(), qpn);
  const Packet sound = ping(w);
  EXPECT_EQ(heartbeat_sends(w, &sound, sizeof sound), 1u);
}

/// Control threads make the handles of the heartbeats when the test says so.
engine::Config deferred() {
  engine::Config config = small_config();
  config.peer_timeout_ns = 200'000'000;
  config.control = engine::ControlMode::kDeferred;
  return config;
}

TEST(Heartbeat, NeighbourIsResolvedForASecond_TheEventThreadDoesNotWait) {
  World w(deferred());
  w.fabric.block["create_ah"] = 1'000'000'000;
  engine::Heartbeat& heartbeat = w.b.port.heartbeat();
  const uint64_t before = test_now();
  const Packet sound = ping(w);
  EXPECT_EQ(heartbeat_sends(w, &sound, sizeof sound), 0u);
  EXPECT_EQ(test_now(), before) << "a turn of the event thread took the time of the verb";
  EXPECT_FALSE(heartbeat.serve()) << "asks for another turn";
  ASSERT_TRUE(heartbeat.lane().run_one());
  const size_t packets = w.fabric.datagrams.size();
  EXPECT_TRUE(heartbeat.serve());
  EXPECT_EQ(w.fabric.datagrams.size(), packets + 1) << "answered without another PING";
  EXPECT_FALSE(heartbeat.lane().run_one());
}

TEST(Heartbeat, OnePeerCannotBeReached_OthersAreAnswered) {
  World w(deferred());
  engine::Heartbeat& heartbeat = w.b.port.heartbeat();
  engine::KnownPeer other;
  other.peer = w.b.endpoint.peer;
  other.peer.name = 7;
  ASSERT_TRUE(heartbeat.add(other));
  Packet lost = ping(w);
  lost.source = 7;
  lost.gid[15] ^= 0x55;
  engine::packet_seal(&lost, w.b.port.key());
  EXPECT_EQ(heartbeat_sends(w, &lost, sizeof lost), 0u);
  w.fabric.refuse["create_ah"] = ETIMEDOUT;
  ASSERT_TRUE(heartbeat.lane().run_one());
  w.fabric.refuse["create_ah"] = 0;
  EXPECT_TRUE(heartbeat.serve());
  for (int i = 0; i < 100; ++i) {  // its failure is kept: it asks the device for nothing
    ++lost.sequence;
    engine::packet_seal(&lost, w.b.port.key());
    EXPECT_EQ(heartbeat_sends(w, &lost, sizeof lost), 0u);
  }
  EXPECT_FALSE(heartbeat.lane().run_one());
  test_now() += engine::Heartbeat::kRetryNs;
  ++lost.sequence;
  engine::packet_seal(&lost, w.b.port.key());
  EXPECT_EQ(heartbeat_sends(w, &lost, sizeof lost), 0u);
  const int calls = w.fabric.ah_calls;
  const Packet sound = ping(w);
  EXPECT_EQ(heartbeat_sends(w, &sound, sizeof sound), 0u);
  ASSERT_TRUE(heartbeat.lane().run_one());
  w.b.port.heartbeat().serve();
  EXPECT_EQ(w.fabric.ah_calls, calls + 1);
  Packet pong;
  const std::string& sent = w.fabric.datagrams.back();
  ASSERT_TRUE(engine::packet_read(sent.data(), sent.size(), &pong));
  EXPECT_EQ(pong.type, static_cast<uint8_t>(PacketType::kPong));
  EXPECT_EQ(pong.target, 1u) << "who never failed goes before who did";
  heartbeat.remove(7);
}

/// The receives of the heartbeat of `p` come back with an error.
void break_heartbeat(World& w, Process& p) {
  const uint32_t qpn = p.port.heartbeat().number();
  ibv_wc wc{};
  wc.wr_id = engine::work_id(engine::WorkKind::kDatagramReceive, 0);
  wc.status = IBV_WC_WR_FLUSH_ERR;
  wc.qp_num = qpn;
  w.fabric.push(w.fabric.find(qpn)->init.recv_cq, wc);
}

TEST(Heartbeat, QueuePairIsRepairedForASecond_TheEventThreadDoesNotWait) {
  World w(deferred());
  engine::Heartbeat& heartbeat = w.b.port.heartbeat();
  const Packet first = ping(w);
  heartbeat_sends(w, &first, sizeof first);
  ASSERT_TRUE(heartbeat.lane().run_one());
  heartbeat.serve();
  w.fabric.block = {{"modify_qp", 1'000'000'000}};
  const uint64_t before = test_now();
  break_heartbeat(w, w.b);
  EXPECT_FALSE(heartbeat.serve());
  break_heartbeat(w, w.b);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(heartbeat.serve()) << "asks for another turn";
  EXPECT_EQ(test_now(), before) << "a turn of the event thread took the time of the verb";
  ASSERT_TRUE(heartbeat.lane().run_one());
  EXPECT_FALSE(heartbeat.lane().run_one()) << "one repair at a time";
  w.fabric.block.clear();
  EXPECT_FALSE(heartbeat.serve()) << "it broke again meanwhile";
  ASSERT_TRUE(heartbeat.lane().run_one());
  EXPECT_TRUE(heartbeat.serve());
  const Packet sound = ping(w);
  EXPECT_EQ(heartbeat_sends(w, &sound, sizeof sound), 1u);
}

TEST(Heartbeat, ClosesWhileItIsRepaired) {
  for (const bool repaired : {false, true}) {
    World w(deferred());
    engine::Heartbeat& heartbeat = w.b.port.heartbeat();
    break_heartbeat(w, w.b);
    EXPECT_FALSE(heartbeat.serve());
    EXPECT_TRUE(!repaired || heartbeat.lane().run_one());
    heartbeat.remove(w.b.endpoint.peer.name);
    EXPECT_TRUE(heartbeat.close());
  }
}

TEST(Heartbeat, ClosesWhileAHandleIsBeingMade) {
  World w(deferred());
  const Packet sound = ping(w);
  EXPECT_EQ(heartbeat_sends(w, &sound, sizeof sound), 0u);
  const size_t handles = w.fabric.handles.size();
  w.b.port.heartbeat().remove(w.b.endpoint.peer.name);
  EXPECT_TRUE(w.b.port.heartbeat().close());
  EXPECT_EQ(w.fabric.handles.size(), handles);
}

TEST(Heartbeat, QueueDies_IsSilentAndAsksForNoMoreTurns) {
  World w;
  static_cast<stack::Cq*>(w.fabric.find(w.b.port.heartbeat().number())->init.recv_cq)->broken = true;
  EXPECT_TRUE(w.b.port.heartbeat().serve());
  EXPECT_TRUE(w.b.port.heartbeat().serve());
}

TEST(Heartbeat, CannotBeMade_ThePortWorksWithout) {
  TestFabric fabric;
  fabric.refuse["create_comp_channel"] = EMFILE;
  Process p;
  p.open(fabric, "poor", 1, small_config());
  EXPECT_EQ(p.port.address().heartbeat_qpn, 0u);
  EXPECT_NE(p.port.address().cm_qpn, 0u);
  EXPECT_NE(p.port.heartbeat_error(), 0) << "which the caller tells";
  p.port.close();
}

}  // namespace
}  // namespace bfo::test
