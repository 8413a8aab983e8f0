// SPDX-License-Identifier: BSD-3-Clause
//
// btl_upkeep_test.cc: what a port does for itself while it is in use: it reads its attributes again and
// repairs its datagram queue pair. These verbs may block; no round of progress waits for them.
#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Phase;
using engine::PortState;

constexpr uint64_t kSecond = 1'000'000'000;

engine::Config deferred() {
  engine::Config config = small_config();
  config.control = engine::ControlMode::kDeferred;
  return config;
}

/// A World whose control commands run when the test says so; what a round of progress took is measured.
struct Slow : World {
  uint64_t longest = 0;  // round, of either process

  explicit Slow(const engine::Config& config = deferred()) : World(config) { fabric.progress_verbs = 0; }

  static void serve_others(Process& p) {
    while (p.port.addresses().lane().run_one() || p.port.setups().run_one() || p.port.stops().run_one() ||
           p.port.queue_pairs().run_one()) {
    }
  }
  static bool serve_upkeep(Process& p) { return p.port.upkeep().run_one(); }
  void turn(Process& p) {
    const uint64_t before = test_now();
    for (int k = 0; k < 33; ++k) p.poll();
    longest = std::max(longest, test_now() - before);
  }
  /// Time passes in steps of 100 us; what the ports need for themselves is done where `served`.
  void live(uint64_t ms, bool served = true) {
    for (uint64_t i = 0; i < ms * 10; ++i) {
      test_now() += 100'000;
      fabric.run();
      for (Process* p : {&a, &b}) {
        turn(*p);
        serve_others(*p);
        if (served) serve_upkeep(*p);
        p->serve_heartbeat();
      }
    }
  }
  void connect_slowly() {
    engine::cm_connect(a.endpoint);
    live(10);
    ASSERT_EQ(a.endpoint.phase, Phase::kUp);
    ASSERT_EQ(b.endpoint.phase, Phase::kUp);
  }
  /// A datagram of `p` could not be sent.
  void break_datagrams(Process& p) {
    stack::Qp& qp = *fabric.find(p.port.cm_qp().number());
    fabric.to_error(qp);
    ibv_wc wc{};
    wc.wr_id = engine::work_id(engine::WorkKind::kDatagramSend, 0);
    wc.qp_num = qp.qp_num;
    wc.status = IBV_WC_WR_FLUSH_ERR;
    fabric.push(qp.init.send_cq, wc);
  }
  void expect_messages() {
    ASSERT_TRUE(sendi(a, "ping"));
    ASSERT_TRUE(sendi(b, "pong"));
    live(1);
    EXPECT_EQ(b.count("recv 65 ping"), 1);
    EXPECT_EQ(a.count("recv 65 pong"), 1);
  }
};

TEST(Upkeep, PortIsReadForASecond_ProgressNeverWaits) {
  Slow w;
  w.connect_slowly();
  w.fabric.block = {{"query_port", kSecond}, {"query_gid", kSecond}};
  w.set_port(w.a, IBV_PORT_DOWN);
  w.live(20);
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.live(700);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_GT(w.a.endpoint.epoch, 1u);
  EXPECT_EQ(w.longest, 0u) << "a round of progress took the time of the verb";
  EXPECT_EQ(w.fabric.progress_verbs, 0);
  w.expect_messages();
}

TEST(Upkeep, AnotherEventOfThePort_IsNotReadInProgress) {
  for (const ibv_event_type type : {IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE, IBV_EVENT_CLIENT_REREGISTER,
                                    IBV_EVENT_GID_CHANGE, IBV_EVENT_SM_CHANGE}) {
    SCOPED_TRACE(engine::event_name(type));
    Slow w;
    w.connect_slowly();
    w.fabric.raise(*w.a.hca, type, 1);
    w.live(20);
    EXPECT_EQ(w.fabric.progress_verbs, 0);
    EXPECT_EQ(w.a.endpoint.epoch, 1u) << "nothing has changed";
    EXPECT_EQ(w.a.down, 0);
    w.expect_messages();
  }
}

TEST(Upkeep, PortGoesDownWhileItIsRead_OldNewsDoNotCount) {
  Slow w;
  w.connect_slowly();
  w.set_port(w.a, IBV_PORT_DOWN);
  w.live(5);
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.live(1, false);
  ASSERT_TRUE(Slow::serve_upkeep(w.a)) << "active, says the device";
  w.set_port(w.a, IBV_PORT_DOWN);
  w.turn(w.a);
  EXPECT_EQ(w.a.port.state(), PortState::kDown);
  w.live(20);
  EXPECT_EQ(w.a.port.state(), PortState::kDown);
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.live(700);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
}

