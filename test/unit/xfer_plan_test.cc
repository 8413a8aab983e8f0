// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_plan_test.cc: the planner of long messages: tables of what it decides for each class of message and
// state of the rails, and what holds for all of them.
//
// P4: contrib/doc/design.md
#include "pml/bfo/xfer/moves/plan.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "test/unit/tiny_port.h"

namespace bfo::xfer {
namespace {

using test::TinyPeer;
using test::TinyPort;

constexpr uint64_t kKi = 1 << 10;
constexpr uint64_t kMi = 1 << 20;

// ---- how long the pieces are

struct Cut {
  uint64_t length;
  unsigned rails;
  uint64_t usual;
  uint32_t depth;
  uint64_t piece;
  const char* why;
};

constexpr Cut kCuts[] = {
    {50'000, 4, kMi, 4, 50'000, "short: one piece"},
    {50'000, 4, 8192, 4, 8192, "the rail wants no more"},
    {10 * kMi, 1, kMi, 4, kMi, "one rail: nothing to share"},
    {100'000, 4, kMi, 4, 28'672, "a quarter, in pages"},
    {kUncut, 8, kMi, 4, 16 * kKi, "not shorter"},
    {512 * kKi, 2, kMi, 4, 256 * kKi, "one for each"},
    {600 * kKi, 2, kMi, 4, 152 * kKi, "two for each, equal ones: 256 KiB would leave 88 KiB for one rail"},
    {kMi, 2, kMi, 4, 256 * kKi, "four under way on one rail are what P4 allows"},
    {8 * kMi, 2, kMi, 4, 256 * kKi, "the same"},
    {8 * kMi, 2, kMi, 1, kMi, "one under way"},
    {kMi + 1, 2, kMi, 4, 172 * kKi, "no piece of one byte"},
};

TEST(Plan, MessageIsCutIntoEqualPieces) {
  for (const Cut& c : kCuts)
    EXPECT_EQ(equal_piece(c.length, c.rails, c.usual, c.depth), c.piece) << c.length << ": " << c.why;
}

TEST(Plan, PiecesOfAnySize_KeepP4AndEndTogether) {
  for (uint64_t length = kUncut; length < 3'000'000'000; length += length / 7 + 4095) {
    for (unsigned rails = 2; rails <= kMaxRails; ++rails) {
      for (const uint32_t depth : {0u, 1u, 4u, 32u}) {
        const uint64_t n = equal_piece(length, rails, 64 * kMi, depth);
        ASSERT_GE(n, 16 * kKi);
        ASSERT_LE(n * std::max(depth, 1u), std::max(at_risk(length), 16 * kKi * depth)) << "P4";
        const uint64_t pieces = (length + n - 1) / n;
        if (n == 16 * kKi) continue;
        const uint64_t missing = (rails - pieces % rails) % rails;
        // Pages round up, so a rail may miss its last piece; never so many that the others wait for long.
        ASSERT_LE(missing * n, pieces * 4096 + n)
            << length << " over " << rails << ": " << pieces << " of " << n;
      }
    }
  }
}

struct Next {
  Moving m;
  uint64_t usual;
  uint64_t limit;
  uint64_t piece;  ///< 0: it waits
  const char* why;
};

constexpr Next kNext[] = {
    {{.length = 8 * kMi, .left = 4096, .bytes_out = 8 * 4096, .pieces_out = 8, .depth = 4, .rails = 2},
     kMi,
     kMi,
     0,
     "as many as may be under way, however short"},
    {{.length = 8 * kMi, .left = 8 * kMi, .depth = 4, .rails = 2}, kMi, kMi, 256 * kKi, "the first"},
    {{.length = 8 * kMi, .left = 4096, .depth = 4, .rails = 2}, kMi, kMi, 4096, "a hole"},
    {{.length = 8 * kMi, .left = kMi, .bytes_out = 7 * 256 * kKi, .pieces_out = 7, .depth = 4, .rails = 2},
     kMi,
     kMi,
     256 * kKi,
     "the last that may be under way"},
    {{.length = 8 * kMi, .left = kMi, .bytes_out = 2 * kMi, .pieces_out = 8, .depth = 4, .rails = 2},
     kMi,
     kMi,
     0,
     "four on each rail are enough"},
    {{.length = 8 * kMi, .left = kMi, .depth = 4, .rails = 2, .keep_up = true},
     kMi,
     kMi,
     kMi,
     "a long one where rails keep up"},
    {{.length = 8 * kMi,
      .left = kMi,
      .bytes_out = kMi,
      .pieces_out = 1,
      .depth = 4,
      .rails = 2,
      .keep_up = true},
     kMi,
     kMi,
     kMi,
     "one for the other rail"},
    {{.length = 8 * kMi,
      .left = kMi,
      .bytes_out = 2 * kMi,
      .pieces_out = 2,
      .depth = 4,
      .rails = 2,
      .keep_up = true},
     kMi,
     kMi,
     0,
     "one on each: P4"},
    {{.length = 8 * kMi, .left = kMi, .bytes_out = 2 * kMi, .pieces_out = 2, .depth = 4, .rails = 2},
     kMi,
     kMi,
     0,
     "a rail is late now: long ones under way leave no room"},
    {{.length = 8 * kMi, .left = kMi, .bytes_out = kMi, .pieces_out = 1, .depth = 4, .rails = 2},
     kMi,
     kMi,
     256 * kKi,
     "but one of them does"},
    {{.length = 16 * kMi, .left = 16 * kMi, .depth = 4, .rails = 1},
     kMi,
     UINT64_MAX,
     16 * kMi,
     "all of it over the only rail"},
    {{.length = 17 * kMi, .left = 17 * kMi, .depth = 4, .rails = 1},
     kMi,
     UINT64_MAX,
     8 * kMi,
     "half of what may be in flight"},
    {{.length = 32 * kMi, .left = kMi, .bytes_out = 8 * kMi, .pieces_out = 1, .depth = 4, .rails = 1},
     kMi,
     UINT64_MAX,
     kMi,
     "there is room"},
    {{.length = 32 * kMi, .left = 16 * kMi, .bytes_out = 16 * kMi, .pieces_out = 2, .depth = 4, .rails = 1},
     kMi,
     UINT64_MAX,
     0,
     "all that may be in flight is"},
    {{.length = 32 * kMi, .left = 32 * kMi, .depth = 4, .rails = 1},
     kMi,
     2 * kMi,
     2 * kMi,
     "the device moves no more at once"},
};

TEST(Plan, NextPieceOrWait) {
  for (const Next& c : kNext)
    EXPECT_EQ(next_piece(c.m, c.usual, c.limit, Share{1, 1, c.m.rails}), c.piece) << c.why;
}

/// Whatever is in flight: a message of which nothing is never waits, and what is in flight stays bounded.
TEST(Plan, NothingUnderWay_NeverWaits) {
  for (const uint64_t length : {uint64_t{1}, 4 * kKi, 65 * kKi, kMi, 100 * kMi, uint64_t{1} << 40})
    for (unsigned rails = 1; rails <= kMaxRails; ++rails)
      for (const bool keep_up : {false, true})
        for (const uint64_t usual : {uint64_t{256}, 64 * kKi, kMi}) {
          for (const uint32_t depth : {0u, 4u}) {
            const Moving m{
                .length = length, .left = length, .depth = depth, .rails = rails, .keep_up = keep_up};
            EXPECT_GT(next_piece(m, usual, UINT64_MAX, Share{1, 1, rails}), 0u);
          }
        }
}

// ---- which rail

struct OneReader {
  uint64_t length;
  int carrier;                  ///< -1: its BTL does not tell
  std::array<int, 2> late;      ///< of the rails
  std::array<uint64_t, 2> out;  ///< in flight
  int rail;                     ///< -1: the message is cut
  const char* why;
};

constexpr OneReader kReaders[] = {
    {50'000, 0, {0, 0}, {0, 0}, 0, "the carrier keeps up"},
    {50'000, 1, {0, 0}, {0, 0}, 1, "whichever that is"},
    {50'000, 1, {0, 0}, {0, 90'000}, 1, "whatever it has in flight"},
    {50'000, 0, {0, 0}, {90'000, 0}, 0, "the same, seen first"},
    {kMi, 1, {5, 0}, {0, 0}, 1, "up to what P4 allows"},
    {kMi + 1, 1, {0, 0}, {0, 0}, -1, "not longer"},
    {50'000, 1, {5, 5}, {90'000, 80'000}, 1, "it does not keep up, and has less in flight"},
    {50'000, 1, {5, 5}, {80'000, 90'000}, 0, "it has more"},
    {50'000, 1, {5, 5}, {80'000, 80'000}, 1, "as much: no other queue is needed"},
    {50'000, 0, {5, 5}, {80'000, 80'000}, 0, "the same"},
    {kUncut, 1, {0, 5}, {0, 0}, -1, "a longer one is cut then"},
    {50'000, -1, {0, 0}, {10, 5}, 1, "a carrier that is not known keeps up with nothing"},
    {kUncut, -1, {0, 0}, {0, 0}, -1, "the same"},
};

TEST(Plan, OneReadForAllOfIt) {
  for (const OneReader& c : kReaders) {
    TinyPeer p(2);
    for (unsigned i : {0u, 1u}) {
      p.rails[i].limits.get_limit = p.rails[i].limits.rdma_frag_size = 4 * kMi;
      p.rails[i].late = static_cast<uint8_t>(c.late[i]);
      p.rails[i].inflight_bytes = c.out[i];
    }
    OnlyRead<TinyPort> plan(p.peer.choice,
                            c.carrier < 0 ? nullptr : &p.rails[static_cast<unsigned>(c.carrier)], c.length);
    if (plan.possible())
      for (auto& rail : p.rails)
        if (rail.limits.get_limit != 0) plan.prefers(rail);
    EXPECT_EQ(plan.rail(), c.rail < 0 ? nullptr : &p.rails[static_cast<unsigned>(c.rail)]) << c.why;
  }
}

/// Messages one at a time find all rails empty. Each rail gets one before the carrier, which peers choose
/// without knowing how slow it is, gets the next.
TEST(Plan, OneReadAtATime_ARailOfWhichNothingIsKnownIsTriedOnce) {
  TinyPeer p(2);
  for (auto& rail : p.rails) {
    rail.limits.get_limit = rail.limits.rdma_frag_size = 4 * kMi;
    rail.late = 5;
  }
  const auto reader = [&] {
    OnlyRead<TinyPort> plan(p.peer.choice, &p.rails[0], 40'000);
    for (auto& rail : p.rails) plan.prefers(rail);
    return plan.rail();
  };
  const auto measure = [](auto& rail) { rail.goodput.told(800, 1'000'000); };
  EXPECT_EQ(reader(), &p.rails[0]);
  measure(p.rails[0]);
  p.rails[1].inflight_bytes = 40'000;
  EXPECT_EQ(reader(), &p.rails[0]) << "one at a time";
  p.rails[1].inflight_bytes = 0;
  EXPECT_EQ(reader(), &p.rails[1]);
  measure(p.rails[1]);
  EXPECT_EQ(reader(), &p.rails[0]);
}

TEST(Plan, RailThatReadsLess_DoesNotReadAllOfIt) {
  TinyPeer p(2);
  for (unsigned i : {0u, 1u}) p.rails[i].limits.get_limit = p.rails[i].limits.rdma_frag_size = kMi;
  p.rails[0].limits.get_limit = 32 * kKi;
  OnlyRead<TinyPort> plan(p.peer.choice, &p.rails[0], 50'000);
  EXPECT_FALSE(plan.prefers(p.rails[0]));
  EXPECT_TRUE(plan.prefers(p.rails[1]));
}

TEST(Plan, WeightsShareTheLoad) {
  TinyPeer p(2);
  p.rails[0].limits.weight = 300;
  p.rails[1].limits.weight = 100;
  std::array<uint64_t, 2> n{};
  for (int i = 0; i < 40; ++i) {
    const unsigned at = lighter(p.rails[1], p.rails[0]) ? 1 : 0;
    p.rails[at].inflight_bytes += 1000;
    ++n[at];
  }
  EXPECT_EQ(n[0], 30u);
  EXPECT_EQ(n[1], 10u);
}

// ---- rails that are measured and differ

TEST(Plan, SlowerRailTakesShorterPieces_ThatEndWithThoseOfTheFastest) {
  EXPECT_EQ(fair_piece(512 * kKi, Share{1000, 1000, 2000}), 512 * kKi);
  EXPECT_EQ(fair_piece(512 * kKi, Share{2000, 8000, 10'000}), 128 * kKi);
  EXPECT_EQ(fair_piece(512 * kKi, Share{80, 8000, 8080}), 16 * kKi) << "not shorter";
  EXPECT_EQ(fair_piece(8192, Share{80, 8000, 8080}), 8192u) << "nor longer than that of the fastest";
  EXPECT_EQ(fair_piece(64 * kMi, Share{80, 160, 240}), 96 * kKi) << "10 ms at 80 Mbit/s, in pages";
}

TEST(Plan, FirstPieceOfARailIsShort) {
  EXPECT_EQ(fair_piece(512 * kKi, Share{1, 1, 2, false}), kTry);
  EXPECT_EQ(fair_piece(4096, Share{1, 1, 2, false}), 4096u);
}

/// P4 bounds what one rail has in flight, so a message has less in flight when one rail moves nearly all of
/// it.
TEST(Plan, UnevenRails_TheFastestHasNoMoreInFlightThanP4Allows) {
  Moving m{.length = 16 * kMi, .left = 8 * kMi, .pieces_out = 2, .depth = 8, .rails = 2};
  const Share fast{8000, 8000, 8800};
  m.bytes_out = kMi - 128 * kKi;
  EXPECT_GT(next_piece(m, 128 * kKi, UINT64_MAX, fast), 0u);
  m.bytes_out = kMi + 128 * kKi;
  EXPECT_EQ(next_piece(m, 128 * kKi, UINT64_MAX, fast), 0u);
  EXPECT_GT(next_piece(m, 128 * kKi, UINT64_MAX, Share{1, 1, 2}), 0u) << "even rails share 2 MiB";
}

/// Over rails of 8000 and 800 Mbit/s. 16 KiB of the slow one take 164 us, as long as 160 KiB of the fast one.
TEST(Plan, RestThatNoOtherRailWouldMoveSooner_IsOnePiece) {
  TinyPeer p(2);
  auto& choice = p.peer.choice;
  auto& fast = p.rails[0];
  auto& slow = p.rails[1];
  for (auto* r : {&fast, &slow}) r->limits.get_limit = r->limits.put_limit = r->limits.rdma_frag_size = kMi;
  const auto read = [&choice](const Rail<TinyPort>& rail, Moving m) {
    return next_read(m, rail, choice.share(rail, m.left));
  };
  const Moving m{.length = 128 * kKi, .left = 128 * kKi, .depth = 2, .rails = 2};
  for (int i = 0; i < Goodput::kYoung; ++i)
    for (auto* r : {&fast, &slow}) r->goodput.told(8000, 1000);
  for (int i = 0; i < 3; ++i) choice.weigh();
  EXPECT_EQ(read(fast, m), 64 * kKi) << "equal rails";
  slow.goodput.told(800, 1000);
  for (int i = 0; i < 3; ++i) choice.weigh();
  ASSERT_TRUE(choice.uneven());
  EXPECT_EQ(read(fast, m), 128 * kKi);
  EXPECT_EQ(next_grant(m, fast, choice.share(fast, m.left)), 64 * kKi) << "grants are cut as ever";
  EXPECT_EQ(read(slow, m), 16 * kKi) << "not over the slow one";
  fast.inflight_bytes = 64 * kKi;
  EXPECT_EQ(read(fast, m), 64 * kKi) << "the slow one would move some sooner";
  slow.inflight_bytes = 64 * kKi;
  EXPECT_EQ(read(fast, m), 128 * kKi) << "it is busy, too";
  fast.inflight_bytes = slow.inflight_bytes = 0;
  const Moving second{
      .length = 192 * kKi, .left = 96 * kKi, .bytes_out = 96 * kKi, .pieces_out = 1, .depth = 2, .rails = 2};
  EXPECT_EQ(read(fast, second), 96 * kKi) << "what is left of it";
  slow.goodput.posted(kTry, 1000, true);
  choice.looked(1000 + 100 * kTry * 10);
  EXPECT_EQ(read(fast, m), 64 * kKi) << "the slow one is to be tried";
}

/// P4 holds, and what a rail wants and a device takes.
TEST(Plan, RestInOnePiece_IsNoMoreThanARailMayHaveInFlight) {
  Share alone{8000, 8000, 8800};
  alone.alone = true;
  Moving m{.length = kMi, .left = kMi, .depth = 2, .rails = 2};
  EXPECT_EQ(next_piece(m, kMi, UINT64_MAX, alone), kMi);
  EXPECT_EQ(next_piece(m, 512 * kKi, UINT64_MAX, alone), 512 * kKi) << "the rail wants shorter ones";
  EXPECT_EQ(next_piece(m, kMi, 64 * kKi, alone), 64 * kKi) << "the device takes shorter ones";
  m.left = 900 * kKi;
  m.bytes_out = 128 * kKi;
  m.pieces_out = 1;
  EXPECT_EQ(next_piece(m, kMi, UINT64_MAX, alone), 512 * kKi) << "with what is in flight it is too much";
}

/// A slow rail that is chosen while the others have much to do, and one that may be slower than it is said to
/// be.
TEST(Plan, RestInOnePiece_IsNoLongerThanTenMillisecondsOfASlowRail_NorTheFirstOnARail) {
  Share slow{80, 8000, 8080};
  slow.alone = true;
  Moving m{.length = 512 * kKi, .left = 512 * kKi, .depth = 2, .rails = 2};
  EXPECT_LE(next_piece(m, kMi, UINT64_MAX, slow), most_in_time(80));
  m.left = 64 * kKi;
  EXPECT_EQ(next_piece(m, kMi, UINT64_MAX, slow), 64 * kKi) << "6.5 ms";
  Share unproven{8000, 8000, 8800};
  unproven.alone = true;
  unproven.proven = false;
  m.left = 512 * kKi;
  EXPECT_LE(next_piece(m, kMi, UINT64_MAX, unproven), kUncut);
}

/// The port of a new rail may be slow, or have the first pieces of many peers.
TEST(Plan, PiecesOfANewRail_AreShort_ThenTenMillisecondsOfWhatLittleIsKnown) {
  TinyPeer p(2);
  RailChoice<TinyPort>& choice = p.peer.choice;
  Rail<TinyPort>& rail = p.rails[1];
  rail.limits.rdma_frag_size = kMi;
  rail.limits.get_limit = rail.limits.put_limit = UINT64_MAX;
  const Moving m{.length = 4 * kMi, .left = 4 * kMi, .depth = 2, .rails = 2};
  EXPECT_EQ(next_read(m, rail, choice.share(rail)), kTry);
  EXPECT_EQ(next_grant(m, rail, choice.share(rail)), kTry);
  const Moving shortest{.length = kUncut, .left = kUncut, .depth = 2, .rails = 2};
  EXPECT_EQ(next_read(shortest, rail, choice.share(rail)), kTry) << "also what is in two pieces anyway";
  const Moving brief{.length = 60 * kKi, .left = 60 * kKi, .depth = 2, .rails = 2};
  EXPECT_EQ(next_read(brief, rail, choice.share(rail)), 60 * kKi) << "but none that is never cut";
  p.rails[0].goodput.told(10'000, 1000);
  rail.goodput.told(80, 1000);
  EXPECT_LE(next_read(m, rail, choice.share(rail)), most_in_time(80));
  EXPECT_GT(next_read(m, rail, choice.share(rail)), most_in_time(80) / 2);
  rail.goodput.told(10'000, 1000);
  EXPECT_EQ(next_read(m, rail, choice.share(rail)), 512 * kKi) << "it is fast";
  for (int i = 2; i < Goodput::kYoung; ++i) rail.goodput.told(8, 1000);
  EXPECT_EQ(next_read(m, rail, choice.share(rail)), 512 * kKi) << "enough is known: as long as ever";
  TinyPeer other(2);
  other.rails[1].limits = rail.limits;
  other.rails[1].late = 0;
  EXPECT_EQ(next_read(m, other.rails[1], other.peer.choice.share(other.rails[1])), 512 * kKi)
      << "it keeps up";
}

/// The other rail may be a hundred times as fast.
TEST(Plan, SlowRail_GetsNoMoreThanTenMilliseconds_WhileNothingIsKnownOfAnotherOne) {
  TinyPeer p(2);
  RailChoice<TinyPort>& choice = p.peer.choice;
  Rail<TinyPort>& rail = p.rails[1];
  rail.limits.rdma_frag_size = kMi;
  rail.limits.get_limit = UINT64_MAX;
  const Moving m{.length = 4 * kMi, .left = 4 * kMi, .depth = 2, .rails = 2};
  for (int i = 0; i < Goodput::kYoung; ++i) rail.goodput.told(80, 1000);
  EXPECT_LE(next_read(m, rail, choice.share(rail)), most_in_time(80));
  for (int i = 0; i < Goodput::kYoung; ++i) rail.goodput.told(8, 1000);
  EXPECT_EQ(next_read(m, rail, choice.share(rail)), kTry) << "not shorter";
  for (int i = 0; i < Goodput::kYoung; ++i) p.rails[0].goodput.told(8, 1000);
  EXPECT_EQ(next_read(m, rail, choice.share(rail)), 512 * kKi) << "both are slow";
}

// ---- keys and grants

TEST(Plan, KeysThatAnRgetOffers) {
  TinyPeer p(2);
  RailChoice<TinyPort>& choice = p.peer.choice;
  choice.prefer(&p.rails[1]);
  EXPECT_EQ(reader_of(choice, 50'000, false), nullptr) << "not known whether it keeps up: all";
  choice.set_keeps_up(true);
  EXPECT_EQ(reader_of(choice, 50'000, false), &p.rails[1]);
  EXPECT_EQ(reader_of(choice, kMaxResent, false), &p.rails[1]);
  EXPECT_EQ(reader_of(choice, kMaxResent + 1, false), nullptr) << "several may share it";
  EXPECT_EQ(reader_of(choice, 50'000, true), nullptr) << "it goes again";
}

TEST(Plan, FragOfASlowerRailIsShort_SoThatItEndsWithThoseOfTheFastest) {
  TinyPeer p(1);
  p.rails[0].limits.max_send_size = 64 * kKi + sizeof(core::FragHdr);
  EXPECT_EQ(next_frag(p.rails[0], kMi, 2, Share{1, 1, 2}), 64 * kKi) << "what it takes";
  EXPECT_EQ(next_frag(p.rails[0], kMi, 2, Share{1, 1, 2, false}), 16 * kKi) << "it may be slow";
  EXPECT_EQ(next_frag(p.rails[0], kMi, 1, Share{1, 1, 1, false}), 64 * kKi) << "there is no other one";
  EXPECT_EQ(next_frag(p.rails[0], kMi, 2, Share{1, 1, 2, true, false, 20 * kKi}), 16 * kKi)
      << "little is known";
  EXPECT_EQ(next_frag(p.rails[0], kMi, 1, Share{1, 1, 1, true, false, 20 * kKi}), 64 * kKi);
  EXPECT_EQ(next_frag(p.rails[0], 5000, 2, Share{1, 1, 2}), 5000u) << "the rest";
  EXPECT_EQ(next_frag(p.rails[0], kMi, 2, Share{8000, 8000, 8080}), 64 * kKi);
  EXPECT_EQ(next_frag(p.rails[0], kMi, 2, Share{4000, 8000, 12000}), 32 * kKi);
  EXPECT_EQ(next_frag(p.rails[0], kMi, 2, Share{80, 8000, 8080}), 16 * kKi) << "not shorter";
}

/// A grant cannot be taken back: until one has ended on a rail they are short.
TEST(Plan, FirstGrantsOfARailAreShort) {
  TinyPeer p(2);
  auto& choice = p.peer.choice;
  for (unsigned i : {0u, 1u}) {
    p.rails[i].limits.put_limit = p.rails[i].limits.rdma_frag_size = kMi;
    p.rails[i].late = kLate;
  }
  const Moving m{.length = 4 * kMi, .left = 4 * kMi, .depth = 2, .rails = 2};
  EXPECT_EQ(next_grant(m, p.rails[1], choice.share(p.rails[1])), kTry);
  p.rails[1].goodput.grant_ended();
  EXPECT_EQ(next_grant(m, p.rails[1], choice.share(p.rails[1])), kTry) << "and those of the next ones";
  for (int i = 1; i < Goodput::kYoung; ++i) p.rails[1].goodput.grant_ended();
  EXPECT_EQ(next_grant(m, p.rails[1], choice.share(p.rails[1])), 512 * kKi)
      << "it is as fast as the other one";
  EXPECT_EQ(next_grant(m, p.rails[0], choice.share(p.rails[0])), kTry) << "nothing is known of that";
  p.rails[0].limits.failover = false;
  EXPECT_EQ(next_grant(m, p.rails[0], choice.share(p.rails[0])), 512 * kKi)
      << "its BTL does not say what ends";
  p.rails[0].limits.failover = true;
  const Moving alone{.length = 4 * kMi, .left = 4 * kMi, .depth = 2, .rails = 1};
  EXPECT_EQ(next_grant(alone, p.rails[0], choice.share(p.rails[0])), kMi) << "there is no other one";
}

/// One that was once found to be ten times slower may be slow or not: a grant that has ended there tells.
TEST(Plan, FirstGrantOfARailThatSeemsSlowIsShort) {
  TinyPeer p(2);
  auto& choice = p.peer.choice;
  for (unsigned i : {0u, 1u}) {
    p.rails[i].limits.put_limit = p.rails[i].limits.rdma_frag_size = kMi;
    p.rails[i].late = kLate;
    for (int k = 0; k < Goodput::kYoung; ++k) p.rails[i].goodput.told(i == 0 ? 80'000 : 8'000, 1000);
  }
  choice.weigh();
  ASSERT_FALSE(choice.uneven()) << "it takes three times";
  const Moving m{.length = 4 * kMi, .left = 4 * kMi, .depth = 2, .rails = 2};
  EXPECT_EQ(next_grant(m, p.rails[1], choice.share(p.rails[1])), kTry);
  EXPECT_EQ(next_grant(m, p.rails[0], choice.share(p.rails[0])), 512 * kKi);
  p.rails[1].goodput.grant_ended();
  EXPECT_EQ(next_grant(m, p.rails[1], choice.share(p.rails[1])), 512 * kKi);
}

TEST(Plan, OneGrantForAllOfIt) {
  TinyPeer p(2);
  for (unsigned i : {0u, 1u}) p.rails[i].limits.put_limit = p.rails[i].limits.rdma_frag_size = kMi;
  p.rails[0].inflight_bytes = 10;
  EXPECT_EQ(grants_whole(p.peer.choice, kUncut - 1), &p.rails[1]) << "the one with less in flight";
  EXPECT_EQ(grants_whole(p.peer.choice, kUncut), nullptr) << "two share it";
  p.rails[1].limits.put_limit = 1000;
  EXPECT_EQ(grants_whole(p.peer.choice, kUncut - 1), nullptr) << "more than that rail writes at once";
}

}  // namespace
}  // namespace bfo::xfer
