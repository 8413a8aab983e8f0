// SPDX-License-Identifier: BSD-3-Clause
//
// btl_ping_test.cc: a silent handshake: a dead peer is given up in bounded time, a busy one never, and
// what a heartbeat answers and drops.
#include "btl/verbs/engine/connect/ping.h"

#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Packet;
using engine::PacketType;
using engine::Phase;
using engine::Pinged;

constexpr uint64_t kBoundMs = 200;

engine::Config bounded() {
  engine::Config config = small_config();
  config.peer_timeout_ns = kBoundMs * 1'000'000;
  return config;
}

/// Time in which only `p` makes progress; event threads run where they are alive.
void alone(World& w, Process& p, uint64_t ms) {
  for (uint64_t i = 0; i < ms; ++i) {
    test_now() += 1'000'000;
    w.a.serve_heartbeat();
    w.b.serve_heartbeat();
    w.fabric.run();
    for (int k = 0; k < 32; ++k) p.poll();
  }
}

/// Neither side has ever talked to the other; `p` wants to.
struct Stranger {
  explicit Stranger(bool initiator, const engine::Config& config = bounded())
      : w(config), p(initiator ? w.a : w.b), peer(initiator ? w.b : w.a) {
    p.other_rail = false;
    EXPECT_EQ(engine::send(p.endpoint, w.frag("x")), engine::Accepted::kQueued);
  }
  World w;
  Process& p;
  Process& peer;
};

class FirstContact : public testing::TestWithParam<bool> {};

TEST_P(FirstContact, PeerIsDead_FailsAfterTheBoundNotBefore) {
  Stranger s(GetParam());
  s.peer.alive = false;
  alone(s.w, s.p, kBoundMs);
  EXPECT_EQ(s.p.down, 0);
  alone(s.w, s.p, kBoundMs / 2);
  EXPECT_EQ(s.p.count("done x -12"), 1) << "never sent";
  EXPECT_EQ(s.p.down, 1);
  EXPECT_EQ(s.p.closed, 1);
  EXPECT_EQ(s.p.last_event.cause, BFO_CAUSE_HANDSHAKE);
  EXPECT_EQ(s.p.last_event.code, ETIMEDOUT);
}

TEST_P(FirstContact, PeerComputesFarBeyondTheBound_IsWaitedFor) {
  Stranger s(GetParam());
  alone(s.w, s.p, 30 * kBoundMs);
  EXPECT_EQ(s.p.down, 0);
  EXPECT_EQ(s.p.count("peer answers"), 1);
  EXPECT_EQ(s.p.endpoint.pings().state, Pinged::kAnswers);
  s.w.pass(600);
  EXPECT_EQ(s.peer.count("recv 65 x"), 1);
  EXPECT_EQ(s.p.endpoint.pings().state, Pinged::kUnknown);
}

TEST_P(FirstContact, PeerDiesWhileItComputes_FailsAfterTheBound) {
  Stranger s(GetParam());
  alone(s.w, s.p, 5 * kBoundMs);
  s.peer.alive = false;
  alone(s.w, s.p, 2 * kBoundMs);
  EXPECT_EQ(s.p.count("peer does not answer"), 1);
  EXPECT_EQ(s.p.count("done x -12"), 1);
}

TEST_P(FirstContact, MostDatagramsAreLost_BusyPeerIsWaitedFor) {
  Stranger s(GetParam());
  for (int i = 0; i < 100; ++i) {
    s.w.fabric.drop_datagrams = 3;  // of the five or six sent meanwhile
    alone(s.w, s.p, kBoundMs / 2);
  }
  EXPECT_GT(s.p.count("peer answers"), 0);
  EXPECT_EQ(s.p.down, 0);
}

TEST_P(FirstContact, PeerStoppedAndContinued_ConnectsAfterAll) {
  Stranger s(GetParam());
  s.peer.alive = false;
  alone(s.w, s.p, 3 * kBoundMs);
  ASSERT_EQ(s.p.down, 1);
  s.peer.alive = true;
  s.w.pass(600);
  EXPECT_EQ(s.p.up, 1);
  EXPECT_EQ(s.p.endpoint.phase, Phase::kUp);
}

