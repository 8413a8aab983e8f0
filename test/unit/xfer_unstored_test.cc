// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_unstored_test.cc: sizes of messages that could not be kept, by the kind of rail that they came over.
#include "pml/bfo/xfer/base/unstored.h"

#include <gtest/gtest.h>

namespace bfo::xfer {
namespace {

TEST(Unstored, ConcernsPeersWithThatKindOfRail) {
  Unstored u;
  EXPECT_EQ(u.over(true), 0u);
  EXPECT_EQ(u.over(false), 0u);
  u.note(true, 7);
  EXPECT_EQ(u.over(true), 7u);
  EXPECT_EQ(u.over(false), 0u);
  u.note(false, 9);
  EXPECT_EQ(u.over(true), 7u);
  EXPECT_EQ(u.over(false), 9u);
}

TEST(Unstored, OfAnybodyConcernsEveryPeer) {
  Unstored u;
  u.note_any(5);
  EXPECT_EQ(u.over(true), 5u);
  EXPECT_EQ(u.over(false), 5u);
}

}  // namespace
}  // namespace bfo::xfer
