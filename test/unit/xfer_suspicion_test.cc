// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_suspicion_test.cc: a rail is suspect, beside others that are up and not as fast. What is known of
// rails outlives a suspicion, and no message goes over a slow rail only because a fast one has much to do.
#include <gtest/gtest.h>

#include "pml/bfo/xfer/rails/order.h"
#include "pml/bfo/xfer/rails/weigh.h"
#include "test/unit/tiny_port.h"

namespace bfo::xfer {
namespace {

using test::TinyPeer;
using test::TinyPort;

constexpr uint64_t kMs = 1'000'000;

struct Suspicion : TinyPeer {
  Suspicion(uint64_t first, uint64_t second, int weighed) : TinyPeer(2) {
    const uint64_t mbits[] = {first, second};
    for (unsigned i = 0; i < 2; ++i) {
      rails[i].late = kLate;
      if (mbits[i] != 0) rails[i].goodput.told(mbits[i], kMs);
    }
    for (int i = 0; i < weighed; ++i) peer.choice.weigh();
  }
  void become(unsigned i, RailState state) {
    rails[i].state = state;
    peer.choice.rebuild(peer.rails, 2);
  }
};

TEST(Suspicion, MuchFasterRail_StillReads_AndCarriesNoShortMessages) {
  Suspicion s(8000, 800, 3);
  auto& choice = s.peer.choice;
  ASSERT_TRUE(choice.uneven());
  s.become(0, RailState::kSuspect);
  EXPECT_EQ(choice.size(), 2u);
  EXPECT_TRUE(choice.has(&s.rails[0]));
  EXPECT_TRUE(choice.uneven()) << "nothing new was measured";
  EXPECT_FALSE(choice.leaves_out());
  EXPECT_EQ(choice.default_preferred(), &s.rails[1]);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(choice.next(), &s.rails[1]);
  s.become(0, RailState::kUp);
  EXPECT_TRUE(choice.uneven());
  EXPECT_EQ(choice.default_preferred(), &s.rails[0]);
}

TEST(Suspicion, RailsNotMeasuredThreeTimes_AreLeftOut_UnlessTheyLookMuchFaster) {
  Suspicion twice(1600, 800, 1);
  twice.become(0, RailState::kSuspect);
  EXPECT_EQ(twice.peer.choice.size(), 1u);
  Suspicion much(8000, 800, 1);
  much.become(0, RailState::kSuspect);
  EXPECT_EQ(much.peer.choice.size(), 2u);
}

TEST(Suspicion, AsFastOrSlowerRail_IsLeftOut) {
  Suspicion even(8000, 8000, 3);
  even.become(0, RailState::kSuspect);
  EXPECT_EQ(even.peer.choice.size(), 1u);
  EXPECT_FALSE(even.peer.choice.leaves_out());
  Suspicion slower(8000, 800, 3);
  slower.become(1, RailState::kSuspect);
  EXPECT_EQ(slower.peer.choice.size(), 1u);
  EXPECT_FALSE(slower.peer.choice.leaves_out()) << "nobody misses it";
}

TEST(Suspicion, RailThatThePeerFoundFast_IsMissed) {
  Suspicion s(0, 0, 0);
  s.become(1, RailState::kSuspect);
  EXPECT_EQ(s.peer.choice.size(), 1u);
  EXPECT_FALSE(s.peer.choice.leaves_out()) << "nothing is known";
  s.become(1, RailState::kUp);
  s.peer.choice.follow(&s.rails[0]);
  s.become(1, RailState::kSuspect);
  EXPECT_FALSE(s.peer.choice.leaves_out()) << "the other one is fast";
  s.become(1, RailState::kUp);
  s.become(0, RailState::kSuspect);
  EXPECT_TRUE(s.peer.choice.leaves_out());
  s.become(0, RailState::kUp);
  s.peer.choice.follow(nullptr);
  s.become(0, RailState::kSuspect);
  EXPECT_FALSE(s.peer.choice.leaves_out()) << "they are even again";
}

TEST(Suspicion, AllAreSuspect_AllAreUsed) {
  Suspicion s(8000, 800, 3);
  s.become(0, RailState::kSuspect);
  s.become(1, RailState::kSuspect);
  EXPECT_EQ(s.peer.choice.size(), 2u);
  EXPECT_FALSE(s.peer.choice.leaves_out());
  EXPECT_EQ(s.peer.choice.default_preferred(), &s.rails[0]);
}

/// Measurements that contradict what counts are counted, not suspicions.
TEST(Suspicion, ComesAndGoes_MakesNothingUneven) {
  Suspicion s(8000, 800, 1);
  for (int i = 0; i < 10; ++i) {
    s.become(1, RailState::kSuspect);
    s.become(1, RailState::kUp);
    EXPECT_FALSE(s.peer.choice.uneven()) << i;
  }
  s.peer.choice.weigh();
  s.peer.choice.weigh();
  EXPECT_TRUE(s.peer.choice.uneven());
}

}  // namespace
}  // namespace bfo::xfer
