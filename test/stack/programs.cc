// SPDX-License-Identifier: BSD-3-Clause
//
// programs.cc: see programs.h.
#include "test/stack/programs.h"

#include <algorithm>

#include "test/stack/special.h"

namespace bfo::stack {
namespace {

Fault between_two(sim::Prng& d, const Scenario& s) {
  Fault x;
  x.p = static_cast<uint32_t>(d.below(s.machine.procs));
  x.q = static_cast<uint32_t>((x.p + 1 + d.below(s.machine.procs - 1)) % s.machine.procs);
  x.r = static_cast<uint32_t>(d.below(s.machine.rails));
  return x;
}

uint64_t span_of(const Scenario& s) {
  uint64_t span = kUs;
  for (const sim::PairPlan& p : s.program.pairs) span = std::max({span, p.send_at, p.recv_at});
  return span;
}

}  // namespace

void add_echoes(sim::Prng& d, uint64_t n, Scenario& s) {
  if (s.machine.fabric.fence_fails) {
    Fault x = between_two(d, s);
    x.kind = FaultKind::kDevice;
    x.t = d.below(span_of(s) + 100 * kUs);
    s.faults.push_back(x);
  }
  for (n = d.range(1, n); n > 0; --n) {
    Fault x = between_two(d, s);
    x.kind = FaultKind::kEcho;
    x.n = static_cast<uint32_t>(d.next() >> 40);
    x.t = d.chance(50) ? 0 : d.below(span_of(s) + 300 * kUs);
    s.faults.push_back(x);
  }
}

void add_forged(sim::Prng& d, uint64_t n, Scenario& s) {
  for (n = d.range(1, n); n > 0; --n) {
    Fault x = between_two(d, s);
    x.kind = FaultKind::kForge;
    x.n = static_cast<uint32_t>(d.next() >> 40);
    x.t = d.below(span_of(s));
    s.faults.push_back(x);
  }
}

void add_communicators(sim::Prng& d, Scenario& s) {
  auto& comms = s.program.comms;
  auto& pairs = s.program.pairs;
  const auto first = static_cast<uint32_t>(comms.size());
  for (uint32_t i = 0; i < 3; ++i)
    comms.push_back({9, static_cast<uint32_t>(d.below(s.machine.procs)),
                     i == 0 ? -1 : static_cast<int32_t>(first + i - 1),
                     static_cast<uint32_t>(d.below(120 * kUs))});
  const size_t n = pairs.size();
  for (size_t i = 0; i < n; ++i) {
    sim::PairPlan p = pairs[i];
    if (!d.chance(50)) continue;
    p.comm = first + static_cast<uint32_t>(d.below(3));
    p.any_source = p.any_tag = false;
    p.capacity = d.chance(7) ? static_cast<uint32_t>(d.below(p.length + 1)) : p.length;
    if (d.chance(10)) p.dst = p.src;
    p.send_at /= 4;
    p.recv_at /= 4;
    if (d.chance(10)) p.recv_style = sim::RecvStyle::kCancel;
    if (d.chance(5)) p.send_style = sim::SendStyle::kBuffered;
    pairs.push_back(p);
  }
  for (uint64_t k = d.below(3); k > 0; --k) {
    Fault x = between_two(d, s);
    x.kind = FaultKind::kNoRoom;
    x.t = d.below(span_of(s));
    x.d = d.range(5 * kUs, 3 * kMs);
    s.faults.push_back(x);
  }
}

void add_death(sim::Prng& d, Scenario& s) {
  for (sim::PairPlan& p : s.program.pairs) p.any_source = p.any_tag = false;
  Fault x = between_two(d, s);
  x.kind = FaultKind::kDeath;
  x.t = d.below(span_of(s));
  s.faults.push_back(x);
}

void answer_echoes(sim::Prng& d, Machine& m) {
  make_dance(d, m);
  m.connected = d.chance(70);
  m.timeout = static_cast<uint8_t>(d.range(2, 7));
  m.retry_count = static_cast<uint8_t>(d.range(1, 2));
  m.control_ns = kUs * (5 + d.below(d.chance(50) ? 20 : 500));
  m.pipeline = static_cast<uint32_t>(d.range(1, 4));
  if (d.chance(40)) {
    m.control_threads = true;
    m.slow_process = static_cast<uint32_t>(d.below(2));
    (d.chance(50) ? m.stop_ns : m.queue_pair_ns) = d.range(100 * kUs, 4 * kMs);
  }
  if (d.chance(25)) {
    m.fabric.write_late = static_cast<unsigned>(d.range(300, 1000));
    m.fabric.write_ns = d.range(20 * kUs, kMs);
  }
  m.may_fail = d.chance(45);
  if (m.may_fail) m.park_ns = d.range(30 * kUs, d.chance(50) ? 400 * kUs : 5 * kMs);
  m.fabric.fence_fails = m.may_fail && d.chance(75);
}

void be_odd(sim::Prng& d, Machine& m) {
  m.free_comms = true;
  m.uneven = d.chance(30);
  m.get_alignment = d.chance(60) ? 1 : 8;
  m.piece = d.chance(60) ? 1 : 8;
  m.rndv_eager = d.chance(50) ? 0 : m.eager_limit / 4 * 3;
  m.min_rdma = d.chance(50) ? 0 : 3000;
  if (d.chance(30)) m.frags = static_cast<uint32_t>(d.range(12, 24));
}

void lose_a_process(sim::Prng& d, Machine& m) {
  m.any_source_waits = true;
  m.deaths = true;
  m.timeout = 7;
  m.retry_count = static_cast<uint8_t>(d.range(1, 3));
}

}  // namespace bfo::stack
