// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_rdma_test.cc: READs and RDMA writes of a rail that dies: nothing counts and nobody ends before they
// are fenced, and what ends when they cannot be.
#include <gtest/gtest.h>

#include "test/unit/failover_steps.h"

namespace bfo::test {
namespace {

TEST(Get, ReadLost_IsRepeatedOnTheOtherRail) {
  World w(reads());
  w.late = true;
  const auto [s, r] = transfer(w, 50000);
  s->then = [&data = s->data] { std::fill(data.begin(), data.end(), 0xdd); };
  ASSERT_TRUE(until(w, kRdma));
  w.hold_close = true;
  w.kill(0, 1, 0);
  while (!w.flights.empty()) w.take();
  EXPECT_FALSE(r->done) << "a READ of the dead rail may still land: the gate is shut (P2)";
  EXPECT_FALSE(s->done) << "FIN only behind the gate";
  EXPECT_EQ(r->xfer.rndv->received.bytes(), 50000u);
  w.hold_close = false;
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->data, pattern(50000, 1));
  expect_clean(w);
}

/// The rail refuses to keep the bytes of an RGET, so a fragment carries it. Each that is over leaves its
/// place: after kMostControl that do not, the rail takes no control message any more (expect_clean).
TEST(Get, HeadersThatNeedARecord_LeaveRoomForControlMessages) {
  World::Options o = reads();
  o.sendi = false;
  World w(o);
  for (unsigned i = 0; i < 4; ++i) {
    const auto [s, r] = transfer(w, 20000);
    ASSERT_TRUE(w.run());
    ASSERT_TRUE(s->done && r->done) << "message " << i;
  }
  expect_clean(w);
}

/// Wherever the rail dies, the READ that was to bring the whole message counts only if it has.
TEST(Get, OnlyReadLost_IsReadAgainOverTheOtherRail) {
  bool again = false;
  for (int when = 1; when < 20; ++when) {
    World::Options one = reads();
    one.rdma_frag = 65536;
    World w(one);
    const auto [s, r] = transfer(w, 30000);
    for (int i = 0; i < when && !w.flights.empty(); ++i) w.take();
    w.kill(0, 1, 0);
    ASSERT_TRUE(w.run()) << when;
    ASSERT_TRUE(s->done && r->done) << when;
    EXPECT_EQ(r->data, pattern(30000, 1)) << when;
    again = again || w.engines[1]->counters().bytes_read == 60000;
    expect_clean(w);
  }
  EXPECT_TRUE(again) << "no READ was lost";
}

TEST(Get, ReadLostAndOnlyTheReceiverFenced_FinWaitsForTheSendersHalf) {
  World w(reads());
  const auto [s, r] = transfer(w, 50000);
  ASSERT_TRUE(until(w, kRdma));
  w.hold_close = true;
  w.kill(0, 1, 0);
  ASSERT_EQ(w.pending_close.size(), 1u);
  w.engines[1]->on_rail_closed(w.rail(1, 0, 0), w.pending_close.front().ev, FenceResult::kFenced, 0);
  for (int i = 0; i < 20; ++i) {
    while (!w.flights.empty()) w.take();
    for (auto& e : w.engines) e->progress(w.now += 1000);
  }
  EXPECT_EQ(r->xfer.rndv->received.bytes(), 50000u);
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
  World w(impatient(reads()));
  const auto [s, r] = transfer(w, 50000);
  ASSERT_TRUE(until(w, kRdma));
  const World::Close c = cut(w, 0);
  close_half(w, c, 0, FenceResult::kUnfenceable);
  ASSERT_TRUE(w.run());
  EXPECT_FALSE(r->done || s->done) << "the receiver's half could still store it";
  close_half(w, c, 1, FenceResult::kFenced);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_LT(w.now, w.options.config.park_timeout_ns);
  EXPECT_EQ(s->outcome, Outcome::kOk);
  EXPECT_EQ(r->status.outcome, Outcome::kOk);
  EXPECT_EQ(r->data, pattern(50000, 1));
  expect_clean(w);
}

/// The receiver's device may still store: the buffer is not given back with success.
TEST(Get, ReadLostWithAReceiversDeviceThatCannotBeFenced_BothEndWithAnErrorAfterTheParkTime) {
  World w(impatient(reads()));
  const auto [s, r] = transfer(w, 50000);
  ASSERT_TRUE(until(w, kRdma));
  const World::Close c = cut(w, 0);
  close_half(w, c, 0, FenceResult::kFenced);
  close_half(w, c, 1, FenceResult::kUnfenceable);
  ASSERT_TRUE(w.run());
  EXPECT_EQ(r->xfer.rndv->received.bytes(), 50000u);
  EXPECT_FALSE(r->done || s->done);
  w.now += 2'000'000'000;
  w.hold_close = false;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->status.outcome, Outcome::kPeerLost);
  EXPECT_NE(s->outcome, Outcome::kOk);
  EXPECT_EQ(w.ports[1]->registrations_, 1) << "its memory stays registered";
}

