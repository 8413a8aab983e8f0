// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_answers_test.cc: what a process has to say to a peer that asks and does not listen: its rails refuse,
// or there is none, or the BTL queues everything. What waits is bounded, a question costs the same whatever
// waits, the newest answer is the one that counts, and others notice nothing.
#include <gtest/gtest.h>

#include <cstring>

#include "test/unit/failover_steps.h"

namespace bfo::test {
namespace {

template <class Hdr>
void say(World& w, const Hdr& h) {
  w.engines[1]->on_message(w.rail(1, 0, 0), 1, h.type, &h, sizeof h);
}

core::SeqSyncHdr question(uint16_t number) {
  return {static_cast<uint8_t>(MsgType::kSeqSync), 0, 0, 0, 0, number};
}

/// Rank 0 asks rank 1, whose rails to it take nothing. Rank 2 is honest.
struct Flood {
  explicit Flood(const World::Options& o) : w(o) {
    meet(w);
    w.refuses = [this](int from, int to) { return refuse && from == 1 && to == 0; };
  }
  static World::Options three() {
    World::Options o;
    o.ranks = 3;
    return o;
  }
  /// A message of rank 2 and its answer. How often rank 1 offered something to a rail.
  uint64_t exchange() {
    const uint64_t before = w.ports[1]->offered_;
    RecvReq* const there = w.irecv(1, 2, 7, 16);
    RecvReq* const back = w.irecv(2, 1, 7, 16);
    w.isend(2, 1, 7, pattern(16, 2));
    w.isend(1, 2, 7, pattern(16, 3));
    for (size_t i = 0; i < w.flights.size();)
      if (w.flights[i].from == 2 || w.flights[i].to == 2)
        w.take(i);
      else
        ++i;
    EXPECT_TRUE(there->done && back->done);
    EXPECT_EQ(there->data, pattern(16, 2));
    EXPECT_EQ(back->data, pattern(16, 3));
    return w.ports[1]->offered_ - before;
  }
  /// Names of a message that rank 1 has received.
  core::AckHdr finished() {
    refuse = false;
    const auto [s, r] = transfer(w, 3000);
    EXPECT_TRUE(until(w, MsgType::kAck));
    core::AckHdr h{};
    std::memcpy(&h, w.flights[0].bytes.data(), sizeof h);
    EXPECT_TRUE(w.run());
    EXPECT_TRUE(s->done && r->done);
    refuse = true;
    return h;
  }
  size_t kept() const { return w.ports[1]->live_ + w.ports[1]->frags_ * sizeof(FakePort::Frag); }

