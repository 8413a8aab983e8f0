// SPDX-License-Identifier: BSD-3-Clause
//
// btl_watchdog_test.cc: the watchdog: when silence is suspected, and that nothing ends by it alone. What
// ends a suspected rail is in btl_verdict_test.cc.
#include "btl/verbs/engine/watchdog/suspect.h"
#include "test/unit/btl_two_rails.h"

namespace bfo::test {
namespace {

using engine::Phase;

/// Holds the data queue pair of `p`, so that its work stands still while the path itself answers.
void hold_data(World& w, Process& p) {
  w.fabric.held.insert(p.endpoint.qps().data.number());
}

TEST(Watchdog, SilentWork_IsSuspectedWithinTwentyMilliseconds) {
  World w;
  w.connect();
  hold_data(w, w.a);
  ASSERT_TRUE(w.sendi(w.a, "x"));
  w.pass(8);
  EXPECT_EQ(w.a.count("suspect"), 0);
  w.pass(12);
  EXPECT_EQ(w.a.count("suspect"), 1);
  EXPECT_EQ(engine::rail_state(w.a.endpoint), BFO_RAIL_SUSPECT);
}

TEST(Watchdog, HalfOfTheTimeInSilence_ThePathIsAskedBeforeTheRailIsSuspect) {
  World w;
  w.connect();
  w.fabric.hold = true;
  ASSERT_TRUE(w.sendi(w.a, "x"));
  w.pass(3);
  EXPECT_EQ(w.a.endpoint.watch().probe, engine::PathProbe::kIdle);
  w.pass(5);
  EXPECT_EQ(w.a.endpoint.watch().probe, engine::PathProbe::kUnderWay);
  EXPECT_EQ(w.a.count("suspect"), 0);
}

TEST(Watchdog, ProcessThatSharesItsProcessor_SuspectsInTheSameTime) {
  World w;
  w.connect();
  hold_data(w, w.a);
  ASSERT_TRUE(w.sendi(w.a, "x"));
  for (int i = 0; i < 3; ++i) {
    test_now() += 5'000'000;  // another process has the processor
    w.pass(2);
  }
  EXPECT_EQ(w.a.count("suspect"), 1);
  EXPECT_EQ(w.a.down, 0);
}

TEST(Watchdog, PathAnswers_SuspectRailLivesAndRecovers) {
  World w;
  w.connect();
  hold_data(w, w.a);
  ASSERT_TRUE(w.sendi(w.a, "x"));
  w.pass(500);
  EXPECT_EQ(w.a.down, 0) << "a slow peer is not a dead one";
  EXPECT_EQ(w.a.endpoint.phase, Phase::kSuspect);
  w.fabric.held.clear();
  w.fabric.run();
  w.pass(5);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.a.log, (Log{"suspect", "up 1"}));
}

TEST(Watchdog, IdleRailSuspectedFromOutside_IsTestedAndTakenBack) {
  World w;
  w.connect();
  w.fabric.hold = true;
  engine::suspect(w.a.endpoint, "a reason", test_now());
  EXPECT_EQ(engine::rail_state(w.a.endpoint), BFO_RAIL_SUSPECT);
  w.pass(50);
  EXPECT_EQ(w.a.log, Log{"suspect"}) << "nothing was under way, and nothing has come back";
  w.fabric.hold = false;
  w.fabric.run();
  w.pass(3);
  EXPECT_EQ(w.a.log, (Log{"suspect", "up 1"}));
  EXPECT_TRUE(w.a.port.accounting_balances());
}

TEST(Watchdog, RailSuspectedFromOutside_DiesWithItsTest) {
  World w;
  w.connect();
  w.fabric.hold = true;
  engine::suspect(w.a.endpoint, "a reason", test_now());
  ASSERT_TRUE(w.fabric.fail(w.a.endpoint.qps().data.number(), IBV_WC_RETRY_EXC_ERR));
  w.fabric.hold = false;
  w.pass(3);
  EXPECT_EQ(w.a.down, 1);
}

TEST(Watchdog, SuspectedFromOutsideWithoutAWatchdog_NobodyWouldTakeItBack) {
  engine::Config config = small_config();
  config.suspect_ns = 0;
  World w(config);
  w.connect();
  engine::suspect(w.a.endpoint, "a reason", test_now());
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.a.count("suspect"), 0);
}

/// The only rail of a is silent, and its probe comes back with an error.
void fail_on_the_last_rail(World& w) {
  w.connect();
  w.a.other_rail = false;
  w.fabric.hold = true;
  ASSERT_TRUE(w.sendi(w.a, "x"));
  w.pass(15);
  ASSERT_TRUE(w.fabric.fail(w.a.endpoint.qps().probe.number(), IBV_WC_RETRY_EXC_ERR));
}

TEST(Watchdog, ProbeFailsOnTheLastRail_Lives) {
  World w;
  fail_on_the_last_rail(w);
  w.pass(100);
  EXPECT_EQ(w.a.down, 0);
}

/// The last rail recovered by itself. When another one comes up later, nothing is wrong with it any more.
TEST(Watchdog, ProbeFailedOnTheLastRailThatRecovered_IsNotEndedForItLater) {
  World w;
  fail_on_the_last_rail(w);
  w.pass(20);
  ASSERT_EQ(w.a.endpoint.phase, Phase::kSuspect);
  w.fabric.hold = false;
  w.fabric.run();
  w.pass(5);
  ASSERT_EQ(w.a.endpoint.phase, Phase::kUp);
  w.a.other_rail = true;
  w.pass(20);
  EXPECT_EQ(w.a.down, 0);
  hold_data(w, w.a);
  ASSERT_TRUE(w.sendi(w.a, "y"));
  w.pass(50);
  EXPECT_EQ(w.a.down, 0) << "the watchdog only suspects: nobody was asked";
}