/// A READ is lost, no key is left, and the receiver has asked for others and been answered, when READs that
/// were carried out before their rail went down are seen to have ended well. They count.
TEST(Get, ReadDoneWhileQuiescing_Counts) {
  World w(reads());
  const auto [s, r] = transfer(w, 50000);
  ASSERT_TRUE(until(w, kRdma));
  w.kill(0, 1, 1);
  w.revive(0, 1, 1);  // up again, and there is no key of this epoch
  std::deque<Flight> reading;
  std::deque<Flight> others;
  for (Flight& f : w.flights) (f.kind == Flight::Kind::kGet ? reading : others).push_back(std::move(f));
  w.flights = std::move(others);
  ASSERT_FALSE(reading.empty());
  w.hold_close = true;
  w.kill(0, 1, 0);
  w.end(reading.front(), Fate::kUnknown);
  reading.pop_front();
  ASSERT_TRUE(until(w, MsgType::kRestartNotify));
  w.take();
  ASSERT_EQ(r->xfer.phase, core::RecvPhase::kQuiescing);
  const uint64_t before = r->xfer.rndv->received.bytes();
  uint64_t read = 0;
  for (const Flight& f : reading) {
    w.arrive(f);
    w.end(f, Fate::kDelivered);
    read += f.size;
  }
  EXPECT_EQ(r->xfer.rndv->received.bytes(), before + read);
  w.hold_close = false;
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->data, s->data);
  EXPECT_EQ(w.engines[1]->counters().bytes_read, 50000u + 5 * 2048)
      << "four READs of rail 1 and one of rail 0 went in vain; what ended well is not read again";
  expect_clean(w);
}

