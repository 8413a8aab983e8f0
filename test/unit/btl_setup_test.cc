// SPDX-License-Identifier: BSD-3-Clause
//
// btl_setup_test.cc: an attempt to connect while control threads take their time: queue pairs are created and
// connected outside of progress, and whatever happens meanwhile finds the endpoint in order.
#include <memory>

#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Phase;

engine::Config deferred() {
  engine::Config config = small_config();
  config.control = engine::ControlMode::kDeferred;
  return config;
}

/// A World whose control commands run when the test says so.
struct Slow : World {
  explicit Slow(const engine::Config& config = deferred()) : World(config) { fabric.progress_verbs = 0; }

  /// Makes the address handles and destroys what is to be destroyed.
  static void serve_others(Process& p) {
    while (p.port.addresses().lane().run_one() || p.port.upkeep().run_one() || p.port.stops().run_one() ||
           p.port.queue_pairs().run_one()) {
    }
  }
  /// Makes or connects the queue pairs of one endpoint.
  static bool set_up(Process& p) { return p.port.setups().run_one(); }
  static void serve(Process& p) {
    serve_others(p);
    while (set_up(p)) {
    }
  }
  void turn(uint64_t ns = 1000) {
    test_now() += ns;
    fabric.run();
    a.poll();
    b.poll();
  }
  void turns(int n, uint64_t ns = 1000) {
    for (int i = 0; i < n; ++i) turn(ns);
  }
  /// Time passes; the setup lanes of `a` and `b` run when they are named.
  void live(uint64_t ms, bool a_served = true, bool b_served = true) {
    const uint64_t step = ms > 50 ? 1'000'000 : 100'000;
    for (const uint64_t end = test_now() + ms * 1'000'000; test_now() < end;) {
      serve_others(a);
      serve_others(b);
      if (a_served) serve(a);
      if (b_served) serve(b);
      for (int k = 0; k < 33; ++k) turn(k == 0 ? step : 0);
      a.serve_heartbeat();
      b.serve_heartbeat();
    }
  }
  size_t connections() const {
    size_t n = 0;
    for (stack::Qp* const qp : fabric.live()) n += qp->qp_type == IBV_QPT_RC;
    return n;
  }
  /// Both are up, in the same epoch, with four queue pairs and one reservation each.
  void expect_whole() {
    live(700);
    EXPECT_EQ(a.endpoint.phase, Phase::kUp);
    EXPECT_EQ(b.endpoint.phase, Phase::kUp);
    EXPECT_EQ(a.endpoint.epoch, b.endpoint.epoch);
    EXPECT_EQ(connections(), 4u);
    EXPECT_EQ(fabric.progress_verbs, 0);
    ASSERT_TRUE(sendi(a, "ping"));
    ASSERT_TRUE(sendi(b, "pong"));
    live(1);
    EXPECT_EQ(b.count("recv 65 ping"), 1);
    EXPECT_EQ(a.count("recv 65 pong"), 1);
  }
  void until_a(Phase phase) {
    for (int i = 0; i < 400 && a.endpoint.phase != phase; ++i) {
      serve_others(a);
      serve_others(b);
      turn(10'000);
    }
    ASSERT_EQ(a.endpoint.phase, phase);
  }
  /// a has sent REQ(1), and b makes its queue pairs.
  void until_b_makes() {
    engine::cm_connect(a.endpoint);
    until_a(Phase::kMaking);
    ASSERT_TRUE(set_up(a));
    for (int i = 0; i < 400 && b.endpoint.phase != Phase::kMaking; ++i) {
      serve_others(a);
      serve_others(b);
      turn(10'000);
    }
    ASSERT_EQ(a.endpoint.phase, Phase::kRequesting);
    ASSERT_EQ(b.endpoint.phase, Phase::kMaking);
  }
  /// .. has sent REP(1), and a connects its own.
  void until_a_binds() {
    until_b_makes();
    ASSERT_TRUE(set_up(b));
    until_a(Phase::kBinding);
    ASSERT_EQ(b.endpoint.phase, Phase::kReplied);
  }
  void meet_again(Process& p, Process& peer, uint64_t name) {
    std::destroy_at(&p.endpoint);
    std::construct_at(&p.endpoint);
    p.meet(peer, name);
  }
};

TEST(Setup, NeighbourIsResolvedForASecond_ProgressNeverWaits) {
  Slow w;
  w.fabric.block["ready_qp"] = 1'000'000'000;
  engine::cm_connect(w.a.endpoint);
  uint64_t longest = 0;
  for (int i = 0; i < 2'000; ++i) {
    const uint64_t before = test_now();
    w.turn(100'000);
    longest = std::max(longest, test_now() - before);
    if (i % 50 == 49) Slow::serve(w.a);
    if (i % 50 == 24) Slow::serve(w.b);
  }
  EXPECT_EQ(longest, 100'000u) << "a round of progress took the time of the verb";
  w.expect_whole();
}

TEST(Setup, InitiatorMakes_NothingIsSaidBeforeItIsDone) {
  Slow w;
  engine::cm_connect(w.a.endpoint);
  w.until_a(Phase::kMaking);
  w.turns(100, 10'000'000);
  EXPECT_TRUE(w.fabric.datagrams.empty());
  EXPECT_EQ(w.connections(), 0u);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kMaking);
  w.expect_whole();
  EXPECT_EQ(w.a.endpoint.epoch, 1u);
}

TEST(Setup, ResponderMakes_RequestsThatComeAgainChangeNothing) {
  Slow w;
  w.until_b_makes();
  const size_t packets = w.fabric.datagrams.size();
  w.live(2'000, false, false);
  EXPECT_GT(w.fabric.datagrams.size(), packets) << "REQ is sent again";
  EXPECT_EQ(w.b.endpoint.phase, Phase::kMaking);
  EXPECT_EQ(w.b.port.setups().pending(), 1u);
  w.expect_whole();
  EXPECT_EQ(w.a.endpoint.epoch, 1u);
}

TEST(Setup, RepliesThatComeAgainWhileBinding_ChangeNothing) {
  Slow w;
  w.until_a_binds();
  w.live(2'000, false, false);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kBinding);
  EXPECT_EQ(w.a.port.setups().pending(), 1u);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kReplied);
  w.expect_whole();
  EXPECT_EQ(w.a.endpoint.epoch, 1u);
}

TEST(Setup, BothWantAtOnce_OneEpoch) {
  Slow w;
  engine::cm_connect(w.a.endpoint);
  engine::cm_connect(w.b.endpoint);
  w.live(300, false, false);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kMaking);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kSoliciting) << "its SOLICIT is answered by the REQ that follows";
  w.expect_whole();
  EXPECT_EQ(w.a.endpoint.epoch, 1u);
}

TEST(Setup, NewerRequestWhileTheResponderMakes_OlderAttemptIsGivenUp) {
  Slow w;
  w.until_b_makes();
  w.set_port(w.a, IBV_PORT_DOWN);
  w.live(1, true, false);
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.live(400, true, false);
  EXPECT_EQ(w.a.endpoint.epoch, 2u);
  EXPECT_EQ(w.b.endpoint.epoch, 1u) << "the next one waits until the command has ended";
  EXPECT_EQ(w.b.port.setups().pending(), 1u) << "at most one command of an endpoint at a time";
  EXPECT_NE(w.b.endpoint.phase, Phase::kMaking);
  w.expect_whole();
  EXPECT_EQ(w.b.count("up 1"), 0);
}

TEST(Setup, PortGoesDownWhileMaking_NothingIsLeftOfTheAttempt) {
  Slow w;
  engine::cm_connect(w.a.endpoint);
  w.until_a(Phase::kMaking);
  w.set_port(w.a, IBV_PORT_DOWN);
  w.turns(3);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kClosed);
  ASSERT_TRUE(Slow::set_up(w.a));
  EXPECT_EQ(w.connections(), 2u);
  w.turns(3);
  Slow::serve_others(w.a);
  w.turns(3);
  EXPECT_EQ(w.connections(), 0u);
  EXPECT_EQ(w.a.endpoint.qps().command, nullptr);
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.expect_whole();
}

TEST(Setup, PortGoesDownWhileBinding_NothingIsLeftOfTheAttempt) {
  Slow w;
  w.until_a_binds();
  w.set_port(w.a, IBV_PORT_DOWN);
  w.turns(3);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kClosed);
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.live(300, false, true);
  EXPECT_EQ(w.a.endpoint.epoch, 1u) << "the next attempt waits until the command has ended";
  w.expect_whole();
  EXPECT_EQ(w.a.up, 1);
}