TEST(Upkeep, PortComesUpAgainWhileItIsRead_IsReadOnceMore) {
  Slow w;
  w.connect_slowly();
  w.set_port(w.a, IBV_PORT_DOWN);
  w.live(5);
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.live(1, false);
  w.set_port(w.a, IBV_PORT_DOWN);
  w.live(1, false);
  ASSERT_TRUE(Slow::serve_upkeep(w.a)) << "down, says the device";
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.live(1, false);
  EXPECT_EQ(w.a.port.upkeep().pending(), 1u);
  w.live(100);
  EXPECT_EQ(w.a.port.state(), PortState::kActive) << "long before the port is asked by the clock";
}

TEST(Upkeep, ManyEventsWhileThePortIsRead_OneCommandAtATime) {
  Slow w;
  w.connect_slowly();
  for (int i = 0; i < 50; ++i) {
    w.fabric.raise(*w.a.hca, IBV_EVENT_GID_CHANGE, 1);
    w.live(1, false);
  }
  EXPECT_EQ(w.a.port.upkeep().pending(), 1u);
  w.live(10);
  EXPECT_EQ(w.a.port.upkeep().pending(), 0u);
  EXPECT_EQ(w.a.down, 0);
}

TEST(Upkeep, DatagramQueuePairBreaks_RepairedOutsideOfProgress) {
  Slow w;
  w.connect_slowly();
  w.break_datagrams(w.a);
  w.live(5, false);
  EXPECT_EQ(w.a.port.upkeep().pending(), 1u);
  const size_t packets = w.fabric.datagrams.size();
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  w.live(5, false);
  EXPECT_EQ(w.fabric.datagrams.size(), packets)
      << "something was sent on a queue pair that is being repaired";
  w.live(700);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.fabric.progress_verbs, 0);
  w.expect_messages();
}

TEST(Upkeep, RepairFails_TriedAgain) {
  Slow w;
  w.connect_slowly();
  w.fabric.refusals = {{"modify_qp", 1, 3, EAGAIN, w.a.hca}};
  w.break_datagrams(w.a);
  w.live(200);
  EXPECT_EQ(w.fabric.refusals[0].refused, 3);
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  w.live(700);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
}

/// The first completion queue has no room for a connection.
engine::Config full_queue() {
  engine::Config config = deferred();
  config.cq_entries = 1;
  return config;
}

TEST(Upkeep, CompletionQueueIsFull_AnotherIsMadeOutsideOfProgress) {
  Slow w(full_queue());
  w.fabric.block = {{"create_cq", kSecond}};
  engine::cm_connect(w.a.endpoint);
  w.live(300, false);
  EXPECT_EQ(w.a.endpoint.epoch, 0u) << "an attempt waits for its place";
  EXPECT_EQ(w.a.port.upkeep().pending(), 1u);
  ASSERT_TRUE(Slow::serve_upkeep(w.a));
  w.live(300, false);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kRequesting);
  EXPECT_EQ(w.b.port.upkeep().pending(), 1u) << "the responder needs one, too";
  w.live(700);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.a.endpoint.epoch, 1u);
  EXPECT_EQ(w.a.port.cqs().count(), 2u);
  EXPECT_EQ(w.longest, 0u) << "a round of progress took the time of the verb";
  EXPECT_EQ(w.fabric.progress_verbs, 0);
  w.expect_messages();
}

TEST(Upkeep, CompletionQueueCannotBeMade_CountedAndTriedAgain) {
  Slow w(full_queue());
  w.fabric.refusals = {{"create_cq", 1, 30, ENOMEM, w.a.hca}};
  engine::cm_connect(w.a.endpoint);
  w.live(700);
  EXPECT_GE(w.a.port.resources().failures[static_cast<size_t>(engine::Object::kCompletionQueue)], 2u);
  EXPECT_GE(w.b.port.resources().refused_by_peers, 1u);
  w.live(700);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
}

TEST(Upkeep, PortClosesWhileACompletionQueueIsMade_NothingIsLeft) {
  for (const bool made : {false, true}) {
    Slow w(full_queue());
    engine::cm_connect(w.a.endpoint);
    w.live(5, false);
    if (made) Slow::serve_upkeep(w.a);
    EXPECT_EQ(w.a.port.upkeep().pending(), 1u);
  }
}

TEST(Upkeep, PortClosesWithACommandWaiting_NothingIsLeft) {
  Slow w;
  w.connect_slowly();
  w.fabric.raise(*w.a.hca, IBV_EVENT_GID_CHANGE, 1);
  w.break_datagrams(w.a);
  w.live(1, false);
  EXPECT_GE(w.a.port.upkeep().pending(), 1u);
}

}  // namespace
}  // namespace bfo::test
