// SPDX-License-Identifier: BSD-3-Clause
//
// btl_moderation_test.cc: when a completion queue is left alone, and that nothing but a stream of short
// messages waits for that; and the copies of header and payload into a slot.
#include <array>

#include "btl/verbs/engine/device/moderation.h"
#include "common/copy.h"
#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Moderation;

/// A Moderation in a stream, and a clock.
struct Stream {
  Moderation m;
  uint64_t now = 1'000'000;

  explicit Stream(uint64_t gap_ns) { m.set_gap(gap_ns); }
  void begin() {
    for (uint32_t i = 0; i < Moderation::kStreamPolls; ++i) m.found(true);
  }
  /// A poll now that finds `found`, which takes `work_ns`. False: the queue was left alone.
  bool poll(const Moderation::Found& found, uint64_t work_ns = 20) {
    if (!m.streaming()) return m.found(found.receives_only), true;
    if (m.holds(now, false)) return false;
    now += work_ns;
    m.found(found, now);
    return true;
  }
  uint64_t gap() {
    uint64_t waited = 0;
    for (; m.streaming() && m.holds(now + waited, false); ++waited) {
    }
    return waited;
  }
};

constexpr Moderation::Found kOne = {1, true, true};

TEST(Moderation, FewReceives_AreNoStream) {
  Stream s(800);
  for (uint32_t i = 1; i < Moderation::kStreamPolls; ++i) {
    s.m.found(true);
    EXPECT_FALSE(s.m.streaming());
  }
  s.m.found(true);
  EXPECT_TRUE(s.m.streaming());
}

TEST(Moderation, ReceivesFarApart_AreNoStream) {
  Stream s(800);
  for (int i = 0; i < 100; ++i) {
    s.m.found(true);
    for (uint32_t k = 0; k <= Moderation::kNearPolls; ++k) s.m.nothing();
    EXPECT_FALSE(s.m.streaming());
  }
}

TEST(Moderation, OtherCompletions_AreNoStream) {
  Stream s(800);
  for (int i = 0; i < 100; ++i) s.m.found(false);
  EXPECT_FALSE(s.m.streaming());
}

TEST(Moderation, Gap_GrowsToTheLimitAndNoFurther) {
  Stream s(800);
  s.begin();
  uint64_t last = 0;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(s.poll(kOne));
    const uint64_t gap = s.gap();
    EXPECT_GE(gap, last);
    EXPECT_LE(gap, 800u);
    if (i == 0) EXPECT_LT(gap, 800u);
    last = gap;
    EXPECT_FALSE(s.poll(kOne)) << "polled within the gap";
    s.now += gap;
  }
  EXPECT_EQ(last, 800u);
}

TEST(Moderation, NothingFound_EndsTheStream) {
  Stream s(800);
  s.begin();
  ASSERT_TRUE(s.poll(kOne));
  s.m.nothing();
  EXPECT_FALSE(s.m.streaming());
}

TEST(Moderation, WhatIsNoShortReceive_IsFollowedByAPollAtOnce) {
  for (const auto& [found, work] : {std::pair{Moderation::Found{1, false, true}, uint64_t{20}},
                                    std::pair{Moderation::Found{16, true, false}, uint64_t{20}},
                                    std::pair{Moderation::Found{2, true, true}, uint64_t{501}}}) {
    Stream s(800);
    s.begin();
    ASSERT_TRUE(s.poll(found, work));
    EXPECT_EQ(s.gap(), 0u);
  }
  Stream s(800);
  s.begin();
  ASSERT_TRUE(s.poll({2, true, true}, 500));
  EXPECT_GT(s.gap(), 0u);
}

TEST(Moderation, LongTimeWithoutAPoll_EndsTheStream) {
  Stream s(800);
  s.begin();
  ASSERT_TRUE(s.poll(kOne));
  s.now += s.gap() + Moderation::kPauseNs;
  EXPECT_FALSE(s.m.holds(s.now, false));
  EXPECT_TRUE(s.m.streaming());
  s.m.found(kOne, s.now);
  s.now += s.gap() + Moderation::kPauseNs + 1;
  EXPECT_FALSE(s.m.holds(s.now, false));
  EXPECT_FALSE(s.m.streaming());
}

TEST(Moderation, WorkWasPosted_IsPolledAtOnceAndTheStreamGoesOn) {
  Stream s(800);
  s.begin();
  ASSERT_TRUE(s.poll(kOne));
  ASSERT_TRUE(s.m.holds(s.now, false));
  EXPECT_FALSE(s.m.holds(s.now, true));
  s.m.found(kOne, s.now);
  EXPECT_TRUE(s.m.holds(s.now, false));
}

