// SPDX-License-Identifier: BSD-3-Clause
//
// btl_cm_packet_test.cc: datagrams of an old epoch, of another process, forged, truncated: none does harm.
#include "btl/verbs/engine/datagram/cm_packet.h"

#include <algorithm>
#include <cerrno>

#include "btl/verbs/engine/datagram/packet_text.h"
#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Drop;
using engine::Packet;
using engine::PacketType;
using engine::Phase;

/// The last datagram that asked for a connection.
std::string last_request(World& w) {
  std::string last;
  for (const std::string& packet : w.fabric.datagrams) {
    Packet parsed;
    if (engine::packet_read(packet.data(), packet.size(), &parsed) &&
        parsed.type == static_cast<uint8_t>(PacketType::kRequest))
      last = packet;
  }
  return last;
}

TEST(Cm, StaleRequestOfAnOldEpoch_DoesNotTouchTheNewOne) {
  World w;
  w.connect();
  const std::string old = last_request(w);
  ASSERT_FALSE(old.empty());
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  w.pass(20);
  ASSERT_EQ(w.b.endpoint.epoch, 2u);
  w.b.log.clear();
  engine::cm_receive(w.b.port, old.data(), old.size());
  w.pass(20);
  EXPECT_TRUE(w.b.log.empty());
  EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
}

