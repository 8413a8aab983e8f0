// SPDX-License-Identifier: BSD-3-Clause
//
// btl_connect_timeout_test.cc: how long a first message waits for its connection before it takes another
// rail: not for a peer that does not answer, however seldom this process polls, but as long as the handshake
// is late because processes wait for a processor.
#include <cerrno>

#include "btl/verbs/engine/connect/connect_timeout.h"
#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Phase;

constexpr uint64_t kMs = 1'000'000;

/// `p` calls MPI for a moment.
void look(World& w, Process& p) {
  w.fabric.run();
  for (int k = 0; k < 64; ++k) p.poll();
}

/// Both processes get the processor for a moment now and then; between them `silent` milliseconds.
void slices(World& w, int count, uint64_t silent) {
  for (int i = 0; i < count; ++i) {
    for (Process* p : {&w.a, &w.b}) {
      test_now() += silent * kMs;
      test_starved() += silent * kMs;
      look(w, *p);
    }
  }
}

/// Time passes in which `a`, alone, calls MPI every `pause` milliseconds and has a processor all the time.
void seldom(World& w, uint64_t ms, uint64_t pause) {
  for (const uint64_t end = test_now() + ms * kMs; test_now() < end;) {
    test_now() += pause * kMs;
    look(w, w.a);
  }
}

TEST(ConnectTimeout, ProcessesGetTheProcessorSeldom_FirstMessagesWait) {
  World w;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("ping")), engine::Accepted::kQueued);
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("pong")), engine::Accepted::kQueued);
  slices(w, 12, 400);
  EXPECT_EQ(w.a.down + w.b.down, 0) << "slow, but alive";
  EXPECT_EQ(w.b.count("recv 65 ping"), 1);
  EXPECT_EQ(w.a.count("recv 65 pong"), 1);
}

TEST(ConnectTimeout, NobodyAnswersAProcessThatIsStarved_NotWaitedForEver) {
  World w;
  w.fabric.drop_datagrams = 1 << 30;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  slices(w, 5, 400);
  EXPECT_EQ(w.a.down, 0);
  slices(w, 20, 400);
  EXPECT_EQ(w.a.count("done x -12"), 1);
  EXPECT_EQ(w.a.last_event.code, EINPROGRESS);
}

TEST(ConnectTimeout, NobodyAnswersAProcessThatRuns_GivenUpInTime) {
  World w;
  w.fabric.drop_datagrams = 1 << 30;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  w.pass(990);
  EXPECT_EQ(w.a.down, 0);
  w.pass(30);
  EXPECT_EQ(w.a.count("done x -12"), 1);
}

/// The initiator polls so seldom that its handshake outlasts the time limit: the rail is late at the
/// responder, and comes up in the same epoch all the same.
TEST(ConnectTimeout, PeerPollsSeldom_TheRailIsLateAndNotLost) {
  World w;
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("x")), engine::Accepted::kQueued);
  for (int i = 0; i < 12; ++i) {
    for (int k = 0; k < 1000; ++k) {
      test_now() += kMs;
      look(w, w.b);
    }
    look(w, w.a);
  }
  EXPECT_EQ(w.b.down, 1);
  EXPECT_EQ(w.b.last_event.cause, BFO_CAUSE_HANDSHAKE);
  EXPECT_EQ(w.b.last_event.code, EINPROGRESS);
  EXPECT_EQ(w.b.count("done x -12"), 1) << "it takes another rail";
  EXPECT_EQ(w.b.closed, 0);
  EXPECT_EQ(w.b.up, 1);
  EXPECT_EQ(w.a.down, 0);
  EXPECT_EQ(w.b.endpoint.phase, engine::Phase::kUp);
  EXPECT_EQ(w.b.endpoint.epoch, 1u) << "no attempt was in vain";
}

/// The responder has replied and hears nothing any more, not even answers to its PINGs. To be told that the
/// rail was up would be wrong, unless the peer used it.
TEST(Patience, RepliedAndThePeerIsGone_TheRailWasNeverUp) {
  for (const bool used : {false, true}) {
    World w;
    ASSERT_EQ(engine::send(w.b.endpoint, w.frag("x")), engine::Accepted::kQueued);
    w.until_replied();
    w.fabric.drop_datagrams = 1 << 30;  // READY
    for (int i = 0; i < 400 && w.a.endpoint.phase != Phase::kUp; ++i) look(w, w.a);
    ASSERT_EQ(w.a.endpoint.phase, Phase::kUp);
    if (used) {
      ASSERT_TRUE(w.sendi(w.a, "late"));
    }
    w.b.endpoint.pings().state = engine::Pinged::kSilent;
    ASSERT_TRUE(engine::first_connection_ends(w.b.endpoint, test_now()));
    for (int i = 0; i < 100; ++i) {
      test_now() += kMs;
      look(w, w.b);
    }
    if (used) {
      EXPECT_EQ(w.b.log, (Log{"down 1", "done x -12", "up 1", "recv 65 late", "down 1", "closed 1"}));
    } else {
      EXPECT_EQ(w.b.log, (Log{"down 1", "done x -12", "closed 1"}));
    }
  }
}

