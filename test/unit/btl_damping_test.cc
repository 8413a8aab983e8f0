// SPDX-License-Identifier: BSD-3-Clause
//
// btl_damping_test.cc: a port that goes again as soon as it is back is left alone for a while, one that stays
// is not; and what ten thousand losses leave behind.
#include "btl/verbs/engine/port/damping.h"

#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Damping;
using engine::Phase;

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1'000'000'000;

/// Delays in milliseconds after each of `n` losses of a port that is up and down for so long in turn.
std::vector<uint64_t> delays(Damping& d, int n, uint64_t up_ms, uint64_t down_ms, uint64_t* now) {
  std::vector<uint64_t> all;
  for (int i = 0; i < n; ++i) {
    d.note(false, *now += up_ms * kMs);
    d.note(true, *now += down_ms * kMs);
    all.push_back(d.delay_ns(*now) / kMs);
  }
  return all;
}

TEST(Damping, PortThatGoesAtOnce_WaitsLongerEachTimeAndNeverASecond) {
  Damping d;
  uint64_t now = kSecond;
  // The first loss is that of a port that had been there since it was opened.
  EXPECT_EQ(delays(d, 9, 10, 10, &now), (std::vector<uint64_t>{0, 0, 0, 50, 100, 200, 400, 800, 900}));
  for (const uint64_t ms : delays(d, 10'000, 10, 10, &now)) EXPECT_EQ(ms, 900u);
}

TEST(Damping, PortThatStaysForAWhile_IsUsedAtOnceHoweverOftenItGoes) {
  for (const uint64_t up_ms : {100u, 500u, 10'000u}) {
    Damping d;
    uint64_t now = kSecond;
    for (const uint64_t ms : delays(d, 10'000, up_ms, 10, &now)) EXPECT_EQ(ms, 0u);
  }
}

TEST(Damping, RareShortLosses_AreForgotten) {
  Damping d;
  uint64_t now = kSecond;
  for (const uint64_t ms : delays(d, 1000, 10, 30'000, &now)) EXPECT_EQ(ms, 0u);
}

TEST(Damping, WhatIsRemembered_HalvesInTenSeconds) {
  Damping d;
  uint64_t now = kSecond;
  delays(d, 100, 1, 1, &now);
  EXPECT_EQ(d.delay_ns(now) / kMs, 900u);
  EXPECT_EQ(d.delay_ns(now + 10 * kSecond) / kMs, 400u) << "six of twelve";
  EXPECT_EQ(d.delay_ns(now + 20 * kSecond) / kMs, 50u) << "three";
  EXPECT_EQ(d.delay_ns(now + 27 * kSecond), 0u);
  delays(d, 1, 60'000, 1, &now);
  EXPECT_EQ(d.delay_ns(now), 0u);
}

/// `n` times down and up again, so long each.
void flap(World& w, Process& p, int n, uint64_t down_ms, uint64_t up_ms) {
  const auto turns = [&w](uint64_t ms) {
    for (uint64_t i = 0; i < ms; ++i) {
      test_now() += kMs;
      for (int k = 0; k < 6; ++k) {
        w.fabric.run();
        w.a.poll();
        w.b.poll();
      }
    }
  };
  for (int i = 0; i < n; ++i) {
    w.set_port(p, IBV_PORT_DOWN);
    turns(down_ms);
    w.set_port(p, IBV_PORT_ACTIVE);
    turns(up_ms);
  }
}

uint64_t ms_until_up(World& w) {
  const uint64_t since = test_now();
  while (!(w.a.endpoint.phase == Phase::kUp && w.b.endpoint.phase == Phase::kUp &&
           w.a.endpoint.epoch == w.b.endpoint.epoch) &&
         test_now() < since + 10 * kSecond)
    w.pass(1);
  return (test_now() - since) / kMs;
}

TEST(Damping, TenThousandFlaps_MakeFewConnectionsAndLeaveNothingBehind) {
  World w;
  w.connect();
  const size_t qps = w.fabric.live().size();
  const uint32_t keys = w.fabric.keys_live;
  const uint32_t handles = w.fabric.handles_live;
  const uint32_t before = w.a.endpoint.epoch;
  flap(w, w.a, 10'000, 10, 10);
  EXPECT_EQ(w.a.port.outages().losses(), 10'000u);
  EXPECT_LT(w.a.endpoint.epoch - before, 100u) << "what was made for nothing";
  EXPECT_LE(ms_until_up(w), 950u) << "it stays now";
  EXPECT_EQ(w.fabric.live().size(), qps);
  EXPECT_EQ(w.fabric.keys_live, keys);
  EXPECT_EQ(w.fabric.handles_live, handles);
  EXPECT_EQ(w.a.up, w.a.closed + 1);
  EXPECT_EQ(w.b.up, w.b.closed + 1);
}

TEST(Damping, NoOtherRail_PortIsUsedAtOnce) {
  World w;
  w.connect();
  flap(w, w.a, 30, 10, 10);
  w.a.other_rail = false;
  w.set_port(w.a, IBV_PORT_DOWN);
  w.pass(10);
  w.set_port(w.a, IBV_PORT_ACTIVE);
  EXPECT_LE(ms_until_up(w), 20u);
}

TEST(Damping, OtherRailGoesMeanwhile_PortIsUsedSoon) {
  World w;
  w.connect();
  flap(w, w.a, 30, 10, 10);
  w.pass(100);
  ASSERT_NE(w.a.endpoint.phase, Phase::kUp);
  w.a.other_rail = false;
  EXPECT_LE(ms_until_up(w), 70u);
}

TEST(Damping, PortThatStaysBetweenItsLosses_IsBackAtOnce) {
  World w;
  w.connect();
  for (int i = 0; i < 20; ++i) {
    flap(w, w.a, 1, 20, 0);
    EXPECT_LE(ms_until_up(w), 20u) << i;
    w.pass(150);
  }
}

}  // namespace
}  // namespace bfo::test
