// SPDX-License-Identifier: BSD-3-Clause
//
// rates_test.cc: courses, and what wires with rates do to packets and connections (rates.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "test/stack/device.h"
#include "test/stack/mixture.h"
#include "test/stack/world.h"

namespace bfo::stack {
namespace {

constexpr uint64_t kMsNs = 1'000'000;
constexpr uint64_t kGiga = 1'000'000'000;

// ---- courses

TEST(Course, StepsRampsAndSquareWaves) {
  Course c(Pace{1000, 0, 0});
  c.then(Change{Change::Shape::kStep, 10, 0, Pace{500, 7, 1}})
      .then(Change{Change::Shape::kRamp, 20, 10, Pace{100, 17, 11}})
      .then(Change{Change::Shape::kSquare, 40, 5, Pace{10, 0, 0}})
      .then(Change{Change::Shape::kStep, 60, 0, Pace{1000, 0, 0}});
  EXPECT_EQ(c.at(9).rate, 1000u);
  EXPECT_EQ(c.at(10).rate, 500u);
  EXPECT_EQ(c.at(10).latency_ns, 7u);
  EXPECT_EQ(c.at(25).rate, 300u);
  EXPECT_EQ(c.at(25).latency_ns, 12u);
  EXPECT_EQ(c.at(25).loss, 6u);
  EXPECT_EQ(c.at(30).rate, 100u);
  EXPECT_EQ(c.at(44).rate, 10u);
  EXPECT_EQ(c.at(45).rate, 100u);
  EXPECT_EQ(c.at(50).rate, 10u);
  EXPECT_EQ(c.at(60).rate, 1000u);
}

TEST(Course, ChangeBeginsWhereTheLastOneWasCut) {
  Course c(Pace{1000, 0, 0});
  c.then(Change{Change::Shape::kRamp, 0, 100, Pace{0, 0, 0}});  // to no limit: there is no way between
  EXPECT_EQ(c.at(50).rate, 0u);
  Course d(Pace{1000, 0, 0});
  d.then(Change{Change::Shape::kRamp, 0, 100, Pace{200, 0, 0}})
      .then(Change{Change::Shape::kRamp, 50, 100, Pace{1000, 0, 0}});
  EXPECT_EQ(d.at(50).rate, 600u);
  EXPECT_EQ(d.at(100).rate, 800u);
}

// ---- wires

struct Arrival {
  uint64_t t;
  uint64_t packet;
  bool operator==(const Arrival&) const = default;
};

/// Packets are numbers.
class WiresTest : public testing::Test, public WireUser {
 protected:
  WiresTest() : wires_(time_, *this, 1), start_(time_.now()) {}
  bool leaves(void* packet, uint32_t) override { return number(packet) != gone_; }
  void arrived(void* packet, uint32_t) override {
    arrivals_.push_back({time_.now() - start_, number(packet)});
  }
  void dropped(void* packet) override { dropped_.push_back(number(packet)); }
  void moved(uint32_t, size_t, size_t, uint64_t) override { ++moves_; }
  static uint64_t number(void* packet) { return reinterpret_cast<uintptr_t>(packet); }
  void send(size_t from, size_t to, uint32_t queue_pair, uint64_t bytes, uint64_t packet) {
    wires_.send(from, to, flow_of(queue_pair, false), bytes, reinterpret_cast<void*>(packet));
  }
  /// A port of `rate` both ways.
  void port(size_t n, uint64_t rate) { wires_.set(n, Course(Pace{rate, 0, 0}), Course(Pace{rate, 0, 0})); }
  void run() {
    while (!time_.empty()) time_.step();
  }
  /// Time of a packet of `bytes` at one byte a nanosecond.
  static uint64_t at_giga(uint64_t bytes) { return bytes + Wires::kHeader; }

