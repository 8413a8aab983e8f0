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
#include "common/siphash.h"
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

// The published vectors: key 00 01 .. 0f, input 00 01 .. of 0 to 63 bytes.
TEST(SipHash, GivesThePublishedSums) {
  constexpr uint64_t kSums[64] = {
      0x726fdb47dd0e0e31ull, 0x74f839c593dc67fdull, 0x0d6c8009d9a94f5aull, 0x85676696d7fb7e2dull,
      0xcf2794e0277187b7ull, 0x18765564cd99a68dull, 0xcbc9466e58fee3ceull, 0xab0200f58b01d137ull,
      0x93f5f5799a932462ull, 0x9e0082df0ba9e4b0ull, 0x7a5dbbc594ddb9f3ull, 0xf4b32f46226bada7ull,
      0x751e8fbc860ee5fbull, 0x14ea5627c0843d90ull, 0xf723ca908e7af2eeull, 0xa129ca6149be45e5ull,
      0x3f2acc7f57c29bdbull, 0x699ae9f52cbe4794ull, 0x4bc1b3f0968dd39cull, 0xbb6dc91da77961bdull,
      0xbed65cf21aa2ee98ull, 0xd0f2cbb02e3b67c7ull, 0x93536795e3a33e88ull, 0xa80c038ccd5ccec8ull,
      0xb8ad50c6f649af94ull, 0xbce192de8a85b8eaull, 0x17d835b85bbb15f3ull, 0x2f2e6163076bcfadull,
      0xde4daaaca71dc9a5ull, 0xa6a2506687956571ull, 0xad87a3535c49ef28ull, 0x32d892fad841c342ull,
      0x7127512f72f27cceull, 0xa7f32346f95978e3ull, 0x12e0b01abb051238ull, 0x15e034d40fa197aeull,
      0x314dffbe0815a3b4ull, 0x027990f029623981ull, 0xcadcd4e59ef40c4dull, 0x9abfd8766a33735cull,
      0x0e3ea96b5304a7d0ull, 0xad0c42d6fc585992ull, 0x187306c89bc215a9ull, 0xd4a60abcf3792b95ull,
      0xf935451de4f21df2ull, 0xa9538f0419755787ull, 0xdb9acddff56ca510ull, 0xd06c98cd5c0975ebull,
      0xe612a3cb9ecba951ull, 0xc766e62cfcadaf96ull, 0xee64435a9752fe72ull, 0xa192d576b245165aull,
      0x0a8787bf8ecb74b2ull, 0x81b3e73d20b49b6full, 0x7fa8220ba3b2eceaull, 0x245731c13ca42499ull,
      0xb78dbfaf3a8d83bdull, 0xea1ad565322a1a0bull, 0x60e61c23a3795013ull, 0x6606d7e446282b93ull,
      0x6ca4ecb15c5f91e1ull, 0x9f626da15c9625f3ull, 0xe51b38608ef25f57ull, 0x958a324ceb064572ull,
  };
  const SipKey key{0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull};
  unsigned char input[64 + 1];
  for (unsigned i = 0; i < 64; ++i) input[i + 1] = static_cast<unsigned char>(i);
  for (unsigned n = 0; n < 64; ++n) EXPECT_EQ(siphash(key, input + 1, n), kSums[n]) << n;  // not aligned
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
  const auto seq = [](uint64_t n) { return static_cast<Seq16>(n); };
  for (uint64_t base : {uint64_t{0}, uint64_t{60'000}, (uint64_t{1} << 30) - 50'000}) {
    uint64_t confirmed = base;
    auto question = static_cast<uint16_t>(base / kSeqWindow);
    uint64_t asked = base;  // `confirmed` when the open question was asked for the first time
    std::mt19937 rng(7);
    while (confirmed < base + 200'000) {
      const uint64_t sent = confirmed + rng() % (kSeqWindow + 1);
      for (uint64_t answer : {asked, confirmed, sent}) {
        const auto by = static_cast<int64_t>(answer - confirmed);
        ASSERT_EQ(seq_distance(seq(confirmed), seq(answer)), by) << confirmed;
        ASSERT_EQ(seq_distance(seq(answer), seq(sent)), static_cast<int64_t>(sent - answer));
      }
      const uint16_t next = seq_question(question, seq(confirmed), seq(sent));
      ASSERT_EQ(next, static_cast<uint16_t>(sent / kSeqWindow)) << confirmed << " to " << sent;
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

/// Generations may begin anywhere, and come round.
TEST(SlotMap, FirstGeneration_OnlyWhatWasIssuedIsFinished) {
  for (const uint32_t first : {1u, 2u, 0x7fffffu, 0x800000u, Name::kGenMask - 1, Name::kGenMask}) {
    SlotMap<int> m(Name::kSlotMask + 1, first);
    int a = 0;
    NameState s;
    const auto state = [&](uint32_t gen) {
      EXPECT_EQ(m.find(Name(0, gen, 1), s), nullptr) << first << " " << gen;
      return s;
    };
    const Name n = m.insert(&a);
    ASSERT_EQ(n.slot(), 0u);
    EXPECT_EQ(n.gen(), first);
    m.erase(n);
    EXPECT_EQ(state(first), NameState::kFinished);
    for (const uint32_t d : {1u, 2u, 0x7ffffeu, 0x800000u}) {
      const uint32_t before = (first - d) & Name::kGenMask;
      EXPECT_EQ(state(before), NameState::kNever) << first << ": " << before;
    }
  }
}

TEST(SlotMap, GenerationsComeRound_WhatWasIssuedStaysFinished) {
  for (const uint32_t first : {1u, 5u, Name::kGenMask}) {
    Generation g(first);
    const auto next = [&] { g.next(first); };
    for (uint32_t i = 0; i < 10; ++i) next();
    EXPECT_TRUE(g.issued_before(first, first));
    EXPECT_TRUE(g.issued_before(g.now() - 1, first));
    EXPECT_FALSE(g.issued_before(g.now(), first));
    EXPECT_FALSE(g.issued_before(g.now() + 1, first));
    EXPECT_FALSE(g.issued_before((first - 2) & Name::kGenMask, first)) << "not yet";
    for (uint32_t i = 0; i < Name::kGenMask; ++i) next();
    EXPECT_TRUE(g.issued_before((first - 2) & Name::kGenMask, first)) << first;
    EXPECT_FALSE(g.issued_before(g.now(), first));
    EXPECT_FALSE(g.issued_before(g.now() + 1, first));
  }
}

TEST(SlotMap, ManyLive) {
  SlotMap<int> m;
  std::vector<int> values(3000);
  std::vector<Name> names;
  for (int& v : values) names.push_back(m.insert(&v));
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(m.find(names[i]), &values[i]);
  EXPECT_EQ(m.live(), 3000u);
}

TEST(RangeSet, AgreesWithABitmap) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 rng(seed);
    RangeSetWithRoom set;
    std::vector<bool> bits(200, false);
    for (int step = 0; step < 300; ++step) {
      uint64_t b = rng() % 200;
      uint64_t e = b + rng() % (201 - b);
      if (rng() % 3) {
        uint64_t fresh = 0;
        for (uint64_t i = b; i < e; ++i) {
          fresh += !bits[i];
          bits[i] = true;
        }
        ASSERT_EQ(set.add(b, e), fresh);
      } else if (rng() % 2) {
        for (uint64_t i = b; i < e; ++i) bits[i] = false;
        set.remove(b, e);
      } else {
        const Range r = set.take_front(rng() % 7 + 1);
        for (uint64_t i = r.begin; i < r.end; ++i) {
          ASSERT_TRUE(bits[i]);
          bits[i] = false;
        }
      }
      uint64_t count = 0;
      for (bool x : bits) count += x;
      ASSERT_EQ(set.bytes(), count);
      for (uint32_t i = 0; i < set.count(); ++i) {
        ASSERT_LT(set[i].begin, set[i].end);
        if (i) {
          ASSERT_LT(set[i - 1].end, set[i].begin) << "adjacent ranges are one";
        }
        for (uint64_t k = set[i].begin; k < set[i].end; ++k) ASSERT_TRUE(bits[k]);
      }
      bool all = true;
      for (uint64_t i = b; i < e; ++i) all = all && bits[i];
      ASSERT_EQ(set.covers(b, e), all);
    }
    RangeSetWithRoom rest;
    rest.assign_complement(set, 200);
    ASSERT_EQ(rest.bytes() + set.bytes(), 200u);
  }
}

TEST(RangeSet, MoreRangesThanItHolds_LeavesThemOutAndSaysSo) {
  RangeSetWithRoom set;
  for (uint64_t i = 0; i < RangeSet::kMaxCount; ++i) set.add(4 * i, 4 * i + 3);
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
