// SPDX-License-Identifier: BSD-3-Clause
//
// btl_packet_test.cc: datagrams of an old epoch, of another process, forged, truncated: none does harm.
#include "btl/verbs/engine/packet.h"

#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Packet;
using engine::PacketType;
using engine::Phase;

/// The last datagram that asked for a connection.
std::string last_request(World& w) {
  std::string last;
  for (const std::string& packet : w.fabric.packets) {
    Packet parsed;
    if (engine::packet_parse(packet.data(), packet.size(), &parsed) &&
        parsed.type == static_cast<uint8_t>(PacketType::kRequest))
      last = packet;
  }
  return last;
}

TEST(Connect, StaleRequestOfAnOldEpoch_DoesNotTouchTheNewOne) {
  World w;
  w.connect();
  const std::string old = last_request(w);
  ASSERT_FALSE(old.empty());
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  w.pass(20);
  ASSERT_EQ(w.b.endpoint.epoch, 2u);
  w.b.log.clear();
  engine::connect_packet(w.b.port, old.data(), old.size());
  w.pass(20);
  EXPECT_TRUE(w.b.log.empty());
  EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
}

TEST(Connect, StaleRequestWhileClosed_MakesNoQueuePairs) {
  World w;
  w.connect();
  const std::string old = last_request(w);
  w.fabric.drop_datagrams = 1 << 30;
  engine::close_order(w.b.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  for (int i = 0; i < 10; ++i) w.b.poll();
  ASSERT_EQ(w.b.endpoint.phase, Phase::kClosed);
  engine::connect_packet(w.b.port, old.data(), old.size());
  EXPECT_FALSE(w.b.endpoint.data.exists());
  EXPECT_NE(w.b.endpoint.phase, Phase::kReplied);
}

TEST(Connect, ByeCoversMessagesButNotAReadBeforeThem) {
  World w;
  w.connect();
  w.fabric.hold = true;
  std::string remote(3, '.');
  engine::Frag* get = w.frag("abc");
  get->remote_address = reinterpret_cast<uint64_t>(remote.data());
  ASSERT_EQ(engine::get(w.a.endpoint, get), engine::Accepted::kPosted);
  ASSERT_TRUE(w.sendi(w.a, "x"));
  Packet bye{};
  bye.type = static_cast<uint8_t>(PacketType::kBye);
  bye.source = 2;
  bye.target = 1;
  bye.source_nonce = w.b.port.nonce();
  bye.target_nonce = w.a.port.nonce();
  bye.epoch = 1;
  bye.landing_address = 1;  // one message received
  engine::packet_seal(&bye);
  engine::connect_packet(w.a.port, reinterpret_cast<const char*>(&bye), sizeof bye);
  for (int i = 0; i < 10; ++i) w.a.poll();
  EXPECT_EQ(w.a.count("done abc -1"), 1);
}

struct Forgery {
  const char* what;
  void (*apply)(Packet*);
};

class Forged : public testing::TestWithParam<Forgery> {};

TEST_P(Forged, IsDroppedAndCounted) {
  World w;
  Packet packet{};
  packet.type = static_cast<uint8_t>(PacketType::kKnock);
  packet.source = 2;
  packet.target = 1;
  packet.source_nonce = w.b.port.nonce();
  packet.target_nonce = w.a.port.nonce();
  engine::packet_seal(&packet);
  GetParam().apply(&packet);
  const uint64_t before = w.a.port.accounting().dropped;
  engine::connect_packet(w.a.port, reinterpret_cast<const char*>(&packet), sizeof packet);
  EXPECT_EQ(w.a.port.accounting().dropped, before + 1) << GetParam().what;
  EXPECT_EQ(w.a.endpoint.phase, Phase::kIdle);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Forged,
                         testing::Values(Forgery{"magic", [](Packet* p) { p->magic ^= 1; }},
                                         Forgery{"version", [](Packet* p) { ++p->version; }},
                                         Forgery{"type 0",
                                                 [](Packet* p) {
                                                   p->type = 0;
                                                   engine::packet_seal(p);
                                                 }},
                                         Forgery{"type 99",
                                                 [](Packet* p) {
                                                   p->type = 99;
                                                   engine::packet_seal(p);
                                                 }},
                                         Forgery{"size", [](Packet* p) { --p->size; }},
                                         Forgery{"damaged", [](Packet* p) { p->epoch ^= 0x100; }},
                                         Forgery{"other process",
                                                 [](Packet* p) {
                                                   p->source = 7;
                                                   engine::packet_seal(p);
                                                 }},
                                         Forgery{"for somebody else",
                                                 [](Packet* p) {
                                                   p->target = 7;
                                                   engine::packet_seal(p);
                                                 }},
                                         Forgery{"other life of the sender",
                                                 [](Packet* p) {
                                                   ++p->source_nonce;
                                                   engine::packet_seal(p);
                                                 }},
                                         Forgery{"other life of the receiver", [](Packet* p) {
                                                   ++p->target_nonce;
                                                   engine::packet_seal(p);
                                                 }}));

TEST(Connect, TruncatedPacket_IsDropped) {
  World w;
  Packet packet{};
  engine::packet_seal(&packet);
  for (size_t length = 0; length < sizeof packet; ++length) {
    engine::connect_packet(w.a.port, reinterpret_cast<const char*>(&packet), length);
  }
  EXPECT_EQ(w.a.port.accounting().dropped, sizeof packet);
}

}  // namespace
}  // namespace bfo::test
