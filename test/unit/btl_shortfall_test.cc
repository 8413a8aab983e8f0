// SPDX-License-Identifier: BSD-3-Clause
//
// btl_shortfall_test.cc: how many rails a host could have, and what is said of those it has not.
#include "btl/verbs/engine/select/shortfall.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace bfo::test {
namespace {

using engine::PortFacts;
using engine::PortVerdict;
using engine::Shortfall;

struct Case {
  const char* name;
  std::vector<PortVerdict> verdicts;
  std::vector<bool> active;
  unsigned expected;
  const char* missing;
  const char* remedy;
};

Shortfall of(const Case& each) {
  std::vector<PortFacts> ports(each.verdicts.size());
  for (size_t i = 0; i < ports.size(); ++i) {
    snprintf(ports[i].device, sizeof ports[i].device, "mlx5_%zu", i);
    ports[i].active = each.active[i];
  }
  return engine::shortfall_of(ports.data(), ports.size(), each.verdicts.data());
}

TEST(Shortfall, EveryHost_NamesTheFirstReasonAndItsRemedy) {
  using V = PortVerdict;
  const Case kCases[] = {
      {"no device", {}, {}, 0, "no RDMA device", "driver"},
      {"one port", {V::kUsed}, {true}, 1, "no other port", "second port"},
      {"one is down",
       {V::kUsed, V::kUsed},
       {true, false},
       2,
       "port 1 of mlx5_1 is not ACTIVE",
       "ibv_devinfo -d mlx5_1"},
      {"all are down",
       {V::kNoneActive, V::kNoneActive},
       {false, false},
       2,
       "mlx5_0 is not ACTIVE, port 1 of mlx5_1",
       "if_include"},
      {"all are cages",
       {V::kInactive, V::kInactive},
       {false, false},
       0,
       "cable in port 1 of mlx5_0",
       "if_include"},
      {"a cage", {V::kUsed, V::kInactive}, {true, false}, 1, "cable in port 1 of mlx5_1", "Connect it"},
      {"excluded",
       {V::kUsed, V::kExcluded},
       {true, true},
       1,
       "leaves out port 1 of mlx5_1",
       "leave two ports"},
      {"all are excluded",
       {V::kExcluded, V::kExcluded, V::kExcluded},
       {true, true, true},
       0,
       "leaves out port 1 of mlx5_0 and 2 more",
       "leave two ports"},
      {"bounded", {V::kUsed, V::kTooMany}, {true, true}, 1, "btl_verbs_max_btls", "Raise"},
      {"cannot be asked",
       {V::kUsed, V::kUnreadable},
       {true, true},
       2,
       "mlx5_1 cannot be asked",
       "message of btl/verbs"},
      {"not made",
       {V::kNotMade, V::kUsed},
       {true, true},
       2,
       "mlx5_0 cannot be opened",
       "message of btl/verbs"},
      {"no address",
       {V::kUsed, V::kNoAddress},
       {true, true},
       2,
       "mlx5_1 has no address",
       "message of btl/verbs"},
      {"no partition",
       {V::kUsed, V::kNoPartition},
       {true, true},
       2,
       "mlx5_1 is no member",
       "message of btl/verbs"},
      {"iWARP", {V::kIwarp}, {true}, 0, "iWARP", "RoCE"},
      {"no RC", {V::kNoRc}, {true}, 0, "reliable connections", "RoCE"},
  };
  for (const Case& each : kCases) {
    const Shortfall found = of(each);
    EXPECT_EQ(found.expected, each.expected) << each.name;
    EXPECT_NE(std::string(found.missing).find(each.missing), std::string::npos)
        << each.name << ": " << found.missing;
    EXPECT_NE(std::string(found.remedy).find(each.remedy), std::string::npos)
        << each.name << ": " << found.remedy;
  }
}

TEST(Shortfall, ManyPortsInTrouble_AreCountedAfterTheThird) {
  Case each = {"", {}, {}, 0, "", ""};
  for (int i = 0; i < 8; ++i) {
    each.verdicts.push_back(PortVerdict::kUsed);
    each.active.push_back(i == 0);
  }
  const std::string missing = of(each).missing;
  EXPECT_EQ(missing,
            "port 1 of mlx5_1 is not ACTIVE, port 1 of mlx5_2 is not ACTIVE, port 1 of mlx5_3 is not ACTIVE "
            "and 4 more");
}

TEST(Shortfall, PortsThatAllWork_LackNothing) {
  const Case each = {"", {PortVerdict::kUsed, PortVerdict::kUsed}, {true, true}, 2, "", ""};
  EXPECT_EQ(of(each).expected, 2u);
}

}  // namespace
}  // namespace bfo::test