TEST(Moderation, OtherCompletionsBetweenReceivesFarApart_MakeNoStream) {
  Stream s(800);
  for (int i = 0; i < 100; ++i) {
    s.m.found(true);
    for (uint32_t k = 0; k < Moderation::kNearPolls; ++k) s.m.nothing();
    s.m.found(false);
    s.m.nothing();
    EXPECT_FALSE(s.m.streaming());
  }
}

TEST(Moderation, GapOfZero_NeverHolds) {
  Stream s(0);
  for (int i = 0; i < 1000; ++i) s.m.found(true);
  EXPECT_FALSE(s.m.streaming());
}

/// Process b gets messages one after another; the clock moves by `step_ns` for each poll.
struct Receiver {
  World w;
  uint64_t step_ns;

  static engine::Config config(uint64_t gap_ns) {
    engine::Config c = small_config();
    c.poll_gap_ns = gap_ns;
    return c;
  }
  Receiver(uint64_t gap_ns, uint64_t step_ns) : w(config(gap_ns)), step_ns(step_ns) { w.connect(); }
  int polls() { return static_cast<stack::Cq*>(w.b.port.cqs().first())->polls; }
  /// `n` messages, each there before a turn of b; returns the polls that b made.
  int stream(int n) {
    const int before = polls();
    for (int i = 0; i < n; ++i) {
      EXPECT_TRUE(w.sendi(w.a, "x"));
      turn();
      w.a.poll();
    }
    return polls() - before;
  }
  void turn() {
    test_now() += step_ns;
    w.fabric.run();
    w.b.poll();
  }
};

TEST(Moderation, PortInAStream_PollsSeldomAndGetsEveryMessage) {
  Receiver r(800, 100);
  const int polls = r.stream(400);
  EXPECT_LT(polls, 100);
  for (int i = 0; i < 20; ++i) r.turn();
  EXPECT_EQ(r.w.b.count("recv 65 x"), 400);
}

TEST(Moderation, PortWithoutGap_PollsInEachTurn) {
  Receiver r(0, 100);
  EXPECT_EQ(r.stream(400), 400);
  EXPECT_EQ(r.w.b.count("recv 65 x"), 400);
}

TEST(Moderation, TurnsFurtherApartThanTheGap_PollEachTime) {
  Receiver r(800, 900);
  EXPECT_EQ(r.stream(400), 400);
}

TEST(Moderation, AnswerToEachMessage_IsNotDelayed) {
  Receiver r(800, 100);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(r.w.sendi(r.w.b, "y"));
    EXPECT_EQ(r.stream(1), 1);
  }
}

TEST(Moderation, RailThatEndsInAStream_IsNoticedInTheNextTurn) {
  Receiver r(5000, 100);
  r.stream(50);
  int before = -1;
  for (int i = 0; i < 100 && r.polls() != before; ++i) {
    before = r.polls();
    EXPECT_TRUE(r.w.sendi(r.w.a, "x"));
    r.turn();
    r.w.a.poll();
  }
  ASSERT_EQ(r.polls(), before) << "the queue is left alone";
  r.w.fabric.raise(*r.w.b.hca, IBV_EVENT_PORT_ERR, 1);
  r.turn();
  EXPECT_EQ(r.w.b.down, 1);
  EXPECT_GT(r.polls(), before);
  r.w.pass(10);
  EXPECT_GE(r.w.b.count("recv 65 x"), 50);
}

TEST(Copy, Joined_IsHeaderAndPayload) {
  std::array<char, 300> header, payload;
  for (size_t i = 0; i < header.size(); ++i) {
    header[i] = static_cast<char>(i * 7 + 1);
    payload[i] = static_cast<char>(i * 13 + 5);
  }
  for (size_t h = 0; h <= 120; ++h) {
    for (size_t n = 0; n <= 160; ++n) {
      std::array<char, 300> to;
      to.fill('#');
      copy_joined(to.data() + 8, header.data() + h % 5, h, payload.data() + n % 7, n);
      ASSERT_EQ(memcmp(to.data() + 8, header.data() + h % 5, h), 0) << h << " " << n;
      ASSERT_EQ(memcmp(to.data() + 8 + h, payload.data() + n % 7, n), 0) << h << " " << n;
      for (size_t i = 0; i < 8; ++i) ASSERT_EQ(to[i], '#');
      for (size_t i = 8 + h + n; i < to.size(); ++i) ASSERT_EQ(to[i], '#') << h << " " << n;
    }
  }
}

}  // namespace
}  // namespace bfo::test
