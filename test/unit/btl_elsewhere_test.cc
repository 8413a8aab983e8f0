// SPDX-License-Identifier: BSD-3-Clause
//
// btl_elsewhere_test.cc: messages that are for a process and not for a rail: which rail is asked, in which
// order, when one waits, and when it is for nobody.
#include "btl/verbs/engine/send/elsewhere.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace bfo::engine {
namespace {

using Asked = std::vector<int>;
using Steps = std::vector<std::string>;

constexpr bfo_rail_state_t kEveryState[] = {BFO_RAIL_IDLE,    BFO_RAIL_CONNECTING, BFO_RAIL_UP,
                                            BFO_RAIL_SUSPECT, BFO_RAIL_DOWN,       BFO_RAIL_UNUSABLE};

/// Rails of which one may have room, and which of them were asked.
class Elsewhere : public testing::Test {
 protected:
  void add(bfo_rail_state_t state, bool left = false) { rails.push_back({state, left}); }
  bool over(bfo_rail_state_t state, int except = kNoRail) {
    asked.clear();
    return send_over(rails, state, except, send());
  }
  bool settled(bool dead = false) {
    asked.clear();
    return settle_kept(
        rails, [&] { return ++looks, dead; }, send());
  }

  std::vector<RailThere> rails;
  int with_room = kNoRail;
  Asked asked;
  int looks = 0;  ///< for a process that has died

 private:
  std::function<bool(int)> send() {
    return [this](int i) {
      asked.push_back(i);
      return i == with_room;
    };
  }
};

TEST_F(Elsewhere, RailsInThatState_AreAskedInOrderUntilOneTakesIt) {
  for (const bfo_rail_state_t state : kEveryState) {
    add(state);
    add(state);
  }
  add(BFO_RAIL_UP);
  EXPECT_FALSE(over(BFO_RAIL_UP));
  EXPECT_EQ(asked, (Asked{4, 5, 12}));
  with_room = 5;
  EXPECT_TRUE(over(BFO_RAIL_UP));
  EXPECT_EQ(asked, (Asked{4, 5}));
  EXPECT_FALSE(over(BFO_RAIL_SUSPECT)) << "the one with room is in another state";
  EXPECT_EQ(asked, (Asked{6, 7}));
}

TEST_F(Elsewhere, TheRailThatHasLostIt_IsNotAsked) {
  add(BFO_RAIL_UP);
  add(BFO_RAIL_UP);
  with_room = 0;
  EXPECT_FALSE(over(BFO_RAIL_UP, 0));
  EXPECT_EQ(asked, Asked{1});
  EXPECT_TRUE(over(BFO_RAIL_UP, 1));
  EXPECT_EQ(asked, Asked{0});
}

TEST_F(Elsewhere, Kept_TakesASuspectRailOnlyWhenNoneThatIsUpTakesIt) {
  add(BFO_RAIL_SUSPECT);
  add(BFO_RAIL_UP);
  add(BFO_RAIL_SUSPECT);
  EXPECT_FALSE(settled()) << "no room: it stays";
  EXPECT_EQ(asked, (Asked{1, 0, 2}));
  with_room = 1;
  EXPECT_TRUE(settled());
  EXPECT_EQ(asked, Asked{1});
  with_room = 2;
  EXPECT_TRUE(settled());
  EXPECT_EQ(asked, (Asked{1, 0, 2}));
}

TEST_F(Elsewhere, KeptAndNoRailIsUp_ItWaitsAndNobodyIsAsked) {
  for (const bfo_rail_state_t state : {BFO_RAIL_IDLE, BFO_RAIL_CONNECTING, BFO_RAIL_DOWN}) {
    rails.assign(1, {state, false});
    with_room = 0;
    EXPECT_FALSE(settled()) << state;
    EXPECT_EQ(asked, Asked{}) << state;
  }
}

TEST_F(Elsewhere, KeptForAProcessThatHasLeft_IsOver_WhenEveryRailSaysSo) {
  add(BFO_RAIL_UP, true);
  add(BFO_RAIL_DOWN);
  with_room = kNoRail;
  EXPECT_FALSE(settled()) << "the other rail may come back";
  rails[1].left = true;
  EXPECT_TRUE(settled());
  EXPECT_EQ(asked, Asked{}) << "nobody is there to get it";
}

TEST_F(Elsewhere, KeptAndNoRailCanComeUp_IsOver) {
  add(BFO_RAIL_UNUSABLE);
  add(BFO_RAIL_UNUSABLE);
  EXPECT_TRUE(settled());
  rails[0].state = BFO_RAIL_DOWN;
  EXPECT_FALSE(settled());
  rails[0].left = true;
  EXPECT_TRUE(settled()) << "gone over the one, and no way back for the other";
}

TEST_F(Elsewhere, KeptForAProcessWithoutRails_IsOver_AndNobodyLooksWhetherItLives) {
  EXPECT_TRUE(settled());
  EXPECT_EQ(looks, 0);
}

TEST_F(Elsewhere, KeptForAProcessThatHasDied_IsOver_WhateverItsRailsAre) {
  add(BFO_RAIL_UP);
  add(BFO_RAIL_DOWN);
  with_room = 0;
  EXPECT_TRUE(settled(true));
  EXPECT_EQ(asked, Asked{}) << "it would come back";
  EXPECT_EQ(looks, 1);
}

TEST(ElsewhereKept, OnlyARailThatNoMessageHasUsed_IsConnected) {
  for (const bfo_rail_state_t state : kEveryState)
    EXPECT_EQ(connects_for_kept(state), state == BFO_RAIL_IDLE) << state;
}

/// A message that is given to a rail, and what is tried.
class Given : public testing::Test {
 protected:
  Goes give(bfo_rail_state_t asked, bool as_it_is = true, bool behind = false) {
    tried.clear();
    return send_given({.asked = asked, .as_it_is = as_it_is, .behind = behind}, attempt("asked", room_asked),
                      attempt("another", room_another));
  }

