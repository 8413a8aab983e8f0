// SPDX-License-Identifier: BSD-3-Clause
//
// closure_epoch_test.cc: explores model M2 whole, then leaves out each of its rules in turn.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "test/sim/closure_epoch.h"
#include "test/sim/closure_search.h"

namespace bfo::closure::epoch {
namespace {

bool asked(const char* what) {
  const char* const env = std::getenv("BFO_CLOSURE");
  return env && std::string(env) == what;
}

std::string story(const Report& r) {
  std::string s = r.failure + "\n";
  const size_t n = r.trace.size();
  for (size_t i = n > 80 ? n - 80 : 0; i < n; ++i) s += "    " + r.trace[i] + "\n";
  return s;
}

void expect_holds(const Bounds& b) {
  Epochs m(b, Without::kNothing);
  const Report r = search(m, 2'000'000'000);
  std::printf("epochs, %d fault%s, %s, messages%s%s%s in %s: %llu states, %llu transitions, %llu ends\n",
              b.faults, b.faults == 1 ? "" : "s", b.other_rail ? "another rail" : "the only rail",
              b.message[0] ? " of A" : "", b.message[1] ? " of B" : "", b.write ? " and a write" : "",
              b.in_slot ? "slots" : "fragments", static_cast<unsigned long long>(r.states),
              static_cast<unsigned long long>(r.transitions), static_cast<unsigned long long>(r.ends));
  std::fflush(stdout);
  EXPECT_EQ(r.failure, "") << story(r);
  EXPECT_TRUE(r.complete);
}

constexpr bool kAnother = true;
constexpr bool kOnly = false;
constexpr bool kSlots = true;
constexpr bool kFragments = false;

TEST(EpochClosure, FencedDeliveredAnnouncedAndBack) {
  expect_holds({1, kOnly, kFragments, {true, true}, true});
  expect_holds({1, kOnly, kSlots, {true, true}, false});
  expect_holds({1, kAnother, kFragments, {true, false}, false});
  expect_holds({1, kAnother, kSlots, {false, true}, false});
  expect_holds({2, kOnly, kFragments, {true, false}, true});
  if (!asked("big")) return;
  expect_holds({2, kAnother, kFragments, {false, false}, true});
  expect_holds({1, kAnother, kFragments, {true, false}, true});
  expect_holds({2, kOnly, kSlots, {true, true}, false});
  expect_holds({2, kAnother, kFragments, {true, false}, false});
  expect_holds({2, kAnother, kSlots, {false, true}, false});
}

TEST(EpochClosure, EveryRuleIsNeeded) {
  constexpr Bounds kTried[] = {
      {1, kOnly, kFragments, {true, false}, true},     {1, kOnly, kFragments, {true, true}, false},
      {1, kAnother, kFragments, {false, false}, true}, {1, kAnother, kFragments, {true, false}, false},
      {1, kAnother, kSlots, {false, true}, false},
  };
  for (int w = 1; w < static_cast<int>(Without::kCount); ++w) {
    bool caught = false;
    for (const Bounds& bounds : kTried) {
      Epochs m(bounds, static_cast<Without>(w));
      const Report r = search(m, 1'000'000);
      if (r.failure.empty()) continue;
      std::printf("without \"%s\": %s, %zu steps\n", kWithoutNames[w], r.failure.c_str(), r.trace.size());
      std::fflush(stdout);
      caught = true;
      break;
    }
    EXPECT_TRUE(caught) << "without \"" << kWithoutNames[w] << "\" nothing breaks: the model is too abstract";
  }
}

}  // namespace
}  // namespace bfo::closure::epoch
