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

/// The first one may be dead.
TEST(FirstContact, AllRailsAreAskedFor) {
  Strangers w(3);
  w.isend(0, 1, 1, pattern(50000, 1));
  EXPECT_EQ(w.ports[0]->asked_, 7u);
}

/// It has no use for other rails.
TEST(FirstContact, ShortSynchronousSend_DoesNotWait) {
  Strangers w;
  w.isend(0, 1, 1, pattern(8, 1), xfer::SendMode::kSync);
  EXPECT_EQ(w.flights.size(), 1u);
}

/// Else each later send would make progress for the rest of the job.
TEST(FirstContact, PeerIsGivenUpWhileMessagesWait_NobodyWaitsAnyMore) {
  World::Options o = Strangers::options_of(2);
  o.config.park_timeout_ns = 1000 * kMs;
  World w(o);
  SendReq* const s = w.isend(0, 1, 1, pattern(50000, 1));
  EXPECT_TRUE(w.engines[0]->waits_for_rails());
  w.kill(0, 1, 0);
  w.kill(0, 1, 1);
  for (int i = 0; i < 5 && !s->done; ++i) w.engines[0]->progress(w.now += 1000 * kMs);
  EXPECT_TRUE(s->done);
  EXPECT_FALSE(w.engines[0]->waits_for_rails());
}

/// The last look at which a message waited for a second rail, since the first one was up.
uint64_t waited(xfer::Patience& patience, bool comes) {
  FirstContact c;
  c.met(7);
  uint64_t ns = 0;
  while (c.waits(1, 1, 7 + ns, kWait, patience)) {
    ns += kMs;
    if (comes && ns == 3 * kMs) {
      EXPECT_FALSE(c.waits(2, 0, 7 + ns, kWait, patience));
      break;
    }
  }
  EXPECT_TRUE(c.over());
  return ns;
}

/// Each of many peers would cost that time, also when others have all rails.
TEST(FirstContact, WaitsInVain_AreShortFromTheFifthOn) {
  xfer::Patience patience;
  for (unsigned i = 0; i < 20; ++i) {
    EXPECT_EQ(waited(patience, true), 3 * kMs) << i;
    EXPECT_EQ(waited(patience, false), i < 5 ? kWait : kWait / xfer::Patience::kInVain) << i;
  }
  for (unsigned i = 0; i < 400; ++i) waited(patience, true);
  EXPECT_EQ(waited(patience, false), kWait) << "rails have come for long";
}

/// Between the first rail and the first message this process has made no progress, maybe.
TEST(FirstContact, TimeBeforeTheFirstMessage_DoesNotCount) {
  xfer::Patience patience;
  FirstContact late;
  late.met(7);
  EXPECT_TRUE(late.waits(1, 1, 10 * kWait, kWait, patience));
  EXPECT_TRUE(patience.any());
  EXPECT_TRUE(late.waits(1, 1, 11 * kWait - 1, kWait, patience));
  EXPECT_FALSE(late.waits(1, 1, 11 * kWait, kWait, patience));
  EXPECT_FALSE(patience.any());
}

}  // namespace
}  // namespace bfo::test
