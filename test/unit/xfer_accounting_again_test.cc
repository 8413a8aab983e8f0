// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_accounting_again_test.cc: the sums balance (P8) also when very much goes again, or nothing that seemed
// to; and what the records cost.
//
// P1..P8: contrib/doc/design.md
#include <gtest/gtest.h>

#include "test/unit/accounting.h"

namespace bfo::test {
namespace {

/// A rail that is full takes it later: the record waits for that.
TEST(Accounting, TheOtherRailIsFull_TheRecordIsToldWhenAllHasGone) {
  for (Way way : {Way::kSendi, Way::kFragment}) {
    World::Options o = options(way);
    o.capacity = 1;
    World w(o);
    w.now = 1000;
    for (int i = 0; i < 2; ++i) w.isend(0, 1, i, pattern(100, i));
    ASSERT_EQ(w.flights.size(), 2u);
    w.kill(0, 1, 0);
    w.closures();
    w.engines[0]->progress(w.now += 2'000'000);
    EXPECT_EQ(w.engines[0]->counters().bytes_resent, 0u);
    EXPECT_TRUE(w.ports[0]->events_.empty());
    ASSERT_TRUE(w.run());
    w.engines[0]->progress(w.now += 2'000'000);
    EXPECT_EQ(w.engines[0]->counters().bytes_resent, 100u);
    ASSERT_EQ(w.ports[0]->events_.size(), 1u);
    EXPECT_EQ(w.ports[0]->events_[0].bytes_resent, 100u);
    EXPECT_EQ(w.ports[0]->events_[0].bytes_waiting, 0u);
  }
}

/// A thousand messages go again one by one, and the engine is left after each: what is looked at for the
/// record does not grow with what waits.
TEST(Accounting, ManyMessagesGoAgain_TheRecordCostsLittle) {
  constexpr uint64_t kMany = 1000;
  for (const Way way : kWays) {
    SCOPED_TRACE(static_cast<int>(way));
    World::Options o = options(way);
    World w(o);
    w.now = 1000;
    const size_t n = way == Way::kSendi || way == Way::kFragment ? 40 : 3000;
    for (int i = 0; i < static_cast<int>(kMany); ++i) {
      w.irecv(1, 0, i, n);
      w.isend(0, 1, i, pattern(n, i));
    }
    if (n == 3000)  // each has begun
      for (size_t i = 2 * kMany; i > 0; --i) w.take();
    w.kill(0, 1, 0);
    w.closures();
    for (int rank : {0, 1}) w.engines[rank]->progress(w.now += 2'000'000);
    uint64_t before[2];
    for (int rank : {0, 1}) before[rank] = w.engines[rank]->counters().looked_at;
    ASSERT_TRUE(w.run());
    for (int rank : {0, 1}) {
      EXPECT_LE(w.engines[rank]->counters().looked_at - before[rank], 64 * kMany) << rank;
      w.engines[rank]->progress(w.now += 200'000'000);
      EXPECT_EQ(w.ports[rank]->events_.size(), 1u) << rank;
    }
    for (auto& r : w.recvs) ASSERT_TRUE(r->done);
    for (auto& s : w.sends) ASSERT_TRUE(s->done);
    expect_rails_carried(w);
  }
}

/// The record waits until their receiver has said what it has: it looks at none of them meanwhile, however
/// often the engine makes progress.
TEST(Accounting, ManyMessagesAreInARestart_TheRecordLooksAtNone) {
  for (const Way way : {Way::kCopy, Way::kPut}) {
    SCOPED_TRACE(static_cast<int>(way));
    World w(options(way));
    w.now = 1000;
    for (int i = 0; i < 100; ++i) {
      w.irecv(1, 0, i, 3000);
      w.isend(0, 1, i, pattern(3000, i));
    }
    for (size_t i = 200; i > 0; --i) w.take();
    w.kill(0, 1, 0);
    w.closures();
    uint64_t before[2];
    for (int rank : {0, 1}) before[rank] = w.engines[rank]->counters().looked_at;
    for (int i = 0; i < 50; ++i)
      for (int rank : {0, 1}) w.engines[rank]->progress(w.now += 1'100'000);
    EXPECT_EQ(w.engines[0]->counters().looked_at - before[0], 0u);
    EXPECT_TRUE(w.ports[0]->events_.empty()) << "it waits for them";
    ASSERT_TRUE(w.run());
    w.engines[0]->progress(w.now += 200'000'000);
    EXPECT_EQ(w.ports[0]->events_.size(), 1u);
  }
}

/// Twice over the same: what was said again is lost too.
TEST(Accounting, EagerMessagesLostAgainAndAgain_CountEachTime) {
  for (Way way : {Way::kSendi, Way::kFragment}) {
    World::Options o = options(way);
    o.rails = 3;
    World w(o);
    Traffic t(w, way);
    w.kill(0, 1, 0);
    w.kill(0, 1, 1);
    ASSERT_TRUE(w.run());
    t.expect_done();
    const Sums s(w);
    EXPECT_GT(s.again, 0u);
    EXPECT_EQ(s.moved, t.application + s.again);
    expect_rails_carried(w);
  }
}

TEST(Accounting, ReadsNeverSent_DoNotCount) {
  World w(options(Way::kGet));
  Traffic t(w, Way::kGet);
  int returned = 0;
  for (int step = 0; step < 1000 && returned < 5 && !w.flights.empty(); ++step) {
    if (w.flights[0].kind != Flight::Kind::kGet || step % 3 != 0) {
      w.take();
      continue;
    }
    const Flight f = w.flights[0];
    w.flights.pop_front();
    w.carried[f.from] -= f.size;
    ++returned;
    w.end(f, Fate::kNeverSent);
  }
  ASSERT_EQ(returned, 5);
  ASSERT_TRUE(w.run());
  t.expect_done();
  const Sums s(w);
  EXPECT_EQ(s.read, t.application);
  EXPECT_EQ(s.again, 0u);
  expect_rails_carried(w);
}

TEST(Accounting, TransfersThatEndInTheCall_CountLikeOthers) {
  for (Way way : {Way::kGet, Way::kPut}) {
    World::Options o = options(way);
    o.rdma_now = true;
    World w(o);
    Traffic t(w, way);
    ASSERT_TRUE(w.run());
    t.expect_done();
    EXPECT_EQ(Sums(w).moved, t.application) << static_cast<int>(way);
    expect_rails_carried(w);
  }
}

}  // namespace
}  // namespace bfo::test