TEST(Get, NoKeyLeft_RecvErrBringsNewOnes) {
  World w(reads());
  const auto [s, r] = transfer(w, 50000);
  ASSERT_TRUE(until(w, kRdma));
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
  World w(writes());
  w.late = true;
  const auto [s, r] = transfer(w, 50000);
  ASSERT_TRUE(until(w, kRdma));
  w.hold_close = true;
  w.kill(0, 1, w.flights[0].rail);
  while (!w.flights.empty()) w.take();
  for (auto& e : w.engines) e->progress(w.now += 2'000'000);
  EXPECT_EQ(count(w, MsgType::kRestartNotify), 2u) << "one of them behind the writes of the other rail";
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
  World w(writes());
  const auto [s, r] = transfer(w, 2000);
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

/// Over three rails: a write on one is acknowledged, and what comes behind it there is late; one on another
/// rail fails, and NOTIFY arrives over the third. Only what comes behind a write says that it is in place.
struct LateRail {
  LateRail() : w(three()) {
    const auto t = transfer(w, 50000);
    s = t.s, r = t.r;
    EXPECT_TRUE(until(w, kRdma));
    rail = w.flights[0].rail;
    w.take();
    const auto other = std::find_if(w.flights.begin(), w.flights.end(),
                                    [&](const Flight& f) { return f.tag == kRdma && f.rail != rail; });
    if (other == w.flights.end()) throw std::logic_error("no write on another rail");
    w.kill(0, 1, other->rail);
    for (size_t i = 0; i < w.flights.size();) {
      const Flight& f = w.flights[i];
      if (f.from == 0 && f.rail == rail && f.tag != kRdma) {
        ++i;
      } else {
        w.take(i);
        i = 0;
      }
    }
  }
  static World::Options three() {
    World::Options o = writes();
    o.rails = 3;
    return o;
  }
  World w;
  SendReq* s = nullptr;
  RecvReq* r = nullptr;
  int rail = 0;  ///< the late one
};

TEST(Put, NotifyOvertakesAcknowledgedWrite_ItsGrantIsNotOverBefore) {
  LateRail o;
  EXPECT_EQ(count(o.w, MsgType::kRestartNotify), 1u) << "over the third rail; the other is behind the write";
  EXPECT_EQ(count(o.w, MsgType::kRestartAck), 0u) << "an acknowledged write may not be in place yet";
  const uint64_t before = o.r->xfer.rndv->received.bytes();
  o.w.take();
  EXPECT_GT(o.r->xfer.rndv->received.bytes(), before) << "what FIN tells counts, and is not sent again";
  const uint64_t fences = o.w.engines[1]->counters().fences;
  ASSERT_TRUE(o.w.run());
  EXPECT_TRUE(o.s->done && o.r->done);
  EXPECT_EQ(o.r->data, o.s->data);
  EXPECT_EQ(o.w.engines[1]->counters().fences, fences) << "the late rail lives";
  expect_clean(o.w);
}

TEST(Put, WritesOfAnEarlierMessage_AreNotThoseOfTheNext) {
  World w(writes());
  const auto [s, r] = transfer(w, 50000);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  const auto [again, there] = transfer(w, 50000);
  ASSERT_TRUE(until(w, kRdma));
  EXPECT_EQ(again->xfer.rndv->wrote_rails, 0u);
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(there->done);
}

TEST(Put, NotifyOvertakesAcknowledgedWrite_WhoseRailDies) {
  LateRail o;
  o.w.kill(0, 1, o.rail);
  ASSERT_TRUE(o.w.run());
  EXPECT_TRUE(o.s->done && o.r->done);
  EXPECT_EQ(o.r->data, o.s->data);
  expect_clean(o.w);
}

TEST(Put, GrantOnARailThatDied_IsGrantedAgain) {
  World w(writes());
  const auto [s, r] = transfer(w, 40000);
  ASSERT_TRUE(until(w, MsgType::kPut));
  w.kill(0, 1, w.flights[0].rail, all);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->data, s->data);
  expect_clean(w);
}

bool is_put(const Flight& f) {
  return f.tag == static_cast<uint8_t>(MsgType::kPut);
}

bool put_on_its_way(const World& w) {
  return w.find(1, 0, MsgType::kPut) < w.flights.size();
}

/// Takes the first PUT out of the network, for the caller to end it.
Flight take_put(World& w) {
  const size_t i = w.find(1, 0, MsgType::kPut);
  Flight put = w.flights[i];
  w.flights.erase(w.flights.begin() + static_cast<ptrdiff_t>(i));
  return put;
}

/// The receiver met the sender during the first attempt to connect, so its rails have epoch 1 and are not up.
/// That attempt fails, and nobody who has not asked is told that epoch 1 has ended. The first PUT that comes
/// back is not that of the last grant. The sender drops a grant whose number is too far behind one that never
/// came, so a message of more grants than that needs every number.
TEST(Put, GrantOnARailThatNeverCameUp_IsGrantedAgain) {
  for (const size_t length : {size_t{40000}, size_t{2048} * (xfer::Grants<FakePort>::kMost + 99)}) {
    for (int back = 0; back < 2; ++back) {
      SCOPED_TRACE(length);
      SCOPED_TRACE(back);
      World w(writes());
      const auto [s, r] = transfer(w, length);
      ASSERT_TRUE(until(w, MsgType::kRndv));
      for (int i = 0; i < 2; ++i)
        for (int me = 0; me < 2; ++me) w.rail(me, 1 - me, i)->state = RailState::kConnecting;
      w.take();
      ASSERT_GE(w.flights.size(), 2u);
      for (int i = 0; i < 2; ++i) w.up[w.key(0, 1, i)] = false;
      while (put_on_its_way(w)) w.end(take_put(w), Fate::kNeverSent);
      for (auto& e : w.engines) e->progress(w.now += 1000);
      w.revive(0, 1, back);
      ASSERT_TRUE(w.run());
      ASSERT_TRUE(s->done && r->done);
      EXPECT_TRUE(r->data == s->data);
      EXPECT_EQ(w.engines[0]->counters().malformed, 0u);
      EXPECT_EQ(count(w, MsgType::kRestartNotify), 0u) << "nothing was uncertain";
      expect_clean(w);
    }
  }
}

