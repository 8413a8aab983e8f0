// SPDX-License-Identifier: BSD-3-Clause
//
// The GIDs of a port: which list is understood, what stands at which index, and who is found by a GID.
#include "contrib/softhca/fabric/gids.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

namespace bfo::softhca {
namespace {

constexpr uint32_t kNode = 3;

class Gids : public testing::Test {
 protected:
  void create(const std::string& list) {
    FabricConfig config;
    std::string error;
    ASSERT_TRUE(read_gids(list, config.gids, error)) << error;
    fabric_ = Fabric::anonymous(config, 0);
    ASSERT_NE(fabric_, nullptr);
  }
  FabricHeader& h() { return fabric_->header(); }
  std::string gid(uint32_t port, uint32_t index) {
    uint8_t raw[16];
    make_gid(h(), port, index, raw);
    return std::string(reinterpret_cast<char*>(raw), sizeof raw);
  }
  uint16_t found(uint32_t from, uint32_t index, const std::string& dgid) {
    return lid_of_gid(h(), from, index, reinterpret_cast<const uint8_t*>(dgid.data()));
  }
  std::unique_ptr<Fabric> fabric_;
};

TEST_F(Gids, Lists_AreReadInTheirOrderOrRefused) {
  GidPlan plan;
  std::string error;
  EXPECT_TRUE(read_gids("v2-ipv4@5,v1,-,v2", plan, error));
  EXPECT_EQ(write_gid_list(plan.all), "v2-ipv4@5,v1,-,v2");
  EXPECT_EQ(plan.all.count, 4u);
  EXPECT_TRUE(read_gids("ib", plan, error));
  EXPECT_TRUE(read_gids("v1,v1,v1,v1,v1,v1,v1,v1", plan, error));
  for (const char* bad : {"",
                          "v3",
                          "v1,",
                          ",v1",
                          "v1,ib",
                          "ib,ib",
                          "v1,v1,v1,v1,v1,v1,v1,v1,v1",
                          "v1@",
                          "v1@0",
                          "v1@16",
                          "v1@x",
                          "ib@1",
                          "-@1",
                          "v1;",
                          "v1;node=1",
                          "v1;node=1:",
                          "v1;node=256:v1",
                          "v1;node=:v1",
                          "v1;device=16:v1",
                          "v1;node=1/:v1x",
                          "v1;node=1/node=2:v1",
                          "v1;rail=1:v1",
                          "v1;:v1",
                          "ib;node=1:v1",
                          "v1;node=1:ib"}) {
    error.clear();
    EXPECT_FALSE(read_gids(bad, plan, error)) << bad;
    EXPECT_NE(error.find("v2-ipv4"), std::string::npos) << bad;
  }
}

TEST_F(Gids, ListsOfSinglePorts_CountForThemOnly) {
  create("v1;node=3:v2;node=3/device=1:v2-ipv4,v2@7");
  EXPECT_EQ(write_gid_list(gids_of(h(), port_index(0, 1, 1))), "v1");
  EXPECT_EQ(write_gid_list(gids_of(h(), port_index(kNode, 0, 1))), "v2");
  EXPECT_EQ(write_gid_list(gids_of(h(), port_index(kNode, 1, 1))), "v2-ipv4,v2@7");
}

TEST_F(Gids, AddressesOfOtherKindsAndVlans_DoNotReachEachOther) {
  create("v2,v2-ipv4,v2-ipv6,v2@5,v2-ipv4@5");
  const uint32_t here = port_index(0, 1, 1), there = port_index(kNode, 1, 1);
  const uint16_t lid = h().ports_table[there].lid.load();
  for (uint32_t from = 0; from < 5; ++from) {
    for (uint32_t to = 0; to < 5; ++to) {
      // The link-local address is one in both VLANs.
      const bool same = from == to || (from == 0 && to == 3) || (from == 3 && to == 0);
      EXPECT_EQ(found(here, from, gid(there, to)), same ? lid : kNoLid) << from << " " << to;
    }
  }
  int why = 0;
  const std::string mapped = gid(there, 1);
  lid_of_gid(h(), here, 0, reinterpret_cast<const uint8_t*>(mapped.data()), &why);
  EXPECT_EQ(why, ENETUNREACH);
  lid_of_gid(h(), here, 4, reinterpret_cast<const uint8_t*>(mapped.data()), &why);
  EXPECT_EQ(why, ETIMEDOUT);
  EXPECT_NE(interface_of_gid(h(), here, 0), interface_of_gid(h(), here, 3));
  EXPECT_NE(interface_of_gid(h(), here, 0), interface_of_gid(h(), port_index(0, 0, 1), 0));
}

TEST_F(Gids, AddressThatWasTakenAway_IsReachedNoMore) {
  create("v1,v2,v2-ipv4");
  const uint32_t here = port_index(0, 1, 1), there = port_index(kNode, 1, 1);
  const std::string mapped = gid(there, 2);
  EXPECT_NE(found(here, 2, mapped), kNoLid);
  GidList fewer;
  ASSERT_TRUE(read_gid_list("v1,v2,-,v2-ipv6", fewer));
  h().ports_table[there].gids.store(pack(fewer));
  EXPECT_EQ(found(here, 2, mapped), kNoLid);
  EXPECT_EQ(gid(there, 2), std::string(16, '\0'));
  EXPECT_FALSE(has_gid(h(), there, reinterpret_cast<const uint8_t*>(mapped.data()), here, 2));
}

TEST_F(Gids, Destination_IsFoundByAddressVersionAndRail) {
  create("v1,v2,v2-ipv4");
  const uint32_t here = port_index(0, 1, 1), there = port_index(kNode, 1, 1),
                 elsewhere = port_index(kNode, 0, 1);
  const uint16_t lid = h().ports_table[there].lid.load();
  EXPECT_EQ(gid(there, 0), gid(there, 1)) << "one address, two versions";
  EXPECT_EQ(found(here, 0, gid(there, 0)), lid);
  EXPECT_EQ(found(here, 1, gid(there, 1)), lid);
  EXPECT_EQ(found(here, 2, gid(there, 2)), lid);
  EXPECT_EQ(found(here, 0, gid(there, 2)), kNoLid) << "no port has that address in version 1";
  EXPECT_EQ(found(here, 1, gid(elsewhere, 1)), kNoLid) << "the other rail is another subnet";
  EXPECT_EQ(found(here, 2, gid(elsewhere, 2)), kNoLid);
  EXPECT_EQ(found(here, 3, gid(there, 0)), kNoLid) << "no such index";
  EXPECT_EQ(found(here, 0, std::string(16, '\0')), kNoLid);
}

TEST_F(Gids, Ipv4_AddressesOfOneRailShareTheirFirst24Bits) {
  create("v2-ipv4");
  const std::string a = gid(port_index(0, 1, 1), 0), b = gid(port_index(kNode, 1, 1), 0);
  const std::string other_rail = gid(port_index(0, 0, 1), 0);
  EXPECT_EQ(a.substr(0, 15), b.substr(0, 15));
  EXPECT_NE(a, b);
  EXPECT_NE(a.substr(0, 15), other_rail.substr(0, 15));
  EXPECT_EQ(a.substr(10, 2), "\xff\xff");
}

TEST_F(Gids, OwnIndex_IsFoundForAnAnswer) {
  create("v1,v2-ipv4");
  const uint32_t port = port_index(kNode, 0, 1);
  const std::string mapped = gid(port, 1);
  EXPECT_EQ(index_of_gid(h(), port, reinterpret_cast<const uint8_t*>(mapped.data())), 1u);
}

}  // namespace
}  // namespace bfo::softhca
