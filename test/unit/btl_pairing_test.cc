// SPDX-License-Identifier: BSD-3-Clause
//
// btl_pairing_test.cc: which ports of two processes meet: the same pairs seen from both sides, whatever is
// down.
#include "btl/verbs/engine/select/pairing.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

namespace bfo::test {
namespace {

using engine::GidType;
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

engine::PublishedGid gid(GidType type, const char* text, uint8_t bits = 0, uint8_t ordinal = 0) {
  engine::PublishedGid made;
  const bool ipv4 = std::string(text).find(':') == std::string::npos;
  EXPECT_EQ(inet_pton(AF_INET6, ((ipv4 ? "::ffff:" : "") + std::string(text)).c_str(), made.gid.raw), 1)
      << text;
  made.type = type;
  made.subnet_bits = bits != 0 ? bits : ipv4 ? 120 : 64;
  made.ordinal = ordinal;
  return made;
}

PortPlace with(std::initializer_list<engine::PublishedGid> gids, uint8_t position = 0) {
  PortPlace place;
  place.link_layer = IBV_LINK_LAYER_ETHERNET;
  place.position = position;
  for (const engine::PublishedGid& each : gids) place.gids[place.gid_count++] = each;
  if (place.gid_count != 0) place.gid = place.gids[0].gid;
  return place;
}

/// A RoCE port of version 1 with an IPv6 address in the subnet number `net`.
PortPlace ethernet(unsigned net, uint8_t ordinal) {
  return with({gid(GidType::kRoceV1, ("fd00:" + std::to_string(net + 1) + "::1").c_str(), 64, ordinal)},
              ordinal);
}

/// A RoCE v2 port with the address 10.0.`net`.1/24.
PortPlace roce(unsigned net, uint8_t position, uint8_t ordinal = 0) {
  return with({gid(GidType::kRoceV2, ("10.0." + std::to_string(net) + ".1").c_str(), 120, ordinal)},
              position);
}

/// A RoCE port that has no address: it has not been up yet.
PortPlace unknown(uint8_t position) {
  return with({}, position);
}

/// What Linux lists for an interface: link-local addresses of both versions, then IP addresses of both.
PortPlace linux_port(uint8_t position, std::initializer_list<const char*> addresses) {
  PortPlace place = with({}, position);
  for (const char* address : addresses) {
    for (const GidType type : {GidType::kRoceV2, GidType::kRoceV1})
      place.gids[place.gid_count++] = gid(type, address, 0, 0);
  }
  const std::string own = "fe80::" + std::to_string(position + 1);
  for (const GidType type : {GidType::kRoceV2, GidType::kRoceV1})
    place.gids[place.gid_count++] = gid(type, own.c_str(), 64, position);
  return place;
}

/// Gives each address its ordinal, as selection does.
Places numbered(Places places) {
  for (size_t i = 0; i < places.size(); ++i) {
    for (size_t n = 0; n < places[i].gid_count; ++n) {
      engine::PublishedGid& own = places[i].gids[n];
      own.ordinal = 0;
      for (size_t k = 0; k < i; ++k) {
        bool in = false;
        for (size_t m = 0; m < places[k].gid_count; ++m) {
          const engine::PublishedGid& other = places[k].gids[m];
          in = in || (engine::same_type(own.type, other.type) &&
                      engine::same_subnet(own.gid, own.subnet_bits, other.gid, other.subnet_bits));
        }
        own.ordinal += in ? 1 : 0;
      }
    }
  }
  return places;
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
  version1.gids[0].type = GidType::kRoceV1;
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

TEST(Pairing, AddressAtOneEndOnly_LinkLocalOnesMeet) {
  EXPECT_EQ(pairs_of({linux_port(0, {"10.0.0.1"})}, {linux_port(0, {})}), (Pairs{{0, 0}}));
  EXPECT_EQ(pairs_of({linux_port(0, {"10.0.0.1"})}, {linux_port(0, {"fd00::1"})}), (Pairs{{0, 0}}));
  EXPECT_EQ(
      pairs_of({linux_port(0, {}), linux_port(1, {})}, {linux_port(0, {"10.0.1.1"}), linux_port(1, {})}),
      (Pairs{{0, 0}, {1, 1}}));
}

TEST(Pairing, SubnetsCountBeforeLinkLocalAddresses) {
  // The second port of one side is in the subnet of the first one of the other side.
  const Places ours = numbered({linux_port(0, {"10.0.1.1"}), linux_port(1, {"10.0.2.1"})});
  const Places theirs = numbered({linux_port(0, {"10.0.2.2"}), linux_port(1, {"10.0.1.2"})});
  EXPECT_EQ(pairs_of(ours, theirs), (Pairs{{0, 1}, {1, 0}}));
  const Places one = numbered({linux_port(0, {"10.0.2.2"}), linux_port(1, {})});
  EXPECT_EQ(pairs_of(ours, one), (Pairs{{0, 1}, {1, 0}}));
}

TEST(Pairing, OneWireWithFourPorts_MeetByOrdinal) {
  const Places ours = numbered({linux_port(0, {"10.0.0.1"}), linux_port(1, {"10.0.0.2"}), linux_port(2, {}),
                                linux_port(3, {"10.0.0.4"})});
  const Places theirs = numbered({linux_port(0, {"10.0.0.5"}), linux_port(1, {"10.0.0.6"}),
                                  linux_port(2, {"10.0.0.7"}), linux_port(3, {"10.0.0.8"})});
  EXPECT_EQ(pairs_of(ours, theirs), (Pairs{{0, 0}, {1, 1}, {2, 3}, {3, 2}}));
  EXPECT_EQ(pairs_of(theirs, theirs), (Pairs{{0, 0}, {1, 1}, {2, 2}, {3, 3}}));
}

TEST(Pairing, AddressesInDifferentSubnets_LinkLocalOnesDoNotMeetBesideThem) {
  // Each node's storage port is in a subnet of its own.
  const Places ours = numbered({linux_port(0, {"10.0.0.1"}), linux_port(1, {"10.0.7.1"})});
  const Places theirs = numbered({linux_port(0, {"10.0.0.2"}), linux_port(1, {"10.0.9.1"})});
  EXPECT_EQ(pairs_of(ours, theirs), (Pairs{{0, 0}}));
}

TEST(Pairing, SeveralSubnetsOfOnePort_OneIsEnough) {
  EXPECT_EQ(pairs_of({linux_port(0, {"10.0.0.1", "10.0.5.1"})}, {linux_port(0, {"10.0.5.2", "10.0.9.9"})}),
            (Pairs{{0, 0}}));
}

TEST(Pairing, VersionOneHereAndTwoThere_NeverMeet) {
  EXPECT_EQ(pairs_of({with({gid(GidType::kRoceV1, "fe80::1")})}, {with({gid(GidType::kRoceV2, "fe80::2")})}),
            Pairs{});
  EXPECT_EQ(
      pairs_of({with({gid(GidType::kRoceV1, "10.0.0.1")})}, {with({gid(GidType::kRoceV2, "10.0.0.2")})}),
      Pairs{});
}

TEST(Pairing, PortsOfAnyTables_AreSeenAlikeAndEachPairHasAddresses) {
  const std::vector<std::vector<engine::PublishedGid>> tables = {
      {},
      {gid(GidType::kRoceV2, "fe80::1")},
      {gid(GidType::kRoceV2, "10.0.0.1"), gid(GidType::kRoceV2, "fe80::1")},
      {gid(GidType::kRoceV2, "10.0.1.1"), gid(GidType::kRoceV2, "10.0.0.9"),
       gid(GidType::kRoceV1, "fe80::1")},
      {gid(GidType::kRoceV2, "fd00::1"), gid(GidType::kRoceV2, "fe80::1"), gid(GidType::kRoceV1, "10.0.0.2")},
      {gid(GidType::kRoceV1, "10.0.1.3"), gid(GidType::kRoceV1, "fe80::1")},
  };
  const auto host = [&](unsigned code) {
    Places places;
    for (uint8_t i = 0; i < 3; ++i, code /= 6) {
      PortPlace place = with({}, i);
      for (const engine::PublishedGid& each : tables[code % 6]) place.gids[place.gid_count++] = each;
      places.push_back(place);
    }
    return numbered(places);
  };
  // pairs_of() looks from both sides.
  for (unsigned mine = 0; mine < 216; ++mine) {
    const Places ours = host(mine);
    for (unsigned yours = mine; yours < 216; ++yours) {
      const Places theirs = host(yours);
      for (const auto& [i, k] : pairs_of(ours, theirs)) {
        if (ours[i].gid_count == 0 || theirs[k].gid_count == 0) continue;
        const auto pair =
            engine::choose_pair(ours[i].gids, ours[i].gid_count, theirs[k].gids, theirs[k].gid_count);
        const auto back =
            engine::choose_pair(theirs[k].gids, theirs[k].gid_count, ours[i].gids, ours[i].gid_count);
        ASSERT_TRUE(pair.found()) << mine << " " << yours;
        ASSERT_EQ(pair.ours, back.theirs) << mine << " " << yours;
        ASSERT_EQ(pair.theirs, back.ours) << mine << " " << yours;
      }
    }
  }
}

TEST(Pairing, AnyMixOfSubnetsAndUnknownPorts_IsSeenAlikeFromBothSides) {
  constexpr unsigned kKinds = 5;
  const auto host = [](unsigned code) {
    Places places;
    for (uint8_t i = 0; i < 3; ++i, code /= kKinds) {
      const uint8_t kind = static_cast<uint8_t>(code % kKinds);
      if (kind == 0) continue;
      places.push_back(kind == 4 ? unknown(i) : roce(kind, i));
    }
    return numbered(places);
  };
  for (unsigned mine = 0; mine < kKinds * kKinds * kKinds; ++mine) {
    for (unsigned yours = mine; yours < kKinds * kKinds * kKinds; ++yours) pairs_of(host(mine), host(yours));
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
