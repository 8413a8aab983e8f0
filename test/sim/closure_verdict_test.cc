// SPDX-License-Identifier: BSD-3-Clause
//
// closure_verdict_test.cc: explores model M5 whole, then leaves out each of its rules in turn.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "test/sim/closure_search.h"
#include "test/sim/closure_verdict.h"

namespace bfo::closure::verdict {
namespace {

std::string story(const Report& r) {
  std::string s = r.failure + "\n";
  for (const std::string& line : r.trace) s += "    " + line + "\n";
  return s;
}

TEST(VerdictClosure, ClocksNeverTakeTheLastRail) {
  // Faults only keep packets away, and each may be late for ever without one.
  const char* const env = std::getenv("BFO_CLOSURE");
  const int most = env != nullptr && std::string(env) == "big" ? 2 : 0;
  for (int faults = 0; faults <= most; ++faults) {
    Verdicts m(faults, Without::kNothing);
    const Report r = search(m, 2'000'000'000);
    std::printf("verdicts, %d faults: %llu states, %llu transitions, %llu ends, %llu verdicts\n", faults,
                static_cast<unsigned long long>(r.states), static_cast<unsigned long long>(r.transitions),
                static_cast<unsigned long long>(r.ends), static_cast<unsigned long long>(m.verdicts()));
    std::fflush(stdout);
    EXPECT_EQ(r.failure, "") << story(r);
    EXPECT_TRUE(r.complete);
    EXPECT_NE(m.verdicts(), 0u) << "no rail is ever ended: the model is too abstract";
  }
}

TEST(VerdictClosure, EveryRuleIsNeeded) {
  for (int w = 1; w < static_cast<int>(Without::kCount); ++w) {
    bool caught = false;
    for (int faults = 0; faults <= 1 && !caught; ++faults) {
      Verdicts m(faults, static_cast<Without>(w));
      const Report r = search(m, 4'000'000);
      if (r.failure.find("last rail") == std::string::npos) continue;
      std::printf("without \"%s\": %s, %d faults, %zu steps\n", kWithoutNames[w], r.failure.c_str(), faults,
                  r.trace.size());
      std::fflush(stdout);
      caught = true;
    }
    EXPECT_TRUE(caught) << "without \"" << kWithoutNames[w] << "\" nothing breaks: the model is too abstract";
  }
}

}  // namespace
}  // namespace bfo::closure::verdict