/// A rail dies with PUTs that it had not sent: the other one grants their ranges in the same round, under the
/// same numbers, before the first rail is closed, or after that as its depth allows. It may take less at
/// once.
TEST(Put, GrantNeverSentOverARailThatDied_GoesOverTheOtherUnderItsNumber) {
  for (const auto& [longest, closed] : {std::pair{2048u, false}, {2048u, true}, {999u, false}}) {
    SCOPED_TRACE(longest);
    SCOPED_TRACE(closed);
    World w(writes());
    for (int me = 0; me < 2; ++me) w.rail(me, 1 - me, 1)->limits.put_limit = longest;
    const auto [s, r] = transfer(w, size_t{2048} * (xfer::Grants<FakePort>::kMost + 99));
    ASSERT_TRUE(until(w, MsgType::kRndv));
    w.take();
    std::vector<Flight> kept;
    for (size_t i; (i = w.first_of(1, 0, 0)) < w.flights.size();) {
      kept.push_back(w.flights[i]);
      w.flights.erase(w.flights.begin() + static_cast<ptrdiff_t>(i));
    }
    ASSERT_FALSE(kept.empty());
    w.hold_close = true;
    w.kill(0, 1, 0);
    const uint32_t granted = r->xfer.rndv->next_grant;
    const auto puts = [&w] { return std::count_if(w.flights.begin(), w.flights.end(), is_put); };
    const auto most = std::max<ptrdiff_t>(puts(), w.options.config.rdma_depth);
    for (const Flight& put : kept) w.end(put, Fate::kNeverSent);
    EXPECT_EQ(r->xfer.rndv->next_grant, granted);
    EXPECT_LE(puts(), most) << "more would be at risk on one rail than P4 allows";
    if (closed) {
      w.hold_close = false;
      w.closures();
    }
    ASSERT_TRUE(w.run());
    EXPECT_TRUE(s->done && r->done) << "nothing of the message was on the dead rail";
    w.hold_close = false;
    ASSERT_TRUE(w.run());
    EXPECT_TRUE(r->data == s->data);
    EXPECT_EQ(count(w, MsgType::kRestartNotify), 0u);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(w.rail(1, 0, i)->inflight_bytes, 0u) << "rail " << i;
    expect_clean(w);
  }
}

/// The sender has the grant from the first PUT and may write, though the second one was never sent.
TEST(Put, GrantWhoseRepetitionWasNeverSent_IsStillTheSenders) {
  World w(writes());
  w.late = true;
  const auto [s, r] = transfer(w, 2000);
  ASSERT_TRUE(until(w, MsgType::kPut));
  const Flight put = take_put(w);
  w.arrive(put);
  w.end(put, Fate::kUnknown);
  for (auto& e : w.engines) e->progress(w.now += 1000);
  ASSERT_TRUE(put_on_its_way(w)) << "it is sent again, because its rail lives";
  const Flight again = take_put(w);
  w.hold_close = true;
  w.kill(0, 1, put.rail);
  w.end(again, Fate::kNeverSent);
  for (auto& e : w.engines) e->progress(w.now += 1000);
  EXPECT_FALSE(put_on_its_way(w)) << "the range was granted over the other rail while a write may still land";
  EXPECT_FALSE(r->done);
  w.hold_close = false;
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_TRUE(r->data == s->data);
  expect_clean(w);
}