TEST(Cm, StaleRequestWhileClosed_MakesNoQueuePairs) {
  World w;
  w.connect();
  const std::string old = last_request(w);
  w.fabric.drop_datagrams = 1 << 30;
  engine::close_order(w.b.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  for (int i = 0; i < 10; ++i) w.b.poll();
  ASSERT_EQ(w.b.endpoint.phase, Phase::kClosed);
  engine::cm_receive(w.b.port, old.data(), old.size());
  EXPECT_FALSE(w.b.endpoint.qps().data.exists());
  EXPECT_NE(w.b.endpoint.phase, Phase::kReplied);
}

TEST(Cm, ByeCoversMessagesButNotAReadBeforeThem) {
  World w;
  w.connect();
  w.fabric.hold = true;
  std::string remote(3, '.');
  engine::Frag* get = w.frag("abc");
  get->remote_address = reinterpret_cast<uint64_t>(remote.data());
  ASSERT_EQ(engine::get(w.a.endpoint, get), engine::Accepted::kPosted);
  ASSERT_TRUE(w.sendi(w.a, "x"));
  hand_over(w.a, packet_from(w.b, w.a, PacketType::kBye, 1, [](Packet& p) { p.probe_target_address = 1; }));
  for (int i = 0; i < 10; ++i) w.a.poll();
  EXPECT_EQ(w.a.count("done abc -1"), 1);
}

struct Forgery {
  const char* what;
  Drop reason;
  bool knows_key;
  void (*apply)(Packet*);
};

class Forged : public testing::TestWithParam<Forgery> {};

TEST_P(Forged, IsDroppedAndCounted) {
  World w;
  Packet packet = packet_from(w.b, w.a, PacketType::kSolicit, 0);
  GetParam().apply(&packet);
  if (GetParam().knows_key) {
    const uint16_t size = packet.size;
    const uint8_t version = packet.version;
    const uint32_t magic = packet.magic;
    engine::packet_seal(&packet, w.a.port.key());
    packet.size = size;
    packet.version = version;
    packet.magic = magic;
  }
  hand_over(w.a, packet);
  EXPECT_EQ(w.a.port.accounting().dropped, 1u) << GetParam().what;
  EXPECT_EQ(w.a.port.drops()[static_cast<size_t>(GetParam().reason)], 1u) << GetParam().what;
  EXPECT_EQ(w.a.drops, std::vector<std::string>{engine::drop_text(GetParam().reason)}) << GetParam().what;
  EXPECT_EQ(w.a.endpoint.phase, Phase::kIdle);
  EXPECT_TRUE(w.fabric.datagrams.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Forged,
    testing::Values(
        Forgery{"magic", Drop::kShape, true, [](Packet* p) { p->magic ^= 1; }},
        Forgery{"version before", Drop::kShape, true, [](Packet* p) { --p->version; }},
        Forgery{"version after", Drop::kShape, true, [](Packet* p) { ++p->version; }},
        Forgery{"size", Drop::kShape, true, [](Packet* p) { --p->size; }},
        Forgery{"type 0", Drop::kType, true, [](Packet* p) { p->type = 0; }},
        Forgery{"type 99", Drop::kType, true, [](Packet* p) { p->type = 99; }},
        Forgery{"damaged", Drop::kSum, false, [](Packet* p) { p->epoch ^= 0x100; }},
        Forgery{"sum", Drop::kSum, false, [](Packet* p) { ++p->sum; }},
        Forgery{"other process", Drop::kStranger, true, [](Packet* p) { p->source = 7; }},
        Forgery{"for somebody else", Drop::kForeign, true, [](Packet* p) { p->target = 7; }},
        Forgery{"other life of the sender", Drop::kStranger, true, [](Packet* p) { ++p->source_nonce; }},
        Forgery{"other life of the receiver", Drop::kForeign, true, [](Packet* p) { ++p->target_nonce; }},
        Forgery{"no number", Drop::kReplayed, true, [](Packet* p) { p->sequence = 0; }},
        Forgery{"implausible epoch", Drop::kStale, true, [](Packet* p) { p->epoch = 0xffffffff; }}));

TEST(Cm, PacketOfAnotherLength_IsDropped) {
  World w;
  const Packet packet = packet_from(w.b, w.a, PacketType::kSolicit, 0);
  char bytes[engine::DatagramQp::kBytes] = {};
  memcpy(bytes, &packet, sizeof packet);
  for (size_t length = 0; length <= sizeof bytes; ++length) {
    if (length != sizeof packet) engine::cm_receive(w.a.port, bytes, length);
  }
  EXPECT_EQ(w.a.port.drops()[static_cast<size_t>(Drop::kShape)], sizeof bytes);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kIdle);
}

TEST(PacketText, Handshake_IsToldMessageByMessageAtBothEnds) {
  World w;
  w.connect();
  const auto count = [](const std::vector<std::string>& told, const std::string& begin) {
    return std::count_if(told.begin(), told.end(), [&begin](const std::string& text) {
      return text.compare(0, begin.size(), begin) == 0;
    });
  };
  EXPECT_GE(count(w.a.packets, "to: REQ of epoch 1, queue pairs 0x"), 1);
  EXPECT_GE(count(w.b.packets, "from: REQ of epoch 1, queue pairs 0x"), 1);
  EXPECT_GE(count(w.b.packets, "to: REP of epoch 1, "), 1);
  EXPECT_GE(count(w.a.packets, "from: REP of epoch 1, "), 1);
  EXPECT_EQ(count(w.a.packets, "to: READY of epoch 1, "), 1);
  EXPECT_EQ(count(w.b.packets, "from: READY of epoch 1, "), 1);
}

TEST(PacketText, EveryType_HasItsNameAndWhatItCarries) {
  const auto text = [](PacketType type, uint8_t flags = 0) {
    Packet packet{};
    packet.type = static_cast<uint8_t>(type);
    packet.flags = flags;
    packet.epoch = 3;
    packet.data_qpn = 2;
    packet.data_psn = ENOMEM;
    packet.probe_target_address = 9;
    packet.rail = 0xab;
    packet.number = 5;
    packet.count = 12;
    packet.carrier = 4;
    char out[200];
    engine::describe_packet(out, sizeof out, packet);
    return std::string(out);
  };
  EXPECT_EQ(text(PacketType::kSolicit, 1), "SOLICIT after epoch 3, need: the peer is talked to");
  EXPECT_EQ(text(PacketType::kRequest, 2), "REQ of epoch 3, queue pairs 0x2 and 0x0, need: messages wait");
  EXPECT_EQ(text(PacketType::kBye, engine::kByeHeard),
            "BYE of epoch 3, 9 messages have come, the answer to a BYE");
  EXPECT_EQ(text(PacketType::kRefuse), "REFUSE of epoch 3: cannot make a queue pair: ENOMEM");
  EXPECT_EQ(text(PacketType::kQuestion, 1),
            "QUESTION 5 about rail 00000000000000ab epoch 3, over epoch 4: 12 moved, end it");
  EXPECT_EQ(text(PacketType::kPing), "PING 3 since the last answer");
}

TEST(PacketText, AnyBytes_AreDescribedInWhatThereIsRoomFor) {
  Packet packet;
  auto* const bytes = reinterpret_cast<unsigned char*>(&packet);
  uint32_t state = 1;
  for (int round = 0; round < 20000; ++round) {
    for (size_t i = 0; i < sizeof packet; ++i)
      bytes[i] = static_cast<unsigned char>((state = state * 1664525 + 1013904223) >> 24);
    packet.type = static_cast<uint8_t>(round % 16);
    const size_t room = 1 + static_cast<size_t>(round) % 120;
    std::vector<char> out(room, 'x');
    engine::describe_packet(out.data(), room, packet);
    ASSERT_LT(strnlen(out.data(), room), room);
  }
}

TEST(PacketText, EveryReason_BeginsWithTheNameOfItsCounter) {
  for (size_t i = 1; i < engine::kDrops; ++i) {
    const std::string name = engine::drop_name(static_cast<Drop>(i));
    EXPECT_EQ(std::string(engine::drop_text(static_cast<Drop>(i))).compare(0, name.size() + 1, name + ":"), 0)
        << name;
  }
}

}  // namespace
}  // namespace bfo::test