TEST(Setup, EvidenceComesWithTheResult_PeerHearsNothingOfTheAttempt) {
  Slow w;
  w.until_b_makes();
  ASSERT_TRUE(Slow::set_up(w.b));
  const size_t packets = w.fabric.datagrams.size();
  engine::close_order(w.b.endpoint, 1, BFO_CAUSE_PEER_DOWN, 0, 0);
  w.b.poll();
  EXPECT_EQ(w.b.endpoint.phase, Phase::kClosed);
  EXPECT_EQ(w.fabric.datagrams.size(), packets);
  w.expect_whole();
}

TEST(Setup, GivenUpWhileMaking_FragmentsComeBackAtOnce) {
  for (const bool binding : {false, true}) {
    Slow w;
    if (binding) {
      w.until_a_binds();
    } else {
      engine::cm_connect(w.a.endpoint);
      w.until_a(Phase::kMaking);
    }
    ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
    test_now() += 17 * w.a.port.config().connect_timeout_ns;
    w.turns(40);
    EXPECT_EQ(w.a.log, (Log{"down 1", "done x -12"})) << "late: the handshake goes on";
    ASSERT_EQ(engine::send(w.a.endpoint, w.frag("y")), engine::Accepted::kQueued) << "waits for its end";
    w.expect_whole();
    EXPECT_EQ(w.b.count("recv 65 y"), 1);
  }
}

