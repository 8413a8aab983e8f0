// SPDX-License-Identifier: BSD-3-Clause
//
// btl_connect_test.cc: the connection manager: roles, lost, doubled, stale and forged packets, simultaneous
// wishes, dead ports, leaving peers.
#include "btl/verbs/engine/connect.h"

#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Packet;
using engine::PacketType;
using engine::Phase;

TEST(Connect, InitiatorWants_BothComeUpWithEqualNames) {
  World w;
  engine::connect_want(w.a.endpoint);
  w.pass(2);
  EXPECT_EQ(w.a.log, Log{"up 1"});
  EXPECT_EQ(w.b.log, Log{"up 1"});
  bfo_rail_info_t left;
  bfo_rail_info_t right;
  engine::rail_info(w.a.endpoint, &left);
  engine::rail_info(w.b.endpoint, &right);
  EXPECT_EQ(left.name.conn, right.name.conn);
  EXPECT_EQ(left.name.epoch, right.name.epoch);
  EXPECT_EQ(left.state, BFO_RAIL_UP);
  EXPECT_STREQ(left.device, "left");
}

TEST(Connect, ResponderWants_KnocksAndTheInitiatorOpens) {
  World w;
  engine::connect_want(w.b.endpoint);
  w.pass(2);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
}

TEST(Connect, BothWantAtOnce_OneConnectionResults) {
  World w;
  engine::connect_want(w.a.endpoint);
  engine::connect_want(w.b.endpoint);
  w.pass(10);
  EXPECT_EQ(w.a.log, Log{"up 1"});
  EXPECT_EQ(w.b.log, Log{"up 1"});
}

TEST(Connect, FirstSend_ConnectsAndIsDelivered) {
  World w;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("hello")), engine::Accepted::kParked);
  EXPECT_EQ(engine::rail_state(w.a.endpoint), BFO_RAIL_IDLE);
  w.pass(5);
  EXPECT_EQ(w.b.count("recv 65 hello"), 1);
  EXPECT_EQ(w.a.count("done hello 0"), 1);
}

class LostPacket : public testing::TestWithParam<int> {};

TEST_P(LostPacket, IsRepeated) {
  World w;
  // Lose everything from the k-th datagram on, for three datagrams.
  w.fabric.drop_datagrams = GetParam();
  engine::connect_want(w.b.endpoint);
  for (int i = 0; i < 200 && !(w.a.endpoint.usable && w.b.endpoint.usable); ++i) w.pass(1);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.a.endpoint.epoch, w.b.endpoint.epoch);
}

INSTANTIATE_TEST_SUITE_P(FirstN, LostPacket, testing::Range(1, 7));

TEST(Connect, EveryPacketDoubled_OneConnectionResults) {
  World w;
  w.fabric.duplicate_datagrams = true;
  engine::connect_want(w.b.endpoint);
  w.pass(20);
  EXPECT_EQ(w.a.up, 1);
  EXPECT_EQ(w.b.up, 1);
  EXPECT_EQ(w.a.down + w.b.down, 0);
}

TEST(Connect, ReadyLost_FirstMessageBringsTheResponderUp) {
  World w;
  engine::connect_want(w.a.endpoint);
  for (int i = 0; i < 400 && w.b.endpoint.phase != Phase::kReplied; ++i) {
    fake_now() += 10'000;
    w.a.poll();
    w.b.poll();
  }
  ASSERT_EQ(w.b.endpoint.phase, Phase::kReplied);
  w.fabric.drop_datagrams = 1;  // READY
  w.a.poll();
  w.a.poll();
  ASSERT_EQ(w.a.endpoint.phase, Phase::kUp);
  ASSERT_TRUE(w.sendi(w.a, "first"));
  w.b.poll();
  EXPECT_EQ(w.b.log, (Log{"up 1", "recv 65 first"}));
}

TEST(Connect, ProbeFails_NothingIsReportedAndItIsTriedAgain) {
  World w;
  w.fabric.hold = true;  // the zero-byte write hangs
  engine::connect_want(w.a.endpoint);
  w.pass(3);
  ASSERT_EQ(w.a.endpoint.phase, Phase::kProbing);
  ASSERT_TRUE(w.fabric.fail(w.a.endpoint.data.number(), IBV_WC_RETRY_EXC_ERR));
  w.a.poll();
  EXPECT_NE(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.a.up, 0);
  w.fabric.hold = false;
  w.pass(50);
  EXPECT_EQ(w.a.up, 1);
  EXPECT_EQ(w.a.down, 0);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.a.endpoint.epoch, w.b.endpoint.epoch);
}

