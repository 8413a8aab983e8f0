// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_seqsync_test.cc: questions and answers about the sequence window that come late (H5). The number in an
// answer comes round after 65,536 messages; the number of its question says which round it is of.
//
// H1..H23: contrib/doc/hazards.md
#include <gtest/gtest.h>

#include <algorithm>

#include "test/unit/window_stream.h"

namespace bfo::test {
namespace {

constexpr int kStop = 8192;                  ///< messages between two stops of the window
constexpr int kComesRound = 65'536 + kStop;  ///< the same number again
constexpr auto kSeqSync = core::MsgType::kSeqSync;

xfer::Proc<FakePort>* to_rank_1(World& w) {
  return w.comms[0]->procs[1];
}

/// The oldest message of that type from `from` arrives and ends, before all others.
void take_first(World& w, int from, core::MsgType type) {
  for (size_t i = 0; i < w.flights.size(); ++i)
    if (w.flights[i].from == from && w.flights[i].tag == static_cast<uint8_t>(type)) return w.take(i);
  FAIL() << "nothing of that type is under way";
}

/// The first answer arrived, and its acknowledgement did not. The rail it is on.
int hold_first_answer(World& w, Stream& s) {
  s.send(kStop);
  w.isend(0, 1, 1, content(s.sent++));
  s.hold_front(1, kSeqSync);
  const int rail = w.flights[0].rail;
  s.suspect(rail);
  xfer::RailEvent ev;
  ev.name = w.name(0, 1, rail);
  w.engines[1]->on_rail_suspect(w.rail(1, 0, rail), ev);
  s.settle();
  return rail;
}

void comm_made_again(World& w) {
  w.engines[0]->comm_del(w.comms[0]);
  w.engines[1]->comm_del(w.comms[1]);
  for (int i : {0, 1}) w.comms[i] = w.add_comm(i, 0);
}

/// The answer is said again when its number has come round. Were it believed, a header that has not arrived
/// would be said to be known, and called finished by a receiver that never saw it.
void old_answer_again(const World::Options& o, bool comm_again) {
  World w(o);
  Stream s(w);
  const int hung = hold_first_answer(w, s);
  ASSERT_EQ(s.send(kComesRound - 1), kComesRound - 1);
  ASSERT_NO_FATAL_FAILURE(s.receive());
  if (comm_again) comm_made_again(w);
  SendReq* const big = w.isend(0, 1, kLongTag, long_content(1));
  w.isend(0, 1, 1, content(s.sent++));  // asks, and is not answered yet
  const Seq16 confirmed = to_rank_1(w)->confirmed;
  s.kill(hung);
  if (comm_again) {
    // What was owed went with the communicator: the new one's question is answered, nothing else is said.
    EXPECT_TRUE(std::none_of(w.flights.begin(), w.flights.end(), [](const Flight& f) {
      return f.from == 1 && f.tag == static_cast<uint8_t>(kSeqSync);
    }));
  } else {
    ASSERT_NO_FATAL_FAILURE(take_first(w, 1, kSeqSync));
    EXPECT_EQ(w.engines[0]->counters().stale, 1u);
  }
  EXPECT_EQ(to_rank_1(w)->confirmed, confirmed) << "an answer of another round";
  w.revive(0, 1, hung);
  w.kill(0, 1, 1 - hung);
  ASSERT_TRUE(w.run());
  s.wait();
  EXPECT_FALSE(big->done) << "no receive has matched it";
  ASSERT_EQ(s.send(kComesRound + 3 * kStop), kComesRound + 3 * kStop);
  ASSERT_NO_FATAL_FAILURE(s.expect_all_received());
  ASSERT_NO_FATAL_FAILURE(expect_long(w, big, w.irecv(1, 0, kLongTag, kLong), 1));
  EXPECT_EQ(w.engines[0]->unfinished() + w.engines[1]->unfinished(), 0u);
  EXPECT_EQ(w.engines[0]->counters().malformed, 0u);
}

TEST(SeqSync, AnswerIsSaidAgainWhenItsNumberHasComeRound_ItDoesNotCount) {
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    old_answer_again(protocol(i), false);
  }
}
TEST(SeqSync, CommunicatorMadeAgain_OldAnswerStillDoesNotCount) {
  old_answer_again({}, true);
}

/// A question whose acknowledgement stays away shuts the window. When its rail has died it is asked again, as
/// it is by then. The old one may still come: its answer is old too, and the receiver is none the worse for
/// having been asked.
TEST(SeqSync, QuestionIsSaidAgain_ItsAnswerIsOld) {
  World w({});
  Stream s(w);
  s.send(kStop);
  w.isend(0, 1, 1, content(s.sent++));
  s.hold_front(0, kSeqSync);
  const int hung = w.flights[0].rail;
  const std::vector<uint8_t> old = w.flights[0].bytes;
  s.suspect(hung);
  s.settle();
  EXPECT_EQ(to_rank_1(w)->confirmed, kStop);
  s.send(kHalfWay);
  ASSERT_FALSE(w.sends.back()->done) << "the rail may still hold what was sent before the question";
  s.wait();
  const Seq16 confirmed = to_rank_1(w)->confirmed;
  ASSERT_GT(confirmed, kAll);
  const uint64_t asked = w.delivered[static_cast<uint8_t>(kSeqSync)];
  w.engines[1]->on_message(w.rail(1, 0, 1 - hung), 1, old[0], old.data(), old.size());
  ASSERT_NO_FATAL_FAILURE(take_first(w, 1, kSeqSync));
  EXPECT_EQ(w.engines[0]->counters().stale, 1u);
  EXPECT_EQ(to_rank_1(w)->confirmed, confirmed);
  s.kill(hung);
  ASSERT_NO_FATAL_FAILURE(take_first(w, 0, kSeqSync));
  ASSERT_NO_FATAL_FAILURE(take_first(w, 1, kSeqSync));
  EXPECT_EQ(w.delivered[static_cast<uint8_t>(kSeqSync)], asked + 3);
  EXPECT_EQ(w.engines[0]->counters().stale, 1u);
  EXPECT_GE(seq_distance(confirmed, to_rank_1(w)->confirmed), 0);
  ASSERT_TRUE(w.run());
  s.wait();
  ASSERT_TRUE(w.sends.back()->done);
  ASSERT_EQ(s.send(kOnceRound), kOnceRound);
  ASSERT_NO_FATAL_FAILURE(s.expect_all_received());
}

/// One answer is enough, and the others, to the same question or to the one before, hurt nobody.
TEST(SeqSync, ManyQuestionsAreUnderWay_NobodyWaits) {
  World w({});
  Stream s(w);
  const auto all_but_questions = [&] {
    for (size_t i = 0; i < w.flights.size();) {
      if (w.flights[i].tag == static_cast<uint8_t>(kSeqSync))
        ++i;
      else
        w.take(i);
    }
  };
  for (int round = 0; round < 5; ++round) {
    SCOPED_TRACE(round);
    do {
      w.isend(0, 1, 1, content(s.sent++));
      all_but_questions();
    } while (w.sends.back()->done);
    for (int i = 0; i < 5; ++i) w.engines[0]->progress(w.now += 2'000'000);
    EXPECT_FALSE(w.sends.back()->done) << "nobody has answered";
    EXPECT_GE(w.flights.size(), 6u);
    s.settle();
    s.wait();
    EXPECT_TRUE(w.sends.back()->done);
  }
  EXPECT_GT(w.engines[0]->counters().stale, 0u) << "answers to a question that was answered";
  const int total = s.sent + kOnceRound;
  ASSERT_EQ(s.send(total), total);
  ASSERT_NO_FATAL_FAILURE(s.expect_all_received());
}

/// After 2^30 messages.
TEST(SeqSync, NumberOfTheQuestionComesRound_NobodyWaits) {
  World w({});
  Stream s(w);
  s.send(1);
  to_rank_1(w)->question = 0xffff;
  ASSERT_EQ(s.send(kOnceRound), kOnceRound);
  EXPECT_EQ(to_rank_1(w)->question, 3);
  EXPECT_EQ(w.engines[0]->counters().stale, 0u);
  ASSERT_NO_FATAL_FAILURE(s.expect_all_received());
}

/// A forged answer counts only if it has the number of the open question, and then not past what was sent.
TEST(SeqSync, ForgedAnswers_AreCountedAndDropped) {
  World w({});
  Stream s(w);
  ASSERT_EQ(s.send(40'000), 40'000);
  const Seq16 confirmed = to_rank_1(w)->confirmed;
  const uint16_t open = to_rank_1(w)->question;
  const auto say = [&](uint16_t question, uint16_t seq) {
    const core::SeqSyncHdr h{static_cast<uint8_t>(kSeqSync), core::kFlagReply, 0, 1, seq, question};
    w.engines[0]->on_message(w.rail(0, 1, 0), 1, h.type, &h, sizeof h);
  };
  uint64_t old = 0;
  for (int question = 0; question < 65'536; question += 13) {
    if (question == open) continue;
    say(static_cast<uint16_t>(question), 39'999);
    ASSERT_EQ(w.engines[0]->counters().stale, ++old);
  }
  for (int seq : {0, confirmed - 1, confirmed + 0, 40'001, 65'535}) say(open, static_cast<uint16_t>(seq));
  EXPECT_EQ(to_rank_1(w)->confirmed, confirmed);
  EXPECT_EQ(w.engines[0]->counters().stale, old);
  EXPECT_EQ(w.engines[0]->counters().malformed, 0u);
  ASSERT_EQ(s.send(kOnceRound), kOnceRound);
  ASSERT_NO_FATAL_FAILURE(s.expect_all_received());
}

/// What asks only whether the peer lives asks the open question too.
TEST(SeqSync, KeepAlive_AsksTheOpenQuestion) {
  World w({});
  Stream s(w);
  ASSERT_EQ(s.send(40'000), 40'000);
  ASSERT_NE(to_rank_1(w)->question, 0);
  w.irecv(0, 1, kLongTag, 4);
  w.engines[0]->keep_alive();
  s.settle();
  EXPECT_EQ(to_rank_1(w)->confirmed, 40'000);
  EXPECT_EQ(w.engines[0]->counters().stale, 0u);
}

}  // namespace
}  // namespace bfo::test