/// The calls of one verb from number `first` to `last` fail at the initiator or the responder.
void fails(const char* verb, engine::Object object, bool initiator, int first, int last) {
  SCOPED_TRACE(std::string(verb) + " " + std::to_string(first) + (initiator ? " initiator" : " responder"));
  Slow w;
  Process& p = initiator ? w.a : w.b;
  w.fabric.refusals = {{verb, first, last, ENOMEM, p.hca}};
  engine::cm_connect(w.a.endpoint);
  w.live(50);
  EXPECT_EQ(w.fabric.refusals[0].refused, last - first + 1);
  EXPECT_EQ(p.port.resources().failures[static_cast<size_t>(object)], 1u);
  EXPECT_EQ((initiator ? w.b : w.a).port.resources().refused_by_peers, 1u);
  w.expect_whole();
  EXPECT_EQ(p.port.cqs().count(), 1u);
}

TEST(Setup, VerbFails_RefusedAndTriedAgain) {
  for (const bool initiator : {true, false}) {
    fails("create_qp", engine::Object::kQueuePair, initiator, 1, 5);  // with less and less inline data
    fails("create_qp", engine::Object::kQueuePair, initiator, 2, 2);
    for (int n = 1; n <= 6; ++n) fails("modify_qp", engine::Object::kQueuePairState, initiator, n, n);
  }
}

TEST(Setup, PeerLeavesMeanwhile_Gone) {
  for (const bool binding : {false, true}) {
    Slow w;
    if (binding) {
      w.until_a_binds();
      w.b.port.remove(w.b.endpoint);
      w.live(5, false, true);
      EXPECT_EQ(w.a.endpoint.phase, Phase::kGone);
      w.live(5);
      w.meet_again(w.b, w.a, 1);
    } else {
      w.until_b_makes();
      w.a.port.remove(w.a.endpoint);
      w.live(5, true, false);
      EXPECT_EQ(w.b.endpoint.phase, Phase::kGone);
      w.live(5);
      w.meet_again(w.a, w.b, 2);
    }
    EXPECT_EQ(w.connections(), 0u);
  }
}

TEST(Setup, EndpointRemovedMeanwhile_QueuePairsGoAllTheSame) {
  for (const bool binding : {false, true}) {
    Slow w;
    if (binding) {
      w.until_a_binds();
    } else {
      engine::cm_connect(w.a.endpoint);
      w.until_a(Phase::kMaking);
    }
    w.a.port.remove(w.a.endpoint);
    w.meet_again(w.a, w.b, 2);
    w.live(5, true, false);
    EXPECT_EQ(w.a.port.setups().pending(), 0u);
    EXPECT_EQ(w.a.port.queue_pairs().pending(), 0u);
    w.b.port.remove(w.b.endpoint);
    w.live(5);
    EXPECT_EQ(w.connections(), 0u);
    w.meet_again(w.b, w.a, 1);
    engine::cm_connect(w.a.endpoint);
    w.expect_whole();
    EXPECT_EQ(w.a.port.cqs().count(), 1u);
  }
}

TEST(Setup, PortClosesWithCommandsWaiting_AllQueuePairsGo) {
  for (const bool binding : {false, true}) {
    Slow w;
    if (binding) {
      w.until_a_binds();
    } else {
      engine::cm_connect(w.a.endpoint);
      w.until_a(Phase::kMaking);
    }
    w.a.port.remove(w.a.endpoint);
    w.b.port.remove(w.b.endpoint);
    EXPECT_TRUE(w.a.port.close());
    EXPECT_TRUE(w.b.port.close());
    EXPECT_EQ(w.fabric.live().size(), 0u);
  }
}

TEST(Setup, DeviceDiesMeanwhile_NotTriedAgain) {
  Slow w;
  engine::cm_connect(w.a.endpoint);
  w.until_a(Phase::kMaking);
  w.fabric.raise(*w.a.hca, IBV_EVENT_DEVICE_FATAL);
  w.live(500);
  EXPECT_FALSE(w.a.endpoint.connect_wanted);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kClosed);
  EXPECT_EQ(w.connections(), 0u);
}

TEST(Setup, SolicitOfAPeerThatIsAheadWhileMaking_StartsBehindIt) {
  Slow w;
  engine::cm_connect(w.a.endpoint);
  w.until_a(Phase::kMaking);
  w.b.endpoint.epoch = 7;  // it has met this process before
  engine::cm_connect(w.b.endpoint);
  w.live(20, false, true);
  EXPECT_EQ(w.a.endpoint.epoch, 7u);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kClosed);
  w.expect_whole();
  EXPECT_GE(w.a.endpoint.epoch, 8u);
}

}  // namespace
}  // namespace bfo::test
