// SPDX-License-Identifier: BSD-3-Clause
//
// common_test.cc: clocks, sequence arithmetic, wire names, the slot table, range sets.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"
#include "common/ranges.h"
#include "common/seq.h"
#include "common/slot_map.h"

namespace bfo {
namespace {

TEST(Clock, WhatIsLaterIsNoTimeAgo) {
  EXPECT_EQ(time_since(3, 10), 7u);
  EXPECT_EQ(time_since(10, 10), 0u);
  EXPECT_EQ(time_since(11, 10), 0u);
}

TEST(Clock, PeriodicIsDueOncePerPeriodAlsoForAThreadWithAnOldClock) {
  Periodic look(1000);
  EXPECT_TRUE(look.due(5000)) << "never done yet";
  EXPECT_FALSE(look.due(4999)) << "read before the other thread did it";
  EXPECT_FALSE(look.due(5999));
  EXPECT_TRUE(look.due(6000));
  EXPECT_FALSE(look.due(6000));
}

TEST(Seq, DistanceWraps) {
  EXPECT_EQ(seq_distance(65535, 1), 2);
  EXPECT_EQ(seq_distance(1, 65535), -2);
  EXPECT_TRUE(seq_before(65530, 3));
  EXPECT_FALSE(seq_before(3, 65530));
  EXPECT_FALSE(seq_before(7, 7));
}

TEST(Seq, PlaceOnEverySideOfTheWindow) {
  for (int base : {0, 1, 40000, 65535}) {
    const Seq16 e = static_cast<Seq16>(base);
    const auto at = [&](int d) { return seq_place(e, static_cast<Seq16>(base + d)); };
    EXPECT_EQ(at(0), SeqPlace::kExpected);
    EXPECT_EQ(at(1), SeqPlace::kFuture);
    EXPECT_EQ(at(kSeqWindow), SeqPlace::kFuture);
    EXPECT_EQ(at(kSeqWindow + 1), SeqPlace::kOutside);
    EXPECT_EQ(at(-1), SeqPlace::kPast);
    EXPECT_EQ(at(-kSeqWindow), SeqPlace::kPast);
    EXPECT_EQ(at(-kSeqWindow - 1), SeqPlace::kOutside);
    EXPECT_EQ(at(-32768), SeqPlace::kOutside);
  }
}

/// Of all answers to the open question, the oldest and the newest possible are told apart from what is
/// confirmed, also where the numbers come round: the message's, and the question's.
TEST(Seq, AnswerToTheOpenQuestionIsUnambiguous) {
  const auto seq = [](std::uint64_t n) { return static_cast<Seq16>(n); };
  for (std::uint64_t base : {std::uint64_t{0}, std::uint64_t{60'000}, (std::uint64_t{1} << 30) - 50'000}) {
    std::uint64_t confirmed = base;
    auto question = static_cast<std::uint16_t>(base / kSeqWindow);
    std::uint64_t asked = base;  // `confirmed` when the open question was asked for the first time
    std::mt19937 rng(7);
    while (confirmed < base + 200'000) {
      const std::uint64_t sent = confirmed + rng() % (kSeqWindow + 1);
      for (std::uint64_t answer : {asked, confirmed, sent}) {
        const auto by = static_cast<std::int64_t>(answer - confirmed);
        ASSERT_EQ(seq_distance(seq(confirmed), seq(answer)), by) << confirmed;
        ASSERT_EQ(seq_distance(seq(answer), seq(sent)), static_cast<std::int64_t>(sent - answer));
      }
      const std::uint16_t next = seq_question(question, seq(confirmed), seq(sent));
      ASSERT_EQ(next, static_cast<std::uint16_t>(sent / kSeqWindow)) << confirmed << " to " << sent;
      if (next != question) asked = sent;
      question = next;
      confirmed = sent;
    }
  }
}

TEST(Name, PartsAreKeptApart) {
  const Name n(0xabcdef, 0x123456, 0x789a);
  EXPECT_EQ(n.slot(), 0xabcdefu);
  EXPECT_EQ(n.gen(), 0x123456u);
  EXPECT_EQ(n.round(), 0x789au);
  EXPECT_TRUE(n.same_request(n.at(5)));
  EXPECT_EQ(n.at(5).round(), 5u);
  EXPECT_FALSE(n.same_request(Name(0xabcdef, 0x123457, 0x789a)));
  EXPECT_FALSE(n.same_request(Name(0xabcdee, 0x123456, 0x789a)));
}

TEST(SlotMap, ReleasedNameIsFinished_ForgedOneIsNot) {
  SlotMap<int> m;
  int a = 0;
  NameState s;
  const Name n = m.insert(&a);
  EXPECT_EQ(m.find(n, s), &a);
  EXPECT_EQ(s, NameState::kLive);
  EXPECT_EQ(m.find(n.at(9)), &a) << "the round is not part of the identity";
  m.erase(n);
  EXPECT_EQ(m.find(n, s), nullptr);
  EXPECT_EQ(s, NameState::kFinished);
  EXPECT_EQ(m.find(Name(n.slot(), n.gen() + 5, 1), s), nullptr);
  EXPECT_EQ(s, NameState::kNever);
  EXPECT_EQ(m.find(Name(0xfffff0, 1, 1), s), nullptr);
  EXPECT_EQ(s, NameState::kNever);
  EXPECT_EQ(m.find(Name(), s), nullptr);
  EXPECT_EQ(s, NameState::kNever);
}

TEST(SlotMap, FailedNameIsRemembered_SlotIsNotReused) {
  SlotMap<int> m;
  int a = 0;
  NameState s;
  const Name n = m.insert(&a);
  m.erase(n, true);
  for (int i = 0; i < 5000; ++i) {
    const Name k = m.insert(&a);
    EXPECT_NE(k.slot(), n.slot());
    m.erase(k);
  }
  EXPECT_EQ(m.find(n, s), nullptr);
  EXPECT_EQ(s, NameState::kFailed);
}

TEST(SlotMap, SlotsAreReusedFirstInFirstOut) {
  SlotMap<int> m;
  int a = 0;
  const Name first = m.insert(&a);
  m.erase(first);
  int until = 0;
  for (;;) {
    const Name n = m.insert(&a);
    m.erase(n);
    ++until;
    if (n.slot() == first.slot()) break;
    ASSERT_LT(until, 100000);
  }
  EXPECT_GE(until, 200) << "a slot came back while others were unused";
}

TEST(SlotMap, ManyLive) {
  SlotMap<int> m;
  std::vector<int> values(3000);
  std::vector<Name> names;
  for (int& v : values) names.push_back(m.insert(&v));
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(m.find(names[i]), &values[i]);
  EXPECT_EQ(m.live(), 3000u);
}

TEST(RangeSet, AgreesWithABitmap) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 rng(seed);
    RangeSet set;
    std::vector<bool> bits(200, false);
    for (int step = 0; step < 300; ++step) {
      std::uint64_t b = rng() % 200;
      std::uint64_t e = b + rng() % (201 - b);
      if (rng() % 3) {
        std::uint64_t fresh = 0;
        for (std::uint64_t i = b; i < e; ++i) {
          fresh += !bits[i];
          bits[i] = true;
        }
        ASSERT_EQ(set.add(b, e), fresh);
      } else if (rng() % 2) {
        for (std::uint64_t i = b; i < e; ++i) bits[i] = false;
        set.remove(b, e);
      } else {
        const Range r = set.take_front(rng() % 7 + 1);
        for (std::uint64_t i = r.begin; i < r.end; ++i) {
          ASSERT_TRUE(bits[i]);
          bits[i] = false;
        }
      }
      std::uint64_t count = 0;
      for (bool x : bits) count += x;
      ASSERT_EQ(set.bytes(), count);
      for (std::uint32_t i = 0; i < set.count(); ++i) {
        ASSERT_LT(set[i].begin, set[i].end);
        if (i) {
          ASSERT_LT(set[i - 1].end, set[i].begin) << "adjacent ranges are one";
        }
        for (std::uint64_t k = set[i].begin; k < set[i].end; ++k) ASSERT_TRUE(bits[k]);
      }
      bool all = true;
      for (std::uint64_t i = b; i < e; ++i) all = all && bits[i];
      ASSERT_EQ(set.covers(b, e), all);
    }
    RangeSet rest;
    rest.assign_complement(set, 200);
    ASSERT_EQ(rest.bytes() + set.bytes(), 200u);
  }
}

TEST(RangeSet, MoreRangesThanItHolds_LeavesThemOutAndSaysSo) {
  RangeSet set;
  for (std::uint64_t i = 0; i < RangeSet::kMaxCount; ++i) set.add(4 * i, 4 * i + 3);
  EXPECT_FALSE(set.incomplete());
  set.remove(1, 2);  // two pieces of one: the second has no room
  EXPECT_TRUE(set.incomplete());
  EXPECT_EQ(set.count(), RangeSet::kMaxCount);
  EXPECT_TRUE(set.covers(4, 7));
  EXPECT_FALSE(set.covers(1, 2));
  set.clear();
  EXPECT_FALSE(set.incomplete());
}

}  // namespace
}  // namespace bfo