/// A call of MPI as the component makes progress for it: it stays for a moment when the port says that it
/// may. The peer has the processor once in `turn_ns` meanwhile, the process itself `late_ns` after each of
/// its naps. How long the call took.
uint64_t call(World& w, Process& p, Process& peer, uint64_t turn_ns = 20'000, uint64_t late_ns = 0) {
  const uint64_t begun = test_now();
  p.stay_ns = 0;
  p.poll();
  const uint64_t step_ns = p.patience.step_ns(std::exchange(p.stay_ns, 0), p.port.steps());
  engine::Stay stay(step_ns, p.port.steps(), begun, test_environment());
  for (uint64_t turn = begun + turn_ns; p.port.connecting() && stay.goes_on(p.port.steps(), test_now());
       p.poll()) {
    test_now() += 20'000 + late_ns;
    test_starved() += late_ns;
    if (test_now() < turn) continue;
    turn += turn_ns;
    look(w, peer);
  }
  p.patience.left(p.port.connecting(), p.port.steps());
  p.port.await_message(nullptr);
  return test_now() - begun;
}

TEST(ConnectTimeout, ProcessPollsSeldom_AFirstMessageTakesThreePolls) {
  for (const uint64_t pause : {100, 1000}) {
    World w;
    for (int i = 0; i < 3; ++i) {
      test_now() += pause * kMs;
      call(w, w.a, w.b);
    }
    w.b.other_rail = false;
    ASSERT_EQ(engine::send(w.b.endpoint, w.frag("x")), engine::Accepted::kQueued);
    int calls = 0;
    for (; calls < 20 && w.a.count("recv 65 x") == 0; ++calls) {
      for (uint64_t ms = 0; ms < pause; ++ms) {
        test_now() += kMs;
        look(w, w.b);
      }
      call(w, w.a, w.b);
    }
    EXPECT_LE(calls, 3) << pause;
    EXPECT_EQ(w.b.down, 0);
  }
}

/// On a loaded machine each step of the peer takes long: the process stays for one after the other, and for
/// the message behind them.
TEST(ConnectTimeout, ProcessPollsSeldomAndItsPeerIsSlow_OneCallTakesAllSteps) {
  constexpr uint64_t kPauseMs = 1000;
  for (const uint64_t turn_ms : {10, 30, 45}) {
    World w;
    for (int i = 0; i < 3; ++i) {
      test_now() += kPauseMs * kMs;
      call(w, w.a, w.b);
    }
    w.b.other_rail = false;
    ASSERT_EQ(engine::send(w.b.endpoint, w.frag("x")), engine::Accepted::kQueued);
    int calls = 0;
    for (; calls < 20 && w.a.count("recv 65 x") == 0; ++calls) {
      for (uint64_t ms = 0; ms < kPauseMs; ms += turn_ms) {
        test_now() += turn_ms * kMs;
        look(w, w.b);
      }
      EXPECT_LE(call(w, w.a, w.b, turn_ms * kMs), kPauseMs * kMs / 4) << "a call is not kept for long";
    }
    EXPECT_EQ(calls, 1) << turn_ms;
  }
}

/// More processes than processors: each of both has its turn when all others had theirs.
TEST(ConnectTimeout, ProcessPollsSeldomAndTheMachineIsLoaded_AFirstMessageTakesThreePolls) {
  constexpr uint64_t kPauseMs = 1000;
  for (const uint64_t late_ms : {10, 30, 60, 90}) {
    World w;
    for (int i = 0; i < 3; ++i) {
      test_now() += kPauseMs * kMs;
      call(w, w.a, w.b);
    }
    w.b.other_rail = false;
    ASSERT_EQ(engine::send(w.b.endpoint, w.frag("x")), engine::Accepted::kQueued);
    int calls = 0;
    for (; calls < 20 && w.a.count("recv 65 x") == 0; ++calls) {
      for (uint64_t ms = 0; ms < kPauseMs; ms += late_ms) {
        test_now() += late_ms * kMs;
        look(w, w.b);
      }
      EXPECT_LE(call(w, w.a, w.b, 2 * late_ms * kMs, late_ms * kMs), kPauseMs * kMs);
    }
    RecordProperty("calls", calls);
    EXPECT_LE(calls, 2) << late_ms;
  }
}

/// The peer has its turn so late that no step comes within one call's time. By the next call it has answered:
/// that call waits for the other steps.
TEST(ConnectTimeout, ProcessPollsSeldomAndItsPeerWaitsForAProcessor_AFirstMessageTakesThreePolls) {
  constexpr uint64_t kPauseMs = 1000;
  for (const uint64_t turn_ms : {60, 120, 190}) {
    World w;
    for (int i = 0; i < 3; ++i) {
      test_now() += kPauseMs * kMs;
      call(w, w.a, w.b);
    }
    w.b.other_rail = false;
    ASSERT_EQ(engine::send(w.b.endpoint, w.frag("x")), engine::Accepted::kQueued);
    int calls = 0;
    for (; calls < 20 && w.a.count("recv 65 x") == 0; ++calls) {
      for (uint64_t ms = 0; ms < kPauseMs; ms += turn_ms) {
        test_now() += turn_ms * kMs;
        look(w, w.b);
      }
      EXPECT_LE(call(w, w.a, w.b, turn_ms * kMs), 2 * kPauseMs * kMs);
    }
    EXPECT_EQ(calls, 2) << turn_ms;
  }
}

