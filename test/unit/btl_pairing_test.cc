// SPDX-License-Identifier: BSD-3-Clause
//
// btl_pairing_test.cc: which ports of two processes meet: the same pairs seen from both sides, whatever is
// down.
#include "btl/verbs/engine/pairing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace bfo::test {
namespace {

using engine::PortPlace;
using Places = std::vector<PortPlace>;
using Pairs = std::map<size_t, size_t>;

PortPlace infiniband(uint64_t subnet, uint8_t ordinal) {
  PortPlace place;
  place.link_layer = IBV_LINK_LAYER_INFINIBAND;
  place.gid.global.subnet_prefix = subnet;
  place.ordinal = ordinal;
  return place;
}

PortPlace ethernet(uint64_t prefix, uint8_t ordinal) {
  PortPlace place = infiniband(prefix, ordinal);
  place.link_layer = IBV_LINK_LAYER_ETHERNET;
  place.subnet_bits = 64;
  place.position = ordinal;
  return place;
}

/// A RoCE v2 port with the address 10.0.`net`.1/24.
PortPlace roce(uint8_t net, uint8_t position, uint8_t ordinal = 0) {
  PortPlace place = ethernet(0, ordinal);
  const uint8_t raw[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, net, 1};
  std::copy(raw, raw + 16, place.gid.raw);
  place.subnet_bits = 120;
  place.routable = true;
  place.position = position;
  return place;
}

/// A RoCE port that has no address: it has not been up yet.
PortPlace unknown(uint8_t position) {
  PortPlace place = ethernet(0, position);
  place.gid = ibv_gid{};
  place.subnet_bits = 0;
  return place;
}

Pairs seen_from(const Places& ours, const Places& theirs) {
  Pairs pairs;
  for (size_t i = 0; i < ours.size(); ++i) {
    const size_t met = engine::meeting_port(ours.data(), ours.size(), i, theirs.data(), theirs.size());
    if (met != engine::kNoPort) pairs[i] = met;
  }
  return pairs;
}

/// The pairs, after checking that the other side sees them too.
Pairs pairs_of(const Places& ours, const Places& theirs) {
  const Pairs pairs = seen_from(ours, theirs);
  Pairs turned;
  for (const auto& [theirs_index, ours_index] : seen_from(theirs, ours)) turned[ours_index] = theirs_index;
  EXPECT_EQ(pairs, turned);
  return pairs;
}

TEST(Pairing, SamePortsOnBothSides_MeetInOrder) {
  const Places two = {infiniband(1, 0), infiniband(1, 1)};
  EXPECT_EQ(pairs_of(two, two), (Pairs{{0, 0}, {1, 1}}));
}

TEST(Pairing, FirstPortOfOneSideIsNotThere_TheSecondOnesStillMeet) {
  // Two planes that do not reach each other, as rail-optimised networks are built.
  const Places two = {ethernet(7, 0), ethernet(7, 1)};
  const Places second = {ethernet(7, 1)};
  EXPECT_EQ(pairs_of(second, two), (Pairs{{0, 1}}));
}

TEST(Pairing, OneSideHasOnlyItsFirstPortAndTheOtherOnlyItsSecond_TheyMeet) {
  EXPECT_EQ(pairs_of({infiniband(1, 0)}, {infiniband(1, 1)}), (Pairs{{0, 0}}));
}

TEST(Pairing, PortsLeftOver_MeetInTheirOrder) {
  const Places ours = {infiniband(1, 0), infiniband(1, 2), infiniband(1, 4)};
  const Places theirs = {infiniband(1, 1), infiniband(1, 2), infiniband(1, 5)};
  EXPECT_EQ(pairs_of(ours, theirs), (Pairs{{0, 0}, {1, 1}, {2, 2}}));
}

TEST(Pairing, MorePortsOnOneSide_TheRestMeetsNobody) {
  const Places three = {infiniband(1, 0), infiniband(1, 1), infiniband(1, 2)};
  EXPECT_EQ(pairs_of(three, {infiniband(1, 0)}), (Pairs{{0, 0}}));
}

TEST(Pairing, Subnets_AreKeptApartAndSoAreLinkLayers) {
  const Places ours = {infiniband(1, 0), infiniband(2, 0), ethernet(1, 0)};
  const Places theirs = {ethernet(9, 0), infiniband(2, 0), infiniband(1, 0)};
  EXPECT_EQ(pairs_of(ours, theirs), (Pairs{{0, 2}, {1, 1}}));
  EXPECT_EQ(pairs_of({infiniband(1, 0)}, {infiniband(2, 0)}), Pairs{});
}

TEST(Pairing, TwoRoceSubnets_AreTwoFabricsInWhateverOrder) {
  EXPECT_EQ(pairs_of({roce(1, 0), roce(2, 1)}, {roce(2, 0), roce(1, 1)}), (Pairs{{0, 1}, {1, 0}}));
}

TEST(Pairing, APortInASubnetThePeerHasNot_MeetsNobody) {
  // Each node's storage port is in a subnet of its own.
  EXPECT_EQ(pairs_of({roce(1, 0), roce(7, 1)}, {roce(1, 0), roce(9, 1)}), (Pairs{{0, 0}}));
}

TEST(Pairing, NoSubnetInCommon_TheNetworkIsRoutedAndPositionsMeet) {
  EXPECT_EQ(pairs_of({roce(1, 0), roce(2, 1)}, {roce(3, 0), roce(4, 1)}), (Pairs{{0, 0}, {1, 1}}));
  EXPECT_EQ(pairs_of({roce(2, 1)}, {roce(3, 0), roce(4, 1)}), (Pairs{{0, 1}}));
  EXPECT_EQ(pairs_of({roce(1, 0)}, {roce(4, 1)}), (Pairs{{0, 0}}));
}

TEST(Pairing, AddressesThatDoNotReachEachOther_DoNotMeet) {
  PortPlace version1 = roce(1, 0);
  version1.routable = false;
  EXPECT_EQ(pairs_of({version1}, {roce(2, 0)}), Pairs{});
  EXPECT_EQ(pairs_of({ethernet(1, 0)}, {roce(2, 0)}), Pairs{}) << "IPv6 here, IPv4 there";
}

TEST(Pairing, PortThatIsDown_MeetsWhatItsSubnetIsNotKnownFor) {
  EXPECT_EQ(pairs_of({roce(1, 0), unknown(1)}, {roce(1, 0), roce(2, 1)}), (Pairs{{0, 0}, {1, 1}}));
  EXPECT_EQ(pairs_of({unknown(0), roce(2, 1)}, {roce(1, 0), unknown(1)}), (Pairs{{0, 0}, {1, 1}}));
  EXPECT_EQ(pairs_of({unknown(0), unknown(1)}, {unknown(0), unknown(1)}), (Pairs{{0, 0}, {1, 1}}));
}

TEST(Pairing, Partitions_AreKeptApartWhateverTheMembership) {
  PortPlace full = infiniband(1, 0);
  full.pkey = 0x8001;
  PortPlace limited = full;
  limited.pkey = 0x0001;
  PortPlace other = full;
  other.pkey = 0x8002;
  EXPECT_EQ(pairs_of({full}, {limited}), (Pairs{{0, 0}}));
  EXPECT_EQ(pairs_of({full}, {other}), Pairs{});
  PortPlace ethernet_other = roce(1, 0);
  ethernet_other.pkey = 0x8002;
  EXPECT_EQ(pairs_of({roce(1, 0)}, {ethernet_other}), Pairs{});
}

TEST(Pairing, AnyMixOfSubnetsAndUnknownPorts_IsSeenAlikeFromBothSides) {
  constexpr unsigned kKinds = 5;
  const auto host = [](unsigned code) {
    Places places;
    for (uint8_t i = 0; i < 3; ++i, code /= kKinds) {
      const uint8_t kind = static_cast<uint8_t>(code % kKinds);
      if (kind == 0) continue;
      places.push_back(kind == 4 ? unknown(i) : roce(kind, i));
      for (size_t k = 0; k + 1 < places.size(); ++k)
        places.back().ordinal += engine::same_fabric(places[k], places.back()) ? 1 : 0;
    }
    return places;
  };
  for (unsigned mine = 0; mine < kKinds * kKinds * kKinds; ++mine) {
    for (unsigned yours = 0; yours < kKinds * kKinds * kKinds; ++yours) pairs_of(host(mine), host(yours));
  }
}

TEST(Pairing, AnySubsetsOfFourPorts_AreSeenAlikeAndMeetAsManyAsCan) {
  for (unsigned mine = 0; mine < 16; ++mine) {
    for (unsigned yours = 0; yours < 16; ++yours) {
      Places ours;
      Places theirs;
      for (uint8_t i = 0; i < 4; ++i) {
        if (mine >> i & 1) ours.push_back(ethernet(0, i));
        if (yours >> i & 1) theirs.push_back(ethernet(0, i));
      }
      EXPECT_EQ(pairs_of(ours, theirs).size(), std::min(ours.size(), theirs.size())) << mine << " " << yours;
    }
  }
}

}  // namespace
}  // namespace bfo::test
