// SPDX-License-Identifier: BSD-3-Clause
//
// sim_test.cc: the simulator itself: a seed is a run, schedules survive being written down, failing ones get
// small, and a protocol without one of its safety rules is caught. bfo-time-limit: 300

#include <gtest/gtest.h>

#include <set>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "test/sim/scenario.h"
#include "test/sim/shrink.h"
#include "test/sim/world.h"

namespace bfo::sim {
namespace {

Scenario make(uint64_t seed, const char* config) {
  Scenario s;
  EXPECT_TRUE(generate(seed, config, s));
  return s;
}

TEST(Simulator, SameSeed_SameTrace) {
  World first;
  World second;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const Result a = first.run(make(seed, "default"));
    const Result b = second.run(make(seed, "default"));
    EXPECT_EQ(a.trace_hash, b.trace_hash) << "seed " << seed;
    EXPECT_EQ(a.stats.events, b.stats.events) << "seed " << seed;
  }
}

TEST(Simulator, SameSeedInUsedWorld_SameTrace) {
  World fresh;
  World used;
  used.run(make(77, "default"));
  used.run(make(78, "death"));
  EXPECT_EQ(used.run(make(3, "default")).trace_hash, fresh.run(make(3, "default")).trace_hash);
  // One that sends older packets again: which ones it keeps must not depend on the run before.
  const uint64_t forged = fresh.run(make(5, "onerail")).trace_hash;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(used.run(make(5, "onerail")).trace_hash, forged) << i;
}

TEST(Simulator, OtherSeed_OtherTrace) {
  World w;
  std::set<uint64_t> seen;
  for (uint64_t seed = 1; seed <= 10; ++seed) seen.insert(w.run(make(seed, "default")).trace_hash);
  EXPECT_EQ(seen.size(), 10u);
}

TEST(Simulator, DefaultRun_IsAsLargeAsPromised) {
  World w;
  unsigned with_restart = 0;
  constexpr unsigned kRuns = 60;
  for (uint64_t seed = 1; seed <= kRuns; ++seed) {
    const Scenario s = make(seed, "default");
    EXPECT_GE(s.machine.procs, 4u);
    EXPECT_GE(s.faults.size(), 3u);
    const Result r = w.run(s);
    EXPECT_GE(r.stats.messages, 300u);
    if (r.stats.restarts != 0) ++with_restart;
  }
  EXPECT_GE(with_restart, kRuns * 9 / 10);
}

/// A protocol without its gate ends requests that still own ledger entries and fragments: what it leaks is
/// the defect that the test put in, not one of ours.
struct ExpectedLeaks {
#ifdef __SANITIZE_ADDRESS__
  ExpectedLeaks() {
    __lsan_disable();
  }
  ~ExpectedLeaks() {
    __lsan_enable();
  }
#endif
};

/// Seeds among the first `runs` whose violation begins with `promise`; it stops counting at `enough`.
unsigned caught(const Hooks& hooks, const char* promise, unsigned runs, unsigned enough = ~0u) {
  World w;
  unsigned n = 0;
  for (uint64_t seed = 1; seed <= runs && n < enough; ++seed)
    if (w.run(make(seed, "storm"), hooks).violation.rfind(promise, 0) == 0) ++n;
  return n;
}

TEST(Hooks, FenceRemoved_LateAccessIsSeen) {
  Hooks hooks;
  hooks.no_fence = true;
  EXPECT_GE(caught(hooks, "P2", 60, 3), 3u);
}

TEST(Hooks, GateRemoved_LateAccessIsSeen) {
  Hooks hooks;
  hooks.no_gate = true;
  [[maybe_unused]] const ExpectedLeaks leaks;
  EXPECT_GE(caught(hooks, "P2", 400, 2), 2u);
}

TEST(Hooks, NothingRemoved_NoViolation) {
  EXPECT_EQ(caught({}, "P", 60), 0u);
}

TEST(Shrink, FenceRemoved_FewMessagesAndFaultsAreLeft) {
  World w;
  Hooks hooks;
  hooks.no_fence = true;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Scenario s = make(seed, "storm");
    if (w.run(s, hooks).violation.rfind("P2", 0) != 0) continue;
    const Scenario small = shrink(w, s, hooks, 600);
    EXPECT_EQ(w.run(small, hooks).violation.rfind("P2", 0), 0u);
    EXPECT_LE(small.pairs.size(), 20u);
    EXPECT_LE(small.faults.size(), 6u);
    return;
  }
  FAIL() << "no seed failed";
}

TEST(Schedule, WrittenAndReadBack_SameTrace) {
  World w;
  for (const std::string& config : config_names()) {
    const Scenario s = make(5, config.c_str());
    Scenario back;
    std::string error;
    ASSERT_TRUE(parse(print(s), back, error)) << error;
    EXPECT_EQ(print(back), print(s)) << config;
    EXPECT_EQ(w.run(s).trace_hash, w.run(back).trace_hash) << config;
  }
}

TEST(Schedule, UnknownWord_NamesTheLine) {
  Scenario s;
  std::string error;
  EXPECT_FALSE(parse("config x\nmachine procs=2\nfault explode t=1\n", s, error));
  EXPECT_EQ(error, "line 3: unknown fault \"explode\"");
}

TEST(Schedule, NamesOutsideTheMachine_AreRefused) {
  Scenario s;
  std::string error;
  EXPECT_FALSE(parse("machine procs=2\ncomm ctx=0\npair src=0 dst=2\n", s, error));
  EXPECT_FALSE(parse("machine procs=2 rails=9\n", s, error));
  EXPECT_FALSE(parse("machine procs=two\n", s, error));
}

}  // namespace
}  // namespace bfo::sim
