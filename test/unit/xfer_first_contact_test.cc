// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_first_contact_test.cc: long messages wait until the rails of their peer are up, but not for long.
#include <gtest/gtest.h>

#include "pml/bfo/xfer/rails/first_contact.h"
#include "test/unit/failover_steps.h"
#include "test/unit/pattern.h"

namespace bfo::test {
namespace {

using xfer::FirstContact;

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kWait = 500 * kMs;

/// Rails that read, none of which is up.
struct Strangers : World {
  explicit Strangers(int rails = 2) : World(options_of(rails)) { now = 1000 * kMs; }
  static World::Options options_of(int rails) {
    World::Options o = reads();
    o.rails = rails;
    o.strangers = true;
    o.config.connect_wait_ns = kWait;
    return o;
  }
  void connect(int r) {
    xfer::RailEvent ev;
    ev.name = name(0, 1, r);
    for (int me = 0; me < 2; ++me) engines[me]->on_rail_up(rail(me, 1 - me, r), ev);
  }
  void turn(uint64_t ns) {
    now += ns;
    for (auto& e : engines) e->progress(now);
  }
  unsigned keys_of(size_t flight) const {
    core::RgetHdr h{};
    const auto& bytes = flights[flight].bytes;
    return core::decode_rget(core::Bytes{bytes.data(), bytes.size()}, h) ? h.n_keys : 0;
  }
};

TEST(FirstContact, LongMessages_WaitForAllRails) {
  Strangers w;
  SendReq* const s = w.isend(0, 1, 1, pattern(50000, 1));
  SendReq* const t = w.isend(0, 1, 2, pattern(50000, 2));
  EXPECT_TRUE(w.flights.empty());
  w.connect(0);
  w.turn(kMs);
  EXPECT_TRUE(w.flights.empty()) << "over the only rail that is up";
  w.connect(1);
  w.turn(kMs);
  ASSERT_EQ(w.flights.size(), 2u);
  EXPECT_EQ(w.keys_of(0), 2u);
  EXPECT_EQ(w.keys_of(1), 2u);
  RecvReq* const r = w.irecv(1, 0, 1, 50000);
  RecvReq* const q = w.irecv(1, 0, 2, 50000);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && t->done && r->done && q->done);
  EXPECT_EQ(r->data, s->data);
  EXPECT_EQ(q->data, t->data);
  expect_clean(w);
}

TEST(FirstContact, ShortMessages_DoNotWait) {
  Strangers w;
  w.isend(0, 1, 1, pattern(50000, 1));
  w.isend(0, 1, 2, pattern(8, 2));
  EXPECT_EQ(w.flights.size(), 1u);
}

TEST(FirstContact, RailThatDoesNotCome_IsWaitedForOnce) {
  Strangers w;
  w.isend(0, 1, 1, pattern(50000, 1));
  w.turn(900 * kMs);
  EXPECT_TRUE(w.flights.empty()) << "no rail is up";
  w.connect(0);
  w.turn(kWait - 1);
  EXPECT_TRUE(w.flights.empty());
  w.turn(1);
  ASSERT_EQ(w.flights.size(), 1u);
  EXPECT_EQ(w.keys_of(0), 1u);
  w.isend(0, 1, 2, pattern(50000, 2));
  EXPECT_EQ(w.flights.size(), 2u);
}

TEST(FirstContact, NoRailComes_TheHeaderIsLeftToTheBtl) {
  Strangers w;
  w.isend(0, 1, 1, pattern(50000, 1));
  w.turn(FirstContact::kFirstRail * kWait - 1);
  EXPECT_TRUE(w.flights.empty());
  w.turn(1);
  EXPECT_EQ(w.flights.size(), 1u);
}

TEST(FirstContact, OneRail_NothingWaits) {
  Strangers w(1);
  w.isend(0, 1, 1, pattern(50000, 1));
  EXPECT_EQ(w.flights.size(), 1u);
}

TEST(FirstContact, NoTimeIsGiven_NothingWaits) {
  World::Options o = Strangers::options_of(2);
  o.config.connect_wait_ns = 0;
  World w(o);
  w.isend(0, 1, 1, pattern(50000, 1));
  EXPECT_EQ(w.flights.size(), 1u);
}

/// Of many peers with a dead rail each would cost that time.
TEST(FirstContact, AfterAWaitInVain_TheNextIsShort) {
  xfer::Patience patience;
  for (const uint64_t bound : {kWait, kWait / FirstContact::kInVain}) {
    FirstContact c;
    c.met(7);
    EXPECT_TRUE(c.waits(1, 1, 7, kWait, patience));
    EXPECT_TRUE(c.waits(1, 1, 6 + bound, kWait, patience));
    EXPECT_FALSE(c.waits(1, 1, 7 + bound, kWait, patience));
    EXPECT_TRUE(c.over());
    EXPECT_TRUE(patience.in_vain);
  }
  FirstContact late;  // the rails were there before the first message
  late.met(0);
  EXPECT_FALSE(late.waits(1, 1, kWait, kWait, patience));
  EXPECT_TRUE(patience.in_vain);
  FirstContact good;
  good.met(0);
  EXPECT_TRUE(good.waits(1, 1, 1, kWait, patience));
  EXPECT_FALSE(good.waits(2, 0, 2, kWait, patience));
  EXPECT_FALSE(patience.in_vain);
}

}  // namespace
}  // namespace bfo::test
