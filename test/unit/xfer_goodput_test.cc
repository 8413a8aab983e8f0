// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_goodput_test.cc: what is learned of a rail from the ends of its pieces, and when that counts.
#include "pml/bfo/xfer/rails/goodput.h"

#include <gtest/gtest.h>

#include "pml/bfo/xfer/rails/order.h"
#include "test/unit/tiny_port.h"

namespace bfo::xfer {
namespace {

using test::TinyPeer;
using test::TinyPort;

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
  EXPECT_EQ(g.cost_by_age(g.cost(), now).rate, g.cost().rate) << "nobody has looked since";
  EXPECT_EQ(g.cost_by_age(g.cost(), now + 3 * wire.piece_ns()).rate, g.cost().rate) << "not late yet";
  EXPECT_LE(g.cost_by_age(g.cost(), now + 100 * wire.piece_ns()).rate, 8000u / 90);
}

TEST(Goodput, RailThatIsNotUsedIsForgotten) {
  Goodput g;
  Wire wire(8000);
  wire.move(g, 4, 4);
  EXPECT_FALSE(g.forgotten(wire.piece_ns(), wire.now + 150 * wire.piece_ns()));
  EXPECT_TRUE(g.forgotten(wire.piece_ns(), wire.now + 250 * wire.piece_ns()));
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

// ---- when it counts

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

TEST(Weigh, RailThatIsNotUsed_IsTriedOnceInAWhile) {
  Two t(8000, 800);
  t.weigh(3);
  const uint64_t piece_ns = kPiece * 8000 / 800;
  t.rails[1].goodput.posted(kPiece, kMs, true);
  t.peer.choice.looked(kMs + 150 * piece_ns);
  EXPECT_TRUE(t.peer.choice.sooner(t.rails[0], t.rails[1], kPiece));
  t.rails[0].goodput.posted(kPiece, kMs + 250 * piece_ns, true);
  t.peer.choice.looked(kMs + 250 * piece_ns);
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
  for (int i = 0; i < 127; ++i) choice.spread(100, 256);
  EXPECT_FALSE(choice.samples()) << "a few messages are sent as ever";
  EXPECT_EQ(choice.spread(1000, 256), &t.rails[1]);
  EXPECT_TRUE(choice.samples());
  EXPECT_EQ(choice.spread(1000, 256), &t.rails[1]) << "until it was posted";
  choice.sampled();
  t.set(1, 8000);
  int timed = 0;
  for (int i = 0; i < 256; ++i) {
    choice.answered();
    choice.spread(1000, 256);
    if (choice.samples()) ++timed;
    choice.sampled();
  }
  EXPECT_EQ(timed, 2);
}

TEST(Weigh, EagerMessageInAWhile_TriesARailThatIsNotUsed) {
  Two t(8000, 800);
  t.weigh(3);
  auto& choice = t.peer.choice;
  choice.prefer(&t.rails[0]);
  t.rails[1].goodput.posted(kPiece, kMs, true);
  t.rails[0].goodput.posted(kPiece, 1001 * kMs, true);
  choice.looked(1001 * kMs);
  for (int i = 0; i < 127; ++i) EXPECT_EQ(choice.spread(1000, 256), &t.rails[0]);
  EXPECT_EQ(choice.spread(1000, 256), &t.rails[1]);
}

}  // namespace
}  // namespace bfo::xfer
