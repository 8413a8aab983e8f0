// SPDX-License-Identifier: BSD-3-Clause
//
// btl_pairing_test.cc: which ports of two processes meet: the same pairs seen from both sides, whatever is
// down.
#include "btl/verbs/engine/pairing.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(pairs_of(ours, theirs), (Pairs{{0, 2}, {1, 1}, {2, 0}}));
  EXPECT_EQ(pairs_of({infiniband(1, 0)}, {infiniband(2, 0)}), Pairs{});
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
