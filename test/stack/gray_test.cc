// SPDX-License-Identifier: BSD-3-Clause
//
// gray_test.cc: rails that become slow all at once while much of their work is under way, on ports whose
// connections share one queue, as in a switch: the watchdog's questions stand behind that work. Such a rail
// is not ended, and one that is dead is ended as soon as on devices that count nothing.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "btl/verbs/engine/rail/verdict_rules.h"
#include "test/stack/mixture.h"
#include "test/stack/world.h"

namespace bfo::stack {
namespace {

constexpr uint64_t kGiga = 1'000'000'000;
constexpr uint64_t kFallsNs = 100 * kMs;
constexpr uint64_t kLastsNs = 600 * kMs;

/// A stream over two rails that share nothing; both run at `kGiga`.
Scenario stream(const Cell& c) {
  Scenario s = scenario_of(c, kGiga);
  s.machine.connected = true;
  s.machine.polls = 33;  // the watchdog looks at the clock each time
  s.machine.fabric.one_queue = true;
  s.machine.timeout = 20;  // the device says nothing for long
  s.streams_ns = kFallsNs + kLastsNs;
  s.cut_ns = s.streams_ns;
  return s;
}
void set_rates(Scenario& s, const Course& last) {
  for (uint32_t p = 0; p < s.machine.procs; ++p)
    for (uint32_t r = 0; r < s.machine.rails; ++r) {
      const Course x = r + 1 == s.machine.rails ? last : Course(Pace{kGiga, 0, 0});
      s.machine.rates.push_back(PortRate{p, r, x, x});
    }
}
Result run(Scenario& s) {
  settle(s);
  World world(s);
  const Result result = world.run();
  EXPECT_FALSE(result.failed) << result.violation;
  return result;
}

/// The last rail falls to a part of its rate.
Result fall(const Cell& c, uint32_t part, uint64_t ramp_ns, bool counters = true) {
  Scenario s = stream(c);
  s.machine.fabric.no_counters = !counters;
  const Change::Shape shape = ramp_ns == 0 ? Change::Shape::kStep : Change::Shape::kRamp;
  set_rates(s, Course(Pace{kGiga, 0, 0}).then(Change{shape, kFallsNs, ramp_ns, Pace{kGiga / part, 0, 0}}));
  return run(s);
}

class Falls : public testing::TestWithParam<Protocol> {
 protected:
  static std::string text(const Cell& c, uint32_t part, uint64_t ramp_ns) {
    return name_of(c) + " to 1/" + std::to_string(part) + " in " + std::to_string(ramp_ns / kMs) + " ms";
  }
  static void expect_kept(const Cell& c, uint32_t part, uint64_t ramp_ns) {
    EXPECT_EQ(fall(c, part, ramp_ns).by_clock, 0u) << text(c, part, ramp_ns);
  }
};

TEST_P(Falls, AtOnce_TheRailIsNotEnded) {
  for (const uint32_t part : {10u, 100u, 1000u})
    for (const uint64_t size : {uint64_t{1} << 20, uint64_t{16} << 20})
      for (const uint32_t window : {1u, 64u})
        expect_kept(Cell{.protocol = GetParam(), .size = size, .window = window}, part, 0);
}

TEST_P(Falls, InARamp_TheRailIsNotEnded) {
  for (const uint64_t ramp_ns : {20 * kMs, 500 * kMs})
    expect_kept(Cell{.protocol = GetParam(), .size = 4 << 20, .window = 64}, 1000, ramp_ns);
}

TEST_P(Falls, BothWaysAndInARing_TheRailIsNotEnded) {
  for (const Pattern pattern : {Pattern::kBoth, Pattern::kRing})
    for (const uint32_t part : {100u, 1000u})
      expect_kept(Cell{.protocol = GetParam(), .size = 1 << 20, .window = 64, .pattern = pattern}, part, 0);
}

INSTANTIATE_TEST_SUITE_P(Protocols, Falls, testing::Values(Protocol::kRead, Protocol::kPut, Protocol::kCopy));

/// The runs above would show it: what the device counts is what saves the rail.
TEST(Gray, DeviceThatCountsNothing_TheRailIsEnded) {
  EXPECT_NE(fall(Cell{.size = 1 << 20, .window = 64}, 100, 0, false).by_clock, 0u);
}

/// When a rail that is dead is ended, since it died. `busy`: a third process sends over the same port on.
uint64_t ended_after(const Cell& c, FaultKind kind, bool counters, bool busy) {
  Scenario s = stream(c);
  s.machine.fabric.no_counters = !counters;
  if (busy) {
    s.machine.procs = s.program.procs = 3;
    s.streams.push_back(Stream{2, 1, static_cast<uint32_t>(c.size), c.window, false, 0});
  }
  set_rates(s, Course(Pace{kGiga, 0, 0}));
  Fault f;
  f.kind = kind;
  f.t = kFallsNs;
  f.p = 0;
  f.q = 1;
  f.r = s.machine.rails - 1;
  f.d = s.streams_ns - kFallsNs;
  s.faults.push_back(f);
  const Result result = run(s);
  EXPECT_NE(result.by_clock, 0u) << name_of(c);
  return result.down_ns - kFallsNs;
}

TEST(Gray, DeadRail_IsEndedAsSoonAsWithoutCounters) {
  for (const Protocol protocol : {Protocol::kRead, Protocol::kPut, Protocol::kCopy})
    for (const Pattern pattern : {Pattern::kOne, Pattern::kBoth})
      for (const FaultKind kind : {FaultKind::kSilent, FaultKind::kOneWay}) {
        const Cell c{.protocol = protocol, .size = 1 << 20, .window = 64, .pattern = pattern};
        const uint64_t before = ended_after(c, kind, false, false);
        const uint64_t now = ended_after(c, kind, true, false);
        // Three rounds, and what others may move meanwhile: the way back of a rail that is dead one way.
        EXPECT_LE(now, before + 8 * kMs + 4 * engine::kOthersQueued * kSecond / kGiga)
            << name_of(c) << " " << name_of(kind);
      }
}

/// What others receive over the port is taken for life, as long as a queue of work takes.
TEST(Gray, DeadPathOfABusyPort_IsEndedALittleLater) {
  for (const Protocol protocol : {Protocol::kRead, Protocol::kPut}) {
    const Cell c{.protocol = protocol, .size = 1 << 20, .window = 4};
    const uint64_t before = ended_after(c, FaultKind::kOneWay, false, true);
    EXPECT_LE(ended_after(c, FaultKind::kOneWay, true, true), before + 100 * kMs) << name_of(c);
  }
}

}  // namespace
}  // namespace bfo::stack
