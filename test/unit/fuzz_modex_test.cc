// SPDX-License-Identifier: BSD-3-Clause
//
// fuzz_modex_test.cc: damaged modex records from fixed seeds. The open-ended version is the libFuzzer target
// fuzz_modex_main.cc.
#include "test/unit/fuzz_modex.h"

#include <gtest/gtest.h>

#include <random>

#include "contrib/softhca/fault/fuzz_corpus.h"

namespace bfo::test {
namespace {

using engine::ModexHeader;
using engine::ModexPort;

/// A sound record of `count` ports with random contents.
std::vector<std::uint8_t> record(std::mt19937& rng, int count) {
  std::vector<std::uint8_t> bytes(sizeof(ModexHeader) + static_cast<std::size_t>(count) * sizeof(ModexPort));
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(rng() % 3);
  const ModexHeader header = {engine::kModexMagic, engine::kModexVersion, static_cast<std::uint16_t>(count)};
  memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

TEST(Modex, SoundRecord_IsReadWhole) {
  std::mt19937 rng(1);
  for (int count = 0; count <= kModexRoom; ++count) {
    const auto bytes = record(rng, count);
    EXPECT_EQ(modex_places(bytes.data(), bytes.size()).size(), static_cast<std::size_t>(count));
  }
}

TEST(Modex, AnythingElse_IsNoRecord) {
  std::mt19937 rng(2);
  const auto bytes = record(rng, 3);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_TRUE(modex_places(bytes.data(), size).empty()) << size;
  for (std::size_t at = 0; at < sizeof(ModexHeader); ++at) {
    auto damaged = bytes;
    damaged[at] ^= 1;
    EXPECT_TRUE(modex_places(damaged.data(), damaged.size()).empty()) << at;
  }
  const auto many = record(rng, kModexRoom + 1);
  EXPECT_TRUE(modex_places(many.data(), many.size()).empty());
}

TEST(Modex, PairsOfRandomRecords_AreInRange) {
  std::mt19937 rng(3);
  int pairs = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto ours = record(rng, static_cast<int>(rng() % (kModexRoom + 1)));
    const auto theirs = record(rng, static_cast<int>(rng() % (kModexRoom + 1)));
    std::vector<std::uint8_t> both = {static_cast<std::uint8_t>(ours.size()),
                                      static_cast<std::uint8_t>(ours.size() >> 8)};
    both.insert(both.end(), ours.begin(), ours.end());
    both.insert(both.end(), theirs.begin(), theirs.end());
    pairs += modex_pairs(both.data(), both.size());
  }
  EXPECT_GT(pairs, 1000);
}

TEST(Modex, Corpus_HasNoEffectThatIsWrong) {
  const auto inputs = corpus("modex");
  EXPECT_GT(inputs.size(), 20u);
  for (const auto& input : inputs) modex_pairs(input.data(), input.size());
}

}  // namespace
}  // namespace bfo::test
