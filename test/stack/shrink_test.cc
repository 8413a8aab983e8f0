// SPDX-License-Identifier: BSD-3-Clause
//
// shrink_test.cc: a failing run gets small and fails as before; the line that replays it is read back.
//
// P6: contrib/doc/design.md
#include <gtest/gtest.h>

#include <algorithm>

#include "test/stack/shrink.h"
#include "test/stack/world.h"

namespace bfo::stack {
namespace {

/// Runs of a job that gives a peer up as soon as no rail is up: any long outage breaks P6.
Scenario impatient(uint64_t seed) {
  Scenario s;
  EXPECT_TRUE(generate(seed, "storm", s));
  s.machine.park_ns = 1;
  return s;
}

/// Nothing of `list` can be left out any more.
void expect_smallest(const Scenario& s, const Cut& small, std::vector<uint32_t> Cut::*list) {
  for (size_t i = 0; i < (small.*list).size(); ++i) {
    Cut c = small;
    (c.*list).erase((c.*list).begin() + static_cast<ptrdiff_t>(i));
    EXPECT_NE(failure_of(cut(s, c)), "P6") << print(c);
  }
}

TEST(Shrink, FailingRun_NothingThatIsLeftCanBeLeftOut) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Scenario s = impatient(seed);
    if (failure_of(s) != "P6") continue;
    const Cut small = shrink(s);
    const Scenario left = cut(s, small);
    EXPECT_EQ(failure_of(left), "P6");
    EXPECT_LE(left.program.pairs.size(), 6u) << print(small);
    expect_smallest(s, small, &Cut::faults);
    expect_smallest(s, small, &Cut::messages);
    return;
  }
  FAIL() << "no seed failed";
}

TEST(Shrink, RunThatDoesNotFail_StaysWhole) {
  Scenario s;
  ASSERT_TRUE(generate(1, "pair", s));
  EXPECT_EQ(failure_of(s), "");
  EXPECT_EQ(shrink(s).messages, whole(s).messages);
}

TEST(Cut, Whole_IsTheSameRun) {
  Scenario s;
  ASSERT_TRUE(generate(3, "default", s));
  const auto trace = [](const Scenario& run) {
    World world(run);
    return world.run().trace_hash;
  };
  EXPECT_EQ(trace(cut(s, whole(s))), trace(s));
}

TEST(Cut, ProcessLeftOut_TakesItsMessagesAndFaultsAlong) {
  Scenario s;
  for (uint64_t seed = 1; s.machine.procs < 4; ++seed) ASSERT_TRUE(generate(seed, "storm", s));
  Cut c = whole(s);
  c.processes.erase(c.processes.begin() + 1);
  const Scenario left = cut(s, c);
  ASSERT_EQ(left.machine.procs, s.machine.procs - 1);
  size_t messages = 0;
  for (const sim::PairPlan& p : s.program.pairs) messages += p.src != 1 && p.dst != 1;
  EXPECT_EQ(left.program.pairs.size(), messages);
  EXPECT_LT(messages, s.program.pairs.size());
  for (const Fault& f : left.faults) EXPECT_LT(std::max(f.p, f.q), left.machine.procs);
}

TEST(Cut, PrintedAndParsed_IsTheSame) {
  const Cut c{{0, 2}, {1, 2, 3, 7, 9, 10}, {}};
  EXPECT_EQ(print(c), " --processes 0,2 --messages 1-3,7,9,10 --faults none");
  std::vector<uint32_t> list;
  ASSERT_TRUE(parse_list("1-3,7,9,10", list));
  EXPECT_EQ(list, c.messages);
  ASSERT_TRUE(parse_list("none", list));
  EXPECT_TRUE(list.empty());
  for (const char* const bad : {"", "1,", "x", "3-1", "2,1", "1,1", "1;2"})
    EXPECT_FALSE(parse_list(bad, list)) << bad;
}

}  // namespace
}  // namespace bfo::stack
