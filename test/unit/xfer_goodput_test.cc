// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_goodput_test.cc: what is learned of a rail from the ends of its pieces, and of a port from its rails.
// When that counts: xfer_weigh_test.cc.
#include "pml/bfo/xfer/rails/goodput.h"

#include <gtest/gtest.h>

#include "pml/bfo/core/wire.h"
#include "pml/bfo/xfer/rails/port_models.h"

namespace bfo::xfer {
namespace {

constexpr uint64_t kPiece = 65536;
constexpr uint64_t kUs = 1000;
constexpr uint64_t kMs = 1'000'000;

/// A rail that moves `mbits`, in virtual time, and a process that looks at it every `gap_ns`.
struct Wire {
  explicit Wire(uint64_t mbits, uint64_t gap_ns = 1000, uint64_t latency_ns = 0)
      : rate(mbits), gap(gap_ns), latency(latency_ns) {}
  uint64_t piece_ns() const { return kPiece * 8000 / rate; }
  /// `n` pieces, `depth` of them under way at a time.
  void move(Goodput& g, unsigned n, unsigned depth) {
    uint64_t free_at = now;
    for (unsigned done = 0; done < n;) {
      const unsigned together = std::min(depth, n - done);
      const uint64_t posted = now;
      for (unsigned i = 0; i < together; ++i) g.posted(kPiece, posted, i == 0);
      free_at = std::max(free_at, now) + latency;
      for (unsigned i = 0; i < together; ++i) {
        free_at += piece_ns();
        if (now < free_at) {
          const uint64_t looks = (free_at - now + gap - 1) / gap;
          look += static_cast<uint32_t>(looks);
          now += looks * gap;
        }
        g.ended(kPiece, posted, now, look, now - gap);
      }
      done += together;
    }
  }
  uint64_t rate, gap, latency;
  uint64_t now = kMs;
  uint32_t look = 1;
};

void expect_near(uint64_t value, uint64_t wanted, unsigned percent, const char* why) {
  EXPECT_GE(value * 100, wanted * (100 - percent)) << why;
  EXPECT_LE(value * 100, wanted * (100 + percent)) << why;
}

TEST(Goodput, BusyRailIsMeasured) {
  for (const uint64_t rate : {80u, 800u, 8000u}) {
    Goodput g;
    EXPECT_FALSE(g.known());
    Wire(rate).move(g, 40, 4);
    ASSERT_TRUE(g.known());
    expect_near(g.cost().rate, rate, 5, "the wire's rate");
    EXPECT_EQ(g.cost().latency_ns, 0u);
  }
}

TEST(Goodput, FallsFastAndRisesSlowly) {
  Goodput g;
  Wire wire(8000);
  wire.move(g, 40, 4);
  wire.rate = 800;
  wire.move(g, 8, 4);
  EXPECT_LT(g.cost().rate, 1200u) << "after eight pieces";
  wire.move(g, 8, 4);
  expect_near(g.cost().rate, 800, 10, "after sixteen");
  wire.rate = 8000;
  wire.move(g, 8, 4);
  EXPECT_LT(g.cost().rate, 4000u) << "a short good time proves little";
  wire.move(g, 80, 4);
  EXPECT_GT(g.cost().rate, 6000u);
}

TEST(Goodput, ProcessThatWasAway_LearnsNothingBad) {
  Goodput g;
  Wire wire(8000);
  wire.move(g, 40, 4);
  const uint64_t before = g.cost().rate;
  wire.gap = 100 * kMs;
  wire.move(g, 12, 4);
  EXPECT_EQ(g.cost().rate, before);
}

TEST(Goodput, ProcessThatPollsSeldom_StillSeesASlowRail) {
  Goodput g;
  Wire wire(80, 2 * kMs);  // a piece takes 6.5 ms
  wire.move(g, 20, 4);
  ASSERT_TRUE(g.known());
  EXPECT_LT(g.cost().rate, 160u);
}

/// Each look finds some pieces ended, and others that were posted long before it not.
TEST(Goodput, RailThatIsBusyAllTheTime_IsMeasuredHoweverSeldomItIsLookedAt) {
  Goodput g;
  const uint64_t piece_ns = kPiece * 8000 / 800;
  g.posted(kPiece, kMs, true);
  uint64_t ended = 0;
  for (unsigned look = 1; look <= 20; ++look) {
    const uint64_t now = kMs + look * 2 * kMs;
    for (; (ended + 1) * piece_ns <= now - kMs; ++ended) g.ended(kPiece, kMs, now, look, now - 2 * kMs);
  }
  ASSERT_TRUE(g.known());
  expect_near(g.cost().rate, 800, 35, "within a piece of each look");
}

TEST(Goodput, BusyRailThatGotSlow_IsSeenHoweverSeldomItIsLookedAt) {
  Goodput g;
  Wire wire(8000);
  wire.move(g, 40, 4);
  ASSERT_GT(g.cost().rate, 7000u);
  const uint64_t piece_ns = kPiece * 8000 / 800;
  const uint64_t start = wire.now;
  g.posted(kPiece, start, true);
  uint64_t ended = 0;
  for (unsigned look = 1; look <= 20; ++look) {
    const uint64_t now = start + look * 2 * kMs;
    for (; (ended + 1) * piece_ns <= now - start; ++ended)
      g.ended(kPiece, start, now, wire.look + look, now - 2 * kMs);
  }
  EXPECT_LT(g.cost().rate, 1200u) << "all of it was posted before the process was away";
}

TEST(Goodput, RailThatWasIdleMeanwhile_IsKnownToMoveAtLeastThat) {
  Goodput g;
  for (unsigned look = 1; look <= 5; ++look) {
    const uint64_t now = kMs + look * 2 * kMs;
    g.posted(kPiece, now - 2 * kMs, true);
    g.ended(kPiece, now - 2 * kMs, now, look, now - 2 * kMs);
  }
  EXPECT_FALSE(g.known());
  EXPECT_EQ(g.least(), kPiece * 8000 / (2 * kMs));
}

/// The first pieces are short, and one that stood behind long ones of others took many times as long.
TEST(Goodput, FasterOneOfTheFirstSamples_CountsAtOnce) {
  for (const bool first : {true, false}) {
    Goodput g;
    if (!first) Wire(80).move(g, 4 * Goodput::kYoung, 1);
    Wire(8).move(g, 2, 2);
    Wire(8000).move(g, 8, 4);
    if (first)
      expect_near(g.cost().rate, 8000, 10, "of the first");
    else
      EXPECT_LT(g.cost().rate, 800u) << "of a rail that is known it has to prove it";
  }
}

TEST(Goodput, LatencyFallsAtOnce_AndRisesSlowly) {
  Goodput g;
  Wire wire(800);
  wire.move(g, 40, 4);
  wire.latency = 80 * kMs;
  wire.move(g, 1, 1);
  EXPECT_LE(g.cost().latency_ns, 21 * kMs) << "it may have waited for others";
  wire.move(g, 12, 1);
  expect_near(g.cost().latency_ns, 80 * kMs, 10, "all of them do");
  wire.latency = 0;
  wire.move(g, 2, 1);
  EXPECT_EQ(g.cost().latency_ns, 0u);
}

TEST(Goodput, LatencyIsNotTakenForARate) {
  Goodput g;
  Wire wire(8000);
  wire.move(g, 40, 4);
  wire.latency = 2 * kMs;
  wire.move(g, 12, 1);
  expect_near(g.cost().latency_ns, 2 * kMs, 10, "one piece at a time");
  EXPECT_GT(g.cost().rate, 7000u);
}

/// A piece that is much later than it should be tells before it ends; not to a process that has not looked.
TEST(Goodput, AgeOfWhatIsInFlightBoundsTheRate) {
  Goodput g;
  Wire wire(8000);
  wire.move(g, 40, 4);
  const uint64_t now = wire.now;
  g.posted(kPiece, now, true);
  EXPECT_EQ(g.cost_by_age(g.cost(), now, kPiece).rate, g.cost().rate) << "nobody has looked since";
  EXPECT_EQ(g.cost_by_age(g.cost(), now + 3 * wire.piece_ns(), kPiece).rate, g.cost().rate) << "not late yet";
  EXPECT_LE(g.cost_by_age(g.cost(), now + 100 * wire.piece_ns(), kPiece).rate, 8000u / 90);
}

/// 512 KiB take eight times as long as the piece behind them, which is not served yet.
TEST(Goodput, ShortPieceBehindALongOne_DoesNotMakeThatLate) {
  Goodput g;
  Wire wire(8000);
  wire.move(g, 40, 4);
  const uint64_t now = wire.now;
  g.posted(8 * kPiece, now, true);
  g.posted(kPiece / 2, now, false);
  EXPECT_EQ(g.cost_by_age(g.cost(), now + 8 * wire.piece_ns(), kPiece).rate, g.cost().rate);
  EXPECT_LE(g.cost_by_age(g.cost(), now + 800 * wire.piece_ns(), kPiece).rate, 8000u / 90)
      << "now it is late";
  g.posted(kPiece, now, true);
  EXPECT_LT(g.cost_by_age(g.cost(), now + 8 * wire.piece_ns(), kPiece).rate, 2000u) << "the rail was empty";
}

/// What is granted ends behind all that is in flight, as far as its receiver sees: sixteen pieces are not
/// late when one of them would be.
TEST(Goodput, FinOfAGrantComesBehindAllThatIsInFlight) {
  Goodput g;
  Wire wire(8000);
  wire.move(g, 40, 4);
  const uint64_t now = wire.now;
  for (uint64_t i = 0; i < 16; ++i) g.granted(kPiece, now, i * kPiece);
  const auto rate = [&](uint64_t pieces, uint64_t in_flight) {
    return g.cost_by_age(g.cost(), now + pieces * wire.piece_ns(), in_flight * kPiece).rate;
  };
  EXPECT_EQ(rate(40, 16), g.cost().rate);
  EXPECT_LE(rate(1600, 16), 8000u / 90) << "now it is late";
  EXPECT_LT(rate(40, 1), 2000u) << "all others have ended";
  g.posted(kPiece, now, true);
  EXPECT_LT(rate(40, 16), 2000u) << "the rail was empty, and this one is seen to end by itself";
}

/// One bad piece may have made it look slow: the first try comes soon, and each that finds it slow doubles
/// the wait, up to 256 times what a piece takes.
TEST(Goodput, RailThatIsNotUsedIsTried) {
  Goodput g;
  Wire wire(8000);
  wire.move(g, 4, 4);
  for (const uint64_t times : {32u, 64u, 128u, 256u, 256u}) {
    EXPECT_FALSE(g.forgotten(wire.piece_ns(), wire.now + (times - 8) * wire.piece_ns())) << times;
    wire.now += (times + 8) * wire.piece_ns();
    EXPECT_TRUE(g.forgotten(wire.piece_ns(), wire.now)) << times;
    wire.move(g, 1, 1);
  }
}

/// Pauses of a program are no tries of a slow rail.
TEST(Goodput, RailThatWasNotUsedAndThenGetsSlow_IsTriedSoon) {
  Goodput g;
  Wire wire(8000);
  for (int i = 0; i < 20; ++i) {
    wire.move(g, 1, 1);
    wire.now += 1000 * wire.piece_ns();
  }
  wire.rate = 80;
  wire.move(g, 2, 1);
  const uint64_t piece_ns = g.cost().ns(kPiece);
  EXPECT_FALSE(g.forgotten(piece_ns, wire.now + 24 * piece_ns));
  EXPECT_TRUE(g.forgotten(piece_ns, wire.now + 40 * piece_ns));
}

/// Pieces that find the rail empty, each as soon as it is to be tried. How long until it counts as `mbits`?
uint64_t recovers_ns(Goodput& g, Wire& wire, uint64_t mbits) {
  const uint64_t start = wire.now;
  while (g.cost().rate < mbits && wire.now - start < 1000 * kMs) {
    while (!g.forgotten(g.cost().ns(kPiece), wire.now)) wire.now += kMs;
    wire.move(g, 1, 1);
  }
  return wire.now - start;
}

/// Behind a piece of which nothing is known: the same look finds both, so that the second one took no longer
/// than since the look before.
TEST(Goodput, TwoPiecesThatOneLookFinds_ProveWhatTheRailMovesAtLeast) {
  for (const bool known : {false, true}) {
    Goodput g;
    if (known) g.told(100, kMs);
    g.skipped();
    for (int i = 0; i < 2; ++i) g.posted(8192, 2 * kMs, false);
    for (int i = 0; i < 2; ++i) g.ended(8192, 2 * kMs, 3 * kMs, 7, 3 * kMs - 10 * kUs);
    EXPECT_EQ(g.least(), 6553u) << "8 KiB in 10 us";
    EXPECT_EQ(g.moves(), known ? 126u : 0u) << "by a quarter at a time";
  }
}

TEST(Goodput, SampleIsSettled_BeforeThereIsAnotherPiece) {
  Goodput g;
  EXPECT_FALSE(g.settle(kMs)) << "there is none";
  g.posted(kPiece, kMs, true);
  g.ended(kPiece, kMs, kMs + 100 * kUs, 1, kMs + 99 * kUs);
  EXPECT_FALSE(g.known());
  EXPECT_TRUE(g.settle(kMs + 100 * kUs));
  expect_near(g.cost().rate, kPiece * 8000 / (100 * kUs), 2, "the time of the piece");
  EXPECT_FALSE(g.settle(kMs + 100 * kUs)) << "once";
}

/// Nobody has looked since both were posted: the second one was not served before that.
TEST(Goodput, TwoPiecesThatTheFirstLookFinds_ProveWhatTheRailMovesAtLeast) {
  for (const uint64_t looked : {uint64_t{0}, kMs}) {
    Goodput g;
    for (int i = 0; i < 2; ++i) g.posted(8192, 2 * kMs, false);
    for (int i = 0; i < 2; ++i) g.ended(8192, 2 * kMs, 2 * kMs + 100 * kUs, 7, looked);
    EXPECT_EQ(g.least(), 655u) << "8 KiB in 100 us";
  }
}

/// Behind others of which no more is known than how many bytes they have at most: all of them, and it, took
/// 3.9 ms or longer.
TEST(Goodput, PieceBehindOthers_TellsWhatTheRailMovesAtMost) {
  Goodput g;
  g.skipped();
  g.posted(8192, 2 * kMs, false, 24'000);
  EXPECT_TRUE(g.ended(8192, 2 * kMs, 6 * kMs, 7, 5'900'000)) << "that is news";
  EXPECT_FALSE(g.known());
  EXPECT_EQ(g.most(), 66u) << "32192 bytes in 3.9 ms";
  g.reset();
  EXPECT_EQ(g.most(), 0u);
}

TEST(Goodput, WhatARailMovesAtMost_IsNotKnown) {
  Goodput measured;
  measured.told(8000, kMs);
  measured.skipped();
  measured.posted(8192, 2 * kMs, false, 24'000);
  EXPECT_FALSE(measured.ended(8192, 2 * kMs, 6 * kMs, 7, 5'900'000)) << "the peer may have had no room";
  EXPECT_EQ(measured.moves(), 8000u);

  Goodput grant;
  grant.skipped();
  grant.granted(8192, 2 * kMs, 24'000);
  grant.ended(8192, 2 * kMs, 6 * kMs, 7, 5'900'000);
  EXPECT_EQ(grant.most(), 0u) << "its FIN is behind what was posted later";

  Goodput nobody_looked;
  nobody_looked.skipped();
  nobody_looked.posted(8192, 2 * kMs, false, 24'000);
  nobody_looked.ended(8192, 2 * kMs, 6 * kMs, 7, kMs);
  EXPECT_EQ(nobody_looked.most(), 0u) << "it may have ended as soon as it was posted";

  Goodput nothing_said;
  nothing_said.skipped();
  nothing_said.posted(8192, 2 * kMs, false);
  nothing_said.ended(8192, 2 * kMs, 6 * kMs, 7, 5'900'000);
  EXPECT_EQ(nothing_said.most(), 0u) << "how much was before it is not known";
}

/// The end of what was before it was seen 64 us late: the second piece took between 4 and 70 us.
TEST(Goodput, FirstSampleWithBoundsFarApart_IsOnlyWhatTheRailMovesAtLeast) {
  Goodput g;
  const uint64_t posted = 2 * kMs;
  for (int i = 0; i < 2; ++i) g.posted(8192, posted, false);
  g.ended(8192, posted, posted + 64 * kUs, 7, posted);
  g.ended(8192, posted, posted + 70 * kUs, 8, posted + 68 * kUs);
  EXPECT_TRUE(g.settle(posted + 70 * kUs));
  EXPECT_FALSE(g.known());
  EXPECT_EQ(g.least(), 936u) << "8 KiB in 70 us";
}

/// It was at a thousandth: a try every 13 s, until the first one that is fast again.
TEST(Goodput, RailThatIsFastAgain_IsTriedAtOnceUntilItCounts) {
  Goodput g;
  Wire wire(8);
  wire.move(g, 8, 4);
  wire.rate = 8000;
  EXPECT_FALSE(g.forgotten(g.cost().ns(kPiece), wire.now)) << "it has just had one";
  wire.now += 20'000 * kMs;
  EXPECT_LT(recovers_ns(g, wire, 6000), 200 * kMs);
}

/// A packet that is lost costs a timeout once, and looks like a latency; the next piece shows that it was
/// none.
TEST(Goodput, RailThatWasLateOnce_IsTriedAtOnceUntilItCounts) {
  Goodput g;
  Wire wire(160);
  wire.move(g, 8, 4);
  wire.latency = 65 * kMs;
  wire.move(g, 2, 1);
  wire.latency = 0;
  ASSERT_GT(g.cost().latency_ns, 10 * kMs);
  while (!g.forgotten(g.cost().ns(kPiece), wire.now)) wire.now += kMs;
  wire.move(g, 1, 1);
  EXPECT_LE(g.cost().latency_ns, wire.piece_ns() + wire.gap) << "it took no more in all";
  EXPECT_TRUE(g.forgotten(g.cost().ns(kPiece), wire.now));
}

/// The same to whom only the peer's word comes.
TEST(Goodput, RailThatIsSaidToBeFaster_IsTriedAtOnce) {
  Goodput g;
  g.told(8, kMs);
  g.posted(kPiece, 2 * kMs, true);
  g.told(8, 3 * kMs);
  EXPECT_FALSE(g.forgotten(65 * kMs, 4 * kMs));
  g.posted(kPiece, 5 * kMs, true);
  g.told(10, 6 * kMs);
  EXPECT_TRUE(g.forgotten(65 * kMs, 7 * kMs));
  g.posted(kPiece, 8 * kMs, true);
  EXPECT_FALSE(g.forgotten(65 * kMs, 9 * kMs)) << "it has had that one";
}

TEST(Goodput, PeerTellsWhatItMeasured) {
  Goodput g;
  g.told(0, kMs);
  EXPECT_EQ(g.cost().rate, 1u) << "no rate of zero, whatever came";
  g.told(800, kMs);
  EXPECT_EQ(g.cost().rate, 800u);
  for (const uint64_t rate : {1u, 2047u, 2048u, 100'000u, 400'000u, 1'600'000u})
    expect_near(core::rate_of_code(core::rate_code(rate)), rate, 1, "in sixteen bits");
}

/// Bytes are written both ways: the peer tells what it measures, while pieces of this process are timed.
TEST(Goodput, WordOfThePeer_DoesNotShortenTheTimeOfAPiece) {
  Goodput g;
  const uint64_t piece_ns = kPiece * 8000 / 800;
  uint64_t now = kMs;
  Goodput::Sample sample;
  for (uint32_t look = 1; look < 20; ++look) {
    for (unsigned i = 0; i < 2; ++i) g.posted(kPiece, now, i == 0);
    g.told(800, now + piece_ns - 1000, true);
    g.ended(kPiece, now, now + piece_ns, 2 * look, now + piece_ns - 1000, &sample);
    g.ended(kPiece, now, now + 2 * piece_ns, 2 * look + 1, now + 2 * piece_ns - 1000, &sample);
    EXPECT_EQ(sample.took_ns, piece_ns);
    now += 2 * piece_ns;
  }
  expect_near(g.cost().rate, 800, 2, "what it moves");
}

// ---- guesses

TEST(Goodput, GuessCountsUntilTheRailIsMeasured) {
  Goodput g;
  g.guess({800, 0}, kMs);
  EXPECT_TRUE(g.known());
  EXPECT_FALSE(g.own());
  EXPECT_EQ(g.cost().rate, 800u);
  Wire(800).move(g, 8, 4);
  EXPECT_TRUE(g.own());
  expect_near(g.cost().rate, 800, 10, "as guessed");
}

TEST(Goodput, RailThatDeviatesFromTheGuess_IsWhatItIsAfterTheFirstPieces) {
  for (const uint64_t rate : {80u, 8000u}) {
    Goodput g;
    g.guess({800, 0}, kMs);
    Wire(rate).move(g, 3, 3);
    expect_near(g.cost().rate, rate, 10, "not half of the way, nor an eighth");
  }
}

TEST(PortModels, FastestOfItsRailsIsThePorts) {
  PortModels ports;
  int a, b;
  EXPECT_EQ(ports.guess(1, kMs).ns, 0u);
  ports.measured(1, &a, {8000, 0}, kMs);
  ports.measured(1, &b, {100, 0}, 2 * kMs);
  EXPECT_EQ(ports.guess(1, 2 * kMs).cost.rate, 8000u) << "b's other end is slow";
  ports.measured(1, &a, {90, 0}, 3 * kMs);
  EXPECT_EQ(ports.guess(1, 3 * kMs).cost.rate, 90u) << "who had said so says otherwise";
  ports.measured(1, &b, {100, 0}, 4 * kMs);
  EXPECT_EQ(ports.guess(1, 4 * kMs).cost.rate, 100u);
  ports.measured(1, &a, {80, 0}, 2000 * kMs);
  EXPECT_EQ(ports.guess(1, 2000 * kMs).cost.rate, 80u) << "b has said nothing for long";
  EXPECT_EQ(ports.rate(1), 80u);
  EXPECT_EQ(ports.guess(0, 2000 * kMs).ns, 0u) << "another port";
}

TEST(PortModels, OldAndForgottenAreNoGuess_NorIsAPortThatNobodyKnows) {
  PortModels ports;
  int a;
  ports.measured(1, &a, {8000, 0}, kMs);
  EXPECT_EQ(ports.guess(1, 20'000 * kMs).ns, 0u);
  EXPECT_NE(ports.guess(1, 9'000 * kMs).ns, 0u);
  ports.forget(1);
  EXPECT_EQ(ports.guess(1, kMs).ns, 0u);
  ports.measured(UINT8_MAX, &a, {8000, 0}, kMs);
  ports.forget(UINT8_MAX);
  EXPECT_EQ(ports.guess(UINT8_MAX, kMs).ns, 0u);
}

TEST(PortModels, OnlyWhatDiffersIsNews) {
  PortModels ports;
  int a;
  ports.measured(1, &a, {8000, 0}, kMs);
  const uint32_t news = ports.news();
  EXPECT_NE(news, 0u);
  for (const uint64_t rate : {7800u, 8100u, 6400u, 9000u}) ports.measured(1, &a, {rate, 0}, 2 * kMs);
  EXPECT_EQ(ports.news(), news);
  ports.measured(1, &a, {800, 0}, 3 * kMs);
  EXPECT_NE(ports.news(), news);
}

}  // namespace
}  // namespace bfo::xfer
