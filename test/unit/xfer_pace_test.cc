// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_pace_test.cc: which rails keep up with the process, by the ends of their READs.
#include "pml/bfo/xfer/rails/pace.h"

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
  std::uint8_t read(int looks, std::uint64_t ns) {
    pace.begin(f);
    for (int i = 0; i < looks; ++i) pace.turn();
    port.now += ns;
    pace.ended(f);
    return p.rails[0].late;
  }
  TinyPort port;
  Pace<TinyPort> pace{port};
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

/// The device moves the data inside the call that posts it.
TEST(RailPace, TimeSpentInPostingDoesNotCount) {
  OneRead o;
  TinyPort::Frag later = o.f;
  for (TinyPort::Frag* f : {&o.f, &later}) {
    const std::uint64_t begun = o.pace.begin(*f);
    o.port.now += 500'000;
    o.pace.posted(begun);
  }
  o.port.now += 51'999;
  o.pace.ended(o.f);
  EXPECT_EQ(o.p.rails[0].late, kUnsure - 1);
  o.pace.ended(later);
  EXPECT_EQ(o.p.rails[0].late, kUnsure - 2);
  EXPECT_EQ(o.read(0, 52'000), kUnsure - 2) << "the process was away";
}

TEST(RailPace, TimeSpentInPostingOverARailThatKeepsUpDoesNotCountEither) {
  OneRead o;
  o.p.rails[1].late = 0;
  TinyPort::Frag later = o.f;
  later.xfer.rail = &o.p.rails[1];
  o.pace.posted(o.pace.begin(o.f));
  const std::uint64_t begun = o.pace.begin(later);
  o.port.now += 500'000;
  o.pace.posted(begun);
  o.pace.ended(o.f);
  EXPECT_EQ(o.p.rails[0].late, kUnsure - 1);
}

TEST(RailPace, AllRailsKeepUp_TheClockIsNotRead) {
  OneRead o;
  o.p.rails[0].late = o.p.rails[1].late = 0;
  EXPECT_EQ(o.pace.begin(o.f), 0u);
  EXPECT_EQ(o.f.xfer.posted_ns, 1u) << "but its turns count";
}

TEST(RailPace, WithOneRailNothingIsMeasured) {
  OneRead o(1);
  EXPECT_EQ(o.read(5, 1'000'000), kUnsure);
  EXPECT_EQ(o.f.xfer.posted_ns, 0u);
}

}  // namespace
}  // namespace bfo::xfer
