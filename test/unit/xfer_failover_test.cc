// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_failover_test.cc: the races of PROTOCOL.md, one by one, on the engine over a Port in memory.
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

TEST(Dance, FragLost_OnlyMissingBytesMoveAgain) {
  World::Options o;
  o.config.send_depth = 2;
  World w(o);
  const std::size_t n = 1 << 20;
  RecvReq* r = w.irecv(1, 0, 1, n);
  SendReq* s = w.isend(0, 1, 1, pattern(n, 1));
  while (r->xfer.have.bytes() < n * 99 / 100) w.take();
  const std::uint64_t before = w.engines[0]->counters().bytes_sent;
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
  RecvReq* r = w.irecv(1, 0, 1, 3000);
  SendReq* s = w.isend(0, 1, 1, pattern(3000, 1));
  ASSERT_TRUE(until(w, MsgType::kFrag));
  // every FRAG arrives, each of rail 0 although its sender sees an error
  w.kill(0, 1, 0, all);
  while (!w.flights.empty() && w.flights[0].tag == static_cast<std::uint8_t>(MsgType::kFrag)) w.take();
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
    r = w.irecv(1, 0, 1, n);
    s = w.isend(0, 1, 1, pattern(n, 1));
    EXPECT_TRUE(until(w, MsgType::kFrag));
    for (std::size_t i = w.find(0, 1, MsgType::kFrag); i < w.flights.size();
         i = w.find(0, 1, MsgType::kFrag, i)) {
      if (w.flights[i].rail != 1) {
        ++i;
        continue;
      }
      queue.push_back(w.flights[i]);
      w.flights.erase(w.flights.begin() + static_cast<std::ptrdiff_t>(i));
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
  static constexpr std::size_t n = 30000;
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
  const std::uint64_t before = o.w.engines[0]->counters().bytes_sent;
  const std::uint64_t have = o.r->xfer.have.bytes();
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
      RecvReq* r = w.irecv(1, 0, 1, 20000);
      SendReq* s = w.isend(0, 1, 1, pattern(20000, 1));
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
  RecvReq* r = w.irecv(1, 0, 1, 20000);
  SendReq* s = w.isend(0, 1, 1, pattern(20000, 1));
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
  World::Options o;
  o.get = true;
  World w(o);
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

TEST(Get, ReadLost_IsRepeatedOnTheOtherRail) {
  World::Options o;
  o.get = true;
  World w(o);
  w.late = true;
  RecvReq* r = w.irecv(1, 0, 1, 50000);
  SendReq* s = w.isend(0, 1, 1, pattern(50000, 1));
  s->then = [s] { std::fill(s->data.begin(), s->data.end(), 0xdd); };
  ASSERT_TRUE(until(w, std::uint8_t{0}));
  w.hold_close = true;
  w.kill(0, 1, 0);
  while (!w.flights.empty()) w.take();
  EXPECT_FALSE(r->done) << "a READ of the dead rail may still land: the gate is shut (P2)";
  EXPECT_FALSE(s->done) << "FIN only behind the gate";
  EXPECT_EQ(r->xfer.have.bytes(), 50000u);
  w.hold_close = false;
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->data, pattern(50000, 1));
  expect_clean(w);
}

TEST(Get, ReadLostAndOnlyTheReceiverFenced_FinWaitsForTheSendersHalf) {
  World::Options o;
  o.get = true;
  World w(o);
  RecvReq* r = w.irecv(1, 0, 1, 50000);
  SendReq* s = w.isend(0, 1, 1, pattern(50000, 1));
  ASSERT_TRUE(until(w, std::uint8_t{0}));
  w.hold_close = true;
  w.kill(0, 1, 0);
  ASSERT_EQ(w.pending_close.size(), 1u);
  w.engines[1]->on_rail_closed(w.rail(1, 0, 0), w.pending_close.front().ev, FenceResult::kFenced, 0);
  for (int i = 0; i < 20; ++i) {
    while (!w.flights.empty()) w.take();
    for (auto& e : w.engines) e->progress(w.now += 1000);
  }
  EXPECT_EQ(r->xfer.have.bytes(), 50000u);
  EXPECT_FALSE(s->done) << "a READ request may still wait in front of the sender's queue pair";
  EXPECT_FALSE(r->done);
  w.hold_close = false;
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->data, s->data);
  expect_clean(w);
}

