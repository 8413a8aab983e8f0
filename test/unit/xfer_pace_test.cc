// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_pace_test.cc: which rails keep up with the process, by the ends of their READs, and what the others
// are measured to move.
#include "pml/bfo/xfer/moves/pace.h"

#include <gtest/gtest.h>

#include "test/unit/tiny_port.h"

namespace bfo::xfer {
namespace {

using test::TinyPeer;
using test::TinyPort;

struct OneRead {
  explicit OneRead(unsigned rails = 2) : p(rails) {
    f.xfer.peer = &p.peer;
    f.xfer.rail = &p.rails[0];
    f.xfer.length = 1000;
    port.now = 1'000'000;
  }
  ~OneRead() {
    for (auto& rail : p.rails) free_degraded(base, rail);
  }
  OneRead(const OneRead&) = delete;
  OneRead& operator=(const OneRead&) = delete;
  /// Posted, looked at `looks` times, and seen to have ended `ns` later.
  uint8_t read(int looks, uint64_t ns) {
    pace.begin(f);
    for (int i = 0; i < looks; ++i) pace.turn();
    port.now += ns;
    pace.ended(f);
    return p.rails[0].late;
  }
  /// A piece of 64 KiB takes 655,360 ns, 800 Mbit/s, and the rail is looked at ten times meanwhile.
  void piece(void (Pace<TinyPort>::*end)(const TinyPort::Frag&)) {
    f.xfer.length = 65'536;
    pace.begin(f);
    for (int i = 0; i < 10; ++i) {
      port.now += 65'536;
      pace.turn();
    }
    (pace.*end)(f);
  }
  TinyPort port;
  Base<TinyPort> base{port, Config{}};
  Pace<TinyPort> pace{base};
  TinyPeer p;
  TinyPort::Frag f;
};

TEST(RailPace, RailThatEndsInTimeIsTrustedMoreWithEachRead) {
  OneRead o;
  EXPECT_EQ(o.read(1, 100), kUnsure - 1);
  EXPECT_EQ(o.read(0, 100), kUnsure - 2);
  o.p.rails[0].late = 0;
  EXPECT_EQ(o.read(1, 100), 0);
}

TEST(RailPace, ReadThatIsStillUnderWayAtTheSecondLookIsLate) {
  OneRead o;
  o.p.rails[0].late = 0;
  EXPECT_EQ(o.read(2, 100), kLate);
}

TEST(RailPace, SlowReadInTimeTellsNothing) {
  OneRead o;
  // 1000 bytes take 8 us at 1000 Mbit/s, so 32 us at a quarter of it, and 20 us are free.
  EXPECT_EQ(o.read(1, 52'000), kUnsure);
  EXPECT_EQ(o.read(1, 51'999), kUnsure - 1);
}

TEST(RailPace, RailKeepsUp_TheClockIsNotRead) {
  OneRead o;
  o.p.rails[0].late = 0;
  o.pace.begin(o.f);
  EXPECT_EQ(o.f.xfer.posted_ns, 1u) << "but its turns count";
}

TEST(RailPace, WithOneRailNothingIsMeasured) {
  OneRead o(1);
  EXPECT_EQ(o.read(5, 1'000'000), kUnsure);
  EXPECT_EQ(o.f.xfer.posted_ns, 0u);
}

TEST(RailPace, ReadsOfARailThatDoesNotKeepUp_AreMeasured) {
  OneRead o;
  for (int i = 0; i < 3; ++i) o.piece(&Pace<TinyPort>::ended);
  ASSERT_TRUE(o.p.rails[0].goodput.known()) << "the looks tell when it ended";
  EXPECT_EQ(o.p.rails[0].goodput.cost().rate, 800u);
  EXPECT_FALSE(o.p.rails[1].goodput.known());
}

TEST(RailPace, WritesAreMeasured) {
  OneRead o;
  for (int i = 0; i < 3; ++i) o.piece(&Pace<TinyPort>::frag_ended);
  EXPECT_EQ(o.p.rails[0].goodput.cost().rate, 800u);
}

/// A message of 300 bytes does not say when the READ of 512 KiB before it began, nor how long that is.
TEST(RailPace, EagerMessageBehindAReadIsNotTimed) {
  OneRead o;
  auto& rail = o.p.rails[0];
  o.f.xfer.length = 524'288;
  o.pace.begin(o.f);
  rail.inflight_bytes = o.f.xfer.length;
  o.port.now += 1'000'000;
  EXPECT_EQ(o.pace.begin_sample(rail, 300), 0u);
  EXPECT_EQ(rail.goodput.age_ns(o.port.now), 1'000'000u);
  EXPECT_GT(rail.goodput.cost_by_age({1000, 0}, o.port.now, rail.inflight_bytes).rate, 500u);
  rail.inflight_bytes = 0;
  EXPECT_EQ(o.pace.begin_sample(rail, 300), o.port.now);
}

/// While it kept up nothing was timed, so that the time until then counts for nothing.
TEST(RailPace, RailThatKeepsUpNoMore_IsTimedFromThenOn) {
  OneRead o;
  auto& rail = o.p.rails[0];
  rail.goodput.posted(1000, o.port.now, true);
  rail.late = 0;
  rail.inflight_bytes = 5000;
  EXPECT_EQ(o.read(2, 1'000'000'000), kLate);
  TinyPort::Frag next;
  next.xfer = o.f.xfer;
  o.port.now += 1000;
  o.pace.begin(next);
  EXPECT_EQ(rail.goodput.age_ns(o.port.now), 1000u);
}

/// While it was the only rail nothing was timed: 8 MiB are on their way, and take 8 ms, when another one,
/// which is slow, comes up. It is neither as old as the process nor as slow as a piece behind 8 MiB.
TEST(RailPace, WhatWasInFlightBeforeAnotherRailCameUp_TellsNothing) {
  OneRead o;
  auto& rail = o.p.rails[0];
  auto& choice = o.p.peer.choice;
  choice.rebuild(o.p.peer.rails, 1);
  TinyPort::Frag before;
  before.xfer = o.f.xfer;
  o.pace.begin(before);
  choice.rebuild(o.p.peer.rails, 2);
  o.port.now = 1'000'000'000;
  rail.inflight_bytes = 8 << 20;
  o.p.rails[1].goodput.told(800, o.port.now);
  o.f.xfer.length = 65'536;
  TinyPort::Frag second;
  TinyPort::Frag third;
  for (auto* const f : {&o.f, &second, &third}) {
    f->xfer = o.f.xfer;
    o.pace.begin(*f);
    rail.inflight_bytes += f->xfer.length;
  }
  for (int i = 0; i < 8; ++i) {
    o.port.now += 1'000'000;
    o.pace.turn();
  }
  choice.looked(o.port.now);
  EXPECT_NE(choice.estimate_now(rail).basis, Basis::kLate);
  const auto ends = [&](TinyPort::Frag& f) {
    o.pace.turn();
    o.port.now += 65'536;
    o.pace.turn();
    o.pace.frag_ended(f);
  };
  ends(o.f);
  EXPECT_FALSE(rail.goodput.known());
  ends(second);
  EXPECT_FALSE(rail.goodput.known()) << "only the end of the first one says since when it was served";
  ends(third);
  ASSERT_TRUE(rail.goodput.known());
  EXPECT_EQ(rail.goodput.cost().rate, 8000u);
}

/// Who polls too seldom to measure the fast rail can still tell that it is faster than the slow one.
TEST(RailPace, RailThatIsSeenToMoveMoreThanTheMeasuredOne) {
  OneRead o;
  auto& choice = o.p.peer.choice;
  auto& rail = o.p.rails[0];
  for (int i = 0; i < 2; ++i) {
    const uint64_t now = o.port.now;
    const auto look = static_cast<uint32_t>(10 + i);
    rail.goodput.posted(65'536, now, true);
    o.port.now += 360'000;
    rail.goodput.ended(65'536, now, o.port.now, look, now);
  }
  ASSERT_FALSE(rail.goodput.known());
  choice.weigh();
  EXPECT_EQ(choice.exceeds_measured(rail), 0u) << "nothing is";
  o.p.rails[1].goodput.told(800, o.port.now);
  choice.weigh();
  EXPECT_EQ(choice.exceeds_measured(rail), 65'536u * 8000 / 360'000);
  EXPECT_EQ(choice.exceeds_measured(o.p.rails[1]), 0u) << "it was measured";
  o.p.rails[1].goodput.told(8000, o.port.now);
  choice.weigh();
  EXPECT_EQ(choice.exceeds_measured(rail), 0u) << "it may be as fast";
}

/// The peer has not measured the rail and says what it moves at least: what is known here may be more.
TEST(RailPace, WhatARailMovesAtLeast_LowersNothing) {
  OneRead o;
  auto& rail = o.p.rails[0];
  o.pace.told(rail, 1456, 65'536, true);
  EXPECT_EQ(rail.goodput.cost().rate, 1456u);
  o.pace.told(rail, 8000, 65'536, false);
  o.pace.told(rail, 1456, 65'536, true);
  EXPECT_EQ(rail.goodput.cost().rate, 8000u);
  o.pace.told(rail, 1456, 65'536, false);
  EXPECT_EQ(rail.goodput.cost().rate, 1456u) << "it was measured";
}

/// The receiver of grants sees no piece end: what was ahead of the first that counts is over when so much was
/// written.
TEST(RailPace, WhatIsAheadAtAReceiverOfGrants_Ends) {
  OneRead o;
  auto& rail = o.p.rails[0];
  constexpr uint64_t kAhead = 256 << 20;
  rail.goodput.untimed();
  rail.inflight_bytes = kAhead;
  o.pace.granted(rail, 65'536);
  rail.inflight_bytes += 65'536;
  const auto late = [&](uint64_t ms) {
    return rail.goodput.cost_by_age({8000, 0}, o.port.now + ms * 1'000'000, rail.inflight_bytes).rate < 8000;
  };
  EXPECT_FALSE(late(500)) << "it takes 268 ms";
  for (uint64_t left = kAhead; left != 0; left -= 1 << 20) {
    rail.inflight_bytes -= 1 << 20;
    o.pace.told(rail, 8000, 1 << 20);
  }
  EXPECT_TRUE(late(500));
}

/// Pieces of 64 KiB take 300 ms each, and nothing is posted meanwhile. After the first one it is known how
/// long they may take.
TEST(RailPace, LonePiecesThatTakeLong_AreMeasured) {
  OneRead o;
  o.f.xfer.length = 65'536;
  for (int i = 0; i < 5; ++i) {
    o.pace.begin(o.f);
    for (int ms = 0; ms < 300; ++ms) {
      o.port.now += 1'000'000;
      o.pace.turn();
    }
    o.pace.ended(o.f);
  }
  const Goodput& g = o.p.rails[0].goodput;
  ASSERT_TRUE(g.known());
  EXPECT_EQ(g.cost().rate_alone(65'536), 1u) << "1.7 Mbit/s";
  for (int ms = 0; ms < 2000; ++ms) {
    o.port.now += 1'000'000;
    o.pace.turn();
  }
  o.pace.begin(o.f);
  EXPECT_LT(o.p.peer.choice.looked_ns(), o.port.now - 1'000'000'000) << "looks without a piece read no clock";
}

/// A rail whose work stands still for long is suspect, and used again when it goes on: what it carries is
/// timed all the same, or a rail that is slow enough to be suspected would never be known.
TEST(RailPace, PiecesOfARailThatWasSuspectMeanwhile_AreTimed) {
  TinyPeer p(2);
  auto& choice = p.peer.choice;
  Goodput& g = p.rails[1].goodput;
  const uint64_t posted = 1'000'000;
  g.posted(65'536, posted, true);
  g.posted(65'536, posted, false);
  p.rails[1].state = RailState::kSuspect;
  choice.rebuild(p.peer.rails, 2);
  ASSERT_EQ(choice.size(), 1u);
  p.rails[1].state = RailState::kUp;
  choice.rebuild(p.peer.rails, 2);
  ASSERT_EQ(choice.size(), 2u);
  for (uint32_t i = 1; i <= 2; ++i)
    g.ended(65'536, posted, posted + i * 65'536'000, i, posted + i * 65'535'000);
  ASSERT_TRUE(g.known());
  EXPECT_EQ(g.cost().rate, 8u);
}

/// Its pieces are not timed: what was timed last tells nothing of what is in flight.
TEST(RailPace, RailThatKeepsUpAndHasMuchInFlight_IsNotLate) {
  OneRead o;
  auto& choice = o.p.peer.choice;
  o.pace.told(o.p.rails[1], 100);
  o.p.rails[1].late = kLate;
  o.p.rails[0].goodput.posted(1000, o.port.now, true);
  o.p.rails[0].late = 0;
  o.p.rails[0].inflight_bytes = 1000;
  choice.looked(o.port.now + 1'000'000'000);
  for (int i = 0; i < 3; ++i) choice.weigh();
  EXPECT_EQ(choice.estimate_now(o.p.rails[0]).basis, Basis::kKeepsUp);
  EXPECT_EQ(choice.default_preferred(), &o.p.rails[0]);
}

TEST(RailPace, RailOfOneMbit_WasMeasured) {
  OneRead o;
  o.p.rails[0].late = kLate;
  o.p.rails[1].late = 0;
  for (int i = 0; i < 3; ++i) o.pace.told(o.p.rails[0], 1);
  EXPECT_TRUE(o.p.peer.choice.uneven());
  EXPECT_EQ(o.p.peer.choice.default_preferred(), &o.p.rails[1]);
}

TEST(RailPace, RailThatTurnsOutSlow_MakesTheRailsUneven) {
  OneRead o;
  o.p.rails[1].late = kLate;
  o.pace.told(o.p.rails[1], 8000);
  EXPECT_FALSE(o.p.peer.choice.uneven());
  for (int i = 0; i < 6; ++i) o.piece(&Pace<TinyPort>::ended);
  EXPECT_TRUE(o.p.peer.choice.uneven());
}

/// What is not posted yet delays no FIN. One write is always posted, however long it is.
TEST(WriteAhead, WritesWaitForThoseUnderWay) {
  WriteAhead w;
  constexpr uint64_t kPart = WriteAhead::kAlways / 4;
  EXPECT_FALSE(w.full(1 << 30, kPart)) << "nothing is under way";
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(w.full(kPart, WriteAhead::kAlways)) << i;
    w.posted(kPart);
  }
  EXPECT_TRUE(w.full(1, WriteAhead::kAlways));
  w.dropped(kPart);
  EXPECT_FALSE(w.full(kPart, WriteAhead::kAlways));
  w.posted(kPart);
  w.ended(kPart, 1);
  EXPECT_FALSE(w.full(kPart, WriteAhead::kAlways));
  EXPECT_FALSE(w.take_held());
  w.held();
  EXPECT_TRUE(w.take_held());
  EXPECT_FALSE(w.take_held());
}

/// A process that looks seldom finds many ended at once: the rail stands still from then on. It gets twice as
/// many, until looks find less again.
/// Short ones that always fit would keep it waiting for ever.
TEST(WriteAhead, LongWriteThatWaits_IsNotOvertaken) {
  WriteAhead w;
  w.posted(65536);
  ASSERT_TRUE(w.full(512 << 10, WriteAhead::kAlways));
  w.waits();
  EXPECT_TRUE(w.full(65536, WriteAhead::kAlways));
  w.ended(65536, 1);
  EXPECT_TRUE(w.take_held());
  EXPECT_FALSE(w.full(512 << 10, WriteAhead::kAlways));
}

TEST(WriteAhead, RailOfAProcessThatLooksSeldomGetsMore) {
  WriteAhead w;
  constexpr uint64_t kPart = WriteAhead::kAlways / 4;
  const auto most = [&w] {
    uint64_t n = 0;
    for (; !w.full(kPart, WriteAhead::kAlways); ++n) w.posted(kPart);
    return n;
  };
  EXPECT_EQ(most(), 4u);
  for (int i = 0; i < 4; ++i) w.ended(kPart, 1);
  EXPECT_EQ(most(), 8u);
  for (int i = 0; i < 8; ++i) w.ended(kPart, 2);
  EXPECT_EQ(most(), 16u);
  for (uint32_t look = 3; look < 100; ++look) {
    w.ended(kPart, look);
    most();
  }
  for (int i = 0; i < 2; ++i) w.dropped(kPart);
  w.dropped(UINT64_MAX);
  EXPECT_EQ(most(), 4u) << "each of many looks has found one";
}

}  // namespace
}  // namespace bfo::xfer
