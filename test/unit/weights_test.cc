// SPDX-License-Identifier: BSD-3-Clause
//
// weights_test.cc: what pml_bfo_weights may be, and what it says of a rail.
#include "pml/bfo/glue/weights.h"

#include <gtest/gtest.h>

namespace bfo::glue {
namespace {

TEST(GivenWeights, Words) {
  GivenWeights w;
  std::string why;
  EXPECT_TRUE(w.parse("measured", &why));
  EXPECT_EQ(w.kind(), xfer::Weights::kMeasured);
  EXPECT_TRUE(w.parse("nominal", &why));
  EXPECT_EQ(w.kind(), xfer::Weights::kNominal);
  EXPECT_EQ(w.of("mlx5_0", 1), 0u);
}

TEST(GivenWeights, ListNamesPortsOrWholeDevices) {
  GivenWeights w;
  std::string why;
  ASSERT_TRUE(w.parse("mlx5_0:1=4,mlx5_1=1,mlx5_1:2=1000000,tcp=2", &why)) << why;
  EXPECT_EQ(w.kind(), xfer::Weights::kGiven);
  EXPECT_EQ(w.of("mlx5_0", 1), 4u);
  EXPECT_EQ(w.of("mlx5_0", 2), 0u) << "not named";
  EXPECT_EQ(w.of("mlx5_1", 1), 1u);
  EXPECT_EQ(w.of("mlx5_1", 2), 1'000'000u) << "the port goes before its device, in any order";
  EXPECT_EQ(w.of("tcp", 0), 2u) << "of another BTL";
  EXPECT_EQ(w.of("mlx5_10", 1), 0u);
  ASSERT_TRUE(w.parse("mlx5_1:2=7,mlx5_1=1", &why)) << why;
  EXPECT_EQ(w.of("mlx5_1", 2), 7u);
  EXPECT_EQ(w.of("mlx5_0", 1), 0u) << "nothing is left of the list before";
}

TEST(GivenWeights, WhatMeansNothing_IsNamed) {
  const struct {
    const char* text;
    const char* names;
  } bad[] = {
      {"", "device:port=weight"},
      {nullptr, "device:port=weight"},
      {"Measured", "\"Measured\""},
      {"mlx5_0:1", "\"mlx5_0:1\""},
      {"=4", "\"=4\""},
      {":1=4", "\":1=4\""},
      {"a=1,", "\"\""},
      {"a=1,,b=2", "\"\""},
      {"a:0=1", "from 1 to 255"},
      {"a:x=1", "from 1 to 255"},
      {"a:256=1", "from 1 to 255"},
      {"a:=1", "from 1 to 255"},
      {"a=0", "from 1 to 1000000"},
      {"a=1000001", "from 1 to 1000000"},
      {"a=99999999999999999999999", "from 1 to 1000000"},
      {"a=-1", "from 1 to 1000000"},
      {"a=1.5", "from 1 to 1000000"},
      {"a=", "btl_verbs_if_exclude"},
      {"a= 1", "from 1 to 1000000"},
      {"a=1,a=2", "a twice"},
      {"a:1=1,a:2=1,a:1=1", "a:1 twice"},
  };
  for (const auto& b : bad) {
    GivenWeights w;
    std::string why;
    EXPECT_FALSE(w.parse(b.text, &why)) << b.text;
    EXPECT_NE(why.find(b.names), std::string::npos) << why;
  }
}

TEST(GivenWeights, LongTextIsCut) {
  GivenWeights w;
  std::string why;
  EXPECT_FALSE(w.parse(std::string(100'000, 'x').c_str(), &why));
  EXPECT_LT(why.size(), 200u);
}

}  // namespace
}  // namespace bfo::glue
