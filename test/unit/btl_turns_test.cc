// SPDX-License-Identifier: BSD-3-Clause
//
// btl_turns_test.cc: which ports of a process are polled: all while none or each has traffic, the idle ones
// now and then while another is busy; and what an idle port must still notice in time.
#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

/// Processes a and b of a World with a second rail between them: ports c (of the process of a) and d.
struct TwoRails {
  World w;
  Process c;
  Process d;

  TwoRails() {
    c.open(w.fabric, "left2", 1, small_config());
    d.open(w.fabric, "right2", 2, small_config());
    c.meet(d, 2);
    d.meet(c, 1);
    w.connect();
    engine::cm_connect(c.endpoint);
    for (int i = 0; i < 2000; ++i) {
      test_now() += 10'000;
      w.fabric.run();
      c.poll();
      d.poll();
    }
    EXPECT_EQ(c.endpoint.phase, engine::Phase::kUp);
    c.log.clear();
  }
  ~TwoRails() {
    c.port.remove(c.endpoint);
    d.port.remove(d.endpoint);
    EXPECT_TRUE(c.balanced());
    EXPECT_TRUE(d.balanced());
    c.port.close();
    d.port.close();
  }

  /// One progress call of a's process.
  void turn() {
    engine::Port* const own[] = {&w.a.port};
    engine::Port* const second[] = {&c.port};
    for (Process* p : {&w.a, &c}) {
      while (engine::read_event(test_verbs(), p->device.context(), test_environment().now_ns,
                                &p->device.events())) {
      }
    }
    engine::Port::take_events(w.a.device, own, 1);
    engine::Port::take_events(c.device, second, 1);
    engine::Port* const both[] = {&w.a.port, &c.port};
    engine::poll_ports(both, 2);
  }
  /// `n` progress calls, `step_ns` apart, with a message for rail 1 before every fourth of them.
  void busy(int n, uint64_t step_ns = 1000) {
    for (int i = 0; i < n; ++i) {
      test_now() += step_ns;
      if (i % 4 == 0) {
        ASSERT_TRUE(w.sendi(w.b, "x"));
      }
      w.fabric.run();
      turn();
      w.b.poll();
      d.poll();
    }
  }
  int polls_of_second() { return static_cast<stack::Cq*>(c.port.cqs().first())->polls; }
};

TEST(Turns, OtherRailBusy_IdleOneIsPolledNowAndThen) {
  TwoRails r;
  r.busy(1000);
  const int before = r.polls_of_second();
  r.busy(1600);
  EXPECT_EQ(r.polls_of_second() - before, 1600 / static_cast<int>(engine::kSkipTurns));
}

TEST(Turns, NoTraffic_EachIsPolledInEachTurn) {
  TwoRails r;
  r.busy(1000);
  for (int i = 0; i < 1000; ++i) r.turn();
  const int before = r.polls_of_second();
  for (int i = 0; i < 100; ++i) r.turn();
  EXPECT_EQ(r.polls_of_second() - before, 100);
}

TEST(Turns, MessageOnTheIdleRail_ArrivesSoonAndItIsPolledAgain) {
  TwoRails r;
  r.busy(1000);
  ASSERT_TRUE(r.w.sendi(r.d, "late"));
  r.busy(static_cast<int>(engine::kSkipTurns));
  EXPECT_EQ(r.c.count("recv 65 late"), 1);
  const int before = r.polls_of_second();
  r.busy(100);
  EXPECT_EQ(r.polls_of_second() - before, 100);
}

TEST(Turns, WorkIsPostedOnTheIdleRail_ItIsPolledInTheNextTurnAndForAWhile) {
  TwoRails r;
  r.busy(1000);
  Exposed remote(r.d, "...");
  engine::Frag* get = r.w.frag("abc");
  remote.name_in(get);
  ASSERT_EQ(engine::get(r.c.endpoint, get), engine::Accepted::kPosted);
  const int before = r.polls_of_second();
  r.busy(1);
  EXPECT_EQ(r.c.count("done"), 1);
  r.busy(99);
  EXPECT_EQ(r.polls_of_second() - before, 100);
}

TEST(Turns, PortEventOnTheIdleRail_IsActedUponInTheNextTurn) {
  TwoRails r;
  r.busy(1000);
  r.w.fabric.raise(*r.c.hca, IBV_EVENT_PORT_ERR, 1);
  r.turn();
  EXPECT_EQ(r.c.down, 1);
  EXPECT_EQ(r.w.a.down, 0);
}

TEST(Turns, SilentWorkOnTheIdleRail_IsSuspectedInTime) {
  TwoRails r;
  r.busy(1000);
  r.w.fabric.held.insert(r.c.endpoint.qps().data.number());
  ASSERT_TRUE(r.w.sendi(r.c, "x"));
  // Long progress calls: if only real polls counted, the clock would be looked at too seldom to trust it.
  r.busy(20 * 32, 31'000);
  EXPECT_EQ(r.c.count("suspect"), 1);
}

}  // namespace
}  // namespace bfo::test