/// The sender's device may still fetch, but nobody stores it: no reason to wait, or to fail what arrived.
TEST(Get, ReadLostWithASendersDeviceThatCannotBeFenced_BothEndWellAtOnce) {
  World::Options o;
  o.get = true;
  o.config.park_timeout_ns = 1'000'000'000;
  World w(o);
  RecvReq* r = w.irecv(1, 0, 1, 50000);
  SendReq* s = w.isend(0, 1, 1, pattern(50000, 1));
  ASSERT_TRUE(until(w, std::uint8_t{0}));
  w.hold_close = true;
  w.kill(0, 1, 0);
  const auto c = w.pending_close.front();
  w.pending_close.clear();
  w.engines[0]->on_rail_closed(w.rail(0, 1, 0), c.ev, FenceResult::kUnfenceable, 0);
  ASSERT_TRUE(w.run());
  EXPECT_FALSE(r->done || s->done) << "the receiver's half could still store it";
  w.engines[1]->on_rail_closed(w.rail(1, 0, 0), c.ev, FenceResult::kFenced, 0);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_LT(w.now, o.config.park_timeout_ns);
  EXPECT_EQ(s->outcome, Outcome::kOk);
  EXPECT_EQ(r->status.outcome, Outcome::kOk);
  EXPECT_EQ(r->data, pattern(50000, 1));
  expect_clean(w);
}

/// The receiver's device may still store: the buffer is not given back with success.
TEST(Get, ReadLostWithAReceiversDeviceThatCannotBeFenced_BothEndWithAnErrorAfterTheParkTime) {
  World::Options o;
  o.get = true;
  o.config.park_timeout_ns = 1'000'000'000;
  World w(o);
  RecvReq* r = w.irecv(1, 0, 1, 50000);
  SendReq* s = w.isend(0, 1, 1, pattern(50000, 1));
  ASSERT_TRUE(until(w, std::uint8_t{0}));
  w.hold_close = true;
  w.kill(0, 1, 0);
  const auto c = w.pending_close.front();
  w.pending_close.clear();
  w.engines[0]->on_rail_closed(w.rail(0, 1, 0), c.ev, FenceResult::kFenced, 0);
  w.engines[1]->on_rail_closed(w.rail(1, 0, 0), c.ev, FenceResult::kUnfenceable, 0);
  ASSERT_TRUE(w.run());
  EXPECT_EQ(r->xfer.have.bytes(), 50000u);
  EXPECT_FALSE(r->done || s->done);
  w.now += 2'000'000'000;
  w.hold_close = false;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->status.outcome, Outcome::kPeerLost);
  EXPECT_NE(s->outcome, Outcome::kOk);
  EXPECT_EQ(w.ports[1]->registrations_, 1) << "its memory stays registered";
}

TEST(Get, NoKeyLeft_RecvErrBringsNewOnes) {
  World::Options o;
  o.get = true;
  World w(o);
  RecvReq* r = w.irecv(1, 0, 1, 50000);
  SendReq* s = w.isend(0, 1, 1, pattern(50000, 1));
  ASSERT_TRUE(until(w, std::uint8_t{0}));
  w.kill(0, 1, 0);
  w.kill(0, 1, 1);
  ASSERT_TRUE(w.run());
  w.revive(0, 1, 1);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->data, s->data);
  EXPECT_GE(count(w, MsgType::kRecvErr), 1u);
  EXPECT_GE(count(w, MsgType::kRget), 2u);
  expect_clean(w);
}

TEST(Put, WriteLost_FenceBeforeRestartAck) {
  World::Options o;
  o.put = true;
  World w(o);
  w.late = true;
  RecvReq* r = w.irecv(1, 0, 1, 50000);
  SendReq* s = w.isend(0, 1, 1, pattern(50000, 1));
  ASSERT_TRUE(until(w, std::uint8_t{0}));
  w.hold_close = true;
  w.kill(0, 1, w.flights[0].rail);
  while (!w.flights.empty()) w.take();
  for (auto& e : w.engines) e->progress(w.now += 2'000'000);
  EXPECT_EQ(count(w, MsgType::kRestartNotify), 1u);
  EXPECT_EQ(count(w, MsgType::kRestartAck), 0u) << "grants on the dead rail are not fenced";
  EXPECT_FALSE(r->done);
  w.hold_close = false;
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_GE(count(w, MsgType::kRestartAck), 1u);
  EXPECT_EQ(r->data, s->data);
  expect_clean(w);
}

TEST(Put, FinLostWriteDone_CountsOnlyBehindTheFence) {
  World::Options o;
  o.put = true;
  World w(o);
  RecvReq* r = w.irecv(1, 0, 1, 2000);
  SendReq* s = w.isend(0, 1, 1, pattern(2000, 1));
  ASSERT_TRUE(until(w, MsgType::kFin));
  w.hold_close = true;
  w.kill(0, 1, w.flights[0].rail);
  while (!w.flights.empty()) w.take();
  EXPECT_TRUE(s->done);
  EXPECT_FALSE(r->done);
  w.hold_close = false;
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(r->done);
  EXPECT_EQ(r->data, s->data);
  EXPECT_EQ(count(w, MsgType::kRestartNotify), 0u) << "nothing was uncertain";
  expect_clean(w);
}

