// SPDX-License-Identifier: BSD-3-Clause
//
// fuzz_wire_test.cc: mutated messages of honest traffic, from fixed seeds. The open-ended version is the
// libFuzzer target fuzz_wire_main.cc.
#include <gtest/gtest.h>

#include <random>

#include "contrib/softhca/fault/fuzz_corpus.h"
#include "test/unit/fuzz_wire.h"

namespace bfo::test {
namespace {

TEST(FuzzWire, MutatedMessages_NeverCrash) {
  uint64_t dropped = 0;
  for (unsigned seed = 1; seed <= 150; ++seed) {
    std::mt19937 rng(seed);
    FuzzTarget target;
    auto seeds = target.step(static_cast<int>(rng() % 40));
    if (seeds.empty()) seeds.push_back({0x41});
    for (int i = 0; i < 300; ++i) {
      auto m = seeds[rng() % seeds.size()];
      for (unsigned k = rng() % 4; k > 0; --k) {
        switch (rng() % 5) {
          case 0:
            m[rng() % m.size()] ^= static_cast<uint8_t>(1u << rng() % 8);
            break;
          case 1:
            m[rng() % m.size()] = static_cast<uint8_t>(rng());
            break;
          case 2:
            m.resize(rng() % m.size() + 1);
            break;
          case 3:
            m[0] = core::kAllTypes[rng() % std::size(core::kAllTypes)];
            break;
          default:
            m.resize(m.size() + rng() % 64, static_cast<uint8_t>(rng()));
            break;
        }
      }
      // One in eight comes with another tag.
      const uint8_t tag = rng() % 8 != 0 ? m[0] : core::kAllTypes[rng() % std::size(core::kAllTypes)];
      target.message(tag, m.data(), m.size());
      if (i % 60 == 0) target.step(1);
    }
    for (const auto& e : target.world().engines)
      dropped +=
          e->counters().malformed + e->counters().stale + e->counters().duplicates + e->counters().ignored;
  }
  EXPECT_GT(dropped, 10000u);
}

TEST(FuzzWire, Corpus_HasNoEffectThatIsWrong) {
  const auto inputs = corpus("headers");
  EXPECT_GT(inputs.size(), 20u);
  for (const auto& input : inputs) wire_input(input.data(), input.size());
}

}  // namespace
}  // namespace bfo::test