TEST_P(FirstContact, ThisProcessWasAwayForHours_BlamesNobody) {
  Stranger s(GetParam());
  for (int i = 0; i < 100; ++i) {
    test_now() += 3'600'000'000'000;
    s.peer.serve_heartbeat();
    for (int k = 0; k < 32; ++k) s.p.poll();
  }
  EXPECT_EQ(s.p.down, 0);
}

/// Others send more than there are receive buffers while this process is away: what the peer answers finds
/// none.
TEST_P(FirstContact, AnswersFindNoReceiveBuffer_BusyPeerIsWaitedFor) {
  Stranger s(GetParam());
  const std::string datagram(100, 'x');
  for (int i = 0; i < 300; ++i) {
    test_now() += kBoundMs * 1'000'000 / 10;
    for (int k = 0; k < 32; ++k) s.p.poll();
    stack::Qp* const queue = s.w.fabric.find(s.p.port.cm_qp().number());
    for (int k = 0; k < 200; ++k) s.w.fabric.receive_datagram(*queue, datagram.data(), datagram.size());
    s.peer.serve_heartbeat();
  }
  EXPECT_EQ(s.p.down, 0);
  EXPECT_EQ(s.p.count("peer answers"), 0) << "no answer is dropped: this tests nothing";
}

TEST_P(FirstContact, WithoutABound_WaitsForEver) {
  engine::Config config = bounded();
  config.peer_timeout_ns = 0;
  Stranger s(GetParam(), config);
  s.peer.alive = false;
  alone(s.w, s.p, 20 * kBoundMs);
  EXPECT_EQ(s.p.down, 0);
}

TEST_P(FirstContact, PeerHasNoHeartbeat_WaitsForEver) {
  Stranger s(GetParam());
  s.p.endpoint.peer.address.heartbeat_qpn = 0;
  alone(s.w, s.p, 20 * kBoundMs);
  EXPECT_EQ(s.p.down, 0);
}

TEST_P(FirstContact, NothingIsAskedWhileThePeerAnswersAtOnce) {
  Stranger s(GetParam());
  s.w.pass(2000);
  ASSERT_EQ(s.p.endpoint.phase, Phase::kUp);
  for (const std::string& sent : s.w.fabric.datagrams) {
    Packet packet;
    ASSERT_TRUE(engine::packet_read(sent.data(), sent.size(), &packet));
    EXPECT_LT(packet.type, static_cast<uint8_t>(PacketType::kPing));
  }
}

INSTANTIATE_TEST_SUITE_P(Role, FirstContact, testing::Bool(),
                         [](const auto& which) { return which.param ? "Initiator" : "Responder"; });

/// What is said at the end of a job about a rail that never came up.
class NeverUp : public testing::TestWithParam<bool> {
 protected:
  static uint32_t never_up(const Process& p) {
    char why[96];
    return engine::never_up(p.endpoint, why, sizeof why);
  }
  /// Both sides are in MPI until the rail is up; nobody is blamed meanwhile.
  static void finish(World& w) {
    for (int i = 0; i < 60'000 && (w.a.up == 0 || w.b.up == 0); ++i) {
      test_now() += 10'000;
      w.a.serve_heartbeat();
      w.b.serve_heartbeat();
      w.fabric.run();
      w.a.poll();
      w.b.poll();
      ASSERT_EQ(never_up(w.a), 0u) << engine::phase_name(w.a.endpoint.phase) << " in turn " << i;
      ASSERT_EQ(never_up(w.b), 0u) << engine::phase_name(w.b.endpoint.phase) << " in turn " << i;
    }
    EXPECT_EQ(w.a.up, 1);
    EXPECT_EQ(w.b.up, 1);
  }
  static constexpr int kTurns = 200;  // longer than a handshake takes
};

TEST_P(NeverUp, PeerIsAwayFromMpi_NobodyIsBlamed) {
  Stranger s(GetParam());
  alone(s.w, s.p, 20 * kBoundMs);
  EXPECT_EQ(never_up(s.p), 0u);
  finish(s.w);
}

TEST_P(NeverUp, ProcessWasAwayInTheMiddleOfItsHandshake_NobodyIsBlamed) {
  for (int turns = 0; turns < kTurns; turns += 3) {
    Stranger s(GetParam());
    for (int i = 0; i < turns; ++i) {
      test_now() += 10'000;
      s.w.fabric.run();
      s.w.a.poll();
      s.w.b.poll();
    }
    const bool under_way = s.w.a.up == 0 || s.w.b.up == 0;
    alone(s.w, s.peer, 20 * kBoundMs);
    EXPECT_EQ(never_up(s.peer), 0u);
    finish(s.w);
    if (!under_way) return;
  }
  FAIL() << "the handshake takes longer";
}

