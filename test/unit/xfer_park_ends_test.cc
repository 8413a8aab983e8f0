// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_park_ends_test.cc: what ends the park time of a peer early or late, and rails that never return or
// have lost messages (peer_failure.h).
//
// H1..H23: contrib/doc/hazards.md
#include <gtest/gtest.h>

#include "test/unit/failover_steps.h"

namespace bfo::test {
namespace {

/// Rank 0 waits for a message of rank 1, and has spoken to it, and no rail is left between them.
struct Waiting {
  explicit Waiting(const World::Options& o, uint64_t begin = 0) : w(o) {
    w.now = begin;
    r = w.irecv(0, 1, 7, 10);
    w.isend(0, 1, 1, pattern(10, 1));
    EXPECT_TRUE(w.run());
    w.kill(0, 1, 0);
    w.kill(0, 1, 1);
    EXPECT_TRUE(w.run());
  }
  void pass(uint64_t ns) {
    w.now += ns;
    w.engines[0]->progress(w.now);
  }

  World w;
  RecvReq* r = nullptr;
};

TEST(Park, PeerShowsLife_TheParkTimeStandsStill) {
  Waiting a(impatient());
  a.pass(900'000'000);
  a.w.engines[0]->on_peer_alive(a.w.rail(0, 1, 1), true);
  a.pass(3'600'000'000'000);
  EXPECT_FALSE(a.r->done) << "it computes";
  a.w.engines[0]->on_peer_alive(a.w.rail(0, 1, 1), false);
  a.pass(900'000'000);
  EXPECT_FALSE(a.r->done);
  a.pass(200'000'000);
  EXPECT_TRUE(a.r->done);
  EXPECT_EQ(a.r->status.outcome, Outcome::kPeerLost);
}

/// A process that was outside MPI for longer than the park time, which is three seconds.
struct WasOutside : Waiting {
  WasOutside() : Waiting(three_seconds(), 1'000'000'000'000) {}
  static World::Options three_seconds() {
    World::Options o;
    o.config.park_timeout_ns = 3'000'000'000;
    return o;
  }
};

TEST(Park, ProcessWasOutsideMpi_AReturnedPortGetsItsChance) {
  for (const bool returns : {true, false}) {
    WasOutside a;
    a.pass(1'000'000);
    a.pass(60'000'000'000);
    EXPECT_FALSE(a.r->done);
    if (returns) {
      a.w.revive(0, 1, 1);
      ASSERT_TRUE(a.w.run());
    }
    a.pass(1'100'000'000);
    EXPECT_NE(a.r->done, returns);
    if (returns) continue;
    EXPECT_EQ(a.r->status.outcome, Outcome::kPeerLost);
  }
}

TEST(Park, ProcessIsOutsideMpiAgainAndAgain_TheWaitEnds) {
  WasOutside a;
  for (int i = 0; i < 3; ++i) a.pass(60'000'000'000);
  EXPECT_TRUE(a.r->done);
}

TEST(Park, RailDiesAgain_ItsSignOfLifeIsForgotten) {
  Waiting a(impatient());
  a.w.engines[0]->on_peer_alive(a.w.rail(0, 1, 1), true);
  a.w.revive(0, 1, 1);
  ASSERT_TRUE(a.w.run());
  a.w.kill(0, 1, 1);
  ASSERT_TRUE(a.w.run());
  a.pass(1'100'000'000);
  EXPECT_TRUE(a.r->done);
}

TEST(Broken, UnusedStockRail_IsOneRailLess) {
  World::Options o;
  World w(o);
  xfer::RailEvent ev;
  ev.text = "Socket closed";
  w.engines[0]->on_rail_broken(w.rail(0, 1, 0), ev, false);
  EXPECT_EQ(w.rail(0, 1, 0)->state, RailState::kUnusable);
  for (int i = 0; i < 4; ++i) {
    RecvReq* r = w.irecv(1, 0, 1, 50000);
    SendReq* s = w.isend(0, 1, 1, pattern(i % 2 ? 10 : 50000, 1));
    ASSERT_TRUE(w.run());
    EXPECT_TRUE(s->done && r->done);
    EXPECT_EQ(s->outcome, Outcome::kOk);
    EXPECT_EQ(r->status.outcome, Outcome::kOk);
  }
}

TEST(Broken, MessagesMayBeLost_BothSidesGetAnError) {
  World::Options o;
  World w(o);
  RecvReq* here = w.irecv(0, 1, 7, 10);
  RecvReq* there = w.irecv(1, 0, 7, 10);
  w.isend(0, 1, 1, pattern(10, 1));
  ASSERT_TRUE(w.run());
  EXPECT_FALSE(here->done || there->done);
  xfer::RailEvent ev;
  w.engines[0]->on_rail_broken(w.rail(0, 1, 0), ev, true);
  EXPECT_TRUE(here->done);
  EXPECT_EQ(here->status.outcome, Outcome::kMessageLost);
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(there->done) << "told over the other rail";
  EXPECT_EQ(there->status.outcome, Outcome::kMessageLost);
  EXPECT_NE(w.isend(0, 1, 2, pattern(10, 1))->outcome, Outcome::kOk);
}

TEST(Broken, LastRail_EndsAtOnceBecauseItNeverReturns) {
  World::Options o;
  o.rails = 1;
  World w(o);
  RecvReq* r = w.irecv(0, 1, 7, 10);
  w.isend(0, 1, 1, pattern(10, 1));
  ASSERT_TRUE(w.run());
  xfer::RailEvent ev;
  w.engines[0]->on_rail_broken(w.rail(0, 1, 0), ev, false);
  w.engines[0]->on_rail_broken(w.rail(0, 1, 0), ev, false);
  EXPECT_TRUE(r->done);
  EXPECT_EQ(r->status.outcome, Outcome::kPeerLost);
}

TEST(Park, ErrorPassesTheGateToo) {
  World w(impatient(writes()));
  RecvReq* r = w.irecv(1, 0, 1, 50000);
  w.isend(0, 1, 1, pattern(50000, 1));
  ASSERT_TRUE(until(w, kRdma));
  w.hold_close = true;  // fences do not finish
  w.kill(0, 1, 0);
  w.kill(0, 1, 1);
  ASSERT_TRUE(w.run());
  w.now += 2'000'000'000;
  for (auto& x : w.engines) x->progress(w.now);
  EXPECT_FALSE(r->done) << "a write may still land (H8 a)";
  w.hold_close = false;
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(r->done);
  EXPECT_EQ(r->status.outcome, Outcome::kPeerLost);
}

TEST(Gap, LostMessages_EndBothSidesWithAnError) {
  World w({});
  RecvReq* r = w.irecv(1, 0, 1, 10);
  w.engines[0]->on_gap_lost(w.rail(0, 1, 0), w.name(0, 1, 0), 3);
  ASSERT_TRUE(w.run());
  EXPECT_EQ(r->status.outcome, Outcome::kMessageLost);
  EXPECT_TRUE(r->done);
  EXPECT_EQ(w.isend(0, 1, 1, pattern(10, 1))->outcome, Outcome::kMessageLost);
}

}  // namespace
}  // namespace bfo::test
