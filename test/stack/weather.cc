// SPDX-License-Identifier: BSD-3-Clause
//
// weather.cc: rates, latencies and losses of ports that change at random (rates.h), in random runs.
#include <algorithm>

#include "test/stack/special.h"

namespace bfo::stack {
namespace {

constexpr uint64_t kFastest = 4'000'000'000;  // bytes per second
constexpr uint64_t kWeatherNs = 30 * kMs;     // the last change

/// From a 2^11th of the fastest on; each half as likely as the next.
uint64_t draw_rate(sim::Prng& d) {
  return (kFastest >> d.below(11)) - d.below(kFastest >> 12);
}

Pace draw_pace(sim::Prng& d) {
  Pace p;
  p.rate = draw_rate(d);
  if (d.chance(40)) p.latency_ns = d.below(d.chance(70) ? 50 * kUs : 3 * kMs);
  if (d.chance(30)) p.loss = static_cast<unsigned>(d.below(d.chance(80) ? 50 : 1000));
  return p;
}

Change draw_change(sim::Prng& d, uint64_t t) {
  static constexpr Change::Shape kShapes[] = {Change::Shape::kStep, Change::Shape::kRamp,
                                              Change::Shape::kSquare};
  return Change{kShapes[d.below(3)], t, d.range(20 * kUs, d.chance(70) ? kMs : 10 * kMs), draw_pace(d)};
}

/// It ends without loss, and maybe slow.
Course draw_course(sim::Prng& d) {
  Course c(draw_pace(d));
  uint64_t t = 0;
  for (uint64_t n = d.below(6); n > 0; --n) {
    t += d.below(kWeatherNs / 6);
    c.then(draw_change(d, t));
  }
  Pace last = draw_pace(d);
  last.loss = 0;
  return c.then(Change{Change::Shape::kStep, kWeatherNs, 0, last});
}

}  // namespace

void change_weather(sim::Prng& d, Machine& m) {
  m.rates_end_ns = kWeatherNs;
  m.heal_ns = 15 * kSecond;  // a few megabytes over the slowest of rails take five
  for (uint32_t p = 0; p < m.procs; ++p) {
    for (uint32_t r = 0; r < m.rails; ++r) {
      if (d.chance(15)) continue;  // no rate
      const Course out = draw_course(d);
      m.rates.push_back(PortRate{p, r, out, d.chance(30) ? out : draw_course(d)});
    }
  }
  m.weight = d.chance(50) ? 100 : 32'000;
  m.timeout = static_cast<uint8_t>(d.range(9, 13));  // 2 to 33 ms
  m.retry_count = static_cast<uint8_t>(d.range(3, 7));
  if (d.chance(30)) m.processor.handled_ns = d.below(20 * kUs);
  if (d.chance(20)) m.processor.poll_ns = d.below(kMs);
}

}  // namespace bfo::stack