/// A rail that is being connected may take nothing for as long as its peer computes, and is tried at each
/// turn of progress: 2^32 of them are an hour.
TEST(Put, GrantThatNoRailTakes_UsesUpNoNumber) {
  World w(writes());
  const auto [s, r] = transfer(w, 40000);
  ASSERT_TRUE(until(w, MsgType::kRndv));
  w.options.capacity = 0;
  for (int i = 0; i < 2; ++i) w.rail(1, 0, i)->state = RailState::kConnecting;
  w.take();
  for (int i = 0; i < 100; ++i) w.engines[1]->progress(w.now += 1000);
  EXPECT_TRUE(w.flights.empty());
  EXPECT_LE(r->xfer.rndv->next_grant, 2u);
  w.options.capacity = 1 << 30;
  for (int i = 0; i < 2; ++i) w.rail(1, 0, i)->state = RailState::kUp;
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->data, s->data);
  expect_clean(w);
}

TEST(Put, RailWithoutAKey_IsNotGranted) {
  for (int rail = 0; rail < 2; ++rail) {
    World w(writes());
    w.ports[1]->unregistered_ = rail;
    const auto [s, r] = transfer(w, 40000);
    ASSERT_TRUE(w.run());
    ASSERT_TRUE(s->done && r->done) << "rail " << rail;
    EXPECT_EQ(r->data, s->data);
    expect_clean(w);
  }
}

TEST(Put, RailWithAKeyDies_TheOtherCopies) {
  World w(writes());
  w.ports[1]->unregistered_ = 1;
  const auto [s, r] = transfer(w, 40000);
  ASSERT_TRUE(until(w, MsgType::kPut));
  w.kill(0, 1, 0, all);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->data, s->data);
  expect_clean(w);
}

TEST(Unfenceable, EndsWithAnErrorAndKeepsTheMemoryRegistered) {
  World w(impatient(writes()));
  RecvReq* const r = transfer(w, 50000).r;
  ASSERT_TRUE(until(w, kRdma));
  const World::Close c = cut(w, w.flights[0].rail);
  close_half(w, c, 0, FenceResult::kFenced);
  close_half(w, c, 1, FenceResult::kUnfenceable);
  ASSERT_TRUE(w.run());
  EXPECT_FALSE(r->done);
  w.now += 2'000'000'000;
  for (auto& x : w.engines) x->progress(w.now);
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(r->done);
  EXPECT_EQ(r->status.outcome, Outcome::kPeerLost);
  EXPECT_EQ(w.ports[1]->registrations_, 1);
}

/// A receive fails alone before its sender heard of it. Its header is under way again, and the answer to that
/// one overtakes the first.
TEST(Unfenceable, FailedReceiveIsAskedAgain_TheAnswerIsTheSame) {
  World::Options o = impatient(writes());
  o.rails = 3;
  World w(o);
  const auto [s, r] = transfer(w, 2000);
  ASSERT_TRUE(until(w, MsgType::kPut));
  ASSERT_EQ(w.flights.size(), 1u);
  const World::Close c = cut(w, w.flights[0].rail);
  close_half(w, c, 0, FenceResult::kFenced);
  close_half(w, c, 1, FenceResult::kUnfenceable);
  w.engines[0]->progress(w.now += 1000);  // RNDV again
  w.now += 2'000'000'000;
  for (int i = 0; i < 2; ++i) w.engines[1]->progress(w.now += 2'000'000);
  ASSERT_TRUE(r->done);
  EXPECT_EQ(r->status.outcome, Outcome::kPeerLost);
  ASSERT_LT(w.find(0, 1, MsgType::kRndv), w.flights.size());
  w.take(w.find(0, 1, MsgType::kRndv));
  const size_t older = w.find(1, 0, MsgType::kRestartNack);
  const size_t newer = w.find(1, 0, MsgType::kRestartNack, older + 1);
  ASSERT_LT(newer, w.flights.size());
  w.take(newer);  // both take one rail: the older one is lost there, say
  ASSERT_TRUE(s->done);
  EXPECT_NE(s->outcome, Outcome::kOk) << "its receive failed";
  ASSERT_TRUE(w.run());
  for (const auto& e : w.engines) EXPECT_EQ(e->unfinished(), 0u);
}

}  // namespace
}  // namespace bfo::test
