// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_books_test.cc: the sums balance (DESIGN P8): what rails carry for a process is what its counters say
// it sent, read and needed for the protocol; and what all sent and read is what the applications sent, and
// what went again.
#include <gtest/gtest.h>

#include "test/unit/fake_world.h"
#include "test/unit/pattern.h"

namespace bfo::test {
namespace {

enum class Way { kSendi, kFragment, kCopy, kGet, kPut };
constexpr Way kWays[] = {Way::kSendi, Way::kFragment, Way::kCopy, Way::kGet, Way::kPut};

World::Options options(Way way) {
  World::Options o;
  o.sendi = way != Way::kFragment;
  o.get = way == Way::kGet;
  o.put = way == Way::kPut;
  return o;
}

/// Messages of `way` in both directions, and their receives.
struct Traffic {
  explicit Traffic(World& w, Way way) {
    const bool eager = way == Way::kSendi || way == Way::kFragment;
    for (int i = 0; i < 6; ++i)
      for (int from : {0, 1}) {
        const std::size_t n = eager ? 40u * i : 3000u + 9000u * i;
        application += n;
        recvs.push_back(w.irecv(1 - from, from, i, n));
        sends.push_back(w.isend(from, 1 - from, i, pattern(n, i)));
      }
  }
  void expect_done() {
    for (std::size_t i = 0; i < sends.size(); ++i) {
      ASSERT_TRUE(sends[i]->done && recvs[i]->done) << i;
      EXPECT_EQ(recvs[i]->data, sends[i]->data) << i;
    }
  }
  std::uint64_t application = 0;
  std::vector<SendReq*> sends;
  std::vector<RecvReq*> recvs;
};

struct Sums {
  explicit Sums(const World& w) {
    for (const auto& e : w.engines) {
      moved += e->counters().bytes_sent + e->counters().bytes_read;
      read += e->counters().bytes_read;
      again += e->counters().bytes_resent;
    }
  }
  std::uint64_t moved = 0;
  std::uint64_t read = 0;
  std::uint64_t again = 0;
};

void expect_rails_carried(const World& w) {
  for (std::size_t i = 0; i < w.engines.size(); ++i) {
    const xfer::Counters& c = w.engines[i]->counters();
    EXPECT_EQ(w.carried[i], c.bytes_sent + c.bytes_read + c.bytes_protocol()) << "rank " << i;
  }
}

TEST(Books, WithoutAFault_RailsCarryApplicationAndProtocol) {
  for (Way way : kWays) {
    World w(options(way));
    Traffic t(w, way);
    ASSERT_TRUE(w.run());
    t.expect_done();
    const Sums s(w);
    EXPECT_EQ(s.moved, t.application) << static_cast<int>(way);
    EXPECT_EQ(s.read, way == Way::kGet ? t.application : 0);
    EXPECT_EQ(s.again, 0u);
    expect_rails_carried(w);
  }
}

/// A rail dies after any number of steps: every byte that goes again is known as such.
TEST(Books, ARailDies_WhatGoesAgainIsTheRest) {
  for (Way way : kWays) {
    bool any = false;
    for (int when = 0; when < 120; ++when) {
      World w(options(way));
      Traffic t(w, way);
      for (int i = 0; i < when && !w.flights.empty(); ++i) w.take();
      w.kill(0, 1, 0);
      ASSERT_TRUE(w.run());
      t.expect_done();
      const Sums s(w);
      any = any || s.again != 0;
      if (way != Way::kPut) {
        EXPECT_EQ(s.moved, t.application + s.again) << static_cast<int>(way) << " at " << when;
      } else {  // grants may be used out of order: up to a window of them counts as resent
        EXPECT_GE(s.moved, t.application);
        EXPECT_LE(s.moved, t.application + s.again) << when;
      }
      expect_rails_carried(w);
    }
    EXPECT_TRUE(any) << static_cast<int>(way);
  }
}

/// Twice over the same: what was said again is lost too.
TEST(Books, EagerMessagesLostAgainAndAgain_CountEachTime) {
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

TEST(Books, ReadsNeverSent_DoNotCount) {
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

TEST(Books, TransfersThatEndInTheCall_CountLikeOthers) {
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
