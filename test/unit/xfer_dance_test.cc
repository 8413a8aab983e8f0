// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_dance_test.cc: the restart dance: what moves again when a rail dies under the FRAGs of a message, and
// what overtakes what.
#include <gtest/gtest.h>

#include "test/unit/failover_steps.h"

namespace bfo::test {
namespace {

TEST(Dance, FragLost_OnlyMissingBytesMoveAgain) {
  World::Options o;
  o.config.send_depth = 2;
  World w(o);
  const size_t n = 1 << 20;
  const auto [s, r] = transfer(w, n);
  while (!r->xfer.rndv || r->xfer.rndv->received.bytes() < n * 99 / 100) w.take();
  const uint64_t before = w.engines[0]->counters().bytes_sent;
  w.now = 1'000'000;
  w.kill(0, 1, 0);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->data, s->data);
  EXPECT_LT(w.engines[0]->counters().bytes_sent - before, n / 50) << "resume, not restart (P4)";
  EXPECT_EQ(count(w, MsgType::kRestartNotify), 1u);
  EXPECT_EQ(count(w, MsgType::kRestartAck), 1u);
  EXPECT_EQ(w.engines[0]->counters().restarts, 1u);
  for (auto& e : w.engines) e->progress(w.now += 2'000'000);
  ASSERT_EQ(w.ports[0]->events_.size(), 1u);
  EXPECT_EQ(w.ports[0]->events_[0].restarts, 1u);
  EXPECT_GT(w.ports[0]->events_[0].bytes_resent, 0u);
  ASSERT_EQ(w.ports[1]->events_.size(), 1u);
  for (const auto& port : w.ports) EXPECT_NE(port->events_[0].resumed_ns, 0u) << "never resumed (P8)";
  EXPECT_STREQ(w.ports[0]->events_[0].text, "killed");
  expect_clean(w);
}

TEST(Dance, ReceiverFinished_NackEndsIt) {
  World w({});
  const auto [s, r] = transfer(w, 3000);
  ASSERT_TRUE(until(w, MsgType::kFrag));
  // every FRAG arrives, each of rail 0 although its sender sees an error
  w.kill(0, 1, 0, all);
  while (!w.flights.empty() && w.flights[0].tag == static_cast<uint8_t>(MsgType::kFrag)) w.take();
  EXPECT_TRUE(r->done);
  EXPECT_FALSE(s->done);
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(s->done);
  EXPECT_EQ(count(w, MsgType::kRestartNack), 1u);
  EXPECT_EQ(r->data, s->data);
  expect_clean(w);
}

TEST(Dance, NotifyOvertakenByOldFrag_IsDroppedByRound) {
  World::Options o;
  o.rails = 3;
  World w(o);
  RecvReq* r = w.irecv(1, 0, 1, 8000);
  w.isend(0, 1, 1, pattern(8000, 1));
  ASSERT_TRUE(until(w, MsgType::kFrag));
  const Flight old = w.flights[0];  // a copy held back by the network
  w.kill(0, 1, old.rail);
  ASSERT_TRUE(until(w, MsgType::kRestartAck));
  Flight poisoned = old;
  std::fill(poisoned.bytes.begin() + sizeof(core::FragHdr), poisoned.bytes.end(), 0xbb);
  w.arrive(poisoned);
  EXPECT_GE(w.engines[1]->counters().stale, 1u);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(r->done);
  EXPECT_EQ(r->data, pattern(8000, 1));
}

/// Two rails; rail 1 has acknowledged every FRAG it took, and the receiver has read none of them when NOTIFY
/// comes over it: rail 0 died. A process that was outside MPI finds its queues like that.
struct Overtaken {
  Overtaken() : w(options()) {
    const Transfer t = transfer(w, n);
    s = t.s;
    r = t.r;
    EXPECT_TRUE(until(w, MsgType::kFrag));
    for (size_t i = w.find(0, 1, MsgType::kFrag); i < w.flights.size(); i = w.find(0, 1, MsgType::kFrag, i)) {
      if (w.flights[i].rail != 1) {
        ++i;
        continue;
      }
      queue.push_back(w.flights[i]);
      w.flights.erase(w.flights.begin() + static_cast<ptrdiff_t>(i));
      w.end(queue.back(), Fate::kDelivered);
    }
    w.kill(0, 1, 0);
    EXPECT_TRUE(w.run());
    EXPECT_GT(queue.size(), 2u);
    EXPECT_GE(count(w, MsgType::kRestartNotify), 1u);
    EXPECT_EQ(count(w, MsgType::kRestartAck), 0u) << "what is in the queue would be sent again (P4)";
  }
  static World::Options options() {
    World::Options o;
    o.config.send_depth = 2;
    return o;
  }
  static constexpr size_t n = 30000;
  World w;
  std::vector<Flight> queue;
  RecvReq* r = nullptr;
  SendReq* s = nullptr;
};

TEST(Dance, NotifyOvertakesDeliveredFrags_TheyAreNotSentAgain) {
  Overtaken o;
  for (const Flight& f : o.queue) {
    EXPECT_EQ(count(o.w, MsgType::kRestartAck), 0u);
    o.w.arrive(f);
  }
  const uint64_t before = o.w.engines[0]->counters().bytes_sent;
  const uint64_t have = o.r->xfer.rndv->received.bytes();
  ASSERT_TRUE(o.w.run());
  EXPECT_EQ(count(o.w, MsgType::kRestartAck), 1u);
  EXPECT_TRUE(o.s->done && o.r->done);
  EXPECT_EQ(o.r->data, o.s->data);
  EXPECT_EQ(o.w.engines[0]->counters().bytes_sent - before, o.n - have);
  EXPECT_EQ(o.w.engines[1]->counters().duplicates, 0u);
  expect_clean(o.w);
}

TEST(Dance, NotifyOvertakesFragsThatNeverCome_IsAnsweredAllTheSame) {
  Overtaken o;
  o.w.engines[1]->progress(o.w.now += 1'000'000);  // the second look
  ASSERT_TRUE(o.w.run());
  EXPECT_EQ(count(o.w, MsgType::kRestartAck), 0u) << "every rail is looked at several times";
  o.w.engines[1]->progress(o.w.now += 1'000'000);
  ASSERT_TRUE(o.w.run());
  EXPECT_EQ(count(o.w, MsgType::kRestartAck), 1u);
  EXPECT_TRUE(o.s->done && o.r->done);
  EXPECT_EQ(o.r->data, o.s->data);
  for (const Flight& f : o.queue) o.w.arrive(f);  // after all: nothing of them counts
  EXPECT_EQ(o.r->data, o.s->data);
  expect_clean(o.w);
}

TEST(Dance, SecondRailDiesDuringTheDance) {
  for (MsgType at : {MsgType::kRestartNotify, MsgType::kRestartAck, MsgType::kRndv, MsgType::kAck}) {
    for (bool arrives : {false, true}) {
      World::Options o;
      o.rails = 3;
      World w(o);
      const auto [s, r] = transfer(w, 20000);
      ASSERT_TRUE(until(w, MsgType::kFrag));
      w.kill(0, 1, w.flights[0].rail);
      ASSERT_TRUE(until(w, MsgType::kRestartNotify));
      ASSERT_TRUE(until(w, at));
      w.kill(0, 1, w.flights[0].rail, [&](const Flight&) { return arrives; });
      ASSERT_TRUE(w.run());
      EXPECT_TRUE(s->done && r->done);
      EXPECT_EQ(r->data, s->data);
      expect_clean(w);
    }
  }
}

TEST(Dance, BothRailsDieAndOneReturns) {
  World w({});
  const auto [s, r] = transfer(w, 20000);
  ASSERT_TRUE(until(w, MsgType::kFrag));
  w.kill(0, 1, 0);
  w.kill(0, 1, 1);
  ASSERT_TRUE(w.run());
  EXPECT_FALSE(s->done);
  w.revive(0, 1, 0);
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(s->done && r->done);
  EXPECT_EQ(r->data, s->data);
  expect_clean(w);
}

TEST(Truncation, DuringARestart_FitsAndEnds) {
  World w({});
  RecvReq* r = w.irecv(1, 0, 1, 9000);
  SendReq* s = w.isend(0, 1, 1, pattern(20000, 1));
  ASSERT_TRUE(until(w, MsgType::kFrag));
  w.kill(0, 1, 0);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->status.outcome, Outcome::kTruncated);
  EXPECT_TRUE(std::equal(r->data.begin(), r->data.end(), s->data.begin()));
  expect_clean(w);
}

TEST(Cancel, DuringARestart_IsRefused) {
  World w({});
  RecvReq* r = w.irecv(1, 0, 1, 9000);
  w.isend(0, 1, 1, pattern(9000, 1));
  ASSERT_TRUE(until(w, MsgType::kFrag));
  EXPECT_FALSE(w.engines[1]->cancel(r));
  w.kill(0, 1, 0);
  EXPECT_FALSE(w.engines[1]->cancel(r));
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(r->done);
}

}  // namespace
}  // namespace bfo::test
