// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_parts_test.cc: the parts of a peer, each alone: which rail is next, messages that complete sends, the
// park time, what is watched, numberings of freed communicators, receives that failed.
//
// H1..H23: contrib/doc/hazards.md
#include <gtest/gtest.h>

#include <vector>

#include "pml/bfo/xfer/rails/completions.h"
#include "pml/bfo/xfer/moves/failed_receives.h"
#include "pml/bfo/xfer/matching/past_sequences.h"
#include "pml/bfo/xfer/rails/rail_choice.h"
#include "pml/bfo/xfer/base/standing.h"
#include "pml/bfo/xfer/failover/watch.h"
#include "test/unit/counted_memory.h"

namespace bfo::xfer {
namespace {

struct NoPort {
  using RailHandle = int;
};
using RailT = Rail<NoPort>;

using Memory = test::CountedMemory;

struct Rails {
  explicit Rails(unsigned n, uint64_t key = 0) : rails(n) {
    for (unsigned i = 0; i < n; ++i) {
      rails[i].index = static_cast<uint8_t>(i);
      rails[i].state = RailState::kUp;
      rails[i].limits.weight = 1000;
      set.at[i] = &rails[i];
    }
    choice.set_key(key);
    rebuild();
  }
  void rebuild() {
    choice.rebuild(set, static_cast<unsigned>(rails.size()));
    choice.prefer_default();
  }
  std::vector<RailT> rails;
  RailSet<NoPort> set;
  RailChoice<NoPort> choice;
};

TEST(RailChoice, UsesTheBestStateThatThereIs) {
  Rails r(3);
  EXPECT_EQ(r.choice.size(), 3u);
  r.rails[1].state = RailState::kSuspect;
  r.rebuild();
  EXPECT_EQ(r.choice.size(), 2u);
  EXPECT_FALSE(r.choice.has(&r.rails[1]));
  r.rails[0].state = r.rails[2].state = RailState::kDown;
  r.rebuild();
  ASSERT_EQ(r.choice.size(), 1u);
  EXPECT_EQ(&r.choice[0], &r.rails[1]);
  r.rails[1].state = RailState::kIdle;
  r.rails[2].state = RailState::kConnecting;
  r.rebuild();
  ASSERT_EQ(r.choice.size(), 1u) << "H18: one that is being connected";
  EXPECT_EQ(&r.choice[0], &r.rails[2]);
  r.choice.clear();
  EXPECT_TRUE(r.choice.empty());
  EXPECT_EQ(r.choice.next(), nullptr);
  EXPECT_EQ(r.choice.preferred(), nullptr);
  EXPECT_EQ(r.choice.lightest(0, 1), nullptr);
}

TEST(RailChoice, KeyChoosesThePreferredRail) {
  for (uint64_t key : {0u, 1u, 2u, 3u, 7u}) {
    Rails r(3, key);
    EXPECT_EQ(r.choice.preferred(), &r.rails[key % 3]);
    EXPECT_EQ(r.choice.for_short(10, 100), &r.rails[key % 3]);
    EXPECT_EQ(r.choice.for_short(100, 100), nullptr) << "a longer one is spread";
  }
  Rails one(1, 5);
  EXPECT_EQ(one.choice.for_short(100, 100), &one.rails[0]) << "there is nothing to choose";
}

TEST(RailChoice, RefusalSpreads64Messages) {
  Rails r(2, 1);
  r.rails[0].late = r.rails[1].late = 0;  // not measured
  r.choice.congested(r.rails[0]);
  EXPECT_EQ(r.choice.preferred(), &r.rails[1]) << "another rail was refused";
  r.choice.congested(r.rails[1]);
  EXPECT_EQ(r.choice.preferred(), nullptr);
  r.choice.prefer_default();
  EXPECT_EQ(r.choice.preferred(), nullptr) << "not yet";
  unsigned on[2] = {};
  for (int i = 0; i < 63; ++i) {
    ++on[r.choice.spread(10, 100)->index];
    r.choice.sampled();
  }
  EXPECT_LE(on[0] > on[1] ? on[0] - on[1] : on[1] - on[0], 1u);
  EXPECT_EQ(r.choice.preferred(), nullptr);
  r.choice.spread(10, 100);
  EXPECT_EQ(r.choice.preferred(), &r.rails[1]);
}

TEST(RailChoice, SenderThatIsAheadTakesAllRailsInRuns) {
  Rails r(2, 0);                          // 1000 Mb/s: 1250 bytes in 10 us
  r.rails[0].late = r.rails[1].late = 0;  // not measured
  const auto next = [&r] {
    const unsigned index = r.choice.spread(4096, 1024)->index;
    r.choice.sampled();
    return index;
  };
  for (int i = 0; i < 4; ++i) EXPECT_EQ(next(), 0u) << "four are always free";
  bool other = false;
  for (int i = 0; i < 8; ++i) other = next() == 1 || other;
  EXPECT_TRUE(other);
  r.choice.answered();
  EXPECT_EQ(next(), 0u);
}

TEST(RailChoice, LightestFollowsLoadAndWeight) {
  Rails r(3);
  r.rails[0].inflight_bytes = 1000;
  r.rails[1].inflight_bytes = 1500;
  r.rails[1].limits.weight = 2000;
  r.rails[2].inflight_bytes = 5000;
  EXPECT_EQ(r.choice.lightest(0, 1)->index, 1u);
  EXPECT_EQ(r.choice.lightest(1u << 1, 1)->index, 0u);
  EXPECT_EQ(r.choice.lightest(7, 1), nullptr);
  for (RailT& rail : r.rails) rail.inflight_bytes = 0, rail.limits.weight = 1000;
  unsigned on[3] = {};
  for (int i = 0; i < 9; ++i) ++on[r.choice.lightest(0, 1)->index];
  for (unsigned n : on) EXPECT_EQ(n, 3u) << "equal loads take turns";
}

TEST(Completions, EndsOfAnOlderTurnDoNotCount) {
  RailT a;
  RailT b;
  Completions<NoPort> c;
  EXPECT_FALSE(c.any());
  const uint32_t first = c.begin(a);
  EXPECT_EQ(c.begin(a), first) << "the same rail, the same turn";
  EXPECT_EQ(c.rail(), &a);
  EXPECT_FALSE(c.end(first));
  EXPECT_TRUE(c.end(first));
  EXPECT_EQ(c.rail(), nullptr);
  c.begin(a);
  c.clear();
  const uint32_t third = c.begin(b);
  EXPECT_FALSE(c.end(first));
  EXPECT_FALSE(c.end(0)) << "it was not counted";
  EXPECT_TRUE(c.any());
  EXPECT_TRUE(c.end(third));
}

TEST(Completions, WithoutRecords_TheRailIsAskedNowAndThen) {
  RailT a;
  Completions<NoPort> c;
  EXPECT_FALSE(c.asks()) << "there is none";
  c.begin_brief(a);
  c.begin_brief(a);
  ASSERT_TRUE(c.asks());
  EXPECT_FALSE(c.end_brief({10, 4})) << "all that it had taken must have ended";
  for (int i = 0; i < 15; ++i) EXPECT_FALSE(c.asks()) << i;
  ASSERT_TRUE(c.asks());
  EXPECT_FALSE(c.end_brief({30, 9}));
  EXPECT_TRUE(c.end_brief({30, 10}));
  EXPECT_FALSE(c.any());
  const uint32_t turn = c.begin(a);
  c.begin_brief(a);
  ASSERT_TRUE(c.asks());
  EXPECT_FALSE(c.end_brief({5, 5})) << "one with a record is still under way";
  EXPECT_TRUE(c.end(turn));
}

TEST(Completions, WhichMessagesCompleteASend) {
  core::FinHdr fin{};
  fin.type = static_cast<uint8_t>(core::MsgType::kFin);
  EXPECT_FALSE(completes_send(&fin));
  fin.to_send = 1;
  EXPECT_TRUE(completes_send(&fin));
  for (const auto type : {core::MsgType::kAck, core::MsgType::kRestartNack}) {
    fin.type = static_cast<uint8_t>(type);
    EXPECT_TRUE(completes_send(&fin));
  }
  for (const auto type : {core::MsgType::kMatch, core::MsgType::kRestartAck}) {
    fin.type = static_cast<uint8_t>(type);
    EXPECT_FALSE(completes_send(&fin));
  }
}

constexpr uint64_t kSecond = 1'000'000'000;

TEST(Standing, ParkTimeBeginsWhenThePeerIsUnreachable) {
  Standing s;
  EXPECT_FALSE(s.unreachable());
  s.set_unreachable(5 * kSecond);
  EXPECT_TRUE(s.unreachable());
  EXPECT_FALSE(s.park_time_over(34 * kSecond, 30 * kSecond));
  EXPECT_TRUE(s.park_time_over(35 * kSecond, 30 * kSecond));
  s.heard(20 * kSecond);
  EXPECT_FALSE(s.park_time_over(49 * kSecond, 30 * kSecond));
  s.set_reachable();
  EXPECT_FALSE(s.unreachable());
}

TEST(Standing, AbsenceIsCreditedOnce) {
  Standing s;
  s.credit_absence(kSecond, 30 * kSecond);
  EXPECT_EQ(s.unreachable_since_ns(), 0u) << "it is reachable";
  s.set_unreachable(kSecond);
  s.credit_absence(20 * kSecond, 30 * kSecond);
  EXPECT_EQ(s.unreachable_since_ns(), kSecond) << "more than a second is left";
  s.credit_absence(100 * kSecond, 30 * kSecond);
  EXPECT_FALSE(s.park_time_over(100 * kSecond, 30 * kSecond));
  EXPECT_TRUE(s.park_time_over(101 * kSecond, 30 * kSecond)) << "one more second";
  s.credit_absence(200 * kSecond, 30 * kSecond);
  EXPECT_TRUE(s.park_time_over(200 * kSecond, 30 * kSecond)) << "once";
}

TEST(Standing, FailureStays) {
  Standing s;
  s.set_unreachable(1);
  s.set_failing();
  EXPECT_TRUE(s.unreachable() && s.failing() && !s.failed() && !s.ended());
  s.set_failed(1);
  EXPECT_TRUE(s.failed() && s.failing() && s.ended());
  EXPECT_FALSE(s.unreachable()) << "no clock runs for it any more";
  Standing other;
  other.set_finalized();
  EXPECT_TRUE(other.ended() && !other.failed());
}

TEST(Watch, ProbeIsDueOnce) {
  Watch w;
  EXPECT_FALSE(w.take_due(false));
  EXPECT_TRUE(w.take_due(true));
  w.set_probed();
  EXPECT_TRUE(w.take_due(false));
  EXPECT_FALSE(w.take_due(false));
  w.set_watched(false);
  EXPECT_FALSE(w.take_due(false)) << "there is no connection to watch";
  w.set_watched(true);
  EXPECT_TRUE(w.take_due(false));
  EXPECT_TRUE(w.watched()) << "until the park time is over";
}

TEST(PastSequences, OnePerContext) {
  Memory memory;
  PastSequences past;
  for (uint16_t ctx = 0; ctx < 20; ++ctx) {
    PastSequence s{};
    s.ctx = ctx;
    s.next_seq = static_cast<Seq16>(100 + ctx);
    EXPECT_EQ(past.keep(memory, s), 0u);
  }
  ASSERT_NE(past.find(7), nullptr);
  PastSequence newer = *past.find(7);
  newer.next_seq = 5;
  memory.left = 0;
  EXPECT_EQ(past.keep(memory, newer), 0u) << "in the place of the old one";
  EXPECT_EQ(past.find(7)->next_seq, 5);
  EXPECT_EQ(past.find(19)->next_seq, 119);
  EXPECT_EQ(past.find(20), nullptr);
  past.free_all(memory);
  EXPECT_EQ(past.find(7), nullptr);
}

TEST(PastSequences, WithoutMemory_SaysHowMuchWasMissing) {
  Memory memory;
  memory.left = 0;
  PastSequences past;
  EXPECT_EQ(past.keep(memory, PastSequence{}), 8 * sizeof(PastSequence));
  EXPECT_EQ(past.find(0), nullptr);
}

TEST(FailedReceives, FindsARequestInAnyRound) {
  Memory memory;
  FailedReceives failed;
  EXPECT_FALSE(failed.has(Name(3, 1, 0)));
  EXPECT_TRUE(failed.add(memory, Name(3, 1, 2)));
  EXPECT_TRUE(failed.has(Name(3, 1, 0)));
  EXPECT_FALSE(failed.has(Name(3, 2, 2))) << "another use of the slot";
  memory.left = 0;
  EXPECT_FALSE(failed.add(memory, Name(4, 1, 1)));
  failed.free_all(memory);
  EXPECT_FALSE(failed.has(Name(3, 1, 2)));
}

}  // namespace
}  // namespace bfo::xfer
