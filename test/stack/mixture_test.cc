// SPDX-License-Identifier: BSD-3-Clause
//
// mixture_test.cc: the names of cells (mixture.h), and those that are drawn.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "test/stack/mixture.h"
#include "test/stack/port.h"

namespace bfo::stack {
namespace {

void expect_named(const std::vector<Cell>& cells) {
  std::set<std::string> names;
  for (const Cell& c : cells) {
    const std::string name = name_of(c);
    Cell again;
    ASSERT_TRUE(cell_of(name, &again)) << name;
    EXPECT_EQ(name_of(again), name);
    EXPECT_EQ(again.size, c.size) << name;
    EXPECT_EQ(again.least, c.least) << name;
    EXPECT_EQ(again.ordered, c.ordered) << name;
    EXPECT_EQ(again.odd_rail(), c.odd_rail()) << name;
    EXPECT_EQ(again.wave_ns, c.wave_ns) << name;
    names.insert(name);
  }
  EXPECT_EQ(names.size(), cells.size()) << "two cells have one name";
}

TEST(Mixture, EachCellHasANameThatMakesIt) {
  expect_named(all_cells());
  expect_named(chosen_cells());
  expect_named(few_cells());
  expect_named(crowded_cells());
  expect_named(drawn_cells(1, 500));
}

TEST(Mixture, WhatIsNoNameOfACellIsNone) {
  Cell c;
  for (const char* name : {"",
                           "read",
                           "read.2.10:1.start.64K.w4",
                           "read.2.10:1.start.64K.w4.one.two",
                           "write.2.10:1.start.64K.w4.one",
                           "read.1.10:1.start.64K.w4.one",
                           "read.9.10:1.start.64K.w4.one",
                           "read.2-2.10:1.start.64K.w4.one",
                           "read.2.10.start.64K.w4.one",
                           "read.2.10:2.start.64K.w4.one",
                           "read.2.10:1.never.64K.w4.one",
                           "read.2.10:1.start-in.64K.w4.one",
                           "read.2.10:1.wave.1M.w4.one",
                           "read.2.10:1.start.64G.w4.one",
                           "read.2.10:1.start.0.w4.one",
                           "read.2.10:1.start.0-4M.w4.one",
                           "read.2.10:1.start.8-.w4.one",
                           "read.2.10:1.start.65536.w4.one",
                           "read.2.10:1.start.64K.x4.one",
                           "read.2.10:1.start.64K..one",
                           "read.2.10:1.start.64K.w4.two",
                           "read.2-1.10:1.start.64K.w4.one",
                           "*.one"})
    EXPECT_FALSE(cell_of(name, &c)) << name;
}

TEST(Mixture, WhatIsDrawnFollowsFromTheSeed_AndAnyRailIsTheSlowOne) {
  const std::vector<Cell> one = drawn_cells(7, 400), two = drawn_cells(7, 400), other = drawn_cells(8, 400);
  size_t same = 0;
  std::set<uint32_t> odd, rails;
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(name_of(one[i]), name_of(two[i]));
    same += name_of(one[i]) == name_of(other[i]);
    odd.insert(one[i].odd_rail());
    rails.insert(one[i].rails);
  }
  EXPECT_LT(same, one.size() / 10);
  EXPECT_EQ(odd.size(), kMaxStackRails);
  EXPECT_EQ(rails.size(), kMaxStackRails - 1);
}

}  // namespace
}  // namespace bfo::stack