  World w;
  bool refuse = true;
};

/// NOTIFY of round 1 of a message of rank 0 that rank 1 calls `receiver`.
core::RestartHdr notify(uint64_t sender, uint64_t receiver, uint16_t seq) {
  return {
      static_cast<uint8_t>(MsgType::kRestartNotify), 0, 0, 0, seq, 0, 0, Name(sender).at(1).value, receiver};
}

constexpr int kQuestions = 1'500'000 / static_cast<int>(sizeof(core::SeqSyncHdr));

/// 1.5 MB of questions.
void ask_much(Flood& f) {
  World& w = f.w;
  const uint64_t honest = f.exchange();
  const size_t before = f.kept();
  const auto answered = count(w, MsgType::kSeqSync);
  for (int i = 0; i < kQuestions; ++i) {
    const uint64_t offered = w.ports[1]->offered_;
    say(w, question(static_cast<uint16_t>(i)));
    ASSERT_LE(w.ports[1]->offered_ - offered, 2u) << "question " << i;
    ASSERT_LE(f.kept(), before + 4096) << "question " << i;
    if (i % 10'000 == 0) ASSERT_EQ(f.exchange(), honest) << "question " << i;
  }
  EXPECT_GT(w.engines[1]->unfinished(), 0u) << "an answer is due";
  EXPECT_EQ(count(w, MsgType::kSeqSync), answered);
  EXPECT_TRUE(w.ports[1]->losses_.empty());
}

TEST(Answers, ToManyQuestionsOfSeqSync_WaitAsOne) {
  Flood f(Flood::three());
  World& w = f.w;
  ask_much(f);
  f.refuse = false;
  w.engines[1]->progress(w.now += 1000);
  ASSERT_EQ(w.flights.size(), 1u);
  core::SeqSyncHdr h;
  ASSERT_TRUE(
      core::decode(MsgType::kSeqSync, core::Bytes{w.flights[0].bytes.data(), w.flights[0].bytes.size()}, h));
  EXPECT_EQ(h.flags, core::kFlagReply);
  EXPECT_EQ(h.question, static_cast<uint16_t>(kQuestions - 1)) << "the newest one";
  EXPECT_EQ(h.seq, w.comms[1]->procs[0]->expected);
  EXPECT_EQ(h.src, 1);
  ASSERT_TRUE(w.run());
  expect_clean(w);
}

TEST(Answers, ToManyQuestionsOfSeqSyncWithoutARail_WaitAsOne) {
  Flood f(Flood::three());
  World& w = f.w;
  w.hold_close = true;
  w.kill(0, 1, 0);
  w.kill(0, 1, 1);
  ask_much(f);
  f.refuse = false;
  w.hold_close = false;
  const auto before = count(w, MsgType::kSeqSync);
  w.revive(0, 1, 1);
  ASSERT_TRUE(w.run());
  EXPECT_EQ(count(w, MsgType::kSeqSync), before + 1);
  expect_clean(w);
}

/// The BTL takes everything and sends nothing.
TEST(Answers, ThatABtlQueues_AreBounded) {
  Flood f(Flood::three());
  f.refuse = false;
  const uint64_t honest = f.exchange();
  for (int i = 0; i < 20'000; ++i) say(f.w, question(static_cast<uint16_t>(i)));
  EXPECT_LE(f.w.ports[1]->frags_, 2 * static_cast<int>(xfer::kMostControl));
  EXPECT_EQ(f.exchange(), honest);
  ASSERT_TRUE(f.w.run());
  expect_clean(f.w);
}

/// An answer is lost: it is given again as it is true then.
TEST(Answers, OfSeqSyncThatIsLost_IsGivenAgain) {
  World w({});
  meet(w);
  w.isend(0, 1, 1, pattern(8, 1));
  const auto at = w.find(0, 1, MsgType::kMatch);
  say(w, question(5));
  ASSERT_NE(w.find(1, 0, MsgType::kSeqSync), static_cast<size_t>(-1));
  const int rail = w.flights[w.find(1, 0, MsgType::kSeqSync)].rail;
  w.take(at);
  w.kill(0, 1, rail);
  const auto again = w.find(1, 0, MsgType::kSeqSync);
  ASSERT_NE(again, static_cast<size_t>(-1));
  core::SeqSyncHdr h;
  ASSERT_TRUE(core::decode(MsgType::kSeqSync,
                           core::Bytes{w.flights[again].bytes.data(), w.flights[again].bytes.size()}, h));
  EXPECT_EQ(h.question, 5);
  EXPECT_EQ(h.seq, w.comms[1]->procs[0]->expected);
  ASSERT_TRUE(w.run());
  w.irecv(1, 0, 1, 8);
  expect_clean(w);
}

TEST(Answers, ToQuestionsAboutOneFinishedMessage_WaitAsFew) {
  Flood f(Flood::three());
  World& w = f.w;
  const core::AckHdr names = f.finished();
  const uint64_t honest = f.exchange();
  const size_t before = f.kept();
  const auto answered = count(w, MsgType::kRestartNack);
  for (int i = 0; i < 30'000; ++i) {
    const uint64_t offered = w.ports[1]->offered_;
    say(w, notify(names.sender, names.receiver, 1));
    ASSERT_LE(w.ports[1]->offered_ - offered, 3u) << i;
    ASSERT_LE(f.kept(), before + 8192) << i;
    if (i % 1000 == 0) ASSERT_EQ(f.exchange(), honest) << i;
  }
  EXPECT_TRUE(w.ports[1]->losses_.empty());
  f.refuse = false;
  ASSERT_TRUE(w.run());
  EXPECT_LE(count(w, MsgType::kRestartNack) - answered, 17u);
  EXPECT_EQ(w.engines[1]->unfinished(), 0u);
}

/// Each question is about another message, which never was.
TEST(Answers, MoreThanAnHonestPeerCauses_OnlyThatPeerIsGivenUp) {
  Flood f(Flood::three());
  World& w = f.w;
  const core::AckHdr names = f.finished();
  const uint64_t honest = f.exchange();
  const size_t before = f.kept();
  uint32_t asked = 0;
  for (; asked < 200'000 && w.ports[1]->losses_.empty(); ++asked) {
    const uint64_t offered = w.ports[1]->offered_;
    say(w, notify(Name(asked, 77, 0).value, names.receiver, 1));
    ASSERT_LE(w.ports[1]->offered_ - offered, w.ports[1]->losses_.empty() ? 3u : 5u)
        << asked << ", with PEERLOST";
    ASSERT_LE(f.kept(), before + (16u << 20)) << asked;
    if (asked % 10'000 == 0) ASSERT_EQ(f.exchange(), honest) << asked;
  }
  ASSERT_EQ(w.ports[1]->losses_.size(), 1u);
  EXPECT_GT(asked, 65'536u);
  EXPECT_LT(asked, 66'000u);
  EXPECT_EQ(w.ports[1]->losses_[0].first, 0);
  EXPECT_EQ(w.ports[1]->losses_[0].second.limit, xfer::PeerLoss::Limit::kAnswers);
  EXPECT_LE(f.kept(), before) << "nothing is kept for it any more";
  for (int i = 0; i < 1000; ++i) say(w, notify(Name(i, 78, 0).value, names.receiver, 1));
  EXPECT_LE(f.kept(), before);
  EXPECT_EQ(f.exchange(), honest);
}

/// The same question about a send that is over.
TEST(Answers, ToQuestionsAboutAFinishedSend_WaitAsFew) {
  Flood f(Flood::three());
  World& w = f.w;
  f.refuse = false;
  RecvReq* const r = w.irecv(0, 1, 3, 3000);
  SendReq* const s = w.isend(1, 0, 3, pattern(3000, 4));
  ASSERT_TRUE(until(w, MsgType::kAck));
  core::AckHdr names{};
  std::memcpy(&names, w.flights[0].bytes.data(), sizeof names);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  f.refuse = true;
  const size_t before = f.kept();
  core::RestartHdr h{};
  h.type = static_cast<uint8_t>(MsgType::kRecvErr);
  h.src = 1;
  h.seq = 1;
  h.sender = names.sender;
  h.receiver = names.receiver;
  for (int i = 0; i < 30'000; ++i) {
    say(w, h);
    ASSERT_LE(f.kept(), before + 8192) << i;
  }
  f.refuse = false;
  const auto answered = count(w, MsgType::kSendDone);
  ASSERT_TRUE(w.run());
  EXPECT_GT(count(w, MsgType::kSendDone), answered);
  EXPECT_LE(count(w, MsgType::kSendDone) - answered, 17u);
}

/// A header that comes again after its message was received.
TEST(Answers, ToHeadersThatComeAgain_WaitAsFew) {
  Flood f(Flood::three());
  World& w = f.w;
  f.refuse = false;
  const auto [s, r] = transfer(w, 3000);
  const std::vector<uint8_t> header = w.flights[0].bytes;
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  f.refuse = true;
  const size_t before = f.kept();
  for (int i = 0; i < 30'000; ++i) {
    w.engines[1]->on_message(w.rail(1, 0, i % 2), 1, header[0], header.data(), header.size());
    ASSERT_LE(f.kept(), before + 8192) << i;
  }
  f.refuse = false;
  ASSERT_TRUE(w.run());
  EXPECT_LE(count(w, MsgType::kRestartNack), 17u);
}

/// An honest peer that hears nothing for a while: many synchronous messages, each of which is answered once.
TEST(Answers, OfManyMessagesOfAnHonestPeer_AllArrive) {
  constexpr int kMany = 5000;
  World w({});
  meet(w);
  bool refuse = true;
  w.refuses = [&refuse](int from, int) { return refuse && from == 1; };
  std::vector<SendReq*> sends;
  for (int i = 0; i < kMany; ++i) {
    w.irecv(1, 0, 1, 16);
    sends.push_back(w.isend(0, 1, 1, pattern(16, i), xfer::SendMode::kSync));
    while (!w.flights.empty()) w.take();
  }
  for (SendReq* s : sends) ASSERT_FALSE(s->done);
  refuse = false;
  ASSERT_TRUE(w.run());
  for (SendReq* s : sends) ASSERT_TRUE(s->done);
  EXPECT_TRUE(w.ports[1]->losses_.empty());
  expect_clean(w);
}

}  // namespace
}  // namespace bfo::test
