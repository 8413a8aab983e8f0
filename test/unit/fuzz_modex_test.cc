// SPDX-License-Identifier: BSD-3-Clause
//
// fuzz_modex_test.cc: damaged modex records from fixed seeds. The open-ended version is the libFuzzer target
// fuzz_modex_main.cc.
#include "test/unit/fuzz_modex.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "contrib/softhca/fault/fuzz_corpus.h"

namespace bfo::test {
namespace {

using engine::ModexPort;

/// A sound record of `count` ports with random contents.
std::vector<uint8_t> record(std::mt19937& rng, int count) {
  std::vector<uint8_t> bytes(sizeof(WireRecord) + static_cast<size_t>(count) * sizeof(ModexPort));
  for (auto& byte : bytes) byte = static_cast<uint8_t>(rng() % 3);
  const WireRecord header = make_record(engine::kModexMagic, {engine::kWireVersion, engine::kWireOldest},
                                        static_cast<size_t>(count), sizeof(ModexPort));
  memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

TEST(Modex, SoundRecord_IsReadWhole) {
  std::mt19937 rng(1);
  for (int count = 0; count <= kModexRoom; ++count) {
    const auto bytes = record(rng, count);
    EXPECT_EQ(modex_places(bytes.data(), bytes.size()).size(), static_cast<size_t>(count));
  }
}

TEST(Modex, AnythingElse_IsNoRecord) {
  std::mt19937 rng(2);
  const auto bytes = record(rng, 3);
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_TRUE(modex_places(bytes.data(), size).empty()) << size;
  // Not the high byte of the version and the low one of the oldest: those say that the sender understands
  // more.
  for (const size_t at : {0, 1, 2, 3, 4, 7}) {
    auto damaged = bytes;
    damaged[at] = static_cast<uint8_t>(damaged[at] - 1);
    EXPECT_TRUE(modex_places(damaged.data(), damaged.size()).empty()) << at;
  }
}

TEST(Modex, MorePortsThanThereIsRoomFor_TheFirstAreRead) {
  std::mt19937 rng(4);
  const auto many = record(rng, kModexRoom + 1);
  EXPECT_EQ(modex_places(many.data(), many.size()).size(), static_cast<size_t>(kModexRoom));
}

/// A later build has more to say of each port, and a longer header: this one takes what it knows.
TEST(Modex, LongerEntriesBehindALongerHeader_AreReadAsFarAsTheyAreKnown) {
  constexpr size_t kMoreHeader = 8;
  constexpr size_t kMorePort = 16;
  WireRecord header = make_record(engine::kModexMagic, {engine::kWireVersion, engine::kWireOldest}, 2,
                                  sizeof(ModexPort) + kMorePort);
  header.version += 1;
  header.header_bytes += kMoreHeader;
  std::vector<uint8_t> bytes(sizeof header + kMoreHeader + 2 * (sizeof(ModexPort) + kMorePort), 0xff);
  memcpy(bytes.data(), &header, sizeof header);
  for (unsigned i = 0; i < 2; ++i) {
    ModexPort port = {};
    port.nonce = 100 + i;
    port.pkey = static_cast<uint16_t>(7 + i);
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
  std::vector<uint8_t> bytes(sizeof header + offsetof(ModexPort, gid), 0x11);
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
  std::vector<uint8_t> bytes(8 + sizeof(ModexPort));
  const uint32_t magic = engine::kModexMagic;
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

/// A record is as long as the port with the most addresses needs.
TEST(Modex, AddressesThatWereNotSent_AreNone) {
  ModexPort port = {};
  port.link_layer = IBV_LINK_LAYER_ETHERNET;
  engine::PortPlace place;
  place.gid_count = 2;
  for (uint8_t i = 0; i < 2; ++i) {
    place.gids[i].gid.raw[0] = 0xfd;
    place.gids[i].gid.raw[15] = static_cast<uint8_t>(i + 1);
    place.gids[i].type = engine::GidType::kRoceV2;
    place.gids[i].subnet_bits = 64;
    place.gids[i].ordinal = 3;
  }
  engine::write_gids(place, &port);
  for (const size_t sent : {0, 1, 2, 8}) {
    const size_t bytes_each = engine::modex_entry_bytes(sent);
    const WireRecord header =
        make_record(engine::kModexMagic, {engine::kWireVersion, engine::kWireOldest}, 1, bytes_each);
    std::vector<uint8_t> bytes(sizeof header + bytes_each);
    memcpy(bytes.data(), &header, sizeof header);
    memcpy(bytes.data() + sizeof header, &port, bytes_each);
    const auto places = modex_places(bytes.data(), bytes.size());
    ASSERT_EQ(places.size(), 1u);
    EXPECT_EQ(places[0].gid_count, std::min<size_t>(sent, 2)) << sent;
  }
}

TEST(Modex, DamagedAddresses_AreLeftOut) {
  ModexPort port = {};
  port.gid_count = 255;
  for (engine::ModexGid& gid : port.gids) {
    gid.gid[0] = 0xfd;
    gid.gid[15] = 1;
    gid.type = 3;
    gid.subnet_bits = 64;
  }
  EXPECT_EQ(engine::place_of(port).gid_count, 8);
  port.gids[0].type = 4;
  port.gids[1].type = 255;
  port.gids[2].subnet_bits = 129;
  port.gids[3].subnet_bits = 0;
  memset(port.gids[4].gid, 0, sizeof port.gids[4].gid);
  const engine::PortPlace place = engine::place_of(port);
  EXPECT_EQ(place.gid_count, 3);
  for (size_t i = 0; i < place.gid_count; ++i) EXPECT_EQ(place.gids[i].subnet_bits, 64);
}

TEST(Modex, PairsOfRandomRecords_AreInRange) {
  std::mt19937 rng(3);
  int pairs = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto ours = record(rng, static_cast<int>(rng() % (kModexRoom + 1)));
    const auto theirs = record(rng, static_cast<int>(rng() % (kModexRoom + 1)));
    std::vector<uint8_t> both = {static_cast<uint8_t>(ours.size()), static_cast<uint8_t>(ours.size() >> 8)};
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
