// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_weigh_test.cc: when what was measured of the rails of a peer counts, and which of them takes a piece
// then.
#include "pml/bfo/xfer/rails/weigh.h"

#include <gtest/gtest.h>

#include "pml/bfo/xfer/rails/order.h"
#include "test/unit/tiny_port.h"

namespace bfo::xfer {
namespace {

using test::TinyPeer;
using test::TinyPort;

constexpr uint64_t kPiece = 65536;
constexpr uint64_t kMs = 1'000'000;

struct Two : TinyPeer {
  explicit Two(uint64_t first, uint64_t second) : TinyPeer(2) {
    for (auto& r : rails) r.late = kLate, r.limits.weight = 100'000;
    set(0, first);
    set(1, second);
  }
  void set(unsigned i, uint64_t mbits) {
    if (mbits != 0)
      rails[i].goodput.told(mbits, kMs);
    else
      rails[i].goodput.reset();
  }
  void weigh(int times) {
    for (int i = 0; i < times; ++i) peer.choice.weigh();
  }
  /// The last four messages of a rail took so long.
  void took(unsigned i, uint64_t ns) {
    for (int k = 0; k < MessageTime::kSamples; ++k) rails[i].message_time.ended(ns);
  }
  /// What is known of a rail is what a message has told.
  void by_message(unsigned i, uint64_t mbits) {
    Goodput& g = rails[i].goodput;
    g.reset();
    const uint64_t took = kPiece * Goodput::kMbitNs / mbits;
    g.posted(kPiece, kMs, true);
    g.ended(kPiece, kMs, kMs + took, 1, kMs + took - 1, nullptr, Goodput::Kind::kMessage);
    g.settle(kMs + took);
  }
};

TEST(Weigh, RailsAreUnevenAfterThreeMeasurementsInARow) {
  Two t(8000, 800);
  t.weigh(2);
  EXPECT_FALSE(t.peer.choice.uneven());
  t.weigh(1);
  EXPECT_TRUE(t.peer.choice.uneven());
  EXPECT_EQ(t.peer.choice.default_preferred(), &t.rails[0]);
  EXPECT_EQ(t.peer.choice.next(), &t.rails[0]);
  EXPECT_EQ(t.peer.choice.next(), &t.rails[0]) << "control messages, too";
  t.set(1, 8000);
  t.weigh(3);
  EXPECT_FALSE(t.peer.choice.uneven());
}

/// A hundredth of the rate must not get half of the next message for want of two more measurements.
TEST(Weigh, RailThatSeemsSlow_GetsShortPiecesUntilItIsKnown) {
  Two t(8000, 800);
  const auto& choice = t.peer.choice;
  EXPECT_TRUE(choice.share(t.rails[1]).proven) << "nothing was compared yet";
  t.weigh(1);
  EXPECT_FALSE(choice.uneven());
  EXPECT_FALSE(choice.share(t.rails[1]).proven);
  EXPECT_TRUE(choice.share(t.rails[0]).proven);
  t.set(1, 8000);
  t.weigh(1);
  EXPECT_TRUE(choice.share(t.rails[1]).proven) << "it was chance";
  t.set(1, 2500);
  t.weigh(1);
  EXPECT_TRUE(choice.share(t.rails[1]).proven) << "a third costs little";
  t.set(1, 800);
  t.rails[1].late = 0;
  EXPECT_TRUE(choice.share(t.rails[1]).proven) << "the processor is the limit";
}

TEST(Weigh, LessThanThirteenTenths_IsEven) {
  Two t(8000, 6400);
  t.weigh(10);
  EXPECT_FALSE(t.peer.choice.uneven());
}

TEST(Weigh, UnevenRails_AreEvenAgainBelowTwelveTenths) {
  Two t(8000, 800);
  t.weigh(3);
  t.set(1, 6400);
  t.weigh(10);
  EXPECT_TRUE(t.peer.choice.uneven());
  t.set(1, 7000);
  t.weigh(3);
  EXPECT_FALSE(t.peer.choice.uneven());
}

TEST(Weigh, RailThatWasNotMeasured_CountsLikeTheFastest) {
  Two t(8000, 0);
  t.weigh(10);
  EXPECT_FALSE(t.peer.choice.uneven());
}

TEST(Weigh, RailThatKeepsUpWithTheProcess_IsNeverTheSlowOne) {
  Two t(0, 800);
  t.rails[0].late = 0;
  t.weigh(3);
  EXPECT_TRUE(t.peer.choice.uneven());
  EXPECT_EQ(t.peer.choice.default_preferred(), &t.rails[0]);
}

TEST(Weigh, SecondPeerBeginsWithWhatThePortsMovedToTheFirst) {
  Weighing all;
  Two first(8000, 800);
  Two second(0, 0);
  Two strange(0, 0);
  for (Two* const t : {&first, &second, &strange}) {
    t->peer.choice.set_weighing(all);
    for (unsigned i = 0; i < 2; ++i)
      t->rails[i].limits.port = t == &strange ? UINT8_MAX : static_cast<uint8_t>(i);
  }
  EXPECT_FALSE(second.peer.choice.outdated());
  for (const auto& r : {&first.rails[0], &first.rails[1]}) first.peer.choice.share_measured(*r, 2 * kMs);
  for (Two* const t : {&second, &strange}) {
    auto& choice = t->peer.choice;
    EXPECT_TRUE(choice.outdated());
    choice.consult(3 * kMs);
    EXPECT_FALSE(choice.outdated()) << "looked at once";
    EXPECT_EQ(choice.uneven(), t == &second);
  }
  const Share s = second.peer.choice.share(second.rails[1]);
  EXPECT_EQ(s.rate * 10, s.best);
  EXPECT_TRUE(s.proven) << "its first piece is as long as others";
  EXPECT_EQ(second.peer.choice.estimate_now(second.rails[1]).basis, Basis::kPort);
  second.peer.choice.share_measured(second.rails[1], 5000 * kMs);
  EXPECT_EQ(all.ports.guess(1, 2 * kMs).ns, 2 * kMs) << "a guess is no measurement";
}

/// READs that wait behind what goes the other way have a latency that makes 64 KiB cost as much as over a
/// rail of a tenth of the rate.
TEST(Weigh, LatencyHidesTheRateOfShortPieces_LongOnesAreCompared) {
  Two t(0, 15);
  t.rails[0].goodput.guess({159, 35 * kMs}, kMs);
  t.weigh(3);
  EXPECT_TRUE(t.peer.choice.uneven());
  const Share s = t.peer.choice.share(t.rails[1], 1 << 20);
  EXPECT_LT(s.rate * 5, s.best) << "and its piece of a MiB is short";
}

TEST(Weigh, NominalAndGivenWeightsStay_WhateverIsMeasured) {
  for (const Weights kind : {Weights::kNominal, Weights::kGiven}) {
    Weighing all{kind, {}};
    Two t(800, 8000);
    auto& choice = t.peer.choice;
    choice.set_weighing(all);
    t.rails[1].limits.weight = 25'000;
    t.rails[0].limits.given = 4;
    choice.rebuild(t.peer.rails, 2);
    EXPECT_TRUE(choice.uneven()) << "at once";
    t.weigh(5);
    choice.looked(500'000 * kMs);
    t.rails[0].inflight_bytes = kPiece;
    const Share s = choice.share(t.rails[1]);
    EXPECT_EQ(s.rate * 4, s.best);
    EXPECT_TRUE(s.proven);
    EXPECT_TRUE(choice.sooner(t.rails[0], t.rails[1], kPiece)) << "not tried though it was not used for long";
    EXPECT_EQ(choice.default_preferred(), &t.rails[0]);
    EXPECT_FALSE(choice.follow(&t.rails[1]));
    EXPECT_EQ(choice.default_preferred(), &t.rails[0]) << "nor what the peer measures";
    EXPECT_EQ(choice.estimate_now(t.rails[0]).basis,
              kind == Weights::kNominal ? Basis::kNominal : Basis::kGiven);
    for (int i = 0; i < 300; ++i) choice.spread(1000, 256);
    EXPECT_FALSE(choice.samples()) << "nothing is sent to be timed";
    t.rails[1].limits.weight = 100'000;
    t.rails[0].limits.given = 1;
    t.weigh(1);
    EXPECT_FALSE(choice.uneven());
  }
}

TEST(Weigh, PieceGoesWhereItEndsFirst) {
  Two t(8000, 800);
  t.weigh(3);
  auto& choice = t.peer.choice;
  EXPECT_TRUE(choice.sooner(t.rails[0], t.rails[1], kPiece));
  t.rails[0].inflight_bytes = 8 * kPiece;
  EXPECT_TRUE(choice.sooner(t.rails[0], t.rails[1], kPiece)) << "nine of the fast are sooner than one";
  t.rails[0].inflight_bytes = 10 * kPiece;
  EXPECT_TRUE(choice.sooner(t.rails[1], t.rails[0], kPiece));
  const Share s = choice.share(t.rails[1]);
  EXPECT_EQ(s.rate * 10, s.best);
  EXPECT_EQ(s.sum, 8800u);
}

/// A piece of 64 KiB takes 65 us on each, and as long until it begins on one of them.
TEST(Weigh, LatencyOfAnEmptyRail_CountsInItsShare) {
  Two t(8000, 8000);
  t.rails[1].goodput.guess({8000, 65'536}, kMs);
  t.weigh(3);
  const auto& choice = t.peer.choice;
  ASSERT_TRUE(choice.uneven());
  const Share empty = choice.share(t.rails[1]);
  EXPECT_EQ(empty.rate, 4000u);
  EXPECT_EQ(empty.best, 8000u);
  EXPECT_EQ(empty.sum, 12'000u);
  t.rails[1].inflight_bytes = kPiece;
  const Share busy = choice.share(t.rails[1]);
  EXPECT_EQ(busy.rate, 8000u);
  EXPECT_EQ(busy.sum, 16'000u);
}

TEST(Weigh, RailThatIsNotUsed_IsTriedOnceInAWhile) {
  Two t(8000, 800);
  t.weigh(3);
  const uint64_t piece_ns = kTry * 8000 / 800;
  t.rails[1].goodput.posted(kPiece, kMs, true);
  t.peer.choice.looked(kMs + 30 * piece_ns);
  EXPECT_TRUE(t.peer.choice.sooner(t.rails[0], t.rails[1], kPiece));
  t.rails[0].goodput.posted(kPiece, kMs + 35 * piece_ns, true);
  t.peer.choice.looked(kMs + 35 * piece_ns);
  EXPECT_TRUE(t.peer.choice.sooner(t.rails[1], t.rails[0], kPiece));
}

TEST(Weigh, AdviceOfThePeerCounts_WhileNothingIsMeasuredHere) {
  Two t(0, 0);
  auto& choice = t.peer.choice;
  EXPECT_TRUE(choice.follow(&t.rails[1]));
  EXPECT_EQ(choice.default_preferred(), &t.rails[1]);
  EXPECT_FALSE(choice.follow(&t.rails[1])) << "as before";
  EXPECT_TRUE(choice.follow(nullptr));
  Rail<TinyPort> other;
  EXPECT_FALSE(choice.follow(&other)) << "no rail of this peer";
  EXPECT_TRUE(choice.has(choice.default_preferred()));
}

TEST(Weigh, EagerMessageInAWhileIsTimed_FirstOnRailsThatWereNotMeasured) {
  Two t(8000, 0);
  auto& choice = t.peer.choice;
  choice.prefer(&t.rails[0]);
  for (int i = 0; i < 7; ++i) choice.spread(100, 256);
  EXPECT_FALSE(choice.samples()) << "a few messages are sent as ever";
  EXPECT_EQ(choice.spread(1000, 256), &t.rails[1]);
  EXPECT_TRUE(choice.samples());
  EXPECT_EQ(choice.spread(1000, 256), &t.rails[1]) << "until it was posted";
  choice.sampled();
  t.set(1, 8000);
  for (const unsigned i : {0, 1}) t.took(i, 50'000);
  int timed = 0;
  for (int i = 0; i < 8 + 256; ++i) {
    choice.answered();
    choice.spread(1000, 256);
    if (choice.samples()) ++timed;
    choice.sampled();
  }
  EXPECT_EQ(timed, 1 + 2) << "soon, and then one of 128";
}

/// It would not be timed, and would only wait there.
TEST(Weigh, RailWithATimedMessageUnderWay_GetsNoOther) {
  Two t(8000, 0);
  auto& choice = t.peer.choice;
  choice.prefer(&t.rails[0]);
  t.rails[1].samples_out = 1;
  for (int i = 0; i < 7; ++i) choice.spread(100, 256);
  EXPECT_EQ(choice.spread(1000, 256), &t.rails[0]);
  EXPECT_TRUE(choice.samples());
  choice.sampled();
  t.rails[0].samples_out = 1;
  for (int i = 0; i < 7; ++i) choice.spread(100, 256);
  EXPECT_EQ(choice.spread(1000, 256), &t.rails[0]);
  EXPECT_FALSE(choice.samples()) << "nor would it on this one";
}

TEST(Weigh, EagerMessageInAWhile_TriesARailThatIsNotUsed) {
  Two t(8000, 800);
  t.weigh(3);
  auto& choice = t.peer.choice;
  choice.prefer(&t.rails[0]);
  t.rails[1].goodput.posted(kPiece, kMs, true);
  t.rails[0].goodput.posted(kPiece, 1001 * kMs, true);
  choice.looked(1001 * kMs);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(choice.spread(1000, 256), &t.rails[0]);
  EXPECT_EQ(choice.spread(1000, 256), &t.rails[1]);
}

/// How many messages until one is timed, which counts.
int until_timed(RailChoice<TinyPort>& choice) {
  int n = 0;
  while (!choice.samples()) {
    choice.answered();
    choice.spread(1000, 256);
    ++n;
  }
  choice.sampled();
  return n;
}

/// Rails are uneven after three measurements: those of a sender of short messages must not be far apart.
TEST(Weigh, MeasurementThatContradicts_TheNextOneFollowsSoon) {
  Two t(8000, 8000);
  for (const unsigned k : {0, 1}) t.took(k, 50'000);
  auto& choice = t.peer.choice;
  choice.prefer(&t.rails[0]);
  EXPECT_EQ(until_timed(choice), 8) << "rails that are new";
  EXPECT_EQ(until_timed(choice), 128);
  t.set(1, 800);
  t.weigh(1);
  EXPECT_EQ(until_timed(choice), 8);
  EXPECT_EQ(until_timed(choice), 8);
  t.set(1, 8000);
  t.weigh(1);
  EXPECT_EQ(until_timed(choice), 8);
  EXPECT_EQ(until_timed(choice), 128);
}

/// A rail that one measurement found much slower carries no eager messages but those that are timed, until
/// two more have said the same or something else.
TEST(Weigh, RailThatSeemsSlow_CarriesOnlyWhatIsTimed) {
  Two t(8000, 8000);
  for (const unsigned k : {0, 1}) t.took(k, 60'000);
  t.by_message(1, 80);
  t.rails[1].message_time.ended(6 * kMs);
  auto& choice = t.peer.choice;
  choice.prefer(&t.rails[0]);
  t.weigh(1);
  EXPECT_FALSE(choice.uneven());
  EXPECT_TRUE(choice.swift(t.rails[0]));
  EXPECT_FALSE(choice.swift(t.rails[1]));
  int over = 0;
  for (int i = 0; i < 80; ++i) {
    over += choice.spread(4096, 256) == &t.rails[1];
    choice.sampled();
  }
  EXPECT_EQ(over, 10) << "one of 8";
  t.rails[1].message_time.ended(70'000);
  t.weigh(1);
  EXPECT_TRUE(choice.swift(t.rails[1]));
}

/// The ends of messages come together behind what goes the other way, and apart behind what others send: a
/// rail that seems faster by that is not, while some of those over the other one took no longer.
TEST(Weigh, WhatMessagesTell_CountsIfAllTookLonger) {
  Two t(0, 0);
  t.by_message(0, 40'000);
  t.by_message(1, 8000);
  auto& choice = t.peer.choice;
  t.weigh(10);
  EXPECT_FALSE(choice.uneven()) << "too few were timed";
  t.took(0, 60'000);
  t.took(1, 65'000);
  t.weigh(10);
  EXPECT_FALSE(choice.uneven());
  for (int i = 0; i < 3; ++i) {
    t.rails[1].message_time.ended(100'000);
    t.weigh(10);
    EXPECT_FALSE(choice.uneven()) << i;
  }
  t.rails[1].message_time.ended(100'000);
  t.weigh(3);
  EXPECT_TRUE(choice.uneven());
}

TEST(Weigh, LastMessageTookLonger_TheNextOneFollowsSoonOverThatRail) {
  Two t(0, 0);
  t.by_message(0, 8000);
  t.by_message(1, 2000);
  for (const unsigned i : {0, 1}) t.took(i, 60'000);
  auto& choice = t.peer.choice;
  choice.prefer(&t.rails[0]);
  while (until_timed(choice) != 128) continue;
  t.rails[1].message_time.ended(100'000);
  t.weigh(1);
  for (int i = 0; i < 7; ++i) choice.spread(1000, 256);
  EXPECT_EQ(choice.spread(1000, 256), &t.rails[1]);
  EXPECT_TRUE(choice.samples());
}

/// Messages say it of the fastest, and pieces say it of the others.
TEST(Weigh, AllRailsSeemSlow_AllAreUsed) {
  TinyPeer t(3);
  for (auto& r : t.rails) r.late = kLate, r.limits.weight = 100'000;
  Goodput& g = t.rails[0].goodput;
  g.posted(kPiece, kMs, true);
  g.ended(kPiece, kMs, kMs + 65'000, 1, kMs + 64'000, nullptr, Goodput::Kind::kMessage);
  g.settle(kMs + 65'000);
  t.rails[1].goodput.told(80, kMs);
  t.rails[2].goodput.told(40, kMs);
  const uint64_t took[] = {6 * kMs, 60'000, 60 * kMs};
  for (unsigned i = 0; i < 3; ++i)
    for (int k = 0; k < MessageTime::kSamples; ++k) t.rails[i].message_time.ended(took[i]);
  auto& choice = t.peer.choice;
  choice.weigh();
  ASSERT_FALSE(choice.uneven());
  for (unsigned i = 0; i < 3; ++i) EXPECT_TRUE(choice.swift(t.rails[i]));
  EXPECT_NE(choice.default_preferred(), nullptr);
}

TEST(Weigh, WhatPiecesTell_CountsWithoutMessages) {
  Two t(8000, 2000);
  t.weigh(3);
  EXPECT_TRUE(t.peer.choice.uneven());
}

/// Three times slower is no more than what one measurement may be wrong by.
TEST(Weigh, RailThatSeemsALittleSlower_CarriesItsPart) {
  Two t(8000, 2600);
  t.weigh(1);
  EXPECT_TRUE(t.peer.choice.swift(t.rails[1]));
}

/// A rail of which one short piece alone is known may be as fast as one of which more is: it counts like it.
TEST(Weigh, RailOfWhichOneShortPieceIsKnown_CountsLikeOneThatIsKnownBetter) {
  Two t(0, 0);
  for (const unsigned i : {0, 1}) {
    Goodput& g = t.rails[i].goodput;
    g.posted(2000, kMs, true);
    g.ended(2000, kMs, kMs + 5000 * (i + 1), 1, kMs + 4900 * (i + 1));
    ASSERT_TRUE(g.settle(kMs + 5000 * (i + 1)));
    ASSERT_TRUE(g.only_alone());
  }
  t.weigh(1);
  EXPECT_EQ(t.peer.choice.estimate_now(t.rails[1]).basis, Basis::kMeasured) << "both are known like that";
  t.set(0, 8000);
  t.weigh(3);
  EXPECT_EQ(t.peer.choice.estimate_now(t.rails[1]).basis, Basis::kLikeFastest);
  EXPECT_FALSE(t.peer.choice.uneven());
  t.set(0, 100);
  t.weigh(3);
  EXPECT_EQ(t.peer.choice.estimate_now(t.rails[1]).basis, Basis::kMeasured) << "that one is slower";
}

/// 4 KiB in 43 us may be the latency of a fast rail. 20 KiB in 206 us are not.
TEST(Weigh, ShortPieceAlone_ThenALongerOneAlone_TellsTheRate) {
  Goodput g;
  auto alone = [&g, now = kMs](uint64_t bytes, uint64_t took) mutable {
    g.posted(bytes, now, true);
    g.ended(bytes, now, now + took, static_cast<uint32_t>(now / 1000), now + took - 1000);
    now += kMs;
    g.settle(now);
  };
  alone(4096, 43 * 1000);
  ASSERT_TRUE(g.known());
  EXPECT_TRUE(g.only_alone());
  alone(4096, 44 * 1000);
  EXPECT_TRUE(g.only_alone()) << "no more is known";
  alone(20'480, 206 * 1000);
  EXPECT_FALSE(g.only_alone());
  EXPECT_NEAR(static_cast<double>(g.cost().rate), 795, 40) << "its latency in it";
}

/// A far rail whose messages are always behind others is never measured well, but is known to be slow.
TEST(Weigh, RailThatMovesAtMostAHundredth_IsLeft) {
  Two t(8000, 0);
  auto& choice = t.peer.choice;
  Goodput& g = t.rails[1].goodput;
  g.skipped();
  g.posted(8192, 2 * kMs, false, 24'000);
  g.ended(8192, 2 * kMs, 6 * kMs, 7, 5'900'000);
  t.weigh(1);
  EXPECT_EQ(choice.estimate_now(t.rails[1]).basis, Basis::kMost);
  t.weigh(2);
  EXPECT_TRUE(choice.uneven());
  EXPECT_FALSE(choice.swift(t.rails[1]));
}

TEST(Weigh, RailThatMovesAtMostMoreThanTheFastest_CountsLikeIt) {
  Two t(8000, 0);
  Goodput& g = t.rails[1].goodput;
  g.skipped();
  g.posted(8192, 2 * kMs, false, 24'000);
  g.ended(8192, 2 * kMs, 2'020'000, 7, 2'010'000);
  ASSERT_GE(g.most(), 8000u);
  t.weigh(1);
  EXPECT_EQ(t.peer.choice.estimate_now(t.rails[1]).basis, Basis::kLikeFastest);
}

}  // namespace
}  // namespace bfo::xfer
