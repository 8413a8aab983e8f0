// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_shared_ports_test.cc: what is said of rails whose ports several peers share.
#include <gtest/gtest.h>

#include "pml/bfo/xfer/moves/pace.h"
#include "test/unit/tiny_port.h"

namespace bfo::xfer {
namespace {

using test::TinyPeer;
using test::TinyPort;

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kKiB = 1024;

/// Two peers over the same two ports. What moves to and from the first one is timed piece by piece; the
/// second one has the rest of what the ports move.
struct SharedPorts {
  SharedPorts() {
    for (TinyPeer* const p : {&first, &second}) {
      p->peer.choice.set_weighing(all);
      for (unsigned i = 0; i < 2; ++i) {
        p->rails[i].limits.weight = 100'000;
        p->rails[i].limits.port = static_cast<uint8_t>(i);
        p->rails[i].late = kLate;
      }
    }
  }
  ~SharedPorts() {
    for (TinyPeer* const p : {&first, &second})
      for (auto& r : p->rails) free_degraded(base, r);
    EXPECT_EQ(port.live, 0);
  }
  /// Terms in which the first peer gets four pieces of 64 KiB over each rail, which take so long there, and
  /// the second one so many.
  void terms(unsigned n, const uint64_t (&ms)[2], const unsigned (&others)[2]) {
    for (unsigned t = 0; t < n; ++t) {
      for (unsigned i = 0; i < 2; ++i) {
        const Goodput::Sample rest{64 * kKiB, kMs, 0, 0, false, true};
        for (unsigned k = 0; k < others[i]; ++k) note_moved(base, second.rails[i], rest, true);
        for (unsigned k = 0; k < 4; ++k)
          note_moved(base, first.rails[i], {64 * kKiB, ms[i] * kMs, 0, 0, false, true}, true);
      }
      now += 250 * kMs;
      judge_rails(base, first.peer, now);
    }
  }
  TinyPort port;
  Base<TinyPort> base{port, Config{}};
  Weighing all;
  TinyPeer first{2};
  TinyPeer second{2};
  uint64_t now = kSecond;
};

/// Behind the pieces of another peer one of 64 KiB takes 60 ms. The port moves as much as its sister.
TEST(Degraded, PortThatIsWell_ButFullOfPiecesOfAnotherPeer_DoesNotCountAgainstTheRail) {
  SharedPorts job;
  job.terms(40, {10, 60}, {100, 100});
  EXPECT_EQ(job.port.told.size(), 0u);
  job.terms(40, {10, 60}, {100, 0});
  ASSERT_EQ(job.port.told.size(), 1u) << "nothing else was before them";
  EXPECT_TRUE(job.port.told[0].degraded);
  EXPECT_NEAR(job.port.told[0].rate, 8.7, 1) << "of this peer";
  job.terms(60, {10, 60}, {100, 100});
  ASSERT_EQ(job.port.told.size(), 2u) << "they wait, and the port is well";
  EXPECT_FALSE(job.port.told[1].degraded);
}

/// Pieces of other peers are before these, too. But one port moves a tenth of the other one.
TEST(Degraded, PortThatIsSlow_IsToldThoughOthersUseIt) {
  SharedPorts job;
  job.terms(40, {10, 62}, {96, 6});
  ASSERT_EQ(job.port.told.size(), 1u);
  EXPECT_EQ(job.port.told[0].rail, 1);
  EXPECT_NEAR(job.port.told[0].others, 52, 3) << "of this peer";
}

/// The other peer uses one port only. That is no evidence against the other port.
TEST(Degraded, PortThatOthersDoNotUse_IsNotSlow) {
  SharedPorts job;
  job.terms(40, {20, 20}, {96, 0});
  EXPECT_EQ(job.port.told.size(), 0u);
}

}  // namespace
}  // namespace bfo::xfer
