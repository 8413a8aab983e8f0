// SPDX-License-Identifier: BSD-3-Clause
//
// scenario_gen.cc: random scenarios. Every configuration is a set of weights; which kinds of fault and which
// protocols take part is drawn per run, so that rare mixtures get runs of their own.

#include <algorithm>
#include <iterator>

#include "test/sim/prng.h"
#include "test/sim/scenario.h"
#include "test/sim/scenario_dance.h"

namespace bfo::sim {
namespace {

constexpr uint64_t kUs = 1000;
constexpr uint64_t kMs = 1000000;

/// What distinguishes the configurations.
struct Flavor {
  uint32_t min_procs = 4, max_procs = 6;
  uint32_t min_rails = 1, max_rails = 4;
  uint32_t pairs = 320;
  uint32_t min_faults = 3, max_faults = 9;
  uint64_t span_ns = 3 * kMs;
  uint32_t max_length = 6000;
  bool long_messages = false;
  bool deaths = false;
  unsigned device_percent = 6;
  bool gaps = false;  ///< few completed sends are kept: gaps cannot always be filled
  bool park = false;
  bool storm = false;
};

bool flavor(const std::string& name, Flavor& f) {
  if (name == "default") return true;
  if (name == "quiet") {
    f.min_faults = f.max_faults = 0;
    return true;
  }
  if (name == "big") {
    f.min_procs = 8;
    f.max_procs = 16;
    f.pairs = 900;
    f.max_faults = 20;
    return true;
  }
  if (name == "pair") {  // two processes, few messages: short stories
    f.min_procs = f.max_procs = 2;
    f.pairs = 12;
    f.min_faults = 1;
    f.max_faults = 4;
    f.span_ns = kMs / 2;
    return true;
  }
  if (name == "long") {
    f.min_procs = f.max_procs = 4;
    f.pairs = 40;
    f.max_length = 200000;
    f.long_messages = true;
    return true;
  }
  if (name == "storm") {
    f.min_faults = 20;
    f.max_faults = 40;
    return true;
  }
  if (name == "onerail") {
    f.min_rails = f.max_rails = 1;
    return true;
  }
  if (name == "device") {
    f.min_rails = 2;
    f.device_percent = 100;
    f.gaps = true;
    return true;
  }
  if (name == "death") {
    f.deaths = true;
    return true;
  }
  if (name == "park") {
    f.park = true;
    return true;
  }
  return false;
}

uint32_t pick_length(Prng& d, const Machine& m, const Flavor& f) {
  const uint32_t edges[] = {0,
                            1,
                            8,
                            m.eager_limit - 14,
                            m.eager_limit - 13,
                            m.rndv_eager - 38,
                            m.rndv_eager,
                            m.max_send - 20,
                            m.max_send,
                            m.max_send * 2,
                            m.rdma_frag,
                            m.rdma_frag + 1,
                            m.rdma_frag * 3 - 1,
                            m.put_limit + m.rdma_frag};
  const uint64_t kind = d.below(100);
  if (f.long_messages) return static_cast<uint32_t>(d.range(f.max_length / 4, f.max_length));
  if (kind < 30) return static_cast<uint32_t>(d.below(m.eager_limit - 13));
  if (kind < 50) {
    const uint32_t e = edges[d.below(std::size(edges))];
    const uint32_t wiggle = static_cast<uint32_t>(d.below(3));
    return e + wiggle > 0 ? e + wiggle - (e + wiggle > 0 && wiggle == 0 ? 0 : 1) : 0;
  }
  if (kind < 95) return static_cast<uint32_t>(d.range(m.eager_limit, f.max_length));
  return static_cast<uint32_t>(d.range(f.max_length, f.max_length * 4));
}

void make_machine(Prng& d, const Flavor& f, Machine& m) {
  m.procs = static_cast<uint32_t>(d.range(f.min_procs, f.max_procs));
  m.rails = static_cast<uint32_t>(d.range(f.min_rails, f.max_rails));
  if (m.rails == 1 && f.max_rails > 1 && d.chance(60)) m.rails = 2;
  m.seed = d.next() >> 16;
  const unsigned protocols = static_cast<unsigned>(d.below(6));
  m.put_limit = protocols == 0 ? 0 : 1024;
  m.get_limit = protocols == 1 || protocols == 0 ? 0 : 1024;
  if (protocols == 2) m.use_get = 0;
  if (protocols == 3) m.use_put = 0;
  m.min_rdma = d.chance(50) ? 0 : 1500;
  m.get_alignment = d.chance(70) ? 1 : 8;
  m.send_depth = static_cast<uint32_t>(d.range(1, 6));
  m.rdma_depth = static_cast<uint32_t>(d.range(1, 6));
  m.sq_depth = d.chance(25) ? static_cast<uint32_t>(d.range(4, 8)) : 48;
  m.srq_depth = d.chance(25) ? static_cast<uint32_t>(d.range(2, 8)) : 128;
  m.frags = d.chance(15) ? static_cast<uint32_t>(d.range(12, 24)) : 4096;
  m.retry_ns = static_cast<uint32_t>(d.range(30, 600) * kUs);
  m.suspect_ns = static_cast<uint32_t>(d.range(15, 80) * kUs);
  m.drain_ns = static_cast<uint32_t>(d.range(2, 120) * kUs);
  m.late_ns = static_cast<uint32_t>(d.range(20, 900) * kUs);
  m.backoff_ns = static_cast<uint32_t>(d.range(5, 200) * kUs);
  m.uneven = d.chance(20);
  m.lazy = d.chance(40);
  m.fresh_conn = d.chance(50);
  m.unfenceable = f.gaps && d.chance(30);
  if (f.gaps && d.chance(60)) m.retained = static_cast<uint32_t>(d.below(6));
  if (f.park) {
    m.park_ns = 3 * kMs;
    m.may_lose_peer = 1;
  }
  // not drawn: the scenarios of older seeds stay what they are
  if (mix(m.seed, 0xb10c) % 3 == 0) m.blocking_limit = m.eager_limit + (m.max_send - m.eager_limit) / 2;
}

void make_comms(Prng& d, const Flavor& f, Scenario& s) {
  const bool chain = !f.deaths && !f.park && !f.gaps;
  s.comms.push_back(CommPlan{0, 0, -1, 0});
  s.comms.push_back(CommPlan{7, 1, -1, static_cast<uint32_t>(d.below(80 * kUs))});
  if (!chain) return;
  for (int i = 0; i < 3; ++i) {
    const int32_t after = i == 0 ? -1 : static_cast<int32_t>(s.comms.size() - 1);
    s.comms.push_back(CommPlan{9, static_cast<uint32_t>(d.below(s.machine.procs)), after,
                               static_cast<uint32_t>(d.below(120 * kUs))});
  }
}

/// How the receives of one communicator ask: all by source and tag (with ANY_SOURCE for some tags), all with
/// ANY_TAG, or all with both. Within a communicator any matching then serves every receive.
void make_pairs(Prng& d, const Flavor& f, Scenario& s) {
  const Machine& m = s.machine;
  const unsigned weights = static_cast<unsigned>(d.below(3));  // how much of everything else there is
  std::vector<unsigned> mode(s.comms.size());
  for (unsigned& k : mode) k = f.deaths || f.park || f.gaps ? 0 : static_cast<unsigned>(d.below(4));
  for (uint32_t i = 0; i < f.pairs; ++i) {
    PairPlan p;
    p.comm = static_cast<uint32_t>(d.chance(50) ? d.below(2) : d.below(s.comms.size()));
    p.src = static_cast<uint32_t>(d.below(m.procs));
    p.dst = static_cast<uint32_t>(d.below(m.procs));
    if (p.src == p.dst && d.chance(80)) p.dst = (p.src + 1) % m.procs;
    p.tag = static_cast<int32_t>(d.below(4));
    p.length = pick_length(d, m, f);
    p.contiguous = !d.chance(12);
    p.recv_contiguous = !d.chance(12);
    const uint64_t span = s.comms[p.comm].after >= 0 || p.comm >= 2 ? f.span_ns / 4 : f.span_ns;
    p.send_at = d.below(span);
    const uint64_t lead = d.below(100);
    if (lead < 55)
      p.recv_at = p.send_at > 40 * kUs ? p.send_at - d.below(40 * kUs) : 0;
    else
      p.recv_at = p.send_at + d.below(lead < 90 ? 60 * kUs : 600 * kUs);
    p.any_source = mode[p.comm] == 2 || (mode[p.comm] == 0 && !f.deaths && !f.park && !f.gaps && p.tag == 3);
    p.any_tag = mode[p.comm] == 1 || mode[p.comm] == 2;
    p.capacity = d.chance(7) ? static_cast<uint32_t>(d.below(p.length + 1)) : p.length;
    // any message of the group may come
    if (p.any_tag || p.any_source) p.capacity = d.chance(7) ? p.length : f.max_length * 4 + 64;
    const uint64_t style = d.below(100);
    if (style < 8 + 4 * weights)
      p.send_style = SendStyle::kSync;
    else if (style < 45)
      p.send_style = SendStyle::kInline;
    else if (style < 50)
      p.send_style = SendStyle::kBuffered;
    const uint64_t how = d.below(100);
    if (p.src != p.dst || how < 50) {
      if (how < 6)
        p.recv_style = RecvStyle::kProbe;
      else if (how < 12)
        p.recv_style = RecvStyle::kMprobe;
      else if (how < 16 && mode[p.comm] == 0)
        p.recv_style = RecvStyle::kCancel;
    }
    s.pairs.push_back(p);
  }
}

Fault make_fault(Prng& d, const Flavor& f, const Scenario& s, uint32_t kinds) {
  const Machine& m = s.machine;
  Fault x;
  // Packet faults on long messages are what makes requests restart.
  static constexpr FaultKind kPacket[] = {FaultKind::kDrop, FaultKind::kNoAck, FaultKind::kHold,
                                          FaultKind::kErrorNow, FaultKind::kErrorDone};
  static constexpr FaultKind kTimed[] = {FaultKind::kPortDown, FaultKind::kSilent,   FaultKind::kOneWay,
                                         FaultKind::kBreak,    FaultKind::kPause,    FaultKind::kNoResource,
                                         FaultKind::kRailDown, FaultKind::kPortDown, FaultKind::kBreak,
                                         FaultKind::kAllDown,  FaultKind::kForge};
  static constexpr uint32_t kClasses[] = {
      kDataPacket, kDataPacket, kDataPacket, kWritePacket, kReadPacket,    kAnyPacket,     0x41, 0x42,
      0x43,        0x44,        0x48,        0x49,         kRestartPacket, kRestartPacket, 0x54, 0x55};
  x.p = static_cast<uint32_t>(d.below(m.procs));
  x.q = static_cast<uint32_t>(d.below(m.procs));
  if (x.q == x.p) x.q = (x.p + 1) % m.procs;
  x.r = static_cast<uint32_t>(d.below(m.rails));
  const uint64_t end = f.span_ns + f.span_ns / 3;
  if (d.chance(55)) {
    do x.kind = kPacket[d.below(std::size(kPacket))];
    while (!(kinds >> static_cast<unsigned>(x.kind) & 1));
    x.cls = kClasses[d.below(std::size(kClasses))];
    x.n = static_cast<uint32_t>(x.cls == kDataPacket || x.cls == kAnyPacket ? d.range(1, 25) : d.range(1, 4));
    x.t = d.below(f.span_ns / 2);
    if (x.kind == FaultKind::kHold) x.d = d.range(10 * kUs, 900 * kUs);
    return x;
  }
  do x.kind = kTimed[d.below(std::size(kTimed))];
  while (!(kinds >> static_cast<unsigned>(x.kind) & 1));
  x.t = d.below(end);
  switch (x.kind) {
    case FaultKind::kPortDown:
    case FaultKind::kSilent:
    case FaultKind::kOneWay:
    case FaultKind::kRailDown:
      x.d = d.chance(70) ? d.range(20 * kUs, 1500 * kUs) : d.range(1, 4) * kMs;
      break;
    case FaultKind::kAllDown:
      x.d = d.range(50 * kUs, 1500 * kUs);
      break;
    case FaultKind::kPause:
      x.d = d.range(10 * kUs, 2000 * kUs);
      break;
    case FaultKind::kNoResource:
      x.d = d.range(5 * kUs, 300 * kUs);
      break;
    case FaultKind::kForge:
      x.n = static_cast<uint32_t>(d.next() >> 40);
      break;
    default:
      break;
  }
  if (f.park && x.kind != FaultKind::kBreak && x.d != 0 && d.chance(15)) x.d = d.range(3, 8) * kMs;
  return x;
}

void make_faults(Prng& d, const Flavor& f, Scenario& s) {
  if (f.max_faults == 0) return;
  // Swarm: a kind is off in a third of the runs.
  uint32_t kinds = 0;
  for (unsigned k = 0; k <= static_cast<unsigned>(FaultKind::kForge); ++k)
    if (!d.chance(33)) kinds |= 1u << k;
  kinds |= 1u << static_cast<unsigned>(FaultKind::kErrorNow) | 1u << static_cast<unsigned>(FaultKind::kBreak);
  const uint64_t n = d.range(f.min_faults, f.max_faults);
  // The first hits a long message in full flight: the restart dance.
  std::vector<const PairPlan*> longs;
  for (const PairPlan& p : s.pairs)
    if (p.src != p.dst && p.length > s.machine.eager_limit * 3) longs.push_back(&p);
  const uint64_t aimed = longs.empty() ? 0 : std::min<uint64_t>(n, 3);
  for (uint64_t i = 0; i < n; ++i) {
    Fault x = make_fault(d, f, s, kinds);
    if (i < aimed) {
      const PairPlan& p = *longs[d.below(longs.size())];
      x = Fault{};
      static constexpr FaultKind kAim[] = {FaultKind::kErrorNow, FaultKind::kErrorDone, FaultKind::kNoAck,
                                           FaultKind::kDrop, FaultKind::kHold};
      x.kind = kAim[d.below(std::size(kAim))];
      const bool forward = d.chance(70);
      x.p = forward ? p.src : p.dst;
      x.q = forward ? p.dst : p.src;
      x.r = static_cast<uint32_t>(d.below(s.machine.rails));
      x.cls = forward ? kDataPacket : (d.chance(50) ? kReadPacket : kDataPacket);
      x.n = static_cast<uint32_t>(d.range(1, 4));
      x.t = s.comms[p.comm].after >= 0 ? 0 : p.send_at;
      if (x.kind == FaultKind::kHold) x.d = s.machine.retry_ns + d.below(500 * kUs) + 1;
    }
    s.faults.push_back(x);
  }
  for (uint64_t i = d.chance(50) ? d.range(2, 8) : 0; i > 0; --i) {
    Fault x = make_fault(d, f, s, 0xffffffffu);
    x.kind = FaultKind::kForge;
    x.t = d.below(f.span_ns);
    x.n = static_cast<uint32_t>(d.next() >> 40);
    x.d = 0;
    s.faults.push_back(x);
  }
  if (d.chance(f.device_percent) && s.machine.rails > 1) {
    Fault x;
    x.kind = FaultKind::kDevice;
    x.p = static_cast<uint32_t>(d.below(s.machine.procs));
    x.r = static_cast<uint32_t>(d.below(s.machine.rails));
    x.t = d.below(f.span_ns);
    s.faults.push_back(x);
    if (f.gaps) {  // messages wait in its completion queue
      x.kind = FaultKind::kPause;
      x.t -= std::min<uint64_t>(x.t, d.range(20 * kUs, 200 * kUs));
      x.d = 300 * kUs;
      s.faults.push_back(x);
    }
  }
  if (f.deaths) {
    Fault x;
    x.kind = FaultKind::kDeath;
    x.p = static_cast<uint32_t>(d.below(s.machine.procs));
    x.t = d.below(f.span_ns);
    s.faults.push_back(x);
  }
}

}  // namespace

const std::vector<std::string>& config_names() {
  static const std::vector<std::string> names{"default", "quiet", "pair", "long",   "storm", "onerail",
                                              "big",     "death", "park", "device", "dance", "mix"};
  return names;
}

bool generate(uint64_t seed, const std::string& config, Scenario& out) {
  if (config == "mix") {
    static const char* const kParts[] = {"pair", "storm", "onerail", "death",
                                         "park", "pair",  "death",   "storm"};
    return generate(seed, kParts[seed % std::size(kParts)], out);
  }
  Flavor f;
  const bool dance = config == "dance";
  if (!dance && !flavor(config, f)) return false;
  uint64_t salt = 0;
  for (const char c : config) salt = mix(salt, static_cast<unsigned char>(c));
  Prng d(mix(seed, salt));
  out.config = config;
  out.machine = Machine{};
  out.comms.clear();
  out.pairs.clear();
  out.faults.clear();
  if (dance) {
    generate_dance(d, out);
    return true;
  }
  make_machine(d, f, out.machine);
  make_comms(d, f, out);
  make_pairs(d, f, out);
  make_faults(d, f, out);
  return true;
}

}  // namespace bfo::sim
