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

using engine::ModexPort;

/// A sound record of `count` ports with random contents.
std::vector<std::uint8_t> record(std::mt19937& rng, int count) {
  std::vector<std::uint8_t> bytes(sizeof(WireRecord) + static_cast<std::size_t>(count) * sizeof(ModexPort));
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(rng() % 3);
  const WireRecord header = make_record(engine::kModexMagic, {engine::kWireVersion, engine::kWireOldest},
                                        static_cast<std::size_t>(count), sizeof(ModexPort));
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
  // Not the high byte of the version and the low one of the oldest: those say that the sender understands
  // more.
  for (const std::size_t at : {0, 1, 2, 3, 4, 7}) {
    auto damaged = bytes;
    damaged[at] ^= 1;
    EXPECT_TRUE(modex_places(damaged.data(), damaged.size()).empty()) << at;
  }
}

TEST(Modex, MorePortsThanThereIsRoomFor_TheFirstAreRead) {
  std::mt19937 rng(4);
  const auto many = record(rng, kModexRoom + 1);
  EXPECT_EQ(modex_places(many.data(), many.size()).size(), static_cast<std::size_t>(kModexRoom));
}

/// A later build has more to say of each port, and a longer header: this one takes what it knows.
TEST(Modex, LongerEntriesBehindALongerHeader_AreReadAsFarAsTheyAreKnown) {
  constexpr std::size_t kMoreHeader = 8;
  constexpr std::size_t kMorePort = 16;
  WireRecord header = make_record(engine::kModexMagic, {engine::kWireVersion, engine::kWireOldest}, 2,
                                  sizeof(ModexPort) + kMorePort);
  header.version += 1;
  header.header_bytes += kMoreHeader;
  std::vector<std::uint8_t> bytes(sizeof header + kMoreHeader + 2 * (sizeof(ModexPort) + kMorePort), 0xff);
  memcpy(bytes.data(), &header, sizeof header);
  for (unsigned i = 0; i < 2; ++i) {
    ModexPort port = {};
    port.nonce = 100 + i;
    port.pkey = static_cast<std::uint16_t>(7 + i);
    memcpy(&bytes[sizeof header + kMoreHeader + i * (sizeof port + kMorePort)], &port, sizeof port);
  }
  const PeerRecord read = read_record(bytes.data(), bytes.size(), engine::kModexMagic, engine::kFirstRanged,
                                      {engine::kWireVersion, engine::kWireOldest});
  ModexPort ports[kModexRoom];
  ASSERT_EQ(engine::modex_ports(read, ports, kModexRoom), 2);
  EXPECT_EQ(ports[1].nonce, 101u);
  EXPECT_EQ(ports[1].pkey, 8u);
}

/// .. and an earlier one less.
TEST(Modex, ShorterEntries_AreFilledUpWithZeros) {
  const WireRecord header = make_record(engine::kModexMagic, {engine::kWireVersion, engine::kWireOldest}, 1,
                                        offsetof(ModexPort, gid));
  std::vector<std::uint8_t> bytes(sizeof header + offsetof(ModexPort, gid), 0x11);
  memcpy(bytes.data(), &header, sizeof header);
  const PeerRecord read = read_record(bytes.data(), bytes.size(), engine::kModexMagic, engine::kFirstRanged,
                                      {engine::kWireVersion, engine::kWireOldest});
  ModexPort port;
  memset(&port, 0xee, sizeof port);
  ASSERT_EQ(engine::modex_ports(read, &port, 1), 1);
  EXPECT_EQ(port.nonce, 0x1111111111111111u);
  EXPECT_EQ(port.cm_qpn, 0u);
  EXPECT_EQ(port.pkey, 0u);
}

/// A record before version 7: magic, version and number of ports, then the ports.
TEST(Modex, RecordOfABuildWithoutRanges_IsToldFromNone) {
  std::vector<std::uint8_t> bytes(8 + sizeof(ModexPort));
  const std::uint32_t magic = engine::kModexMagic;
  memcpy(bytes.data(), &magic, 4);
  bytes[4] = 6;
  bytes[6] = 1;
  const PeerRecord read = read_record(bytes.data(), bytes.size(), engine::kModexMagic, engine::kFirstRanged,
                                      {engine::kWireVersion, engine::kWireOldest});
  EXPECT_EQ(read.state, RecordState::kOther);
  EXPECT_EQ(read.versions.version, 6);
  ModexPort port;
  EXPECT_EQ(engine::modex_ports(read, &port, 1), 0);
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
  EXPECT_GT(pairs, 500);
}

TEST(Modex, Corpus_HasNoEffectThatIsWrong) {
  const auto inputs = corpus("modex");
  EXPECT_GT(inputs.size(), 20u);
  for (const auto& input : inputs) modex_pairs(input.data(), input.size());
}

}  // namespace
}  // namespace bfo::test