/// Nothing moves: a call stays for one step only.
TEST(ConnectTimeout, ProcessPollsSeldomAndNobodyAnswers_ItIsKeptForAMomentOnly) {
  World w;
  for (int i = 0; i < 3; ++i) {
    test_now() += 1000 * kMs;
    call(w, w.a, w.b);
  }
  w.fabric.drop_datagrams = 1 << 30;
  w.a.other_rail = false;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  for (int i = 0; i < 5; ++i) {
    test_now() += 1000 * kMs;
    EXPECT_LE(call(w, w.a, w.b), 110 * kMs);
  }
}

TEST(ConnectTimeout, ProcessPollsOften_ItIsNotKept) {
  World w;
  for (int i = 0; i < 100; ++i) {
    test_now() += 1000;
    look(w, w.a);
  }
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("x")), engine::Accepted::kQueued);
  for (int i = 0; i < 2000 && w.a.count("recv 65 x") == 0; ++i) {
    test_now() += 10'000;
    look(w, w.b);
    look(w, w.a);
  }
  EXPECT_EQ(w.a.count("recv 65 x"), 1);
  EXPECT_EQ(w.a.stay_ns, 0u);
}

class ConnectTimeoutPause : public testing::TestWithParam<uint64_t> {};

TEST_P(ConnectTimeoutPause, NobodyAnswersAProcessThatPollsSeldom_GivenUpInTime) {
  World w;
  w.fabric.drop_datagrams = 1 << 30;
  seldom(w, 50, 50);
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  seldom(w, 900, GetParam());
  seldom(w, 200 + 3 * GetParam(), GetParam());
  EXPECT_EQ(w.a.count("done x -12"), 1);
  EXPECT_EQ(w.a.last_event.code, EINPROGRESS);
}

TEST_P(ConnectTimeoutPause, NoOtherRailIsUp_TheOthersAreTriedInTimeAndUsedAtOnce) {
  World w;
  w.a.other_rail = false;
  w.fabric.drop_datagrams = 1 << 30;
  seldom(w, 50, 50);
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  seldom(w, 1100 + 3 * GetParam(), GetParam());
  EXPECT_EQ(w.a.others_asked, 1);
  EXPECT_EQ(w.a.down, 0);
  w.a.other_rail = true;
  seldom(w, GetParam(), GetParam());
  EXPECT_EQ(w.a.count("done x -12"), 1) << "it has waited for long enough";
}

TEST_P(ConnectTimeoutPause, ProcessThatPollsSeldom_ItsHandshakeIsNotHurriedBySilenceOfItsOwn) {
  World w;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  for (int i = 0; i < 40; ++i) {
    test_now() += GetParam() * kMs;
    for (int k = 0; k < 10; ++k) look(w, w.b);
    look(w, w.a);
  }
  EXPECT_EQ(w.a.down + w.b.down, 0);
  EXPECT_EQ(w.b.count("recv 65 x"), 1);
}

INSTANTIATE_TEST_SUITE_P(Ms, ConnectTimeoutPause, testing::Values(uint64_t{15}, uint64_t{100}, uint64_t{450}),
                         [](const auto& each) { return std::to_string(each.param); });

TEST(ConnectTimeout, ProcessComputesAfterItsFirstSend_TheHandshakeHasItsTime) {
  World w;
  w.pass(1);
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  test_now() += 5'000 * kMs;
  w.pass(5);
  EXPECT_EQ(w.a.down, 0) << "nothing had been asked of the peer yet";
  EXPECT_EQ(w.b.count("recv 65 x"), 1);
}

TEST(ConnectTimeout, TheSystemCountsHowLongAProcessStarves_NeverBackwards) {
  const uint64_t before = engine::system_environment().starved_ns();
  const uint64_t after = engine::system_environment().starved_ns();
  EXPECT_LE(before, after);
  if (after == UINT64_MAX) GTEST_SKIP() << "this kernel has no /proc/self/schedstat";
  EXPECT_LT(after, engine::system_environment().now_ns());
}

TEST(ConnectTimeout, ProcessorTimeIsNotKnown_LongPausesDoNotCount) {
  World w;
  w.fabric.drop_datagrams = 1 << 30;
  test_starved() = UINT64_MAX;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  seldom(w, 4'000, 100);
  EXPECT_EQ(w.a.down, 0);
  seldom(w, 13'000, 100);
  EXPECT_EQ(w.a.count("done x -12"), 1);
  test_starved() = 0;
}

}  // namespace
}  // namespace bfo::test