TEST(Connect, StaleRequestOfAnOldEpoch_DoesNotTouchTheNewOne) {
  World w;
  w.connect();
  std::string old;
  for (const std::string& packet : w.fabric.packets) {
    Packet parsed;
    if (engine::packet_parse(packet.data(), packet.size(), &parsed) &&
        parsed.type == static_cast<uint8_t>(PacketType::kRequest))
      old = packet;
  }
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
  std::string old;
  for (const std::string& packet : w.fabric.packets) {
    Packet parsed;
    if (engine::packet_parse(packet.data(), packet.size(), &parsed) &&
        parsed.type == static_cast<uint8_t>(PacketType::kRequest)) {
      old = packet;
    }
  }
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

// The initiator is up and sends; the device of the responder acknowledges; at that instant the responder,
// which has not seen READY, runs out of patience because another rail could carry what it has to say.
TEST(Connect, ResponderGivesUpAnEpochInUse_AcknowledgedMessagesAreDelivered) {
  World w;
  engine::connect_want(w.a.endpoint);
  for (int i = 0; i < 400 && w.b.endpoint.phase != Phase::kReplied; ++i) {
    fake_now() += 10'000;
    w.a.poll();
    w.b.poll();
  }
  ASSERT_EQ(w.b.endpoint.phase, Phase::kReplied);
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("answer")), engine::Accepted::kParked);
  w.fabric.drop_datagrams = 1;  // READY
  w.a.poll();
  w.a.poll();
  ASSERT_EQ(w.a.endpoint.phase, Phase::kUp);
  fake_now() += 2 * w.b.port.config().connect_timeout_ns;
  w.b.on_other_rail = [&] {
    ASSERT_EQ(engine::send(w.a.endpoint, w.frag("question")), engine::Accepted::kPosted);
    w.a.poll();
    EXPECT_EQ(w.a.count("done question 0"), 1);
  };
  for (int i = 0; i < 40; ++i) w.b.poll();
  EXPECT_FALSE(w.b.on_other_rail);
  w.pass(400);
  EXPECT_EQ(w.b.count("recv 65 question"), 1);
  EXPECT_EQ(w.b.count("done answer"), 1);
}

TEST(Connect, ResponderSendsBeforeReady_WaitsAndIsDelivered) {
  World w;
  fake_now() += 3'600'000'000'000;  // long after the process began
  engine::connect_want(w.a.endpoint);
  for (int i = 0; i < 400 && w.b.endpoint.phase != Phase::kReplied; ++i) {
    fake_now() += 10'000;
    w.a.poll();
    w.b.poll();
  }
  ASSERT_EQ(w.b.endpoint.phase, Phase::kReplied);
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("early")), engine::Accepted::kParked);
  w.b.poll();
  EXPECT_EQ(w.b.down, 0);
  w.pass(5);
  EXPECT_EQ(w.a.count("recv 65 early"), 1);
  EXPECT_EQ(w.b.down + w.a.down, 0);
}

TEST(Connect, NobodyAnswers_ParkedFragmentsComeBackAsNeverSent) {
  engine::Config config = small_config();
  config.connect_timeout_ns = 50'000'000;
  World w(config);
  w.fabric.drop_datagrams = 1 << 30;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kParked);
  w.pass(60);
  EXPECT_EQ(w.a.log, (Log{"down 1", "done x -12", "closed 1"}));
  EXPECT_EQ(w.a.last_event.cause, BFO_CAUSE_HANDSHAKE);
}

TEST(Connect, PeerComputesForMinutesOnTheOnlyRail_NothingIsGivenUp) {
  engine::Config config = small_config();
  config.connect_timeout_ns = 50'000'000;
  World w(config);
  w.a.other_rail = false;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kParked);
  for (int i = 0; i < 2000; ++i) {  // 200 s in which b takes no step
    fake_now() += 100'000'000;
    w.fabric.run();
    w.b.serve_pulse();
    for (int k = 0; k < 32; ++k) w.a.poll();
  }
  EXPECT_EQ(w.a.down, 0);
  EXPECT_GT(w.a.others_asked, 0);
  w.pass(600);
  EXPECT_EQ(w.b.count("recv 65 x"), 1);
  EXPECT_EQ(w.a.count("done x 0"), 1);
}

