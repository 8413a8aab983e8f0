// SPDX-License-Identifier: BSD-3-Clause
//
// btl_ping_test.cc: a silent handshake: a dead peer is given up in bounded time, a busy one never.
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

}  // namespace
}  // namespace bfo::test
