// SPDX-License-Identifier: BSD-3-Clause
//
// checks_test.cc: the simulator notices a component without one of its safety rules, and bytes that go again
// without a reason; what its configurations promise to happen does happen.
//
// P1..P8: contrib/doc/design.md
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "test/stack/shrink.h"
#include "test/stack/traffic.h"
#include "test/stack/world.h"

namespace bfo::stack {
namespace {

/// The first of `runs` seeds of `config`, changed by `change`, that fails as `how` says; 0: none.
template <class Change, class How>
uint64_t caught(const char* config, uint64_t runs, Change change, How how) {
  for (uint64_t seed = 1; seed <= runs; ++seed) {
    Scenario s;
    EXPECT_TRUE(generate(seed, config, s));
    change(s.machine);
    if (how(s)) return seed;
  }
  return 0;
}

TEST(Checks, FenceRemoved_LateAccessIsSeen) {
  const auto unfenced = [](Machine& m) {
    m.fabric.no_fence = true;
    m.fabric.err_lands = 1000;
    m.connect_wait_ns = 0;  // more of the messages use rails that are new
  };
  EXPECT_NE(caught("dance", 400, unfenced, [](const Scenario& s) { return failure_of(s) == "P2"; }), 0u);
}

/// A request that ends with fragments out breaks an invariant of the component before anything else is seen.
TEST(Checks, GateRemoved_IsSeen) {
  const auto open = [](Machine& m) { m.no_gate = true; };
  EXPECT_NE(caught("barrier", 60, open, [](const Scenario& s) { return !failure_of(s).empty(); }), 0u);
}

TEST(Checks, HeadersThatNoCorrectPeerSends_Come) {
  uint64_t echoes = 0, forged = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Scenario s;
    ASSERT_TRUE(generate(seed, "echoes", s));
    echoes += World(s).run().forged;
    ASSERT_TRUE(generate(seed, "forged", s));
    if (seed <= 4) forged += World(s).run().forged;
  }
  EXPECT_GE(echoes, 20u);
  EXPECT_GE(forged, 20u);
}

/// A message of 1000 bytes over one rail, in windows of 4 pieces of 100.
class TrafficOfOne : public testing::Test {
 protected:
  TrafficOfOne() {
    sim::PairPlan p;
    p.length = 1000;
    scenario.program.pairs.push_back(p);
    scenario.machine.pipeline = 4;
    scenario.machine.max_send = scenario.machine.rdma_frag = 100;
    scenario.machine.eager_limit = 50;
    traffic.emplace(scenario);
  }
  Scenario scenario;
  std::optional<Traffic> traffic;
  xfer::Counters counters;
};

TEST_F(TrafficOfOne, BytesGoAgainWithoutAReason_P4) {
  traffic->write(0, 0, 1000);
  EXPECT_EQ(traffic->resent(0, 0), "");
  traffic->write(0, 300, 500);
  EXPECT_EQ(traffic->resent(0, 0).rfind("P4: 500 bytes of message 0", 0), 0u);
}
TEST_F(TrafficOfOne, BytesThatFailed_GoAgain) {
  traffic->write(0, 0, 1000);
  traffic->failed(0, 500);
  traffic->write(0, 300, 500);
  EXPECT_EQ(traffic->resent(0, 0), "");
}
TEST_F(TrafficOfOne, ARestart_AllowsOneWindow) {
  traffic->write(0, 0, 1000);
  traffic->rounds(0, 1, false);
  traffic->write(0, 0, 400);
  EXPECT_EQ(traffic->resent(0, 0), "");
  traffic->write(0, 0, 1);
  EXPECT_NE(traffic->resent(0, 0), "");
}
TEST_F(TrafficOfOne, ARepeatedHeader_AllowsItsPayload) {
  traffic->message(0, 38, 0, 50);
  traffic->message(0, 38, 0, 50);
  EXPECT_EQ(traffic->resent(0, 1), "");
  EXPECT_NE(traffic->resent(0, 0), "");
}
TEST_F(TrafficOfOne, CountersThatSayOtherThings_P8) {
  traffic->message(0, 38, 0, 50);
  traffic->read(0, 50, 950);
  traffic->fetched(0, 50, 950);
  counters.bytes_sent = 50;
  counters.bytes_read = 950;
  counters.bytes_headers = 38;
  EXPECT_EQ(traffic->balance(counters), "");
  for (uint64_t xfer::Counters::*each : {&xfer::Counters::bytes_sent, &xfer::Counters::bytes_read,
                                         &xfer::Counters::bytes_headers, &xfer::Counters::bytes_resent}) {
    counters.*each += 1;
    EXPECT_EQ(traffic->balance(counters).rfind("P8", 0), 0u);
    counters.*each -= 1;
  }
  traffic->told(1);
  EXPECT_EQ(traffic->balance(counters).rfind("P8", 0), 0u);
}

}  // namespace
}  // namespace bfo::stack