TEST(Connect, PortDiesWhileConnecting_ParkedFragmentsComeBackAtOnce) {
  World w;
  w.fabric.drop_datagrams = 1 << 30;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kParked);
  w.pass(2);
  w.a.fake->ports[1].state = IBV_PORT_DOWN;
  w.fabric.raise(*w.a.fake, IBV_EVENT_PORT_ERR, 1);
  w.pass(1);
  EXPECT_EQ(w.a.count("done x -12"), 1);
  // The port returns: nobody above sends on a rail that is down, so it must come up by itself.
  w.fabric.drop_datagrams = 0;
  w.a.fake->ports[1].state = IBV_PORT_ACTIVE;
  w.fabric.raise(*w.a.fake, IBV_EVENT_PORT_ACTIVE, 1);
  w.pass(600);
  EXPECT_EQ(w.a.up, 1);
}

TEST(Connect, PortIsDownBeforeTheFirstSend_ItComesBackWithTheLossOfTheRail) {
  World w;
  w.a.fake->ports[1].state = IBV_PORT_DOWN;
  w.fabric.raise(*w.a.fake, IBV_EVENT_PORT_ERR, 1);
  w.pass(2);
  ASSERT_EQ(w.a.log, Log{}) << "nobody has used the rail yet";
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kParked);
  w.pass(1);
  EXPECT_EQ(w.a.log, (Log{"down 0", "done x -12", "closed 0"}));
  EXPECT_EQ(w.a.last_event.cause, BFO_CAUSE_ASYNC_EVENT);
  w.a.fake->ports[1].state = IBV_PORT_ACTIVE;
  w.fabric.raise(*w.a.fake, IBV_EVENT_PORT_ACTIVE, 1);
  w.pass(600);
  EXPECT_EQ(w.a.up, 1);
}

TEST(Connect, PortDiesWhileConnectingForNobody_AFirstSendComesBackToo) {
  World w;
  w.fabric.drop_datagrams = 1 << 30;
  engine::connect_want(w.a.endpoint);
  w.pass(2);
  ASSERT_EQ(w.a.endpoint.phase, Phase::kRequesting);
  w.a.fake->ports[1].state = IBV_PORT_DOWN;
  w.fabric.raise(*w.a.fake, IBV_EVENT_PORT_ERR, 1);
  w.pass(2);
  ASSERT_EQ(w.a.endpoint.phase, Phase::kClosed);
  ASSERT_EQ(w.a.log, Log{}) << "nobody has used the rail yet";
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kParked);
  w.pass(1);
  EXPECT_EQ(w.a.log, (Log{"down 1", "done x -12", "closed 1"}));
}

TEST(Connect, PortDiesWhileReplied_TheNextSendSaysSo) {
  World w;
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("x")), engine::Accepted::kParked);
  for (int i = 0; i < 400 && w.b.endpoint.phase != Phase::kReplied; ++i) {
    fake_now() += 10'000;
    w.a.poll();
    w.b.poll();
  }
  ASSERT_EQ(w.b.endpoint.phase, Phase::kReplied);
  w.fabric.drop_datagrams = 1 << 30;
  w.b.fake->ports[1].state = IBV_PORT_DOWN;
  w.fabric.raise(*w.b.fake, IBV_EVENT_PORT_ERR, 1);
  w.pass(20);
  ASSERT_EQ(w.b.endpoint.phase, Phase::kClosed);
  EXPECT_EQ(w.b.count("done x -12"), 1);
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("x")), engine::Accepted::kParked);
  w.pass(1);
  EXPECT_EQ(w.b.count("done x -12"), 2);
  EXPECT_EQ(w.b.down, 1);
}

TEST(Connect, DeviceDiesWhileConnecting_IsNotTriedAgain) {
  World w;
  w.fabric.drop_datagrams = 1 << 30;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kParked);
  w.pass(2);
  w.fabric.raise(*w.a.fake, IBV_EVENT_DEVICE_FATAL, 0);
  w.pass(2);
  EXPECT_EQ(w.a.count("done x -12"), 1);
  EXPECT_FALSE(w.a.endpoint.wanted);
}

TEST(Connect, DeviceDiesBeforeTheFirstPoll_ParkedFragmentsComeBack) {
  World w;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kParked);
  w.fabric.raise(*w.a.fake, IBV_EVENT_DEVICE_FATAL, 0);
  w.pass(2);
  EXPECT_EQ(w.a.count("done x -12"), 1);
  EXPECT_EQ(w.a.down, 1);
}

