// SPDX-License-Identifier: BSD-3-Clause
//
// fuzz_packet_test.cc: forged datagrams from fixed seeds. The open-ended version is the libFuzzer target
// fuzz_packet_main.cc.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "contrib/softhca/fault/fuzz_corpus.h"
#include "test/unit/fuzz_packet.h"

namespace bfo::test {
namespace {

TEST(FuzzPacket, ForgedDatagrams_NeverCrashAndHonestPeersStillConnect) {
  uint64_t dropped = 0;
  int healed = 0;
  for (unsigned seed = 1; seed <= 120; ++seed) {
    std::mt19937 rng(seed);
    PacketTarget target(static_cast<uint8_t>(rng()));
    std::vector<uint8_t> bytes(400);
    for (auto& b : bytes) b = static_cast<uint8_t>(rng());
    const bool network = seed % 2 != 0;  // only what a network does
    for (size_t at = 0; at < bytes.size();) {
      if (network) {
        bytes[at] &= 0xfd;
        if (at + 1 < bytes.size()) bytes[at + 1] |= 64;
      }
      at += target.record(bytes.data() + at, bytes.size() - at);
    }
    EXPECT_TRUE(target.heals()) << "seed " << seed;
    healed += !target.knowing();
    dropped += target.dropped();
    if (HasFailure()) break;
  }
  EXPECT_GT(healed, 30);
  EXPECT_GT(dropped, 1000u);
}

TEST(FuzzPacket, Corpus_HasNoEffectThatIsWrong) {
  const auto inputs = corpus("packets");
  EXPECT_GT(inputs.size(), 20u);
  for (const auto& input : inputs) EXPECT_TRUE(packet_input(input.data(), input.size()));
}

}  // namespace
}  // namespace bfo::test
