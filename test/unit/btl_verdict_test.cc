// SPDX-License-Identifier: BSD-3-Clause
//
// btl_verdict_test.cc: two processes with two rails: what a suspected rail is ended for, by whom, and what it
// is not ended for.
#include "btl/verbs/engine/watchdog/verdict.h"

#include "test/unit/btl_two_rails.h"

namespace bfo::test {
namespace {

using engine::Phase;

TEST(Verdict, PathIsDeadAndProbeFails_DeciderEndsTheRailWithinFifteenMilliseconds) {
  TwoRails r;
  r.swallow(r.w.a, r.w.b);
  ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
  r.pass(9);
  ASSERT_TRUE(r.probe_fails(r.w.a));
  r.pass(6);
  EXPECT_EQ(r.w.a.down, 1);
  EXPECT_EQ(r.w.a.last_event.cause, BFO_CAUSE_PROBE_FAILED);
  EXPECT_EQ(r.w.a.last_event.code, IBV_WC_RETRY_EXC_ERR);
  EXPECT_STREQ(r.w.a.last_event.text, "the path probe failed and the peer answers over other rails only");
  EXPECT_LT(r.w.a.last_event.evidence_ns, r.w.a.last_event.now_ns);
  EXPECT_EQ(r.w.a.count("payload x -1"), 1);
  EXPECT_EQ(r.c.down + r.d.down, 0);
}

/// The path of the rail is dead, that over the first LIDs of its ports is not, and answers datagrams.
TEST(Verdict, OnlyThePathOfTheRailIsDead_EndsTheRail) {
  TwoRails r;
  r.many_lids();
  for (const Process* p : {&r.w.a, &r.w.b})
    r.w.fabric.dead_lids.insert(static_cast<uint16_t>(p->port.address().lid + r.path()));
  r.hold(r.w.a, r.w.b);
  ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
  r.pass(9);
  ASSERT_TRUE(r.probe_fails(r.w.a));
  r.pass(6);
  EXPECT_EQ(r.w.a.down, 1);
  EXPECT_EQ(r.w.a.last_event.cause, BFO_CAUSE_PROBE_FAILED);
}

/// The other way round: datagrams over the first LIDs are lost, the rail works but is slow.
TEST(Verdict, OnlyTheFirstPathIsDead_NoVerdict) {
  TwoRails r;
  r.many_lids();
  for (const Process* p : {&r.w.a, &r.w.b}) r.w.fabric.dead_lids.insert(p->port.address().lid);
  r.hold(r.w.a, r.w.b);
  ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
  r.pass(9);
  ASSERT_TRUE(r.probe_fails(r.w.a));
  r.wait(1000);
  EXPECT_EQ(r.downs(), 0);
  const engine::Endpoint& rail = r.w.a.endpoint;
  EXPECT_LT(r.w.a.port.addresses().find(rail.peer.address, r.path())->unheard,
            engine::AddressCache::kPathUnheard)
      << "answers count";
}

TEST(Verdict, AnswerOverAnotherPathOfTheRail_ProvesNothing) {
  TwoRails r;
  r.many_lids();
  r.swallow(r.w.a, r.w.b);
  ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
  r.pass(9);
  ASSERT_TRUE(r.probe_fails(r.w.a));
  engine::verdict_packet(r.w.a.endpoint, r.answer_over(r.w.a, r.w.a), test_now());
  r.pass(6);
  EXPECT_EQ(r.w.a.down, 1);
}

/// What b waits for stands still. It has the evidence, but a decides, and b follows.
TEST(Verdict, OtherSideSuspects_ItRequestsTheEndAndTheDeciderEndsTheRail) {
  TwoRails r;
  r.swallow(r.w.a, r.w.b);
  ASSERT_TRUE(r.w.sendi(r.w.b, "x"));
  r.pass(9);
  ASSERT_TRUE(r.probe_fails(r.w.b));
  r.pass(8);
  EXPECT_EQ(r.w.a.down, 1);
  EXPECT_EQ(r.w.a.last_event.cause, BFO_CAUSE_PROBE_FAILED);
  EXPECT_EQ(r.w.a.last_event.code, engine::kCodeAskedByPeer);
  r.pass(5);
  EXPECT_EQ(r.w.b.down, 1) << "the next answer says that it is over";
  EXPECT_EQ(r.w.b.last_event.cause, BFO_CAUSE_PEER_DOWN);
  EXPECT_EQ(r.c.down + r.d.down, 0);
}

/// The rail between `x` and `y` is dead, and `x` has asked about it for so long that one answer after its
/// probe failed is enough. The probe fails `phase` tenths of a millisecond later; a tick has 20 of them.
void one_answer_short(TwoRails& r, Process& x, Process& y, int phase) {
  r.swallow(x, y);
  ASSERT_TRUE(r.w.sendi(x, "x"));
  r.pass(12);
  for (int i = 0; i < phase; ++i) r.step();
  for (int i = 0; i < phase; ++i) r.turn();
  ASSERT_EQ(r.downs(), 0);
  ASSERT_TRUE(r.probe_fails(x));
}

TEST(Verdict, LastAnswerIsHere_TheDeciderWaitsForNoTick) {
  for (int phase = 0; phase < 20; ++phase) {
    TwoRails r;
    one_answer_short(r, r.w.a, r.w.b, phase);
    r.turns(8);
    EXPECT_EQ(r.w.a.down, 1) << "phase " << phase;
    EXPECT_EQ(r.w.a.last_event.code, IBV_WC_RETRY_EXC_ERR);
  }
}

TEST(Verdict, LastAnswerIsHere_TheOtherSideRequestsTheEndAtOnce) {
  for (int phase = 0; phase < 20; ++phase) {
    TwoRails r;
    one_answer_short(r, r.w.b, r.w.a, phase);
    r.turns(10);
    EXPECT_EQ(r.w.a.down, 1) << "phase " << phase;
    EXPECT_EQ(r.w.a.last_event.code, engine::kCodeAskedByPeer);
  }
}

/// Rounds without a result of the probe, too.
TEST(Verdict, LastAnswerOfManyRoundsIsHere_TheDeciderWaitsForNoTick) {
  TwoRails r;
  r.swallow(r.w.a, r.w.b);
  ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
  const engine::Inquiry& inquiry = r.w.a.endpoint.watch().inquiry;
  for (int i = 0; i < 600 && r.w.a.down == 0 && inquiry.answered < engine::kRoundsAlone; ++i) r.step();
  r.step();
  EXPECT_EQ(r.w.a.down, 1);
}

/// A peer that decides, answers each question, and ends nothing.
TEST(Verdict, EndIsRequestedAgainAndAgain_NoMoreThanOneQuestionInATick) {
  TwoRails r;
  one_answer_short(r, r.w.b, r.w.a, 0);
  r.a_runs = false;
  const engine::Inquiry& inquiry = r.w.b.endpoint.watch().inquiry;
  engine::Packet answer = r.answer_over(r.w.b, r.d);
  answer.count = inquiry.count;
  const uint32_t before = inquiry.round;
  for (int i = 0; i < 200; ++i) {
    answer.number = inquiry.round;
    engine::verdict_packet(r.d.endpoint, answer, test_now());
    r.step();
  }
  EXPECT_GE(inquiry.round - before, 10u) << "in 10 ticks";
  EXPECT_LE(inquiry.round - before, 12u);
}

/// No device says anything about a probe for a long time: that is how real ones are.
TEST(Verdict, ProbeHasNoResult_ManyRoundsDoAsWell) {
  TwoRails r;
  r.swallow(r.w.a, r.w.b);
  ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
  r.pass(20);
  EXPECT_EQ(r.w.a.count("suspect"), 1);
  EXPECT_EQ(r.downs(), 0);
  r.pass(40);
  EXPECT_EQ(r.w.a.down, 1);
  EXPECT_EQ(r.w.a.last_event.code, 0);
}

TEST(Verdict, ProbeFailsButThePathAnswers_NoVerdict) {
  TwoRails r;
  r.hold(r.w.a, r.w.b);
  ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
  r.pass(9);
  ASSERT_TRUE(r.probe_fails(r.w.a));
  r.wait(1000);
  EXPECT_EQ(r.downs(), 0);
  EXPECT_EQ(r.w.a.endpoint.phase, Phase::kSuspect);
  r.release();
  r.pass(5);
  EXPECT_EQ(r.w.a.endpoint.phase, Phase::kUp);
}

/// Messages go on arriving at the peer, only completions do not come back.
TEST(Verdict, CountAtThePeerMoves_NoVerdict) {
  TwoRails r;
  r.swallow(r.w.a, r.w.b);
  ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
  for (int i = 0; i < 200; ++i) {
    r.pass(1);
    ++r.w.b.endpoint.delivered;
    if (i == 8) {
      ASSERT_TRUE(r.probe_fails(r.w.a));
    }
  }
  EXPECT_EQ(r.downs(), 0);
}

/// Nothing completes, and the probe has failed, but the port of one end goes on receiving: 10 MB/s.
void receives_slowly(TwoRails& r, Process& receiver) {
  receiver.hca->received = 1;
  r.swallow(r.w.a, r.w.b);
  ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
  for (int i = 0; i < 200; ++i) {
    r.pass(1);
    receiver.hca->received += 10'000;
    if (i == 8) {
      ASSERT_TRUE(r.probe_fails(r.w.a));
    }
  }
  EXPECT_EQ(r.downs(), 0);
  EXPECT_EQ(r.w.a.endpoint.phase, Phase::kSuspect);
  r.pass(12);
  EXPECT_EQ(r.w.a.down, 1) << "it has stopped";
}

TEST(Verdict, PortOfThePeerReceives_NoVerdictUntilItStops) {
  TwoRails r;
  receives_slowly(r, r.w.b);
}

TEST(Verdict, OwnPortReceives_NoVerdictUntilItStops) {
  TwoRails r;
  receives_slowly(r, r.w.a);
}

/// What others receive over the port while a path of it is dead: too little, or more than any queue holds.
TEST(Verdict, PortReceivesWhatIsNoSignOfLife_EndsTheRail) {
  for (const uint64_t bytes : {uint64_t{100}, engine::kOthersQueued}) {
    TwoRails r;
    r.w.b.hca->received = 1;
    r.swallow(r.w.a, r.w.b);
    ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
    for (int i = 0; i < 22; ++i) {
      r.pass(1);
      r.w.b.hca->received += bytes;
      if (i == 8) {
        ASSERT_TRUE(r.probe_fails(r.w.a));
      }
    }
    EXPECT_EQ(r.w.a.down, 1) << bytes << " bytes in a millisecond";
  }
}

TEST(Verdict, PeerIsSilentOnEveryRail_NoVerdict) {
  TwoRails r;
  r.swallow(r.w.a, r.w.b);
  r.b_runs = false;
  ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
  r.pass(9);
  ASSERT_TRUE(r.probe_fails(r.w.a));
  r.wait(2000);
  EXPECT_EQ(r.downs(), 0) << "a process that computes, or is gone, is no lost rail";
  EXPECT_EQ(r.w.a.count("suspect"), 1);
  r.b_runs = true;
  r.pass(80);
  EXPECT_EQ(r.w.a.down, 1) << "it is back, and answers over the other rail only";
}

TEST(Verdict, LastRail_LivesUntilAnotherIsUpAtBothEnds) {
  TwoRails r;
  r.w.set_port(r.c, IBV_PORT_DOWN);
  r.pass(5);
  ASSERT_EQ(r.c.down, 1);
  r.swallow(r.w.a, r.w.b);
  ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
  r.pass(9);
  ASSERT_TRUE(r.probe_fails(r.w.a));
  r.wait(500);
  EXPECT_EQ(r.w.a.down + r.w.b.down, 0);
  r.w.set_port(r.c, IBV_PORT_ACTIVE);
  r.wait(600);
  EXPECT_EQ(r.c.up, 2);
  EXPECT_EQ(r.w.a.down, 1);
}

/// Each side has a rail it waits for, not the same one: as when one cable loses what goes one way and the
/// other one what goes the other way.
TEST(Verdict, EachSideAccusesAnotherRail_OneIsLeft) {
  TwoRails r;
  r.hold(r.w.a, r.w.b);
  r.hold(r.c, r.d);
  ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
  ASSERT_TRUE(r.w.sendi(r.d, "y"));
  r.pass(9);
  ASSERT_TRUE(r.probe_fails(r.w.a));
  ASSERT_TRUE(r.probe_fails(r.d));
  r.wait(1000);
  EXPECT_LE(r.w.a.down + r.c.down, 1);
  EXPECT_LE(r.w.b.down + r.d.down, 1);
  EXPECT_EQ(r.downs(), 0) << "both paths answer";
}

TEST(Verdict, ResponderNeverEndsARailByItself) {
  TwoRails r;
  // The decider finds the other rail suspect: it might be left without any.
  r.hold(r.c, r.d);
  ASSERT_TRUE(r.w.sendi(r.c, "y"));
  r.pass(15);
  ASSERT_EQ(r.c.endpoint.phase, Phase::kSuspect);
  r.swallow(r.w.a, r.w.b);
  ASSERT_TRUE(r.w.sendi(r.w.b, "x"));
  r.pass(9);
  ASSERT_TRUE(r.probe_fails(r.w.b));
  r.wait(200);
  EXPECT_EQ(r.downs(), 0);
  r.w.fabric.held.erase(r.c.endpoint.qps().data.number());
  r.w.fabric.run();
  r.wait(200);
  EXPECT_EQ(r.w.a.down, 1) << "it is not";
}

/// The peer has closed the epoch for a reason of its own, and its notice takes its time: its answer is
/// enough.
TEST(Verdict, PeerHasEndedTheEpoch_ItsAnswerEndsItHere) {
  TwoRails r;
  r.swallow(r.w.a, r.w.b);
  ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
  engine::close_order(r.w.b.endpoint, 1, BFO_CAUSE_WC_ERROR, IBV_WC_RETRY_EXC_ERR, 0);
  r.pass(12);
  EXPECT_EQ(r.w.a.down, 1);
  EXPECT_EQ(r.w.a.last_event.cause, BFO_CAUSE_PEER_DOWN);
}

TEST(Verdict, DeviceReportsAnError_NoInquiry) {
  TwoRails r;
  r.swallow(r.w.a, r.w.b);
  ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
  ASSERT_TRUE(r.w.fabric.fail(r.w.a.endpoint.qps().data.number(), IBV_WC_RETRY_EXC_ERR));
  r.turn();
  r.turn();
  EXPECT_EQ(r.w.a.down, 1);
  EXPECT_EQ(r.w.a.endpoint.watch().inquiry.round, 0u);
}

/// A late answer to a question of an older inquiry proves nothing.
TEST(Verdict, AnswerOfAnOlderInquiry_IsIgnored) {
  engine::Inquiry inquiry{.on = true, .open = true, .first = 8, .round = 9};
  using engine::Hearing;
  const uint32_t both = engine::kInquiryAlive | engine::kInquiryCarrier;
  EXPECT_EQ(hear(inquiry, {7, both, 0, true, true}), Hearing::kIgnore);
  EXPECT_EQ(hear(inquiry, {10, both, 0, true, true}), Hearing::kIgnore);
  EXPECT_EQ(hear(inquiry, {8, both, 0, true, true}), Hearing::kAlive);
  EXPECT_EQ(hear(inquiry, {8, both, 0, false, true}), Hearing::kIgnore) << "a round counts once";
  EXPECT_EQ(hear(inquiry, {9, both, 0, false, true}), Hearing::kRound);
  EXPECT_EQ(hear(inquiry, {9, both, 0, false, false}), Hearing::kIgnore);
  EXPECT_EQ(hear(inquiry, {9, engine::kInquiryAlive, 0, false, true}), Hearing::kIgnore);
  EXPECT_EQ(hear(inquiry, {9, engine::kInquiryOver, 0, false, true}), Hearing::kOver);
  inquiry.open = false;
  EXPECT_EQ(hear(inquiry, {9, both, 0, false, true}), Hearing::kIgnore) << "doubled";
}

/// An end request that was under way while the rail it came over ended and came back: it was sent when that
/// rail was up at the other end, which says nothing of the new epoch.
TEST(Verdict, EndRequestOfAnOlderEpochOfItsCarrier_IsRefused) {
  TwoRails r;
  r.request_end(r.w.a, r.c, 0);
  EXPECT_FALSE(r.w.a.endpoint.ending().asked);
  r.request_end(r.w.a, r.c, 1);
  EXPECT_TRUE(r.w.a.endpoint.ending().asked);
}

/// Two that decide could each end another rail. An honest peer sends its end request to the one that decides,
/// and to that one only: this request is forged, or a mistake.
TEST(Verdict, EndRequestToTheSideThatDoesNotDecide_IsRefused) {
  TwoRails r;
  r.request_end(r.w.b, r.d, 1);
  EXPECT_FALSE(r.w.b.endpoint.ending().asked);
  r.pass(5);
  EXPECT_EQ(r.downs(), 0);
}

TEST(Verdict, EndRequestThatFailsOneCondition_IsRefused) {
  const engine::EndRequest good{
      .decider = true, .rail_up = true, .same_rail = false, .carrier_up = true, .unmoved = true};
  EXPECT_TRUE(engine::granted(good));
  const auto but = [&good](bool engine::EndRequest::*field) {
    engine::EndRequest request = good;
    request.*field = !(request.*field);
    return engine::granted(request);
  };
  EXPECT_FALSE(but(&engine::EndRequest::decider));
  EXPECT_FALSE(but(&engine::EndRequest::rail_up));
  EXPECT_FALSE(but(&engine::EndRequest::same_rail));
  EXPECT_FALSE(but(&engine::EndRequest::carrier_up));
  EXPECT_FALSE(but(&engine::EndRequest::unmoved));
}

TEST(Verdict, LostDatagrams_AreAskedAgain) {
  TwoRails r;
  r.swallow(r.w.a, r.w.b);
  ASSERT_TRUE(r.w.sendi(r.w.a, "x"));
  r.w.fabric.drop_datagrams = 8;
  r.pass(9);
  ASSERT_TRUE(r.probe_fails(r.w.a));
  r.pass(200);
  EXPECT_EQ(r.w.a.down, 1);
}

}  // namespace
}  // namespace bfo::test