/// The initiator is up, the responder waits for READY, and datagrams are lost from now on.
void up_at_the_initiator_only(World& w) {
  engine::connect_want(w.a.endpoint);
  for (int i = 0; i < 400 && w.b.endpoint.phase != Phase::kReplied; ++i) {
    fake_now() += 10'000;
    w.a.poll();
    w.b.poll();
  }
  w.fabric.drop_datagrams = 1'000'000;
  w.a.poll();
  w.a.poll();
  ASSERT_EQ(w.a.endpoint.phase, Phase::kUp);
  ASSERT_EQ(w.b.endpoint.phase, Phase::kReplied);
}

/// Nothing can be answered over a dead device: the initiator hears over another rail, without asking.
TEST(Connect, DeviceOfAResponderDiesBeforeReady_IsReportedDownAndClosed) {
  World w;
  up_at_the_initiator_only(w);
  w.fabric.raise(*w.b.fake, IBV_EVENT_DEVICE_FATAL, 0);
  w.pass(20);
  EXPECT_EQ(w.b.log, (Log{"up 1", "down 1", "closed 1"}));
}

TEST(Connect, DeviceDiesAfterAnEpochThatWasNeverUpHere_IsReportedDownAndClosed) {
  World w;
  up_at_the_initiator_only(w);
  engine::close_order(w.b.endpoint, 1, BFO_CAUSE_PEER_DOWN, 0, 0);
  w.pass(1);
  ASSERT_EQ(w.b.endpoint.last_closed.name.epoch, 1u);
  EXPECT_TRUE(w.b.log.empty());
  w.fabric.raise(*w.b.fake, IBV_EVENT_DEVICE_FATAL, 0);
  w.pass(5);
  EXPECT_EQ(w.b.log, (Log{"down 1", "closed 1"}));
}

/// The responder gave up an epoch in which a message had come. What it gives up next is a later attempt,
/// which has no epoch of its own yet.
TEST(Connect, GivenUpAgainAfterADrainedEpoch_TheEpochHasOneCount) {
  World w;
  up_at_the_initiator_only(w);
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("answer")), engine::Accepted::kParked);
  fake_now() += 2 * w.b.port.config().connect_timeout_ns;
  w.b.on_other_rail = [&] {
    ASSERT_EQ(engine::send(w.a.endpoint, w.frag("question")), engine::Accepted::kPosted);
  };
  for (int i = 0; i < 400 && w.b.closed == 0; ++i) {
    fake_now() += 10'000;
    w.b.poll();
  }
  ASSERT_EQ(w.b.closed, 1);
  ASSERT_EQ(w.b.last_delivered, 1u);
  engine::connect_failed(w.b.endpoint, BFO_CAUSE_HANDSHAKE, 0, fake_now());
  ASSERT_EQ(w.b.closed, 2);
  EXPECT_EQ(w.b.last_event.info.name.epoch, 1u);
  EXPECT_EQ(w.b.last_delivered, 1u);
}

/// The responder had used the epoch, and waits to hear that it is closed.
TEST(Connect, AttemptGivenUpHereThatThePeerCloses_IsReportedClosedOnce) {
  World w;
  w.fabric.hold = true;
  engine::connect_want(w.a.endpoint);
  w.pass(3);
  ASSERT_EQ(w.a.endpoint.phase, Phase::kProbing);
  bfo_rail_info_t info;
  engine::rail_info(w.a.endpoint, &info);
  w.fabric.drop_datagrams = 1'000'000;
  ASSERT_TRUE(w.fabric.fail(w.a.endpoint.data.number(), IBV_WC_RETRY_EXC_ERR));
  w.pass(1);
  ASSERT_TRUE(w.a.log.empty());
  for (int twice = 0; twice < 2; ++twice) {
    engine::note_peer_closed(w.a.endpoint, info.name, 0);
    w.pass(1);
    EXPECT_EQ(w.a.log, Log{"closed 1"});
  }
}

TEST(Connect, PeerClosedTheEpoch_ItEndsHereToo) {
  World w;
  w.connect();
  bfo_rail_info_t info;
  engine::rail_info(w.b.endpoint, &info);
  w.fabric.drop_datagrams = 1'000'000;
  engine::note_peer_closed(w.b.endpoint, info.name, 0);
  w.pass(1);
  EXPECT_EQ(w.b.log, (Log{"down 1", "closed 1"}));
  EXPECT_EQ(w.b.last_event.cause, BFO_CAUSE_PEER_DOWN);
}

