// SPDX-License-Identifier: BSD-3-Clause
//
// btl_gid_test.cc: which address of a port is used, which addresses are in one subnet, values for single
// ports, and when the library must be told of forks.
#include "btl/verbs/engine/device/gid.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "btl/verbs/engine/device/fork.h"
#include "btl/verbs/engine/select/port_values.h"

namespace bfo::test {
namespace {

using engine::GidEntry;
using engine::GidKind;
using engine::GidType;

ibv_gid gid(const char* text) {
  ibv_gid gid{};
  const std::string mapped = std::string(text).find(':') == std::string::npos ? "::ffff:" : "";
  EXPECT_EQ(inet_pton(AF_INET6, (mapped + text).c_str(), gid.raw), 1) << text;
  return gid;
}

GidEntry entry(GidType type, const char* address, uint8_t bits) {
  return GidEntry{0, type, bits, 0, gid(address)};
}

/// The best of a table.
const GidEntry* best_of(const std::vector<GidEntry>& table) {
  const auto best = std::min_element(table.begin(), table.end(), engine::better_gid);
  return best == table.end() ? nullptr : &*best;
}

/// As mlx5 fills its table: each address as v1 and v2.
std::vector<GidEntry> mlx5_table() {
  return {entry(GidType::kRoceV1, "fe80::e42:a1ff:fe00:1", 64),
          entry(GidType::kRoceV2, "fe80::e42:a1ff:fe00:1", 64),
          entry(GidType::kRoceV1, "10.1.0.7", 120),
          entry(GidType::kRoceV2, "10.1.0.7", 120),
          entry(GidType::kRoceV2, "fd00:1::7", 64),
          entry(GidType::kRoceV2, "192.168.7.7", 120)};
}

TEST(Gid, Kind_ByAddress) {
  EXPECT_EQ(engine::gid_kind(gid("::")), GidKind::kNull);
  EXPECT_EQ(engine::gid_kind(gid("fe80::")), GidKind::kNull) << "the prefix of a port without address";
  EXPECT_EQ(engine::gid_kind(gid("fe80::1")), GidKind::kLinkLocal);
  EXPECT_EQ(engine::gid_kind(gid("10.0.0.1")), GidKind::kIpv4);
  EXPECT_EQ(engine::gid_kind(gid("fd00::1")), GidKind::kGlobal);
}

TEST(Gid, TableInAnyOrder_GivesTheSameRoceV2Ipv4Address) {
  std::vector<GidEntry> table = mlx5_table();
  std::vector<size_t> order = {0, 1, 2, 3, 4, 5};
  int orders = 0;
  do {
    std::vector<GidEntry> shuffled;
    for (size_t i = 0; i < order.size(); ++i) {
      shuffled.push_back(table[order[i]]);
      shuffled.back().index = static_cast<int>(i);
    }
    const GidEntry* chosen = best_of(shuffled);
    ASSERT_NE(chosen, nullptr);
    EXPECT_EQ(chosen->type, GidType::kRoceV2);
    EXPECT_EQ(memcmp(chosen->gid.raw, gid("10.1.0.7").raw, 16), 0);
    ++orders;
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(orders, 720);
}

TEST(Gid, TwoNodesWithAddressesAddedInAnotherOrder_ChooseTheSameSubnet) {
  const std::vector<GidEntry> here = {entry(GidType::kRoceV2, "172.16.9.1", 112),
                                      entry(GidType::kRoceV2, "10.0.3.1", 120)};
  const std::vector<GidEntry> there = {entry(GidType::kRoceV2, "10.0.3.200", 120),
                                       entry(GidType::kRoceV2, "172.16.1.2", 112)};
  const GidEntry* a = best_of(here);
  const GidEntry* b = best_of(there);
  EXPECT_TRUE(engine::same_subnet(a->gid, a->subnet_bits, b->gid, b->subnet_bits));
}

TEST(Gid, OnlyLinkLocal_PrefersVersion2) {
  const std::vector<GidEntry> table = {entry(GidType::kRoceV1, "fe80::1", 64),
                                       entry(GidType::kRoceV2, "fe80::1", 64)};
  EXPECT_EQ(best_of(table), &table[1]);
}

TEST(Gid, VersionsNotTold_Ipv4BeforeLinkLocal) {
  const std::vector<GidEntry> table = {entry(GidType::kUnknown, "fe80::1", 64),
                                       entry(GidType::kUnknown, "10.0.0.1", 120)};
  EXPECT_EQ(best_of(table), &table[1]);
}

TEST(Gid, HostAddress_IsTheLastChoiceOfItsKind) {
  const std::vector<GidEntry> table = {entry(GidType::kRoceV2, "10.0.0.99", 128),
                                       entry(GidType::kRoceV2, "10.2.0.1", 120)};
  EXPECT_EQ(best_of(table), &table[1]);
}

TEST(Subnet, EqualByNetmaskOnly) {
  EXPECT_TRUE(engine::same_subnet(gid("10.0.1.1"), 120, gid("10.0.1.254"), 120));
  EXPECT_FALSE(engine::same_subnet(gid("10.0.1.1"), 120, gid("10.0.2.1"), 120));
  EXPECT_TRUE(engine::same_subnet(gid("10.0.1.1"), 112, gid("10.0.2.1"), 112));
  EXPECT_FALSE(engine::same_subnet(gid("10.0.1.1"), 120, gid("10.0.1.1"), 112));
  EXPECT_TRUE(engine::same_subnet(gid("10.0.0.2"), 127, gid("10.0.0.3"), 127));
  EXPECT_FALSE(engine::same_subnet(gid("10.0.0.3"), 127, gid("10.0.0.4"), 127));
  EXPECT_TRUE(engine::same_subnet(gid("fe80::1"), 64, gid("fe80::2"), 64));
  EXPECT_TRUE(engine::same_subnet(gid("::"), 0, gid("10.0.0.1"), 0));
}

TEST(GidType, OfTheKernelsText) {
  EXPECT_EQ(engine::gid_type_of("RoCE v2\n"), GidType::kRoceV2);
  EXPECT_EQ(engine::gid_type_of("IB/RoCE v1\n"), GidType::kRoceV1);
  EXPECT_EQ(engine::gid_type_of(""), GidType::kUnknown);
}

// ---- values for single ports

constexpr engine::ValueRange kIndex = {0, 255, true};

unsigned value_of(const char* list, const char* device, unsigned port, unsigned none = 999) {
  unsigned value = none;
  return engine::find_port_value(list, device, port, &value) ? value : none;
}

TEST(PortValues, MostSpecificEntry_Wins) {
  const char* list = "mlx5_1:2:7,0,mlx5_1:3,mlx5_2:auto";
  EXPECT_EQ(value_of(list, "mlx5_0", 1), 0u);
  EXPECT_EQ(value_of(list, "mlx5_1", 1), 3u);
  EXPECT_EQ(value_of(list, "mlx5_1", 2), 7u);
  EXPECT_EQ(value_of(list, "mlx5_2", 1), 999u);
  EXPECT_EQ(value_of(list, "mlx5_10", 1), 0u) << "a name is compared as a whole";
  EXPECT_EQ(value_of("", "mlx5_0", 1), 999u);
  EXPECT_EQ(value_of("auto", "mlx5_0", 1), 999u);
  EXPECT_EQ(value_of("0x8001", "mlx5_0", 1), 0x8001u);
  EXPECT_EQ(value_of("010", "mlx5_0", 1), 10u) << "not octal";
}

TEST(PortValues, WrongEntries_AreNamed) {
  char wrong[64] = "";
  for (const char* list : {"", "auto", "3", "0,mlx5_1:3,mlx5_2:1:5", "0xff", "mlx5_0:auto"})
    EXPECT_TRUE(engine::check_port_values(list, kIndex, wrong, sizeof wrong)) << list;
  for (const char* bad : {"256", "x", "-1", "1x", "mlx5_0:", ":3", "mlx5_0:0:3", "mlx5_0:x:3", "mlx5_0:1:2:3",
                          "99999999999999999999", "0x", "1 "}) {
    EXPECT_FALSE(engine::check_port_values((std::string("3,") + bad).c_str(), kIndex, wrong, sizeof wrong))
        << bad;
    EXPECT_STREQ(wrong, bad);
  }
  EXPECT_FALSE(engine::check_port_values("auto", {0, 15, false}, wrong, sizeof wrong));
}

// ---- fork

TEST(ForkPlan, OnlyWhereTheKernelNeedsIt) {
  using engine::fork_plan;
  using engine::ForkPlan;
  EXPECT_EQ(fork_plan(-1, true, IBV_FORK_UNNEEDED), ForkPlan::kNothing);
  EXPECT_EQ(fork_plan(-1, true, IBV_FORK_ENABLED), ForkPlan::kNothing);
  EXPECT_EQ(fork_plan(-1, true, IBV_FORK_DISABLED), ForkPlan::kTry);
  EXPECT_EQ(fork_plan(-1, false, IBV_FORK_DISABLED), ForkPlan::kTry);
  EXPECT_EQ(fork_plan(1, true, IBV_FORK_DISABLED), ForkPlan::kMust);
  EXPECT_EQ(fork_plan(1, true, IBV_FORK_UNNEEDED), ForkPlan::kNothing);
  EXPECT_EQ(fork_plan(0, true, IBV_FORK_DISABLED), ForkPlan::kNothing);
}

}  // namespace
}  // namespace bfo::test
