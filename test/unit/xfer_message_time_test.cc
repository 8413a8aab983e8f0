// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_message_time_test.cc: which of two rails keeps eager messages longer.
#include <gtest/gtest.h>

#include "pml/bfo/xfer/rails/message_time.h"

namespace bfo::xfer {
namespace {

MessageTime of(std::initializer_list<uint64_t> times) {
  MessageTime t;
  for (const uint64_t ns : times) t.ended(ns);
  return t;
}

TEST(MessageTime, FewTellNothing) {
  const MessageTime fast = of({8000, 8000, 8000, 8000});
  EXPECT_FALSE(of({900'000, 900'000, 900'000}).longer_than(fast));
  EXPECT_FALSE(fast.longer_than(of({1000, 1000, 1000})));
  EXPECT_FALSE(of({}).last_longer_than(fast));
  EXPECT_FALSE(of({900'000}).last_longer_than(of({8000, 8000, 8000})));
}

TEST(MessageTime, EachOfTheLastFourHasToBeLonger) {
  const MessageTime fast = of({60'000, 20'000, 50'000, 40'000});
  EXPECT_TRUE(of({75'000, 80'000, 90'000, 76'000}).longer_than(fast));
  EXPECT_FALSE(of({75'000, 80'000, 90'000, 73'000}).longer_than(fast)) << "one was not";
  EXPECT_FALSE(of({80'000, 80'000, 80'000, 80'000}).longer_than(of({20'000, 20'000, 70'000, 20'000})));
  EXPECT_FALSE(of({9000, 9000, 9000, 9000}).longer_than(of({7000, 7000, 7000, 7000}))) << "two microseconds";
}

TEST(MessageTime, OlderOnesDoNotCount) {
  const MessageTime fast = of({60'000, 20'000, 50'000, 40'000});
  EXPECT_TRUE(of({1000, 75'000, 80'000, 90'000, 76'000}).longer_than(fast));
  EXPECT_TRUE(
      of({80'000, 80'000, 80'000, 80'000}).longer_than(of({900'000, 20'000, 20'000, 20'000, 20'000})));
}

TEST(MessageTime, LastOne) {
  const MessageTime fast = of({60'000, 20'000, 50'000, 40'000});
  EXPECT_TRUE(of({1000, 80'000}).last_longer_than(fast));
  EXPECT_FALSE(of({80'000, 1000}).last_longer_than(fast));
  EXPECT_TRUE(of({300'000}).last_longer_than(fast, 4));
  EXPECT_FALSE(of({230'000}).last_longer_than(fast, 4));
  EXPECT_TRUE(of({90'000}).last_longer_than(of({20'000}), 4)) << "of one that has one";
  EXPECT_FALSE(of({90'000}).last_longer_than(of({}), 4));
}

TEST(MessageTime, LongestThatIsKept) {
  EXPECT_TRUE(of({UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}).longer_than(of({1, 1, 1, 1})));
  EXPECT_TRUE(of({60'000'000'000}).last_longer_than(of({1}), 4)) << "more than 4.2 s is as long";
}

}  // namespace
}  // namespace bfo::xfer
