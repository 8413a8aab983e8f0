// SPDX-License-Identifier: BSD-3-Clause
//
// btl_kept_test.cc: messages that no rail takes now: each is offered until it is settled, in order, and not
// at every turn.
#include "btl/verbs/glue/kept.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace bfo::test {
namespace {

using verbs::KeptMessage;
using verbs::KeptMessages;

constexpr uint64_t kPause = KeptMessages::kRetryNs;
using Texts = std::vector<std::string>;

class Kept : public testing::Test {
 protected:
  void TearDown() override { kept.drop(); }

  void keep(uint64_t peer, const std::string& text) {
    ASSERT_TRUE(kept.keep(peer, static_cast<uint8_t>(40 + peer), text.data(), text.size()));
  }
  /// What is offered at `now`, with who is to get it and its tag; that for `reachable` is settled if
  /// there is room.
  Texts offer(uint64_t now, uint64_t reachable) {
    Texts offered;
    kept.offer(now, [&](const KeptMessage& message) {
      offered.push_back(std::to_string(message.peer) + "/" + std::to_string(message.tag) + " " +
                        std::string(message.data(), message.length));
      return message.peer == reachable && message.length <= room;
    });
    return offered;
  }

  KeptMessages kept{};
  size_t room = 64;
};

TEST_F(Kept, NothingWaits_NothingIsOffered) {
  EXPECT_EQ(kept.count(), 0u);
  EXPECT_EQ(offer(1, 1), Texts{});
}

TEST_F(Kept, ItIsOfferedUntilItIsSettled_WithAllItsBytes) {
  keep(1, std::string("re\0voke", 7));
  for (uint64_t now = kPause; now < 5 * kPause; now += kPause)
    EXPECT_EQ(offer(now, 2), Texts{std::string("1/41 re\0voke", 12)});
  EXPECT_EQ(kept.count(), 1u);
  EXPECT_TRUE(kept.has(1));
  EXPECT_FALSE(kept.has(2));
  EXPECT_EQ(offer(5 * kPause, 1), Texts{std::string("1/41 re\0voke", 12)});
  EXPECT_EQ(kept.count(), 0u);
  EXPECT_EQ(offer(6 * kPause, 1), Texts{});
}

TEST_F(Kept, OnePeerWithoutARail_DoesNotHoldUpTheOthers) {
  keep(1, "a");
  keep(2, "b");
  keep(1, "c");
  keep(2, "d");
  EXPECT_EQ(offer(kPause, 2), (Texts{"1/41 a", "2/42 b", "2/42 d"}));
  EXPECT_EQ(kept.count(), 2u);
  EXPECT_EQ(offer(2 * kPause, 1), (Texts{"1/41 a", "1/41 c"}));
  EXPECT_EQ(kept.count(), 0u);
}

/// There may be room for a short one where there is none for a long one.
TEST_F(Kept, ForOnePeer_NoneOvertakesOneThatStays) {
  keep(1, "long");
  keep(2, "a");
  keep(1, "b");
  room = 1;
  EXPECT_EQ(offer(kPause, 1), (Texts{"1/41 long", "2/42 a"}));
  EXPECT_EQ(kept.count(), 3u);
  room = 4;
  EXPECT_EQ(offer(2 * kPause, 1), (Texts{"1/41 long", "2/42 a", "1/41 b"}));
  EXPECT_EQ(kept.count(), 1u);
}

TEST_F(Kept, TheLastOneGoes_WhatComesIsStillBehind) {
  keep(1, "a");
  keep(2, "b");
  EXPECT_EQ(offer(kPause, 2).size(), 2u);
  keep(1, "c");
  EXPECT_EQ(offer(2 * kPause, 1), (Texts{"1/41 a", "1/41 c"}));
}

TEST_F(Kept, NotAtEveryTurn_ButANewOneAtOnce) {
  keep(1, "a");
  EXPECT_EQ(offer(kPause, 2).size(), 1u);
  EXPECT_EQ(offer(2 * kPause - 1, 1), Texts{});
  EXPECT_EQ(kept.count(), 1u);
  keep(3, "b");
  EXPECT_EQ(offer(2 * kPause - 1, 2), (Texts{"1/41 a", "3/43 b"}));
}

TEST_F(Kept, Dropped_TheyAreGone_AndItCanBeUsedAgain) {
  keep(1, "a");
  EXPECT_EQ(offer(kPause, 2).size(), 1u);
  kept.drop();
  EXPECT_EQ(kept.count(), 0u);
  keep(2, "b");
  EXPECT_EQ(offer(0, 2), Texts{"2/42 b"});
}

}  // namespace
}  // namespace bfo::test
