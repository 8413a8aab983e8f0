// SPDX-License-Identifier: BSD-3-Clause
//
// btl_outages_test.cc: how often a port was lost, and for how long it was down.
#include "btl/verbs/engine/port/outages.h"

#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

constexpr uint64_t kMs = 1'000'000;

uint64_t down_ms(const Process& p) {
  return p.port.outages().down_ns(test_now()) / kMs;
}

TEST(Outages, Thousands_AreCountedWithTheirTime) {
  World w;
  w.connect();
  constexpr uint64_t kFlaps = 3000;
  for (uint64_t i = 0; i < kFlaps; ++i) {
    for (const ibv_port_state state : {IBV_PORT_DOWN, IBV_PORT_ACTIVE}) {
      w.set_port(w.a, state);
      for (int k = 0; k < 3; ++k) w.a.poll();
      test_now() += 10 * kMs;
    }
  }
  EXPECT_EQ(w.a.port.outages().losses(), kFlaps);
  EXPECT_EQ(down_ms(w.a), kFlaps * 10);
  EXPECT_EQ(w.b.port.outages().losses(), 0u) << "its own port is well";
  EXPECT_EQ(down_ms(w.b), 0u);
  w.pass(1000);
  EXPECT_EQ(w.a.endpoint.phase, engine::Phase::kUp) << "one second after the last one";
}

TEST(Outages, OneThatLasts_CountsUntilNow) {
  World w;
  w.connect();
  w.set_port(w.a, IBV_PORT_DOWN);
  w.pass(300);
  EXPECT_EQ(w.a.port.outages().losses(), 1u);
  EXPECT_NEAR(static_cast<double>(down_ms(w.a)), 300, 1);
  w.fabric.raise(*w.a.hca, IBV_EVENT_PORT_ERR, 1);
  w.pass(300);
  EXPECT_EQ(w.a.port.outages().losses(), 1u) << "it was down already";
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.pass(100);
  EXPECT_NEAR(static_cast<double>(down_ms(w.a)), 600, 2);
}

TEST(Outages, PortThatIsDownAtTheStart_IsNoLoss) {
  World w(small_config(), true, false);
  w.pass(200);
  EXPECT_EQ(w.a.port.outages().losses(), 0u);
  EXPECT_NEAR(static_cast<double>(down_ms(w.a)), 200, 2);
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.pass(200);
  EXPECT_NEAR(static_cast<double>(down_ms(w.a)), 200, 2);
}

TEST(Outages, DeviceThatIsDead_IsDownFromThenOn) {
  World w;
  w.connect();
  w.fabric.raise(*w.a.hca, IBV_EVENT_DEVICE_FATAL);
  w.pass(100);
  EXPECT_EQ(w.a.port.outages().losses(), 1u);
  EXPECT_NEAR(static_cast<double>(down_ms(w.a)), 100, 2);
}

TEST(Outages, LossThatNoEventTold_IsFoundByAReading) {
  World w;
  w.connect();
  w.a.hca->port.state = IBV_PORT_DOWN;
  w.fabric.raise(*w.a.hca, IBV_EVENT_SM_CHANGE, 1);
  w.pass(10);
  EXPECT_EQ(w.a.port.outages().losses(), 1u);
}

}  // namespace
}  // namespace bfo::test