TEST(Connect, OlderCountThatComesLate_DoesNotReplaceANewerOne) {
  World w;
  w.connect();
  bfo_rail_info_t info;
  engine::rail_info(w.b.endpoint, &info);
  bfo_rail_name_t newer = info.name;
  ++newer.epoch;
  engine::note_peer_closed(w.b.endpoint, newer, 5);
  engine::note_peer_closed(w.b.endpoint, info.name, 3);
  EXPECT_EQ(w.b.endpoint.gap_name.epoch, newer.epoch);
  EXPECT_EQ(w.b.endpoint.gap_delivered, 5u);
}

TEST(Connect, PeerLeavesInOrder_NobodyReconnects) {
  World w;
  w.connect();
  w.b.port.remove(w.b.endpoint);
  w.pass(20);
  EXPECT_EQ(w.a.down, 1);
  EXPECT_EQ(w.a.last_event.cause, BFO_CAUSE_SHUTDOWN);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kGone);
  const size_t packets = w.fabric.packets.size();
  w.pass(100);
  EXPECT_EQ(w.fabric.packets.size(), packets);
}

TEST(Connect, PeerLeavesBeforeReadyArrived_TheInitiatorDoesNotWaitForItsRetries) {
  World w;
  engine::connect_want(w.a.endpoint);
  for (int i = 0; i < 400 && w.a.endpoint.phase != Phase::kUp; ++i) {
    fake_now() += 10'000;
    w.a.poll();
    if (w.b.endpoint.phase != Phase::kReplied) w.b.poll();
  }
  ASSERT_EQ(w.a.endpoint.phase, Phase::kUp);
  ASSERT_EQ(w.b.endpoint.phase, Phase::kReplied);
  w.b.port.remove(w.b.endpoint);
  w.pass(5);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kGone);
  EXPECT_EQ(w.a.last_event.cause, BFO_CAUSE_SHUTDOWN);
}

TEST(Connect, PeerLeaves_WhatItReceivedCountsAsDelivered) {
  World w;
  w.connect();
  ASSERT_TRUE(w.sendi(w.a, "one"));
  ASSERT_TRUE(w.sendi(w.a, "two"));
  w.b.poll();
  w.b.port.remove(w.b.endpoint);
  w.pass(5);
  EXPECT_EQ(w.a.count("payload"), 0);
}

TEST(Connect, WithoutFailoverAbove_AClosedRailStaysClosed) {
  World w;
  w.a.port.set_failover(false);
  w.connect();
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_WC_ERROR, 12, 0);
  w.pass(1);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kClosed);
  EXPECT_FALSE(w.a.endpoint.wanted);
}

TEST(Connect, QueuePairsCannotBeMade_TriedAgainLater) {
  World w;
  w.fabric.refuse_create = ENOMEM;
  engine::connect_want(w.a.endpoint);
  w.pass(5);
  EXPECT_EQ(w.a.up, 0);
  w.fabric.refuse_create = 0;
  w.pass(100);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
}

TEST(Connect, HundredFlaps_EpochsAgreeAndNothingLeaks) {
  engine::Config config = small_config();
  config.retry_max_ns = 2'000'000;
  World w(config);
  w.connect();
  const size_t qps = w.fabric.qps.size();
  for (int i = 0; i < 100; ++i) {
    Process& side = i % 3 == 0 ? w.b : w.a;
    engine::close_order(side.endpoint, side.endpoint.epoch, BFO_CAUSE_FENCE, 0, 0);
    for (int k = 0; k < 400 && !(w.a.endpoint.usable && w.b.endpoint.usable &&
                                 w.a.endpoint.epoch == w.b.endpoint.epoch &&
                                 w.a.endpoint.epoch > static_cast<uint32_t>(i) + 1);
         ++k) {
      w.pass(2);
    }
    ASSERT_TRUE(w.a.endpoint.usable && w.b.endpoint.usable) << i;
    ASSERT_EQ(w.a.endpoint.epoch, w.b.endpoint.epoch) << i;
  }
  EXPECT_EQ(w.fabric.qps.size(), qps);
  EXPECT_EQ(w.a.up, w.a.closed + 1);
  EXPECT_EQ(w.b.up, w.b.closed + 1);
}

}  // namespace
}  // namespace bfo::test
