// SPDX-License-Identifier: BSD-3-Clause
//
// btl_rate_test.cc: how fast a port is: of codes of lanes, of what a newer library can tell, and when it
// changes.
#include "btl/verbs/engine/device/port_rate.h"

#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::rate_of_lanes;
using Rates = std::vector<std::string>;

constexpr uint8_t k1x = 1, k4x = 2, k8x = 4, k12x = 8, k2x = 16;
constexpr uint32_t kSdr = 1, kFdr10 = 8, kEdr = 32, kHdr = 64, kNdr = 128, kXdr = 256;

TEST(Rate, OfLanesWithAName) {
  struct Case {
    uint8_t width;
    uint32_t lane;
    uint32_t mbit;
  };
  for (const Case& c : {Case{k4x, kEdr, 100'000},
                        {k4x, kNdr, 400'000},
                        {k1x, kSdr, 2'000},
                        {k1x, kFdr10, 10'000},
                        {k2x, kHdr, 100'000},
                        {k8x, kNdr, 800'000},
                        {k12x, kXdr, 2'400'000},
                        {k4x, kXdr, 800'000}}) {
    EXPECT_EQ(rate_of_lanes(c.width, c.lane).mbit, c.mbit) << c.lane;
    EXPECT_FALSE(rate_of_lanes(c.width, c.lane).guessed);
  }
}

TEST(Rate, OfLanesThatNobodyKnows_IsGuessedAndNeverZero) {
  EXPECT_EQ(rate_of_lanes(k4x, 512).mbit, 1'600'000u) << "twice as fast as the ones before";
  EXPECT_EQ(rate_of_lanes(k4x, 3).mbit, rate_of_lanes(k4x, 2).mbit) << "no single bit";
  EXPECT_EQ(rate_of_lanes(64, kEdr).mbit, 25'000u) << "an unknown number of lanes";
  EXPECT_EQ(rate_of_lanes(0, 0).mbit, 10'000u) << "nothing is reported";
  for (const uint8_t width : {0, 1, 2, 3, 255}) {
    for (uint32_t bit = 0; bit < 32; ++bit) {
      const engine::PortRate rate = rate_of_lanes(width, 1u << bit);
      EXPECT_GT(rate.mbit, 0u);
      EXPECT_LE(rate.mbit, 10'000'000u) << "its products with bytes fit";
      EXPECT_EQ(rate.guessed, bit > 8 || (width != 1 && width != 2));
    }
  }
}

/// A port of `lanes` that is read again after `type`.
struct Retrained : World {
  void lanes(Process& p, uint8_t width, uint32_t lane) const {
    p.hca->port.active_width = width;
    p.hca->port.active_speed = static_cast<uint8_t>(std::min(lane, kNdr));
    p.hca->active_speed_ex = lane;
  }
  void event(Process& p, int type, int port = 0) {
    fabric.raise(*p.hca, static_cast<ibv_event_type>(type), port);
    pass(1);
  }
};

TEST(Rate, OfThePortThatTrainsAnew_IsToldOnEachEventOnce) {
  Retrained w;
  w.lanes(w.a, k4x, kEdr);
  w.event(w.a, engine::kDeviceSpeedChange);
  w.a.rates.clear();
  w.connect();
  w.event(w.a, engine::kDeviceSpeedChange);
  EXPECT_EQ(w.a.rates, Rates{}) << "nothing has changed";
  w.lanes(w.a, k4x, kSdr);
  w.event(w.a, engine::kDeviceSpeedChange);
  w.lanes(w.a, k4x, kXdr);
  w.event(w.a, engine::kDeviceSpeedChange);
  EXPECT_EQ(w.a.rates, (Rates{"100000 > 8000 IBV_EVENT_DEVICE_SPEED_CHANGE",
                              "8000 > 800000 IBV_EVENT_DEVICE_SPEED_CHANGE"}));
  EXPECT_EQ(w.a.port.rate().mbit, 800'000u);
  EXPECT_EQ(w.a.down, 0) << "its rails stay";
  EXPECT_EQ(w.b.rates, Rates{});
}

TEST(Rate, OfThePortThatComesBackSlower_IsToldBeforeItsRailIsUp) {
  Retrained w;
  w.lanes(w.a, k4x, kEdr);
  w.event(w.a, engine::kDeviceSpeedChange);
  w.a.rates.clear();
  w.connect();
  w.set_port(w.a, IBV_PORT_DOWN);
  w.lanes(w.a, k1x, kEdr);
  w.pass(50);
  ASSERT_EQ(w.a.down, 1);
  EXPECT_EQ(w.a.rates, Rates{}) << "a port that is down has no rate";
  EXPECT_EQ(w.a.port.rate().mbit, 100'000u);
  w.set_port(w.a, IBV_PORT_ACTIVE);
  for (int i = 0; i < 1000 && w.a.rates.empty(); ++i) w.pass(1);
  EXPECT_EQ(w.a.rates, Rates{"100000 > 25000 IBV_EVENT_PORT_ACTIVE"});
  EXPECT_EQ(w.a.up, 1) << "not yet again";
  w.pass(600);
  EXPECT_EQ(w.a.up, 2);
}

TEST(Rate, OfThePortThatIsDownAtTheStart_IsNotKnownBeforeItComesUp) {
  World w(small_config(), true, false);
  EXPECT_EQ(w.a.port.rate().mbit, 0u);
  w.a.hca->port.active_width = k4x;
  w.a.hca->port.active_speed = kHdr;
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.pass(5);
  EXPECT_EQ(w.a.rates, Rates{"0 > 200000 IBV_EVENT_PORT_ACTIVE"});
}

TEST(Rate, BandwidthThatTheDeviceTells_GoesBeforeItsLanes) {
  Retrained w;
  w.lanes(w.a, k4x, kEdr);
  w.event(w.a, engine::kDeviceSpeedChange);
  w.a.rates.clear();
  w.a.hca->port_speed = 1500;  // a bond of ports
  w.event(w.a, engine::kDeviceSpeedChange);
  w.a.hca->port_speed = UINT64_MAX;
  w.event(w.a, engine::kDeviceSpeedChange);
  w.a.hca->port_speed = 500;
  w.fabric.refusals.push_back({"query_port_speed", 1, 1, EIO});
  w.event(w.a, engine::kDeviceSpeedChange);
  EXPECT_EQ(w.a.rates, (Rates{"100000 > 150000 IBV_EVENT_DEVICE_SPEED_CHANGE",
                              "150000 > 10000000 IBV_EVENT_DEVICE_SPEED_CHANGE",
                              "10000000 > 100000 IBV_EVENT_DEVICE_SPEED_CHANGE"}));
}

TEST(Rate, UnknownLanes_AreToldAsAGuess) {
  Retrained w;
  w.lanes(w.a, k4x, kEdr);
  w.event(w.a, engine::kDeviceSpeedChange);
  w.a.rates.clear();
  w.lanes(w.a, k4x, 1024);
  w.event(w.a, engine::kDeviceSpeedChange);
  EXPECT_EQ(w.a.rates, Rates{"100000 > 3200000 IBV_EVENT_DEVICE_SPEED_CHANGE, guessed"});
  w.a.hca->port_speed = 32000;
  w.event(w.a, engine::kDeviceSpeedChange);
  EXPECT_FALSE(w.a.port.rate().guessed) << "the device tells";
}

TEST(Rate, OfADeviceThatIsDead_IsOfNoInterest) {
  Retrained w;
  w.event(w.a, IBV_EVENT_DEVICE_FATAL);
  w.a.rates.clear();
  w.lanes(w.a, k4x, kXdr);
  w.event(w.a, engine::kDeviceSpeedChange);
  EXPECT_EQ(w.a.rates, Rates{});
}

}  // namespace
}  // namespace bfo::test
