// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_pace_test.cc: which rails keep up with the process, by the ends of their READs.
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
  /// Posted, looked at `looks` times, and seen to have ended `ns` later.
  uint8_t read(int looks, uint64_t ns) {
    pace.begin(f);
    for (int i = 0; i < looks; ++i) pace.turn();
    port.now += ns;
    pace.ended(f);
    return p.rails[0].late;
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

}  // namespace
}  // namespace bfo::xfer