TEST(Put, GrantOnARailThatDied_IsGrantedAgain) {
  World::Options o;
  o.put = true;
  World w(o);
  RecvReq* r = w.irecv(1, 0, 1, 40000);
  SendReq* s = w.isend(0, 1, 1, pattern(40000, 1));
  ASSERT_TRUE(until(w, MsgType::kPut));
  w.kill(0, 1, w.flights[0].rail, all);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
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
  w.arrive(late);  // parked: the communicator does not exist
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

/// The peer's notices may overtake the first message of an epoch that is not up here yet. They count: said
/// once, they are not said again.
TEST(Notices, AboutAnEpochThatIsNotUpHereYet_Count) {
  World w({});
  xfer::Rail<FakePort>* const rail = w.rail(1, 0, 0);
  const RailName next{w.name(0, 1, 0).conn, 2};
  for (const auto type : {core::MsgType::kRailDown, core::MsgType::kEpochClosed}) {
    const core::RailHdr h{static_cast<std::uint8_t>(type), 0, 0, next.conn, next.epoch, 1, 0};
    w.engines[1]->on_message(w.rail(1, 0, 1), 1, h.type, &h, sizeof h);
  }
  ASSERT_EQ(w.ports[1]->peer_downs_.size(), 1u);
  EXPECT_EQ(w.ports[1]->peer_downs_[0].epoch, 2u);
  EXPECT_EQ(rail->peer_closed_epoch, 2u);
}

/// A process that only receives from anybody gets to know a peer late. Its BTL has closed an epoch by then,
/// the peer waits for EPOCHCLOSED, and its window of numbers closes otherwise 2^14 messages later, for good.
TEST(Notices, EpochClosedBeforeThePeerWasMet_IsReportedStill) {
  World w({});
  w.up[w.key(0, 1, 0)] = false;
  ASSERT_NE(w.peer(1, 0), nullptr);
  ASSERT_EQ(w.ports[1]->closings_asked_.size(), 1u);
  EXPECT_EQ(w.ports[1]->closings_asked_[0], (std::pair<int, std::uint32_t>{0, 0}));
  xfer::RailEvent ev;  // the BTL says it again
  ev.name = w.name(1, 0, 0);
  w.engines[1]->on_rail_closed(w.rail(1, 0, 0), ev, FenceResult::kFenced, 7);
  w.engines[1]->progress(0);
  ASSERT_EQ(w.flights.size(), 1u);
  core::RailHdr h;
  ASSERT_TRUE(core::decode(core::Bytes{w.flights[0].bytes.data(), w.flights[0].bytes.size()}, h));
  EXPECT_EQ(h.type, static_cast<std::uint8_t>(core::MsgType::kEpochClosed));
  EXPECT_EQ(std::uint32_t{h.epoch}, 1u);
  EXPECT_EQ(std::uint64_t{h.delivered}, 7u);
}

TEST(Wire, GarbageIsDroppedAndCounted) {
  World w({});
  RecvReq* r = w.irecv(1, 0, 1, 9000);
  SendReq* s = w.isend(0, 1, 1, pattern(9000, 1));
  ASSERT_TRUE(until(w, MsgType::kFrag));
  auto* rail = w.rail(1, 0, 0);
  for (int tag = 0; tag < 256; ++tag)
    for (std::size_t n : {0u, 1u, 13u, 14u, 20u, 38u, 48u, 100u}) {
      std::vector<std::uint8_t> junk(n, 0xff);
      if (n) junk[0] = static_cast<std::uint8_t>(tag);
      w.engines[1]->on_message(rail, 1, static_cast<std::uint8_t>(tag), junk.data(), n);
    }
  EXPECT_GT(w.engines[1]->counters().malformed, 1000u);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->data, s->data);
}

TEST(Wire, AnotherPeersName_IsRefused) {
  World::Options o;
  o.ranks = 3;
  World w(o);
  RecvReq* r = w.irecv(1, 0, 1, 9000);
  w.isend(0, 1, 1, pattern(9000, 1));
  ASSERT_TRUE(until(w, MsgType::kFrag));
  // rank 2 replays rank 0's FRAG with other bytes
  std::vector<std::uint8_t> forged = w.flights[0].bytes;
  std::fill(forged.begin() + sizeof(core::FragHdr), forged.end(), 0x66);
  w.engines[1]->on_message(w.rail(1, 2, 0), 1, static_cast<std::uint8_t>(MsgType::kFrag), forged.data(),
                           forged.size());
  EXPECT_EQ(w.engines[1]->counters().malformed, 1u);
  ASSERT_TRUE(w.run());
  EXPECT_EQ(r->data, pattern(9000, 1));
}

}  // namespace
}  // namespace bfo::test
