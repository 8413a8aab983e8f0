// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_memory_test.cc: no memory for what must be kept: the peer concerned is given up with an error on both
// sides, all others go on, nothing hangs or aborts, and nothing is delivered behind a gap (P6).
//
// P1..P8: contrib/doc/design.md
#include <gtest/gtest.h>

#include "test/unit/failover_steps.h"

namespace bfo::test {
namespace {

constexpr size_t kBig = 100;  ///< messages of at least this many bytes find no memory

void starve(World& w, int rank) {
  w.ports[rank]->refuse_ = [](size_t n) { return n >= kBig; };
}

void expect_given_up(World& w, int by, int peer, bool there) {
  ASSERT_EQ(w.ports[by]->losses_.size(), 1u) << "rank " << by;
  const auto& [who, loss] = w.ports[by]->losses_[0];
  EXPECT_EQ(who, peer);
  EXPECT_EQ(loss.outcome, Outcome::kNoMemory);
  EXPECT_EQ(loss.there, there);
  EXPECT_GE(loss.bytes, kBig);
}

TEST(Memory, UnexpectedEager_BothSidesEndWithAnErrorOthersGoOn) {
  World::Options o;
  o.ranks = 3;
  World w(o);
  meet(w);
  RecvReq* waiting = w.irecv(1, 0, 7, 100);
  starve(w, 1);
  SendReq* s = w.isend(0, 1, 1, pattern(200, 1));
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(s->done);  // an eager send is complete before anybody knows
  expect_given_up(w, 1, 0, false);
  expect_given_up(w, 0, 1, true);
  ASSERT_TRUE(waiting->done);
  EXPECT_EQ(waiting->status.outcome, Outcome::kNoMemory);
  RecvReq* later = w.irecv(1, 0, 1, 200);
  ASSERT_TRUE(later->done);
  EXPECT_EQ(later->status.outcome, Outcome::kNoMemory);
  SendReq* again = w.isend(0, 1, 1, pattern(10, 1));
  ASSERT_TRUE(again->done);
  EXPECT_EQ(again->outcome, Outcome::kNoMemory);
  RecvReq* other = w.irecv(1, 2, 1, 200);
  w.isend(2, 1, 1, pattern(200, 2));
  SendReq* back = w.isend(1, 2, 1, pattern(200, 3));
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(other->done && back->done);
  EXPECT_EQ(other->status.outcome, Outcome::kOk);
  EXPECT_EQ(other->data, pattern(200, 2));
  EXPECT_EQ(back->outcome, Outcome::kOk);
}

TEST(Memory, NothingBehindTheGapIsDelivered) {
  World w({});
  meet(w);
  RecvReq* any = w.irecv(1, xfer::kAnySource, 2, 16);
  starve(w, 1);
  w.isend(0, 1, 1, pattern(200, 1));
  w.isend(0, 1, 2, pattern(16, 2));  // fits, and matches, but MPI order says after the lost one
  ASSERT_TRUE(w.run());
  expect_given_up(w, 1, 0, false);
  ASSERT_TRUE(any->done);
  EXPECT_EQ(any->status.outcome, Outcome::kNoMemory);
}

TEST(Memory, UnexpectedRendezvous_TheSenderIsTold) {
  for (int mode = 0; mode < 3; ++mode) {
    World::Options o;
    o.get = mode == 1;
    o.put = mode == 2;
    World w(o);
    meet(w);
    w.ports[1]->refuse_ = [](size_t) { return true; };
    SendReq* s = w.isend(0, 1, 1, pattern(5000, 1));
    ASSERT_TRUE(w.run());
    ASSERT_TRUE(s->done) << mode;
    EXPECT_EQ(s->outcome, Outcome::kNoMemory);
    EXPECT_EQ(w.ports[1]->peers_failed_, 1);
    EXPECT_EQ(w.engines[0]->unfinished(), 0u);
    EXPECT_EQ(w.ports[0]->registrations_, 0);
  }
}

TEST(Memory, OutOfSequenceAndUnknownCommunicator) {
  for (bool unknown : {false, true}) {
    World w({});
    meet(w);
    auto* ours = unknown ? w.add_comm(0, 5) : nullptr;
    starve(w, 1);
    w.isend(0, 1, 1, pattern(8, 1), xfer::SendMode::kStandard, ours);
    w.isend(0, 1, 1, pattern(200, 2), xfer::SendMode::kStandard, ours);
    w.take(1);
    EXPECT_EQ(w.ports[1]->peers_failed_, 1) << unknown;
    ASSERT_TRUE(w.run());
    expect_given_up(w, 0, 1, true);
  }
}

TEST(Memory, SenderUnknown_EveryPeerWithoutNamedRailsIsGivenUp) {
  World w({});
  meet(w);
  w.peer(1, 0)->rails[0].limits.failover = false;
  starve(w, 1);
  w.add_comm(0, 5);
  w.isend(0, 1, 1, pattern(200, 1), xfer::SendMode::kStandard, w.add_comm(0, 6));
  const Flight f = w.flights[0];
  w.flights.clear();
  w.engines[1]->on_message(nullptr, 0, f.tag, f.bytes.data(), f.bytes.size());
  EXPECT_EQ(w.ports[1]->peers_failed_, 1);
  EXPECT_TRUE(w.irecv(1, 0, 1, 200)->done);
}

/// Its rails are not known to the engine before the first call that concerns it: it must not wait for ever.
TEST(Memory, SenderNotSpokenToYet_IsGivenUpWhenItIsMet) {
  World w({});
  w.isend(0, 1, 1, pattern(200, 1), xfer::SendMode::kStandard, w.add_comm(0, 6));
  const Flight f = w.flights[0];
  w.flights.clear();
  starve(w, 1);
  w.engines[1]->on_message(nullptr, 1, f.tag, f.bytes.data(), f.bytes.size());
  w.ports[1]->refuse_ = nullptr;
  EXPECT_EQ(w.ports[1]->peers_failed_, 0);
  RecvReq* r = w.irecv(1, 0, 1, 200);
  ASSERT_TRUE(r->done);
  EXPECT_EQ(r->status.outcome, Outcome::kNoMemory);
  EXPECT_EQ(w.ports[1]->peers_failed_, 1);
}

/// A peer that cannot be made ends the requests for it, and nothing else: no message of it was lost.
TEST(Memory, PeerThatCannotBeMade_OnlyRequestsForItFail) {
  World::Options o;
  o.ranks = 3;
  World w(o);
  w.peer(1, 0)->rails[0].limits.failover = false;  // one whose messages come without a rail
  w.ports[1]->refuse_ = [](size_t) { return true; };
  SendReq* s = w.isend(1, 2, 1, pattern(10, 1));
  RecvReq* r = w.irecv(1, 2, 1, 10);
  w.ports[1]->refuse_ = nullptr;
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(s->outcome, Outcome::kNoMemory);
  EXPECT_EQ(r->status.outcome, Outcome::kNoMemory);
  EXPECT_EQ(w.ports[1]->peers_failed_, 0);
  RecvReq* other = w.irecv(1, 0, 1, 10);
  RecvReq* later = w.irecv(1, 2, 1, 10);
  w.isend(0, 1, 1, pattern(10, 2));
  w.isend(2, 1, 1, pattern(10, 3));
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(other->done && later->done);
  EXPECT_EQ(other->data, pattern(10, 2));
  EXPECT_EQ(later->data, pattern(10, 3));
}

/// The peer is told, over the rail whose record comes with the peer's: a receive it posted before would wait
/// for ever.
TEST(Memory, RailThatCannotBeMade_ItsPeerIsGivenUp) {
  World w({});
  RecvReq* waiting = w.irecv(1, 0, 2, 10);
  w.ports[0]->refuse_ = [](size_t n) { return n == sizeof(xfer::Rail<FakePort>); };
  SendReq* s = w.isend(0, 1, 1, pattern(10, 1));
  RecvReq* r = w.irecv(0, 1, 1, 10);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->status.outcome, Outcome::kNoMemory);
  expect_given_up(w, 0, 1, false);
  ASSERT_TRUE(waiting->done);
  EXPECT_EQ(waiting->status.outcome, Outcome::kNoMemory);
  EXPECT_EQ(w.engines[0]->unfinished(), 0u);
}

/// Its message finds no memory for a record of its sender: the sender is given up when it is met.
TEST(Memory, MessageOfAPeerThatCannotBeMade_IsAnErrorWhenItIsMet) {
  for (size_t length : {10u, 5000u})
    for (bool rank_too : {true, false})
      for (uint32_t epoch : {0u, 1u}) {
        if (length < 256 && !rank_too) continue;  // kept: it needs no more than the rank
        World::Options o;
        o.ranks = 3;
        World w(o);
        w.peer(1, 2)->rails[0].limits.failover = false;
        if (epoch == 0) w.stock = true;
        w.isend(0, 1, 1, pattern(length, 1));
        const Flight f = w.flights[0];
        w.flights.clear();
        w.ports[1]->refuse_ = [&](size_t n) { return rank_too || n >= sizeof(xfer::Peer<FakePort>); };
        w.engines[1]->on_message(nullptr, epoch, f.tag, f.bytes.data(), f.bytes.size());
        w.ports[1]->refuse_ = nullptr;
        EXPECT_EQ(w.ports[1]->peers_failed_, 0);
        RecvReq* r = w.irecv(1, 0, 1, length);
        ASSERT_TRUE(r->done) << length << ' ' << rank_too << ' ' << epoch;
        EXPECT_EQ(r->status.outcome, Outcome::kNoMemory);
        EXPECT_EQ(w.ports[1]->peers_failed_, 1);
        EXPECT_EQ(w.engines[1]->counters().malformed, 0u);
        delete f.frag;
      }
}

/// The communicator goes away while there is no memory for a record of a peer it has messages from.
TEST(Memory, NumberingOfAPeerThatCannotBeMade_IsAnErrorWhenItIsMet) {
  World w({});
  auto* theirs = w.add_comm(0, 5);
  auto* ours = w.add_comm(1, 5);
  w.isend(0, 1, 1, pattern(10, 1), xfer::SendMode::kStandard, theirs);
  const Flight f = w.flights[0];
  w.flights.clear();
  RecvReq* any = w.irecv(1, xfer::kAnySource, 1, 10, ours);
  w.engines[1]->on_message(nullptr, 1, f.tag, f.bytes.data(), f.bytes.size());
  ASSERT_TRUE(any->done);
  w.ports[1]->refuse_ = [](size_t) { return true; };
  w.engines[1]->comm_del(ours);
  w.ports[1]->refuse_ = nullptr;
  RecvReq* r = w.irecv(1, 0, 1, 10, w.add_comm(1, 5));
  ASSERT_TRUE(r->done);
  EXPECT_EQ(r->status.outcome, Outcome::kNoMemory);
  EXPECT_EQ(w.ports[1]->peers_failed_, 1);
}

TEST(Memory, MessageInsideASend_IsGivenUpOnTheWayOut) {
  World::Options o;
  o.loopback = true;
  World w(o);
  meet(w);
  starve(w, 1);
  SendReq* ping = w.isend(0, 1, 1, pattern(200, 1));
  EXPECT_TRUE(ping->done);
  EXPECT_EQ(w.ports[1]->peers_failed_, 1);
}

TEST(Memory, ResentBytes_ThePeerIsGivenUp) {
  World w({});
  meet(w);
  SendReq* s = w.isend(0, 1, 1, pattern(200, 1));
  RecvReq* r = w.irecv(1, 0, 1, 200);
  starve(w, 0);
  w.kill(0, 1, w.flights[0].rail);  // the BTL hands the bytes back, and nobody can keep them
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(s->done);
  ASSERT_TRUE(r->done);
  EXPECT_EQ(r->status.outcome, Outcome::kNoMemory);
  expect_given_up(w, 0, 1, false);
  expect_given_up(w, 1, 0, true);
}

/// Rendezvous of both directions were under way before: their records are there.
void warm(World& w) {
  std::vector<RecvReq*> recvs;
  for (int i = 0; i < 8; ++i)
    for (const int from : {0, 1}) {
      recvs.push_back(w.irecv(1 - from, from, 98, 3000));
      w.isend(from, 1 - from, 98, pattern(3000, 1));
    }
  ASSERT_TRUE(w.run());
  for (const RecvReq* r : recvs) ASSERT_TRUE(r->done);
}

/// A rendezvous that finds no record waits at its sender, and fails alone at its receiver.
TEST(Memory, NoRecordForARendezvous) {
  for (const int without_memory : {0, 1}) {
    World w({});
    meet(w);
    w.ports[without_memory]->refuse_ = [](size_t n) {
      return n == sizeof(xfer::SendRndv<FakePort>) || n == sizeof(xfer::RecvRndv<FakePort>);
    };
    const auto [s, r] = transfer(w, 3000);
    ASSERT_TRUE(w.run());
    EXPECT_EQ(s->done, without_memory == 1);
    w.ports[without_memory]->refuse_ = nullptr;
    w.engines[0]->progress(w.now);
    ASSERT_TRUE(w.run());
    ASSERT_TRUE(s->done && r->done);
    EXPECT_EQ(r->status.outcome, without_memory == 1 ? Outcome::kNoMemory : Outcome::kOk);
    EXPECT_EQ(s->outcome == Outcome::kOk, without_memory == 0);
    EXPECT_EQ(w.ports[0]->peers_failed_ + w.ports[1]->peers_failed_, 0);
    EXPECT_EQ(w.engines[0]->unfinished() + w.engines[1]->unfinished(), 0u);
  }
}

/// What a request needs for itself is waited for, or refused: no peer is given up.
TEST(Memory, GrantsAndReadsWaitForTheirEntries) {
  for (bool get : {true, false}) {
    for (int without_memory : {0, 1}) {
      World::Options o;
      o.get = get;
      o.put = !get;
      World w(o);
      meet(w);
      warm(w);
      int left = 12;
      w.ports[without_memory]->refuse_ = [&](size_t) { return left-- > 0; };
      RecvReq* r = w.irecv(1, 0, 1, 30000);
      SendReq* s = w.isend(0, 1, 1, pattern(30000, 1));
      for (int i = 0; i < 50 && !r->done; ++i) ASSERT_TRUE(w.run());
      ASSERT_TRUE(s->done && r->done) << get << without_memory;
      EXPECT_EQ(r->data, pattern(30000, 1));
      EXPECT_EQ(w.ports[0]->peers_failed_ + w.ports[1]->peers_failed_, 0);
    }
  }
}

TEST(Memory, FailedWriteWithoutEntry_TheGateStaysShutUntilTheFence) {
  World w(writes());
  meet(w);
  const auto [s, r] = transfer(w, 3000);
  while (!w.flights.empty() && w.flights[0].kind != Flight::Kind::kPut) w.take();
  ASSERT_FALSE(w.flights.empty());
  w.ports[0]->refuse_ = [](size_t) { return true; };
  w.hold_close = true;
  w.kill(0, 1, w.flights[0].rail);
  EXPECT_NE(s->xfer.rndv->unfenced, 0);
  EXPECT_EQ(s->xfer.rndv->ledger, nullptr);
  for (int i = 0; i < w.options.rails; ++i) {  // an epoch that was closed long ago is reported again
    xfer::RailEvent old;
    old.name = w.rail(0, 1, i)->name;
    --old.name.epoch;
    w.engines[0]->on_rail_closed(w.rail(0, 1, i), old, FenceResult::kFenced, 0);
  }
  EXPECT_NE(s->xfer.rndv->unfenced, 0);
  w.engines[0]->peer_lost(w.peer(0, 1));
  ASSERT_TRUE(w.run());
  EXPECT_FALSE(s->done);  // its buffer may still be read
  w.ports[0]->refuse_ = nullptr;
  w.hold_close = false;
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(s->done);
  EXPECT_FALSE(r->done && r->status.outcome == Outcome::kOk);
}

/// The device of one rail was given up before the send that is exposed over it was: its fence is not answered
/// any more, and there is no memory to list the rail.
TEST(Memory, ExposedWithoutEntryToADeviceGivenUp_EndsAfterTheParkTime) {
  World w(impatient(reads()));
  meet(w);
  SendReq* s = w.isend(0, 1, 1, pattern(30000, 1));
  ASSERT_TRUE(w.run());
  const World::Close c = cut(w, 0);
  close_half(w, c, 0, FenceResult::kUnfenceable);
  close_half(w, c, 1, FenceResult::kFenced);
  w.hold_close = false;
  w.now += 2'000'000'000;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(w.run());
  ASSERT_FALSE(s->done);
  w.ports[0]->refuse_ = [](size_t) { return true; };
  w.engines[0]->peer_lost(w.peer(0, 1));
  EXPECT_NE(s->xfer.rndv->unfenced & 1, 0);
  EXPECT_FALSE(s->done);
  w.now += 2'000'000'000;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(w.run());
  EXPECT_TRUE(s->done);
}

TEST(Memory, CommunicatorPeerAndRank_AreErrorsNotAborts) {
  World w({});
  bool none = true;
  for (auto& p : w.ports) p->refuse_ = [&](size_t) { return none; };
  EXPECT_EQ(w.add_comm(0, 9), nullptr);
  SendReq* s = w.isend(0, 1, 1, pattern(10, 1));
  RecvReq* r = w.irecv(0, 1, 1, 10);
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(s->outcome, Outcome::kNoMemory);
  EXPECT_EQ(r->status.outcome, Outcome::kNoMemory);
  none = false;
  EXPECT_NE(w.add_comm(0, 9), nullptr);
}

/// Memory runs out at any moment, for one request or for good, while a rail dies too: everything ends.
TEST(Memory, AnyMoment_EverythingEnds) {
  for (bool for_good : {true, false})
    for (int protocol = 0; protocol < 3; ++protocol)
      for (int when = 0; when < 120; ++when) {
        World::Options o;
        o.get = protocol == 1;
        o.put = protocol == 2;
        o.sendi = when % 2;
        World w(o);
        meet(w);
        warm(w);
        int calls = 0;
        w.ports[1]->refuse_ = [&](size_t) { return for_good ? calls++ >= when : calls++ == when; };
        std::vector<RecvReq*> recvs;
        std::vector<SendReq*> sends;
        for (int i = 0; i < 8; ++i) {
          const size_t n = i % 2 ? 5000 : 64;
          if (i % 3 == 0) recvs.push_back(w.irecv(1, 0, i, n));
          sends.push_back(w.isend(0, 1, i, pattern(n, i)));
          sends.push_back(w.isend(1, 0, i, pattern(n, i)));
          for (int k = 0; k < 6 && !w.flights.empty(); ++k) w.take();
          if (i == 5) w.kill(0, 1, 0);
        }
        for (int i = 0; i < 8; ++i) {
          if (i % 3 != 0) recvs.push_back(w.irecv(1, 0, i, 5000));
          recvs.push_back(w.irecv(0, 1, i, 5000));
        }
        for (int k = 0; k < 20; ++k) ASSERT_TRUE(w.run());
        bool failed = false;
        for (RecvReq* r : recvs) {
          ASSERT_TRUE(r->done) << for_good << ' ' << protocol << ' ' << when;
          failed = failed || r->status.outcome != Outcome::kOk;
          if (r->status.outcome != Outcome::kOk) continue;
          r->data.resize(r->status.length);
          EXPECT_EQ(r->data, pattern(r->status.length, static_cast<unsigned>(r->status.tag)));
        }
        for (SendReq* s : sends) ASSERT_TRUE(s->done) << for_good << ' ' << protocol << ' ' << when;
        EXPECT_TRUE(!failed || w.ports[1]->peers_failed_ != 0) << when;
        for (int i : {0, 1}) {
          EXPECT_EQ(w.engines[i]->unfinished(), 0u) << when;
          EXPECT_EQ(w.ports[i]->registrations_, 0) << when;
          EXPECT_EQ(w.ports[i]->frags_, 0) << when;
        }
      }
}

}  // namespace
}  // namespace bfo::test
