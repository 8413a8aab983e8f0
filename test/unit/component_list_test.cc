// SPDX-License-Identifier: BSD-3-Clause
//
// component_list_test.cc: lists that choose components, as administrators and users write them.
#include "common/component_list.h"

#include <gtest/gtest.h>

#include <array>

namespace bfo::test {
namespace {

constexpr std::array<std::string_view, 4> kRails = {"verbs", "self", "vader", "sm"};

struct Row {
  const char* list;
  bool asks;
  bool leaves_out;
  bool within;
};

TEST(ComponentList, VerbsInListsOfBtls_AsOpenMpiReadsThem) {
  constexpr Row kRows[] = {
      {nullptr, false, false, false},
      {"", false, false, false},
      {"verbs", true, false, true},
      {"self,verbs", true, false, true},
      {"verbs,vader,self", true, false, true},
      {"verbs,tcp,self", true, false, false},
      {"verbs,,self", true, false, true},
      {"vader,self,tcp", false, true, false},
      {"self", false, true, true},
      {"verbs2,self", false, true, false},
      {"^verbs", false, true, false},
      {"^openib,verbs", false, true, false},
      {"^uct,openib,ofi", false, false, false},
  };
  for (const Row& row : kRows) {
    const ComponentList list(row.list);
    EXPECT_EQ(list.asks_for("verbs"), row.asks) << (row.list != nullptr ? row.list : "(none)");
    EXPECT_EQ(list.leaves_out("verbs"), row.leaves_out) << (row.list != nullptr ? row.list : "(none)");
    EXPECT_EQ(list.is_within(kRails), row.within) << (row.list != nullptr ? row.list : "(none)");
  }
}

TEST(ComponentList, SelectedPml_IsTheFirstName) {
  EXPECT_TRUE(ComponentList("bfo").selects("bfo"));
  EXPECT_TRUE(ComponentList("bfo,ob1").selects("bfo"));
  EXPECT_FALSE(ComponentList("ob1,bfo").selects("bfo"));
  EXPECT_FALSE(ComponentList("bfo2").selects("bfo"));
  EXPECT_FALSE(ComponentList("^ob1,cm,ucx").selects("bfo"));
  EXPECT_FALSE(ComponentList("^bfo").selects("bfo"));
  EXPECT_FALSE(ComponentList("").selects("bfo"));
  EXPECT_FALSE(ComponentList(nullptr).selects("bfo"));
}

TEST(ComponentList, LeftOutByName_IsToldFromLeftOutBySilence) {
  EXPECT_TRUE(ComponentList("^verbs").leaves_out_by_name("verbs"));
  EXPECT_FALSE(ComponentList("vader,self").leaves_out_by_name("verbs"));
}

}  // namespace
}  // namespace bfo::test
