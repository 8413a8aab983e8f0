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

TEST(RailPace, RailThatTurnsOutSlow_MakesTheRailsUneven) {
  OneRead o;
  o.p.rails[1].late = kLate;
  o.pace.told(o.p.rails[1], 8000);
  EXPECT_FALSE(o.p.peer.choice.uneven());
  for (int i = 0; i < 6; ++i) o.piece(&Pace<TinyPort>::ended);
  EXPECT_TRUE(o.p.peer.choice.uneven());
}

}  // namespace
}  // namespace bfo::xfer