  Timeline time_;
  Wires wires_;
  uint64_t start_;
  uint64_t gone_ = ~uint64_t{0};
  uint64_t moves_ = 0;
  std::vector<Arrival> arrivals_;
  std::vector<uint64_t> dropped_;
};

TEST_F(WiresTest, OnePacketTakesItsBytes) {
  port(0, kGiga);
  port(1, kGiga);
  send(0, 1, 16, 100'000, 1);
  run();
  ASSERT_EQ(arrivals_.size(), 1u);
  EXPECT_EQ(arrivals_[0].t, at_giga(100'000));
  EXPECT_EQ(wires_.bytes_out(0), 100'000u);
  EXPECT_EQ(wires_.bytes_in(1), 100'000u);
}

TEST_F(WiresTest, TheSlowerEndCounts) {
  port(0, kGiga);
  port(1, kGiga / 10);
  send(0, 1, 16, 100'000, 1);
  run();
  ASSERT_EQ(arrivals_.size(), 1u);
  EXPECT_NEAR(static_cast<double>(arrivals_[0].t), 1e6, 2e4);
}

TEST_F(WiresTest, DirectionsAreApart) {
  port(0, kGiga);
  port(1, kGiga);
  send(0, 1, 16, 100'000, 1);
  send(1, 0, 17, 100'000, 2);
  run();
  ASSERT_EQ(arrivals_.size(), 2u);
  EXPECT_EQ(arrivals_[0].t, at_giga(100'000));
  EXPECT_EQ(arrivals_[1].t, at_giga(100'000));
}

TEST_F(WiresTest, OneConnectionKeepsItsOrderAndTwoTakeTurns) {
  port(0, kGiga);
  port(1, kGiga);
  send(0, 1, 16, 1'000'000, 1);
  send(0, 1, 16, 10, 2);
  send(0, 1, 17, 10, 3);
  run();
  ASSERT_EQ(arrivals_.size(), 3u);
  EXPECT_EQ(arrivals_[0].packet, 3u);  // after one slice of the long one
  EXPECT_EQ(arrivals_[0].t, Wires::kSlice + at_giga(10));
  EXPECT_EQ(arrivals_[1].packet, 1u);
  EXPECT_EQ(arrivals_[2].packet, 2u);
}

TEST_F(WiresTest, TwoSendersShareOneReceiverAndOthersPass) {
  for (size_t p = 0; p < 3; ++p) port(p, kGiga);
  port(3, kGiga / 100);
  send(0, 3, 16, 1'000'000, 1);
  send(1, 3, 17, 1'000'000, 2);
  send(0, 2, 18, 1'000'000, 3);
  run();
  ASSERT_EQ(arrivals_.size(), 3u);
  EXPECT_EQ(arrivals_[0].packet, 3u);  // does not wait for the slow port
  EXPECT_LT(arrivals_[0].t, 2 * kMsNs);
  EXPECT_GT(arrivals_[1].t, 190 * kMsNs);
  EXPECT_LT(arrivals_[2].t, 205 * kMsNs);
}

TEST_F(WiresTest, RateChangesOnTheWay) {
  Course c(Pace{kGiga, 0, 0});
  c.then(Change{Change::Shape::kStep, kMsNs, 0, Pace{kGiga / 10, 0, 0}});
  wires_.set(0, c, Course());
  send(0, 1, 16, 2'000'000, 1);
  run();
  EXPECT_NEAR(static_cast<double>(arrivals_.at(0).t), 11e6, 3e5);
}

TEST_F(WiresTest, LatencyIsAddedAndKeepsTheOrder) {
  Course c(Pace{kGiga, 5 * kMsNs, 0});
  c.then(Change{Change::Shape::kStep, 10'000, 0, Pace{kGiga, 0, 0}});
  wires_.set(0, c, Course());
  send(0, 1, 16, 1000, 1);
  send(0, 1, 17, 20'000, 2);
  run();
  ASSERT_EQ(arrivals_.size(), 2u);
  EXPECT_EQ(arrivals_[0], (Arrival{at_giga(1000) + 5 * kMsNs, 1}));
  EXPECT_GE(arrivals_[1].t, arrivals_[0].t);
}

TEST_F(WiresTest, LostSlicesAreSentAgainAndCostTime) {
  wires_.set(0, Course(Pace{kGiga, 1000, 100}), Course());
  for (uint64_t i = 1; i <= 100; ++i) send(0, 1, 16, 1'000'000, i);
  run();
  EXPECT_GE(arrivals_.size(), 99u);  // the last slice of all may be lost for good
  EXPECT_GT(arrivals_.back().t, 108 * kMsNs);
  EXPECT_LT(arrivals_.back().t, 130 * kMsNs);
}

TEST_F(WiresTest, WhatNothingFollowsIsLostForGood) {
  wires_.set(0, Course(Pace{kGiga, 0, 1000}), Course());
  send(0, 1, 16, 10, 1);
  run();
  EXPECT_TRUE(arrivals_.empty());
  EXPECT_EQ(dropped_, std::vector<uint64_t>{1});
}

TEST_F(WiresTest, WhatIsUnsentOrGoneDoesNotLeave) {
  port(0, kGiga);
  gone_ = 3;
  send(0, 1, 16, 1'000'000, 1);
  send(0, 1, 16, 1'000'000, 2);
  send(0, 1, 17, 1'000'000, 3);
  send(0, 1, 18, 1000, 4);
  time_.step();
  wires_.unsend(0, flow_of(16, false));
  send(0, 1, 16, 1000, 5);
  run();
  EXPECT_EQ(dropped_, (std::vector<uint64_t>{3, 1, 2}));
  ASSERT_EQ(arrivals_.size(), 2u);
  EXPECT_EQ(arrivals_[0].packet, 4u);
  EXPECT_EQ(arrivals_[1].packet, 5u);
}

// ---- mixtures: the instrument measures what is there

TEST(Mixtures, OneRailMovesItsRateAndTwoMoveBoth) {
  Mixtures m(kGiga);
  const Figures f = m.measure(Cell{.ratio = 1, .size = 4 << 20});
  EXPECT_TRUE(f.failure.empty()) << f.failure;
  EXPECT_NEAR(f.best, 1e9, 2e7);
  EXPECT_NEAR(f.sum, 2e9, 4e7);
  EXPECT_NEAR(f.fair, 0.5, 0.01);
  EXPECT_GT(f.of_best, 1.5);
}

TEST(Mixtures, OneCellIsOneResult) {
  const Cell c{.ratio = 10, .when = When::kStep, .size = 256 << 10};
  const Figures a = Mixtures(kGiga).measure(c);
  const Figures b = Mixtures(kGiga).measure(c);
  EXPECT_EQ(a.goodput, b.goodput);
  EXPECT_EQ(a.share, b.share);
}

TEST(Mixtures, NamesAreDistinct) {
  std::vector<std::string> names;
  for (const Cell& c : all_cells()) names.push_back(name_of(c));
  const size_t n = names.size();
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  EXPECT_EQ(names.size(), n);
}

// ---- peers that join

/// Process 0 sends to 2, and after a while 1 does, too: the rails of 1 begin with what 2 has measured of its
/// ports. Returns the slow rail's part of what 1 has sent in the first `ns`.
double part_of_slow_rail(Cell c, uint64_t ns) {
  constexpr uint64_t kJoinsNs = 300 * kMsNs;
  Scenario s = scenario_of(c, kGiga);
  s.machine.procs = s.program.procs = 3;
  s.machine.connected = true;
  for (uint32_t p = 0; p < 3; ++p)
    for (uint32_t r = 0; r < 2; ++r) {
      const Course x(Pace{r == 0 ? kGiga : kGiga / c.ratio, 0, 0});
      s.machine.rates.push_back(PortRate{p, r, x, x});
    }
  const auto length = static_cast<uint32_t>(c.size);
  s.streams = {Stream{0, 2, length, c.window, false, 0}, Stream{1, 2, length, c.window, false, kJoinsNs}};
  s.streams_ns = kJoinsNs + ns + kMsNs;
  s.cut_ns = s.streams_ns;
  settle(s);
  World world(s);
  double part = 0;
  struct Look {
    World& world;
    double& part;
  } look{world, part};
  world.time.at(
      world.start_ns() + kJoinsNs + ns,
      [](void* x, uint64_t, void*) {
        Look& l = *static_cast<Look*>(x);
        double sent[2] = {};
        for (const auto& d : l.world.fabric.devices)
          if (d->process == 1) sent[d->rail] += static_cast<double>(l.world.fabric.bytes_out(*d));
        l.part = sent[1] / (sent[0] + sent[1]);
      },
      &look);
  const Result result = world.run();
  EXPECT_FALSE(result.failed) << result.violation;
  return part;
}

/// The pieces that would find it out by themselves are 64 KiB: at 100:1 they are three times its part.
TEST(Join, SecondPeersSlowRailGetsItsFairPartFromTheFirstPiecesOn) {
  for (const uint32_t ratio : {30u, 100u}) {
    const double part = part_of_slow_rail(Cell{.ratio = ratio}, 20 * kMsNs);
    EXPECT_LE(part, Mixtures::kOfFair / (ratio + 1)) << ratio << ":1";
    EXPECT_GT(part, 0.0) << "it is used";
  }
}

}  // namespace
}  // namespace bfo::stack
