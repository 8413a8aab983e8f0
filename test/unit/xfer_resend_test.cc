// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_resend_test.cc: messages, headers and ACKs that go again as they were when their rail dies, and what
// the numbering of their communicator waits for such copies.
//
// H1..H23: contrib/doc/hazards.md
#include <gtest/gtest.h>

#include "test/unit/failover_steps.h"

namespace bfo::test {
namespace {

TEST(MatchFails, ErrorButDelivered_IsReceivedOnce) {
  for (bool sendi : {true, false}) {
    World::Options o;
    o.sendi = sendi;
    World w(o);
    SendReq* s = w.isend(0, 1, 1, pattern(100, 1));
    w.kill(0, 1, w.flights[0].rail, all);
    ASSERT_TRUE(w.run());
    EXPECT_TRUE(s->done);
    EXPECT_TRUE(w.irecv(1, 0, 1, 100)->done);
    EXPECT_FALSE(w.irecv(1, 0, 1, 100)->done);
    EXPECT_EQ(w.engines[1]->counters().duplicates, 1u);
    EXPECT_EQ(w.engines[0]->counters().messages_resent, 1u);
    expect_clean(w);
  }
}

TEST(MatchFails, Lost_IsSentAgainInOrder) {
  World w({});
  for (int i = 0; i < 8; ++i) w.isend(0, 1, 1, pattern(16, i));
  w.kill(0, 1, 0);
  ASSERT_TRUE(w.run());
  for (int i = 0; i < 8; ++i) {
    RecvReq* r = w.irecv(1, 0, 1, 16);
    ASSERT_TRUE(r->done);
    EXPECT_EQ(r->data, pattern(16, i));
  }
}

TEST(MatchFails, NoRailLeft_WaitsAndIsSentWhenOneReturns) {
  World w({});
  SendReq* s = w.isend(0, 1, 1, pattern(16, 1));
  w.kill(0, 1, 0);
  w.kill(0, 1, 1);
  SendReq* t = w.isend(0, 1, 1, pattern(16, 2));
  SendReq* u = w.isend(0, 1, 1, pattern(9000, 3));
  ASSERT_TRUE(w.run());
  EXPECT_FALSE(t->done);
  w.revive(0, 1, 1);
  RecvReq* r[3] = {w.irecv(1, 0, 1, 9000), w.irecv(1, 0, 1, 9000), w.irecv(1, 0, 1, 9000)};
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(s->done && t->done && u->done);
  EXPECT_EQ(r[0]->data[5], pattern(16, 1)[5]);
  EXPECT_EQ(r[1]->data[5], pattern(16, 2)[5]);
  EXPECT_EQ(r[2]->data, pattern(9000, 3));
  expect_clean(w);
}

TEST(Rndv, UnmatchedAndRailDies_IsPostedAgainInTheSameRound) {
  for (bool arrives : {false, true}) {
    for (bool get : {false, true}) {
      World::Options o;
      o.get = get;
      World w(o);
      SendReq* s = w.isend(0, 1, 1, pattern(5000, 1));
      w.kill(0, 1, w.flights[0].rail, [&](const Flight&) { return arrives; });
      ASSERT_TRUE(w.run());
      EXPECT_EQ(count(w, MsgType::kRestartNotify), 0u);
      EXPECT_EQ(count(w, MsgType::kRestartNack), 0u) << "NACK from ignorance (H7)";
      EXPECT_FALSE(s->done);
      RecvReq* r = w.irecv(1, 0, 1, 5000);
      ASSERT_TRUE(w.run());
      ASSERT_TRUE(s->done && r->done);
      EXPECT_EQ(r->data, pattern(5000, 1));
      expect_clean(w);
    }
  }
}

TEST(Rndv, HeldByMatchedProbe_HeaderIsRenewed) {
  World w(reads());
  SendReq* s = w.isend(0, 1, 1, pattern(5000, 1));
  ASSERT_TRUE(w.run());
  xfer::ProbeResult p;
  auto* m = w.engines[1]->improbe(w.comms[1], 0, 1, p);
  ASSERT_NE(m, nullptr);
  w.kill(0, 1, 0);
  w.kill(0, 1, 1);
  ASSERT_TRUE(w.run());
  w.revive(0, 1, 0);
  w.revive(0, 1, 1);
  ASSERT_TRUE(w.run());
  RecvReq r;
  r.data.resize(5000);
  w.engines[1]->imrecv(m, &r, 5000);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r.done);
  EXPECT_EQ(r.data, pattern(5000, 1));
  EXPECT_EQ(w.engines[0]->counters().restarts, 0u);
}

TEST(Ack, LostIsRepeated) {
  for (bool arrives : {false, true}) {
    World w({});
    RecvReq* r = w.irecv(1, 0, 1, 5000);
    SendReq* s = w.isend(0, 1, 1, pattern(5000, 1));
    ASSERT_TRUE(until(w, MsgType::kAck));
    w.kill(0, 1, w.flights[0].rail, [&](const Flight&) { return arrives; });
    ASSERT_TRUE(w.run());
    ASSERT_TRUE(s->done && r->done);
    EXPECT_EQ(r->data, s->data);
    expect_clean(w);
  }
}

TEST(Ack, OfAFinishedSynchronousSend_IsRepeatedWithoutItsRequest) {
  World w({});
  RecvReq* r = w.irecv(1, 0, 1, 10);
  SendReq* s = w.isend(0, 1, 1, pattern(10, 1), xfer::SendMode::kSync);
  ASSERT_TRUE(until(w, MsgType::kAck));
  EXPECT_TRUE(r->done);
  w.kill(0, 1, w.flights[0].rail);
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(s->done);
  expect_clean(w);
}

TEST(Communicator, FreedAndContextReused_LateCopyIsADuplicate) {
  World w({});
  auto* a0 = w.add_comm(0, 9);
  auto* a1 = w.add_comm(1, 9);
  for (int i = 0; i < 3; ++i) w.isend(0, 1, 1, pattern(8, i), xfer::SendMode::kStandard, a0);
  const Flight late = w.flights[2];
  ASSERT_TRUE(w.run());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(w.irecv(1, 0, 1, 8, a1)->done);
  w.engines[0]->comm_del(a0);
  w.engines[1]->comm_del(a1);
  w.arrive(late);  // kept: the communicator does not exist
  a0 = w.add_comm(0, 9);
  a1 = w.add_comm(1, 9);
  w.arrive(late);
  for (int i = 0; i < 3; ++i) w.isend(0, 1, 1, pattern(8, 10 + i), xfer::SendMode::kStandard, a0);
  ASSERT_TRUE(w.run());
  for (int i = 0; i < 3; ++i) {
    RecvReq* r = w.irecv(1, 0, 1, 8, a1);
    ASSERT_TRUE(r->done);
    EXPECT_EQ(r->data, pattern(8, 10 + i)) << i;
  }
  EXPECT_FALSE(w.irecv(1, 0, 1, 8, a1)->done);
  EXPECT_EQ(w.engines[1]->counters().duplicates, 2u);
}

/// A message of a freed communicator was sent twice, and one copy may still be on a rail that is not closed
/// at the receiver: the next communicator with the same context must not run a window past it (H5 and H6).
TEST(Communicator, FreedWithAMessageSentTwice_NextOneIsHeldToTheWindow) {
  for (const bool used_at_once : {false, true}) {
    World w({});
    auto* a0 = w.add_comm(0, 9);
    auto* a1 = w.add_comm(1, 9);
    w.isend(0, 1, 1, pattern(8, 0), xfer::SendMode::kStandard, a0);
    w.engines[0]->comm_del(a0);
    w.hold_close = true;  // the receiver's half stays open
    if (used_at_once) a0 = w.add_comm(0, 9);
    w.kill(0, 1, w.flights[0].rail);
    if (!used_at_once) a0 = w.add_comm(0, 9);
    ASSERT_TRUE(w.run());
    ASSERT_TRUE(w.irecv(1, 0, 1, 8, a1)->done);
    for (int i = 0; i < kSeqWindow + 100; ++i) {
      w.isend(0, 1, 1, pattern(8, 1), xfer::SendMode::kStandard, a0);
      while (!w.flights.empty()) w.take();
    }
    EXPECT_FALSE(w.sends.back()->done) << "past the window";
    w.hold_close = false;
    for (int i = 0; i < 100 && !w.sends.back()->done; ++i) {
      w.engines[0]->progress(w.now += 2'000'000);
      w.run();
    }
    EXPECT_TRUE(w.sends.back()->done);
  }
}

}  // namespace
}  // namespace bfo::test