/// The queue of a is never seen empty: other work fills every poll. The silence of one send counts all the
/// same, a little later.
TEST(Watchdog, EveryPollBringsAFullBatch_SilentWorkIsSuspectedInBoundedTime) {
  engine::Config config = small_config();
  config.send_depth = 64;
  config.receive_depth = 256;
  World w(config);
  w.connect();
  hold_data(w, w.a);
  ASSERT_TRUE(w.sendi(w.a, "x"));
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(w.sendi(w.b, "m"));
  const uint64_t begin = test_now();
  while (test_now() - begin < 40'000'000 && w.a.count("suspect") == 0) {
    test_now() += 50'000;
    for (int i = 0; i < engine::kPollBatch; ++i) ASSERT_TRUE(w.sendi(w.b, "m"));
    for (int i = 0; i < 4; ++i) w.b.poll();
    ASSERT_EQ(w.a.port.poll(), engine::kPollBatch);
  }
  EXPECT_EQ(w.a.count("suspect"), 1);
  EXPECT_GT(test_now() - begin, 8'000'000u);
}

TEST(Watchdog, UnsignaledTail_GetsAMarkerAndIsNotSuspected) {
  World w;
  w.connect();
  ASSERT_TRUE(w.sendi(w.a, "x"));
  w.pass(100);
  EXPECT_EQ(engine::outstanding(w.a.endpoint), 0u);
  EXPECT_EQ(w.a.count("suspect"), 0);
}

TEST(Watchdog, ProcessThatWasAway_DoesNotBlameTheRail) {
  World w;
  w.connect();
  hold_data(w, w.a);
  ASSERT_TRUE(w.sendi(w.a, "x"));
  for (int i = 0; i < 20; ++i) {
    test_now() += 1'000'000'000;  // computing
    for (int k = 0; k < 16; ++k) w.a.poll();
  }
  EXPECT_EQ(w.a.count("suspect"), 0);
}

TEST(Watchdog, IdleRail_CostsNothing) {
  World w;
  w.connect();
  const int posted = w.fabric.posted;
  const size_t packets = w.fabric.datagrams.size();
  w.pass(1000);
  EXPECT_EQ(w.fabric.posted, posted);
  EXPECT_EQ(w.fabric.datagrams.size(), packets);
}

/// What the last epoch waited is no silence of the next one.
TEST(Watchdog, NewEpochWithWorkAtOnce_IsNotSuspectForTheSilenceOfTheLastOne) {
  World w;
  w.connect();
  w.fabric.hold = true;
  ASSERT_TRUE(w.sendi(w.a, "x"));
  w.pass(8);
  ASSERT_TRUE(w.fabric.fail(w.a.endpoint.qps().data.number(), IBV_WC_RETRY_EXC_ERR));
  w.fabric.hold = false;
  for (int i = 0; i < 40'000 && (w.a.endpoint.epoch < 2 || w.a.endpoint.phase != Phase::kUp); ++i) {
    test_now() += 10'000;
    w.fabric.run();
    w.a.poll();
    w.b.poll();
  }
  ASSERT_EQ(w.a.endpoint.phase, Phase::kUp);
  w.a.log.clear();
  hold_data(w, w.a);
  ASSERT_TRUE(w.sendi(w.a, "y"));
  w.pass(3);
  EXPECT_EQ(w.a.count("suspect"), 0) << "three milliseconds are not ten";
  w.pass(12);
  EXPECT_EQ(w.a.count("suspect"), 1);
}

/// Later faults of the path are judged by what comes later, but a queue pair that failed takes no other
/// probe.
TEST(Watchdog, WorkMovesAfterTheProbe_ItCountsNoMoreAndAFailedOneIsNotSentAgain) {
  engine::Watch watch;
  watch.probe = engine::PathProbe::kFailed;
  watch.moved(3);
  EXPECT_FALSE(watch.probe_failed());
  EXPECT_FALSE(watch.can_probe());
  watch.probe = engine::PathProbe::kDone;
  watch.moved(4);
  EXPECT_FALSE(watch.probe_done());
  EXPECT_TRUE(watch.can_probe());
}

/// A rail whose completions come late again and again is known to be slow.
TEST(Watchdog, RailThatIsSlowAgainAndAgain_IsNotSuspectedEachTime) {
  TwoRails r;
  for (int i = 0; i < 20; ++i) {
    r.hold(r.w.a, r.w.b);
    ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
    r.pass(16);
    r.release();
    r.pass(4);
  }
  EXPECT_EQ(r.w.a.count("suspect"), 1);
  r.wait(5000);
  r.hold(r.w.a, r.w.b);
  ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
  r.pass(16);
  EXPECT_EQ(r.w.a.count("suspect"), 2) << "that was long ago";
}

/// A process that gets the processor in slices far apart.
TEST(Watchdog, ProcessThatIsKeptWaiting_IsMorePatient) {
  TwoRails r;
  const auto share = [&](int slices) {
    for (int i = 0; i < slices; ++i) {
      test_now() += 9'000'000;
      for (int k = 0; k < 64; ++k) r.turn();
    }
  };
  share(10);
  r.hold(r.w.a, r.w.b);
  ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
  share(2);
  EXPECT_EQ(r.w.a.count("suspect"), 0) << "18 ms, but the process itself was late by 7 ms each time";
  share(4);
  EXPECT_EQ(r.w.a.count("suspect"), 1);
}

}  // namespace
}  // namespace bfo::test