TEST_P(NeverUp, NobodyAnswers_TheRailIsNamed) {
  Stranger s(GetParam());
  s.peer.alive = false;
  alone(s.w, s.p, kBoundMs);
  EXPECT_GE(never_up(s.p), kBoundMs / 2);
  alone(s.w, s.p, kBoundMs);
  char why[96];
  EXPECT_GE(engine::never_up(s.p.endpoint, why, sizeof why), kBoundMs);
  EXPECT_STREQ(why, "no sign of life from the peer over it");
}

INSTANTIATE_TEST_SUITE_P(Role, NeverUp, testing::Bool(),
                         [](const auto& role) { return role.param ? "Initiator" : "Responder"; });

TEST(Ping, PeerAnswersButThePathNeverWorks_FailsAfterTheBound) {
  Stranger s(true);
  s.w.fabric.hold = true;  // the zero-byte write hangs
  for (uint64_t i = 0; i < 3 * kBoundMs && s.p.down == 0; ++i) {
    s.w.pass(1);
    if (s.p.endpoint.phase == Phase::kProbing)
      s.w.fabric.fail(s.p.endpoint.qps().data.number(), IBV_WC_RETRY_EXC_ERR);
    EXPECT_TRUE(s.p.down == 0 || i >= kBoundMs);
  }
  EXPECT_EQ(s.p.count("done x -12"), 1);
  EXPECT_EQ(s.p.down, 1);
}

class Reconnection : public testing::TestWithParam<bool> {};

TEST_P(Reconnection, BusyPeerIsToldFromADeadOne) {
  World w(bounded());
  w.connect();
  Process& p = GetParam() ? w.a : w.b;
  Process& peer = GetParam() ? w.b : w.a;
  p.other_rail = false;  // what waits has no other way
  engine::close_order(p.endpoint, 1, BFO_CAUSE_WC_ERROR, IBV_WC_RETRY_EXC_ERR, 0);
  alone(w, p, 10 * kBoundMs);
  EXPECT_EQ(p.log, (Log{"down 1", "closed 1", "peer answers"}));
  peer.alive = false;
  alone(w, p, 2 * kBoundMs);
  EXPECT_EQ(p.log.back(), "peer does not answer");
  peer.alive = true;
  alone(w, p, kBoundMs);
  EXPECT_EQ(p.log.back(), "peer answers");
  w.pass(600);
  EXPECT_EQ(p.count("up"), 1);
  EXPECT_EQ(p.down, 1);
}

TEST_P(Reconnection, OwnPortGoesDown_NothingIsKnownOfThePeerAnyMore) {
  World w(bounded());
  w.connect();
  Process& p = GetParam() ? w.a : w.b;
  engine::close_order(p.endpoint, 1, BFO_CAUSE_WC_ERROR, IBV_WC_RETRY_EXC_ERR, 0);
  alone(w, p, 2 * kBoundMs);
  ASSERT_EQ(p.log.back(), "peer answers");
  w.set_port(p, IBV_PORT_DOWN);
  alone(w, p, 10);
  EXPECT_EQ(p.log.back(), "peer does not answer");
}

TEST_P(Reconnection, DeviceDies_NothingIsKnownOfThePeerAnyMore) {
  World w(bounded());
  w.connect();
  Process& p = GetParam() ? w.a : w.b;
  engine::close_order(p.endpoint, 1, BFO_CAUSE_WC_ERROR, IBV_WC_RETRY_EXC_ERR, 0);
  alone(w, p, 2 * kBoundMs);
  ASSERT_EQ(p.log.back(), "peer answers");
  w.fabric.raise(*p.hca, IBV_EVENT_DEVICE_FATAL, 0);
  alone(w, p, 10);
  EXPECT_EQ(p.log.back(), "peer does not answer");
}

INSTANTIATE_TEST_SUITE_P(Role, Reconnection, testing::Bool(),
                         [](const auto& which) { return which.param ? "Initiator" : "Responder"; });

// ---- the heartbeat itself

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
  engine::Config config = bounded();
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
