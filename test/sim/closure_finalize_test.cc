// SPDX-License-Identifier: BSD-3-Clause
//
// closure_finalize_test.cc: explores model M4 whole, then leaves out each of its rules in turn.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "test/sim/closure_finalize.h"
#include "test/sim/closure_search.h"

namespace bfo::closure::finalize {
namespace {

constexpr Ending kEndings[] = {Ending::kFence, Ending::kBarrier, Ending::kNone};
constexpr const char* kEndingNames[] = {"fence with progress", "barrier and fence without", "no fence"};

std::string story(const Report& r) {
  std::string s = r.failure + "\n";
  for (const std::string& line : r.trace) s += "    " + line + "\n";
  return s;
}

TEST(FinalizeClosure, NobodyWaitsForEverAndNothingIsLost) {
  for (const Ending ending : kEndings)
    for (int faults = 0; faults <= 2; ++faults) {
      Finalize m(ending, faults, Without::kNothing);
      const Report r = search(m, 10'000'000);
      std::printf("finalize, %s, %d faults: %llu states, %llu transitions, %llu ends\n",
                  kEndingNames[static_cast<int>(ending)], faults, static_cast<unsigned long long>(r.states),
                  static_cast<unsigned long long>(r.transitions), static_cast<unsigned long long>(r.ends));
      std::fflush(stdout);
      EXPECT_EQ(r.failure, "") << story(r);
      EXPECT_TRUE(r.complete);
    }
}

TEST(FinalizeClosure, EveryRuleIsNeeded) {
  for (int w = 1; w < static_cast<int>(Without::kCount); ++w) {
    bool caught = false;
    for (int i = 0; i < 9 && !caught; ++i) {
      const Ending ending = kEndings[i % 3];
      Finalize m(ending, i / 3, static_cast<Without>(w));
      const Report r = search(m, 1'000'000);
      if (r.failure.empty()) continue;
      std::printf("without \"%s\": %s, %s, %zu steps\n", kWithoutNames[w], r.failure.c_str(),
                  kEndingNames[static_cast<int>(ending)], r.trace.size());
      std::fflush(stdout);
      caught = true;
    }
    EXPECT_TRUE(caught) << "without \"" << kWithoutNames[w] << "\" nothing breaks: the model is too abstract";
  }
}

}  // namespace
}  // namespace bfo::closure::finalize
