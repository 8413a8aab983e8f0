// SPDX-License-Identifier: BSD-3-Clause
//
// btl_verdict_rules_test.cc: the decisions that need no rails: for how long what comes in over a port speaks
// for a rail, and when enough has been heard to end one.
#include "btl/verbs/engine/rail/verdict_rules.h"

#include <gtest/gtest.h>

namespace bfo::engine {
namespace {

TEST(VerdictRules, IntakeGoesOn_WhileTheOldestWorkWouldEndInTime) {
  constexpr uint64_t kMiB = 1 << 20;
  constexpr uint64_t kTickNs = 2'000'000;
  Intake x;
  x.begin(kMiB, 8 * kMiB, kTickNs);
  const uint64_t pace = 2 * kMiB / (kWorkEndsNs / kTickNs);  // in a tick
  EXPECT_FALSE(x.goes_on(0, kTickNs)) << "not known";
  EXPECT_FALSE(x.goes_on(kMiB, kTickNs)) << "the first look";
  EXPECT_FALSE(x.goes_on(kMiB, 2 * kTickNs)) << "nothing";
  EXPECT_FALSE(x.goes_on(kMiB + pace, 3 * kTickNs)) << "half of it";
  EXPECT_TRUE(x.goes_on(kMiB + 4 * pace, 4 * kTickNs)) << "since it went on last";
  EXPECT_FALSE(x.goes_on(1, 5 * kTickNs)) << "somebody has reset the counter";
  EXPECT_TRUE(x.goes_on(1 + 2 * pace, 6 * kTickNs)) << "and it counts from there";
  EXPECT_TRUE(x.goes_on(1 + 95 * kMiB, 7 * kTickNs));
  EXPECT_FALSE(x.goes_on(1 + 98 * kMiB, 8 * kTickNs)) << "four times the queue have come in";
  x.begin(100, 100, kTickNs);
  EXPECT_FALSE(x.goes_on(1, kTickNs));
  EXPECT_TRUE(x.goes_on(60 * kMiB, 2 * kTickNs)) << "a READ of the peer, which is not known here";
  x.begin(0, 0, kTickNs);
  EXPECT_FALSE(x.goes_on(1, kTickNs));
  EXPECT_TRUE(x.goes_on(2 * kMiB, kWorkEndsNs));
  EXPECT_FALSE(x.goes_on(4 * kMiB, kWorkEndsNs + 2 * kTickNs)) << "not for ever";
}

TEST(VerdictRules, ProofWaitsForACountThatIsUnderWay_ButNotLong) {
  Inquiry inquiry{.on = true, .answered = kRoundsWithProbe};
  EXPECT_TRUE(proven(inquiry, true, true, false));
  EXPECT_FALSE(proven(inquiry, true, true, true));
  inquiry.answered += kRoundsAlone;
  EXPECT_TRUE(proven(inquiry, true, true, true));
}

}  // namespace
}  // namespace bfo::engine
