// SPDX-License-Identifier: BSD-3-Clause
//
// scenario.cc: random runs of the whole stack. Every configuration is a set of weights; what takes part in a
// run is drawn per run, so that rare mixtures get runs of their own.
#include "test/stack/scenario.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "common/seq.h"
#include "test/sim/prng.h"
#include "test/stack/flavor.h"
#include "test/stack/programs.h"
#include "test/stack/special.h"

namespace bfo::stack {
namespace {

void make_machine(sim::Prng& d, const Flavor& f, Machine& m) {
  m.seed = d.next() >> 16;
  m.procs = static_cast<uint32_t>(d.range(f.min_procs, f.max_procs));
  m.rails = static_cast<uint32_t>(d.range(f.min_rails, f.max_rails));
  const uint64_t protocols = d.below(4);
  m.use_get = protocols != 0 && protocols != 1;
  m.use_put = protocols != 0;
  m.lazy = d.chance(50);
  m.short_limit = d.chance(50) ? 256 : 0;
  m.pipeline = static_cast<uint32_t>(d.range(1, 6));
  m.rdma_frag = d.chance(50) ? 4096 : 16384;
  m.send_depth = d.chance(30) ? 8 : 32;
  m.receive_depth = d.chance(30) ? 16 : 64;
  m.receive_first = d.chance(50) ? 4 : 64;
  m.slot_bytes = d.chance(50) ? 256 : 1088;
  m.signal_interval = m.send_depth / (d.chance(50) ? 2 : 8);  // at most half, as the component wants it
  m.inline_bytes = d.chance(50) ? 0 : 128;
  m.timeout = static_cast<uint8_t>(d.range(7, 11));  // 0.5 to 8 ms
  m.retry_count = static_cast<uint8_t>(d.range(1, 7));
  m.control_threads = d.chance(80);
  m.control_ns = d.chance(70) ? 30 * kUs : 3 * kMs;
  m.events_ns = d.chance(70) ? 20 * kUs : 3 * kMs;
  FabricTraits& t = m.fabric;
  t.jitter_ns = d.chance(50) ? 500 : 20 * kUs;
  t.no_last_receive = d.chance(15) ? 1 : 0;
  if (d.chance(40)) {
    t.packet_late = static_cast<unsigned>(d.range(1, 30));
    t.packet_ns = d.range(20 * kUs, 5 * kMs);
  }
  if (d.chance(50)) t.err_lands = static_cast<unsigned>(d.range(50, 1000));
  if (f.datagrams || d.chance(15)) {
    t.datagram_loss = static_cast<unsigned>(d.below(f.datagrams ? 50 : 10));
    t.datagram_twice = static_cast<unsigned>(d.below(40));
    t.datagram_late = static_cast<unsigned>(d.below(40));
    t.late_ns = d.chance(70) ? 3 * kMs : kSecond;
  }
  if (d.chance(15)) t.ah_fails = static_cast<unsigned>(d.below(30));
  if (d.chance(20)) {
    t.verb_blocks = static_cast<unsigned>(d.range(1, 100));
    t.verb_ns = d.chance(80) ? 5 * kMs : kSecond;
  }
  if (f.late_ports) {
    m.late_ports = static_cast<uint32_t>(d.below(1u << m.rails));
    m.late_ns = d.below(50 * kMs);
  }
  if (f.blocked) {
    t.verb_blocks = static_cast<unsigned>(d.range(1, 100));
    t.verb_ns = 3 * kSecond;
  }
  if (f.verbs_fail) t.verb_fails = static_cast<unsigned>(d.range(1, 300));
  if (f.dies_in_a_call) m.dies_at_call = d.range(1, d.chance(50) ? 200 : 5000);
  if (f.memory) {
    m.memory_at = d.range(1, d.chance(50) ? 20 : 200);
    m.memory_for = static_cast<uint32_t>(d.chance(50) ? 0 : d.below(20));
  }
  if (f.few_receives) {
    m.receive_depth = 16;
    m.receive_first = 4;
  }
  if (f.wraps) m.seq_step = static_cast<uint16_t>(256u << d.below(3));
  if (m.procs > 64) m.lazy = true;
  m.may_fail = f.may_fail || f.dies_in_a_call || f.memory;
  if (f.tune != nullptr) f.tune(d, m);
  // not drawn: the other seeds stay what they are
  if (sim::mix(m.seed, 0x1be) % 2 == 0)
    m.connect_wait_ns = sim::mix(m.seed, 0x1bf) % 2 == 0 ? 50 * kMs : 200 * kUs;
  if (sim::mix(m.seed, 0xb10c) % 3 == 0) m.blocking_limit = (m.eager_limit + m.max_send) / 2;
}

void make_pairs(sim::Prng& d, const Flavor& f, Scenario& s) {
  const Machine& m = s.machine;
  s.program.comms.push_back(sim::CommPlan{0, 0, -1, 0});
  s.program.comms.push_back(sim::CommPlan{7, 1, -1, 0});
  const unsigned mode = static_cast<unsigned>(d.below(4));  // of the second communicator, as in test/sim
  const uint64_t n = d.range(f.min_pairs, f.max_pairs);
  for (uint64_t i = 0; i < n; ++i) {
    sim::PairPlan p;
    p.comm = static_cast<uint32_t>(d.below(2));
    p.src = static_cast<uint32_t>(d.below(m.procs));
    p.dst = static_cast<uint32_t>((p.src + 1 + d.below(m.procs - 1)) % m.procs);
    p.tag = static_cast<int32_t>(d.below(4));
    const uint64_t kind = d.below(100);
    p.length = static_cast<uint32_t>(kind < 40   ? d.below(300)
                                     : kind < 60 ? d.below(m.eager_limit + 50)
                                                 : d.range(m.eager_limit - 20, f.max_length));
    if (f.max_length < m.eager_limit) p.length %= f.max_length;
    p.length = std::max(p.length, f.min_length);
    if (m.one_way && p.src > p.dst) std::swap(p.src, p.dst);
    p.contiguous = !d.chance(12);
    p.recv_contiguous = !d.chance(12);
    p.send_at = d.below(f.span_ns);
    const uint64_t lead = d.below(100);
    p.recv_at = lead < 55 ? p.send_at - std::min(p.send_at, d.below(400 * kUs))
                          : p.send_at + d.below(lead < 90 ? 400 * kUs : 5 * kMs);
    p.any_source = p.comm == 1 && mode >= 2;
    p.any_tag = p.comm == 1 && (mode == 1 || mode == 2);
    p.capacity = d.chance(7) ? static_cast<uint32_t>(d.below(p.length + 1)) : p.length;
    if (p.any_tag || p.any_source) p.capacity = f.max_length + 100;
    const uint64_t style = d.below(100);
    if (style < 12) p.send_style = sim::SendStyle::kSync;
    if (style >= 60) p.send_style = sim::SendStyle::kInline;
    const uint64_t how = d.below(100);
    if (how < 8) p.recv_style = sim::RecvStyle::kProbe;
    if (how >= 92) p.recv_style = sim::RecvStyle::kMprobe;
    s.program.pairs.push_back(p);
  }
  s.program.procs = m.procs;
}

void make_faults(sim::Prng& d, const Flavor& f, Scenario& s) {
  const Machine& m = s.machine;
  uint32_t kinds = 0;  // a kind is off in a third of the runs
  for (unsigned k = 0; k < kTimedFaults; ++k)
    if ((f.kinds >> k & 1) != 0 && !d.chance(33)) kinds |= 1u << k;
  if (kinds == 0) kinds = f.kinds;
  const uint64_t n = f.max_faults == 0 ? 0 : d.range(f.min_faults, f.max_faults);
  bool killed = false;
  for (uint64_t i = 0; i < n; ++i) {
    Fault x;
    do x.kind = static_cast<FaultKind>(d.below(kTimedFaults));
    while ((kinds & bit(x.kind)) == 0);
    x.t = d.below(f.span_ns + f.span_ns / 3);
    x.p = static_cast<uint32_t>(d.below(m.procs));
    x.q = static_cast<uint32_t>((x.p + 1 + d.below(m.procs - 1)) % m.procs);
    x.r = static_cast<uint32_t>(d.below(m.rails));
    x.d = d.chance(70) ? d.below(f.fault_ns / 4) : d.below(f.fault_ns);
    const bool kills = x.kind == FaultKind::kDevice || x.kind == FaultKind::kCqError;
    if (x.kind == FaultKind::kBreak || kills) x.d = 0;
    if (kills && killed) x.kind = FaultKind::kBreak;  // one rail stays
    killed = killed || kills;
    s.faults.push_back(x);
  }
}

constexpr const char* kNames[] = {
    "port-down", "rail-down", "silent",      "all-silent", "one-way", "break",     "sleep",     "device",
    "overrun",   "refuse",    "late-events", "slow-verbs", "lose",    "no-answer", "error-now", "error-done",
    "hold",      "unread",    "echo",        "forge",      "death",   "fatal",     "no-room"};
static_assert(std::size(kNames) == static_cast<size_t>(FaultKind::kCount));

}  // namespace

const std::vector<std::string>& config_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Flavor& f : kFlavors) all.emplace_back(f.name);
    return all;
  }();
  return names;
}

