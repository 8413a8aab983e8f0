// SPDX-License-Identifier: BSD-3-Clause
//
// closure_test.cc: the table closure. Explores the composed state space of the dance exhaustively over the
// same tables the component uses, then leaves out each rule in turn: every one must lead to a
// counter-example. BFO_CLOSURE=big explores three rails of which two die, in all protocols (an hour, many
// gigabytes). bfo-time-limit: 900
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "test/sim/closure_dance.h"
#include "test/sim/closure_search.h"

namespace bfo::closure {
namespace {

constexpr const char* kModes[] = {"copy", "get", "put"};
constexpr Mode kAllModes[] = {Mode::kGet, Mode::kCopy, Mode::kPut};

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

void expect_holds(Mode mode, int deaths, int rails, int ranges = kRanges, Extra extra = {}) {
  Dance d(mode, Without::kNothing, {}, deaths, rails, ranges, extra);
  const Report r = search(d, 2'000'000'000);
  std::printf("%s, %d of %d rails die, %d range%s%s: %llu states, %llu transitions, %llu ends\n",
              kModes[static_cast<int>(mode)], deaths, rails, ranges, ranges == 1 ? "" : "s",
              extra.give_ups ? ", one gives up, headers forged" : "",
              static_cast<unsigned long long>(r.states), static_cast<unsigned long long>(r.transitions),
              static_cast<unsigned long long>(r.ends));
  std::fflush(stdout);
  EXPECT_EQ(r.failure, "") << story(r);
  EXPECT_TRUE(r.complete);
}

TEST(Closure, NoDeadlockNoLivelockNoLateAccess) {
  expect_holds(Mode::kGet, 1, 2);
  expect_holds(Mode::kCopy, 1, 2);
  expect_holds(Mode::kPut, 1, 2, 1);  // with two ranges: closure_cells_test in make soak
  expect_holds(Mode::kGet, 2, 3);
  if (!asked("big")) return;
  expect_holds(Mode::kCopy, 2, 3);
  expect_holds(Mode::kPut, 2, 3);
}

TEST(Closure, GivingUpEndsBothSides) {
  for (Mode mode : kAllModes)
    for (int rails : {1, 2}) expect_holds(mode, rails, rails, 1, Extra{1, true});
}

TEST(Closure, EveryRuleIsNeeded) {
  for (int w = 1; w < static_cast<int>(Without::kCount); ++w) {
    const auto rule = static_cast<Without>(w);
    bool caught = false;
    for (int i = 0; i < 6 && !caught; ++i) {  // the small models first
      const Mode mode = kAllModes[i % 3];
      Dance d(mode, rule, {}, 1, 2, 1 + i / 3);
      const Report r = search(d, 3'000'000);
      if (r.failure.empty()) continue;
      std::printf("without \"%s\": %s, %s, %zu steps\n", kWithoutNames[w], r.failure.c_str(),
                  kModes[static_cast<int>(mode)], r.trace.size());
      std::fflush(stdout);
      caught = true;
    }
    EXPECT_TRUE(caught) << "without \"" << kWithoutNames[w] << "\" nothing breaks: the model is too abstract";
  }
}

}  // namespace
}  // namespace bfo::closure
