// SPDX-License-Identifier: BSD-3-Clause
//
// closure_seq_test.cc: explores model M3 whole, then leaves out each of its rules in turn.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "test/sim/closure_search.h"
#include "test/sim/closure_seq.h"

namespace bfo::closure::seq {
namespace {

std::string story(const Report& r) {
  std::string s = r.failure + "\n";
  const size_t n = r.trace.size();
  for (size_t i = n > 80 ? n - 80 : 0; i < n; ++i) s += "    " + r.trace[i] + "\n";
  return s;
}

TEST(SequenceClosure, OnceInOrderInTheirOwnCommunicator) {
  const char* const env = std::getenv("BFO_CLOSURE");
  const int most = env && std::string(env) == "big" ? 3 : 1;
  for (int deaths = 1; deaths <= most; ++deaths) {
    Sequence m(deaths, Without::kNothing);
    const Report r = search(m, 2'000'000'000);
    std::printf("sequence, %d death%s of rails: %llu states, %llu transitions, %llu ends\n", deaths,
                deaths == 1 ? "" : "s", static_cast<unsigned long long>(r.states),
                static_cast<unsigned long long>(r.transitions), static_cast<unsigned long long>(r.ends));
    std::fflush(stdout);
    EXPECT_EQ(r.failure, "") << story(r);
    EXPECT_TRUE(r.complete);
  }
}

TEST(SequenceClosure, EveryRuleIsNeeded) {
  for (int w = 1; w < static_cast<int>(Without::kCount); ++w) {
    bool caught = false;
    for (int deaths = 0; deaths <= 2 && !caught; ++deaths) {
      Sequence m(deaths, static_cast<Without>(w));
      const Report r = search(m, 1'500'000);
      if (r.failure.empty()) continue;
      std::printf("without \"%s\": %s, %zu steps\n", kWithoutNames[w], r.failure.c_str(), r.trace.size());
      std::fflush(stdout);
      caught = true;
    }
    EXPECT_TRUE(caught) << "without \"" << kWithoutNames[w] << "\" nothing breaks: the model is too abstract";
  }
}

}  // namespace
}  // namespace bfo::closure::seq