uint64_t short_runs(const std::string& config) {
  for (const Flavor& f : kFlavors)
    if (config == f.name) return f.short_runs;
  return 0;
}

bool generate(uint64_t seed, const std::string& config, Scenario& out) {
  const Flavor* const f = std::find_if(std::begin(kFlavors), std::end(kFlavors),
                                       [&config](const Flavor& each) { return config == each.name; });
  if (f == std::end(kFlavors)) return false;
  uint64_t salt = 0;
  for (const char c : config) salt = sim::mix(salt, static_cast<unsigned char>(c));
  sim::Prng d(sim::mix(seed, salt));
  out = Scenario{};
  out.config = config;
  make_machine(d, *f, out.machine);
  make_pairs(d, *f, out);
  make_faults(d, *f, out);
  if (out.machine.late_data) add_late_data(d, out);
  if (out.machine.absences) add_absences(d, out);
  if (out.machine.slow_copies) add_slow_copies(d, out);
  if (out.machine.early_faults) add_early_faults(d, out);
  if (out.machine.fins_lost) add_lost_fins(d, out);
  if (out.machine.last_words) add_last_words(d, out);
  if (f->packet_faults != 0) add_packet_faults(d, d.range(1, f->packet_faults), out);
  if (out.machine.free_comms) add_communicators(d, out);
  if (out.machine.deaths) add_death(d, out);
  if (f->echoes != 0) add_echoes(d, f->echoes, out);
  if (f->forged != 0) add_forged(d, f->forged, out);
  settle(out);
  return true;
}