  bool room_asked = false;
  bool room_another = false;
  Steps tried;

 private:
  std::function<bool()> attempt(const char* name, const bool& room) {
    return [this, name, &room] {
      tried.push_back(name);
      return room;
    };
  }
};

TEST_F(Given, RailIsUp_TakesIt) {
  room_asked = room_another = true;
  EXPECT_EQ(give(BFO_RAIL_UP), Goes::kOverAsked);
  EXPECT_EQ(tried, Steps{"asked"});
}

TEST_F(Given, RailIsUpWithoutRoom_AnotherTakesIt) {
  room_another = true;
  EXPECT_EQ(give(BFO_RAIL_UP), Goes::kOverAnother);
  EXPECT_EQ(tried, (Steps{"asked", "another"}));
}

TEST_F(Given, NoRoomAnywhere_ItWaits_AndTheRailIsAskedOnce) {
  EXPECT_EQ(give(BFO_RAIL_UP), Goes::kWaits);
  EXPECT_EQ(tried, (Steps{"asked", "another"}));
}

TEST_F(Given, RailIsNotUp_AnotherThatIsComesFirst) {
  room_asked = room_another = true;
  for (const bfo_rail_state_t state : kEveryState) {
    if (state == BFO_RAIL_UP) continue;
    EXPECT_EQ(give(state), Goes::kOverAnother) << state;
    EXPECT_EQ(tried, Steps{"another"}) << state;
  }
}

TEST_F(Given, RailIsNotUpAndNoOtherIs_ItMayTakeIt_OrTheMessageWaits) {
  room_asked = true;
  for (const bfo_rail_state_t state : {BFO_RAIL_CONNECTING, BFO_RAIL_SUSPECT}) {
    EXPECT_EQ(give(state), Goes::kOverAsked) << state;
    EXPECT_EQ(tried, (Steps{"another", "asked"})) << state;
  }
  room_asked = false;
  EXPECT_EQ(give(BFO_RAIL_DOWN), Goes::kWaits);
  EXPECT_EQ(tried, (Steps{"another", "asked"}));
}

TEST_F(Given, ItsMemoryIsReadByNoDevice_OnlyACopyIsSent) {
  room_asked = true;
  for (const bfo_rail_state_t state : kEveryState) {
    EXPECT_EQ(give(state, false), Goes::kWaits) << state;
    EXPECT_EQ(tried, Steps{"another"}) << state;
  }
}

TEST_F(Given, OthersAreKept_ItWaitsBehindThem) {
  room_asked = room_another = true;
  for (const bfo_rail_state_t state : kEveryState) {
    EXPECT_EQ(give(state, true, true), Goes::kWaits) << state;
    EXPECT_EQ(tried, Steps{}) << state;
  }
}

}  // namespace
}  // namespace bfo::engine
