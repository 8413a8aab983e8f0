// SPDX-License-Identifier: BSD-3-Clause
//
// Tests of the rule table: which message a rule takes, how often, and what the engine is told to do. Time is
// a number here; nothing sleeps.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "contrib/softhca/fault/rule_test.h"

namespace bfo::softhca {
namespace {

TEST_F(RuleTable, Empty_IsNotArmedAndDecidesNothing) {
  EXPECT_FALSE(armed(*table_));
  EXPECT_EQ(send().kind, ActionKind::kNone);
  EXPECT_EQ(next_due_ns(*table_), kNever);
  EXPECT_EQ(tick(*table_, kNever - 1).kind, ActionKind::kNone);
}

TEST_F(RuleTable, Ordinal_FiresOnceOnExactlyThatMessage) {
  load("fifth: when opcode=SEND message=5 do drop");
  EXPECT_TRUE(armed(*table_));
  for (int i = 1; i <= 10; ++i) {
    send(64, Opcode::kWrite);
    EXPECT_EQ(send().kind, i == 5 ? ActionKind::kDrop : ActionKind::kNone) << i;
  }
  EXPECT_EQ(counters("fifth").fired.load(), 1u);
  EXPECT_FALSE(armed(*table_)) << "a spent rule must cost nothing";
}

TEST_F(RuleTable, OrdinalRange_EndsAlsoWithoutALimit) {
  load("when message=2..3 count=any do drop");
  for (int i = 1; i <= 6; ++i)
    EXPECT_EQ(send().kind, i == 2 || i == 3 ? ActionKind::kDrop : ActionKind::kNone) << i;
}

TEST_F(RuleTable, Retransmissions_AreNotCountedAndPass) {
  load("second: when message=2 do drop");
  EXPECT_EQ(send().kind, ActionKind::kNone);
  MessageRecord second = message();
  MessageRecord retry_of_first = second;
  retry_of_first.message_ordinal = 0;
  retry_of_first.attempt = 1;
  EXPECT_EQ(decide(*table_, retry_of_first).kind, ActionKind::kNone);
  EXPECT_EQ(decide(*table_, second).kind, ActionKind::kDrop);
  second.attempt = 1;
  EXPECT_EQ(decide(*table_, second).kind, ActionKind::kNone);
}

TEST_F(RuleTable, LostAck_LosesEveryAttemptOfThatMessageOnly) {
  load("when message=2 do drop-ack");
  send();
  MessageRecord second = message();
  MessageRecord third = message();
  EXPECT_EQ(decide(*table_, second).kind, ActionKind::kDropAck);
  EXPECT_EQ(decide(*table_, third).kind, ActionKind::kNone);
  for (uint16_t attempt = 1; attempt < 8; ++attempt) {
    second.attempt = third.attempt = attempt;
    EXPECT_EQ(decide(*table_, second).kind, ActionKind::kDropAck) << attempt;
    EXPECT_EQ(decide(*table_, third).kind, ActionKind::kNone) << attempt;
  }
}

TEST_F(RuleTable, AttemptAllSeenFromTheReceiver_IsTheSameMessage) {
  load("when message=1 direction=any attempt=all do drop");
  MessageRecord tx = message();
  EXPECT_EQ(decide(*table_, tx).kind, ActionKind::kDrop);
  MessageRecord rx = tx;
  std::swap(rx.node, rx.peer_node);
  rx.direction = Direction::kRx;
  rx.attempt = 1;
  EXPECT_EQ(decide(*table_, rx).kind, ActionKind::kDrop);
}

TEST_F(RuleTable, LateWrite_HoldsTheFirstCopyAndLosesTheOthers) {
  load("when message=1 do late-write 50ms");
  MessageRecord write = message(4096, Opcode::kWrite);
  const Decision held = decide(*table_, write);
  EXPECT_EQ(held.kind, ActionKind::kLateWrite);
  EXPECT_EQ(held.delay_ns, 50 * kMs);
  write.attempt = 1;
  EXPECT_EQ(decide(*table_, write).kind, ActionKind::kDrop);
}

TEST_F(RuleTable, KillRail1_CutsTheFirstLargeMessageInHalf) {
  load("kill: when device=softhca1 size>=16K offset=50% count=1 do port-down");
  EXPECT_EQ(send(16383).kind, ActionKind::kNone);
  MessageRecord other_rail = message(65536);
  other_rail.device = 0;
  EXPECT_EQ(decide(*table_, other_rail).kind, ActionKind::kNone);
  const Decision d = send(65536);
  EXPECT_EQ(d.kind, ActionKind::kPortDown);
  EXPECT_EQ(d.cut_bytes, 32768u);
  EXPECT_EQ(d.node, 0);
  EXPECT_EQ(d.device, 1);
  EXPECT_EQ(d.port, 1);
  EXPECT_EQ(d.duration_ns, 0u);
  EXPECT_EQ(send(65536).kind, ActionKind::kNone);
}

TEST_F(RuleTable, OnPeer_TargetsTheOtherEnd) {
  load("when message=1 do kill on=peer");
  const Decision d = send();
  EXPECT_EQ(d.kind, ActionKind::kKill);
  EXPECT_EQ(d.node, 1);
  EXPECT_EQ(d.qpn, 0x22u);
}

TEST_F(RuleTable, Byte_FiresInTheMessageThatCarriesIt) {
  load("when byte=150 do drop");
  EXPECT_EQ(send(100).kind, ActionKind::kNone);
  const Decision d = send(100);
  EXPECT_EQ(d.kind, ActionKind::kDrop);
  EXPECT_EQ(d.cut_bytes, 50u);
  EXPECT_EQ(send(100).kind, ActionKind::kNone);
}

TEST_F(RuleTable, Filters_SelectByEachKey) {
  const std::pair<const char*, void (*)(MessageRecord&)> cases[] = {
      {"node=0", [](MessageRecord& r) { r.node = 7; }},
      {"device=1", [](MessageRecord& r) { r.device = 0; }},
      {"port=1", [](MessageRecord& r) { r.port = 2; }},
      {"peer=1", [](MessageRecord& r) { r.peer_node = 0; }},
      {"qpn=0x11", [](MessageRecord& r) { r.src_qpn = 0x12; }},
      {"peer-qpn=0x22", [](MessageRecord& r) { r.dst_qpn = 0x12; }},
      {"path=0", [](MessageRecord& r) { r.path = 1; }},
      {"opcode=SEND", [](MessageRecord& r) { r.opcode = Opcode::kRead; }},
      {"service=RC", [](MessageRecord& r) { r.service = Service::kUd; }},
      {"direction=tx", [](MessageRecord& r) { r.direction = Direction::kRx; }},
      {"size=64", [](MessageRecord& r) { r.length = 65; }},
      {"size>=64", [](MessageRecord& r) { r.length = 63; }},
      {"attempt=first", [](MessageRecord& r) { r.attempt = 1; }},
      {"opcode=request", [](MessageRecord& r) { r.opcode = Opcode::kAck; }},
  };
  for (const auto& [key, spoil] : cases) {
    start(*table_, kStart);
    load(std::string("when ") + key + " do drop");
    MessageRecord right = message();
    MessageRecord wrong = right;
    spoil(wrong);
    EXPECT_EQ(decide(*table_, right).kind, ActionKind::kDrop) << key;
    EXPECT_EQ(decide(*table_, wrong).kind, ActionKind::kNone) << key;
  }
}

TEST_F(RuleTable, Imm_SelectsMessagesThatCarryThatValue) {
  load("when imm=0x46 do drop");
  MessageRecord r = message();
  r.imm = htonl(0x46);  // a SEND without immediate data: the field means nothing
  EXPECT_EQ(decide(*table_, r).kind, ActionKind::kNone);
  r.opcode = Opcode::kWriteImm;
  EXPECT_EQ(decide(*table_, r).kind, ActionKind::kDrop);
  r.opcode = Opcode::kSendImm;
  EXPECT_EQ(decide(*table_, r).kind, ActionKind::kDrop);
  r.imm = htonl(0x47);
  EXPECT_EQ(decide(*table_, r).kind, ActionKind::kNone);
}

TEST_F(RuleTable, QpnOfAnArrivingMessage_IsTheReceivingOne) {
  load("when qpn=0x22 direction=rx do drop");
  MessageRecord r = message();
  r.direction = Direction::kRx;
  EXPECT_EQ(decide(*table_, r).kind, ActionKind::kDrop);
}

TEST_F(RuleTable, Probability_RepeatsWithTheSeedAndHitsTheRate) {
  load("dice: when probability=10% seed=3 do drop");
  std::vector<bool> first;
  for (int i = 0; i < 10'000; ++i) first.push_back(send().kind == ActionKind::kDrop);
  const auto hits = std::count(first.begin(), first.end(), true);
  EXPECT_GT(hits, 850);
  EXPECT_LT(hits, 1150);
  start(*table_, kStart);
  load("when probability=10% seed=3 do drop");
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(send().kind == ActionKind::kDrop, first[i]) << i;
}

TEST_F(RuleTable, Window_LimitsARuleInTime) {
  load("when from=10ms until=20ms do drop");
  for (const auto& [at_ms, kind] : {std::pair{9, ActionKind::kNone},
                                    {10, ActionKind::kDrop},
                                    {19, ActionKind::kDrop},
                                    {20, ActionKind::kNone}}) {
    MessageRecord r = message();
    r.time_ns = kStart + at_ms * kMs;
    EXPECT_EQ(decide(*table_, r).kind, kind) << at_ms;
  }
}

TEST_F(RuleTable, Timed_FiresOnceWhenDueAndOnlyThen) {
  load("down: when device=1 at=200ms do port-down for=50ms");
  EXPECT_FALSE(armed(*table_)) << "timed rules must not slow messages";
  EXPECT_EQ(next_due_ns(*table_), kStart + 200 * kMs);
  EXPECT_EQ(tick(*table_, kStart + 199 * kMs).kind, ActionKind::kNone);
  const Decision d = tick(*table_, kStart + 200 * kMs);
  EXPECT_EQ(d.kind, ActionKind::kPortDown);
  EXPECT_EQ(d.node, kAnyId);
  EXPECT_EQ(d.device, 1);
  EXPECT_EQ(d.duration_ns, 50 * kMs);
  EXPECT_EQ(tick(*table_, kStart + 999 * kMs).kind, ActionKind::kNone);
  EXPECT_EQ(next_due_ns(*table_), kNever);
}

TEST_F(RuleTable, TimedWithPeriod_FiresCountTimes) {
  load("when at=10ms every=20ms count=3 do sm-change");
  int fired = 0;
  for (uint64_t ms = 0; ms < 200; ++ms) {
    while (tick(*table_, kStart + ms * kMs).kind != ActionKind::kNone) ++fired;
  }
  EXPECT_EQ(fired, 3);
}

TEST_F(RuleTable, After_StartsWhenTheOtherRuleFired) {
  load("up: when after=down+30ms do port-up\ndown: when message=2 do port-down");
  EXPECT_EQ(next_due_ns(*table_), kNever);
  send();
  EXPECT_EQ(next_due_ns(*table_), kNever);
  EXPECT_EQ(send().kind, ActionKind::kPortDown);
  EXPECT_EQ(next_due_ns(*table_), kStart + 35 * kMs);
  EXPECT_EQ(tick(*table_, kStart + 35 * kMs).kind, ActionKind::kPortUp);
}

TEST_F(RuleTable, AfterOnAMessageRule_OpensItsWindow) {
  load("a: when message=2 do drop\nb: when after=a+1ms opcode=READ do drop");
  EXPECT_EQ(send(8, Opcode::kRead).kind, ActionKind::kNone);
  EXPECT_EQ(send().kind, ActionKind::kDrop);
  EXPECT_EQ(send(8, Opcode::kRead).kind, ActionKind::kNone) << "1 ms has not passed";
  MessageRecord later = message(8, Opcode::kRead);
  later.time_ns += kMs;
  EXPECT_EQ(decide(*table_, later).kind, ActionKind::kDrop);
}

TEST_F(RuleTable, FlapByMessage_RepeatsByTimeOnThatPort) {
  load("flap: when message=2 device=1 count=3 do port-flap down=10ms up=20ms");
  send();
  EXPECT_EQ(send().kind, ActionKind::kPortDown);
  EXPECT_EQ(next_due_ns(*table_), kStart + 35 * kMs);
  for (int round = 0; round < 2; ++round) {
    const Decision d = tick(*table_, kStart + (35 + 30 * round) * kMs);
    EXPECT_EQ(d.kind, ActionKind::kPortDown) << round;
    EXPECT_EQ(d.node, 0);
    EXPECT_EQ(d.device, 1);
    EXPECT_EQ(d.port, 1);
    EXPECT_EQ(d.duration_ns, 10 * kMs);
  }
  EXPECT_EQ(tick(*table_, kStart + 900 * kMs).kind, ActionKind::kNone);
  EXPECT_EQ(table_->timed_rules.load(), 0u);
  EXPECT_EQ(table_->message_rules.load(), 0u);
}

TEST_F(RuleTable, FlapByMessage_LaterMessagesDoNotFireItAgain) {
  load("flap: when size>=16K count=5 do port-flap down=10ms up=20ms");
  EXPECT_EQ(send(16384).kind, ActionKind::kPortDown);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(send(16384).kind, ActionKind::kNone);
  EXPECT_EQ(tick(*table_, kStart + 35 * kMs).kind, ActionKind::kPortDown);
  EXPECT_EQ(counters("flap").fired.load(), 2u);
}

TEST_F(RuleTable, TwoRulesOnOneMessage_FirstWinsButWorldGoesFirst) {
  load("a: when message=1 do drop\nb: when message=1 do delay 1ms\nc: when message=1 do port-down");
  EXPECT_EQ(send().kind, ActionKind::kPortDown);
  EXPECT_EQ(counters("a").overridden.load(), 1u);
  EXPECT_EQ(counters("b").overridden.load(), 1u);
  EXPECT_EQ(counters("c").overridden.load(), 0u);
}

TEST_F(RuleTable, InjectedTimes_CountFromNow) {
  load("when at=10ms do sm-change", false, kStart + 700 * kMs);
  EXPECT_EQ(next_due_ns(*table_), kStart + 710 * kMs);
  load("when from=10ms do drop", false, kStart + 700 * kMs);
  MessageRecord r = message();
  r.time_ns = kStart + 705 * kMs;
  EXPECT_EQ(decide(*table_, r).kind, ActionKind::kNone);
  r.time_ns = kStart + 711 * kMs;
  EXPECT_EQ(decide(*table_, r).kind, ActionKind::kDrop);
}

TEST_F(RuleTable, Clear_DisarmsEverything) {
  load("do drop\ndo duplicate\nwhen at=1s do sm-change");
  EXPECT_EQ(clear(*table_, kStart), 3u);
  EXPECT_FALSE(armed(*table_));
  EXPECT_EQ(next_due_ns(*table_), kNever);
  EXPECT_EQ(send().kind, ActionKind::kNone);
  EXPECT_EQ(clear(*table_, kStart), 0u);
}

TEST_F(RuleTable, FullTable_SaysSoAndReusesOldSlotsAfterAWhile) {
  std::string many;
  for (unsigned i = 0; i < kMaxRules; ++i) many += "do drop\n";
  load(many);
  const ParseResult one = parse_rules("do drop");
  std::string error;
  EXPECT_FALSE(install(*table_, one.rules.data(), 1, true, kStart, error));
  EXPECT_NE(error.find("full"), std::string::npos);
  clear(*table_, kStart);
  EXPECT_FALSE(install(*table_, one.rules.data(), 1, true, kStart + 1, error));
  EXPECT_TRUE(install(*table_, one.rules.data(), 1, true, kStart + 2000 * kMs, error)) << error;
  EXPECT_EQ(table_->message_rules.load(), 1u);
}

TEST_F(RuleTable, UnfiredRules_AreReportedWithTheirText) {
  load("never: when opcode=ATOMIC do drop\nonce: when message=1 do drop\nlate: when at=9s do sm-change");
  send();
  const std::string report = report_unfired(*table_);
  EXPECT_NE(report.find("\"never\" (line 1) never fired: 0 messages matched"), std::string::npos) << report;
  EXPECT_NE(report.find("opcode=ATOMIC"), std::string::npos) << report;
  EXPECT_NE(report.find("\"late\""), std::string::npos) << report;
  EXPECT_EQ(report.find("once"), std::string::npos) << report;
}

/// The part of the packets is lost, whatever messages they belong to, and the last one of a message no more
/// often than another.
TEST_F(RuleTable, Lose_TakesThatPartOfThePackets) {
  load("lossy: when node=0 do lose 2%");
  uint64_t followed = 0;
  uint64_t last = 0;
  unsigned hit = 0;
  for (int i = 0; i < 20'000; ++i) {
    MessageRecord r = message();
    r.packets = 10;
    const Decision d = decide(*table_, r);
    if (d.kind == ActionKind::kNone) continue;
    ASSERT_EQ(d.kind, ActionKind::kLose);
    ASSERT_TRUE(d.value != 0 || d.value64 != 0) << "nothing is lost";
    ASSERT_LT(d.value, 10u);
    ++hit;
    followed += d.value;
    last += d.value64;
  }
  EXPECT_NEAR(static_cast<double>(followed), 3600, 240);  // four times the deviation
  EXPECT_NEAR(static_cast<double>(last), 400, 80);
  EXPECT_EQ(counters("lossy").fired.load(), hit);
}

/// What is sent again may be lost again, and an acknowledgement is a packet like others.
TEST_F(RuleTable, Lose_ThrowsDiceForEachTransmission) {
  load("do lose 50%");
  unsigned lost_again = 0;
  unsigned lost_answers = 0;
  for (int i = 0; i < 1000; ++i) {
    MessageRecord r = message();
    r.attempt = 1;
    lost_again += decide(*table_, r).kind == ActionKind::kLose;
    lost_answers += send(0, Opcode::kAck).kind == ActionKind::kLose;
  }
  EXPECT_NEAR(lost_again, 500, 64);
  EXPECT_NEAR(lost_answers, 500, 64);
}

TEST_F(RuleTable, ManyThreads_OneExactFiring) {
  load("hit: when message=5000 do drop\nticks: when at=0ms every=1us count=100 do sm-change");
  std::atomic<int> drops{0};
  std::atomic<int> events{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2500; ++i) {
        MessageRecord r{};
        r.time_ns = kStart;
        r.message_ordinal = static_cast<uint64_t>(t * 2500 + i);
        drops += decide(*table_, r).kind == ActionKind::kDrop;
        events += tick(*table_, kStart + 1'000'000'000ull + static_cast<uint64_t>(i) * 1'000'000).kind !=
                  ActionKind::kNone;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(drops.load(), 1);
  EXPECT_GE(counters("hit").matched.load(), 5000u);
  EXPECT_EQ(events.load(), 100);
}

}  // namespace
}  // namespace bfo::softhca