void settle(Scenario& s) {
  s.last_ns = std::max({s.machine.late_ns, s.streams_ns, s.machine.rates_end_ns});
  for (const sim::PairPlan& p : s.program.pairs) s.last_ns = std::max({s.last_ns, p.send_at, p.recv_at});
  for (const Fault& x : s.faults) s.last_ns = std::max(s.last_ns, x.t + x.d);
  ++s.last_ns;
}

const char* name_of(FaultKind k) {
  return kNames[static_cast<unsigned>(k)];
}

std::string print(const Fault& f) {
  char line[160];
  std::snprintf(line, sizeof line, "%s at %.3f ms: process %u (to %u) rail %u for %.3f ms",
                kNames[static_cast<unsigned>(f.kind)], static_cast<double>(f.t) / 1e6, f.p, f.q, f.r,
                static_cast<double>(f.d) / 1e6);
  std::string text = line;
  if (!by_packet(f.kind)) return text;
  std::snprintf(line, sizeof line, ", packet %u of class %#x", f.n, f.packets);
  return text + line;
}

std::string print(const Machine& m) {
  char line[400];
  std::snprintf(
      line, sizeof line,
      "%u processes, %u rails, get %d put %d lazy %d, ring %u, receives %u, slots of %u, timeout %u "
      "retries %u, control threads %d (%llu us), datagrams lost %u %% twice %u %% late %u %%, packets "
      "late %u, late ports %u, window of %d",
      m.procs, m.rails, m.use_get, m.use_put, m.lazy, m.send_depth, m.receive_depth, m.slot_bytes,
      unsigned{m.timeout}, unsigned{m.retry_count}, m.control_threads,
      static_cast<unsigned long long>(m.control_ns / kUs), m.fabric.datagram_loss, m.fabric.datagram_twice,
      m.fabric.datagram_late, m.fabric.packet_late, m.late_ports, kSeqWindow / m.seq_step);
  return line;
}

}  // namespace bfo::stack
