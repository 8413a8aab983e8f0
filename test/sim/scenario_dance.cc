// SPDX-License-Identifier: BSD-3-Clause
//
// scenario_dance.cc: see scenario_dance.h.

#include "test/sim/scenario_dance.h"

#include <iterator>

namespace bfo::sim {
namespace {

constexpr uint64_t kUs = 1000;
constexpr uint64_t kSpan = 300 * kUs;

/// What a story is about.
enum class Theme : uint8_t {
  kAny,
  kDevice,  ///< a device that cannot be fenced: one side ends with an error while a path is left
  kRead,    ///< several rails lose READs at different times
  kGrant,   ///< PUT and FIN are lost and late
  kCount
};

void make_machine(Prng& d, Theme theme, Machine& m) {
  m.procs = 2;
  m.rails = static_cast<uint32_t>(d.chance(10) ? 1 : d.range(2, 4));
  m.seed = d.next() >> 16;
  const unsigned protocols = static_cast<unsigned>(d.below(5));
  m.put_limit = protocols == 0 ? 0 : 1024;
  m.get_limit = protocols <= 1 ? 0 : 1024;
  if (protocols == 2) m.use_put = 0;
  if (theme == Theme::kRead) m.get_limit = 1024;
  if (theme == Theme::kGrant) {
    m.put_limit = 1024;
    m.get_limit = 0;
  }
  if (theme == Theme::kRead || theme == Theme::kGrant) m.rails = static_cast<uint32_t>(d.range(2, 4));
  if (theme == Theme::kDevice) m.rails = static_cast<uint32_t>(d.range(2, 3));
  m.get_alignment = d.chance(75) ? 1 : 8;
  m.send_depth = static_cast<uint32_t>(d.range(1, 4));
  m.rdma_depth = static_cast<uint32_t>(d.range(1, 4));
  m.frags = d.chance(10) ? static_cast<uint32_t>(d.range(8, 16)) : 4096;
  m.retry_ns = static_cast<uint32_t>(d.range(15, 200) * kUs);
  m.suspect_ns = static_cast<uint32_t>(d.range(10, 60) * kUs);
  m.drain_ns = static_cast<uint32_t>(d.chance(50) ? d.range(2, 20) * kUs : d.range(20, 200) * kUs);
  m.late_ns = static_cast<uint32_t>(d.range(20, 300) * kUs);
  m.backoff_ns = static_cast<uint32_t>(d.chance(50) ? d.range(5, 30) * kUs : d.range(30, 300) * kUs);
  m.uneven = d.chance(20);
  m.fresh_conn = d.chance(50);
  m.limit_ns = 600000 * kUs;
  m.unfenceable = theme == Theme::kDevice;
  m.may_lose_peer = m.unfenceable || d.chance(20);
  if (m.may_lose_peer) m.park_ns = m.unfenceable ? d.range(30, 400) * kUs : d.range(100, 1500) * kUs;
}

void make_messages(Prng& d, Scenario& s) {
  s.comms.push_back(CommPlan{3, 0, -1, 0});
  const uint64_t n = d.range(1, 3);
  for (uint64_t i = 0; i < n; ++i) {
    PairPlan p;
    p.src = static_cast<uint32_t>(d.below(4) == 0);
    p.dst = 1 - p.src;
    p.tag = static_cast<int32_t>(i);
    p.length = static_cast<uint32_t>(d.chance(85) ? d.range(800, 6000) : d.range(0, 800));
    p.capacity = d.chance(8) ? p.length / 2 + 3 : p.length;
    p.contiguous = !d.chance(8);
    p.recv_contiguous = !d.chance(8);
    if (d.chance(10)) p.send_style = SendStyle::kSync;
    p.send_at = d.below(20 * kUs);
    p.recv_at = d.chance(60) ? 0 : p.send_at + d.below(80 * kUs);
    s.pairs.push_back(p);
  }
}

Fault packet_fault(Prng& d, Theme theme, const Scenario& s) {
  static constexpr FaultKind kKinds[] = {FaultKind::kDrop,      FaultKind::kNoAck, FaultKind::kErrorNow,
                                         FaultKind::kErrorDone, FaultKind::kHold,  FaultKind::kHold};
  static constexpr uint32_t kClasses[] = {
      kDataPacket,    kDataPacket,    kDataPacket, kDataPacket, kAnyPacket, kAnyPacket, 0x42,
      0x43,           0x44,           0x48,        0x49,        0x49,       0x50,       0x51,
      kRestartPacket, kRestartPacket, 0x52,        0x53,        0x53,       0x56};
  Fault x;
  x.kind = kKinds[d.below(std::size(kKinds))];
  x.cls = kClasses[d.below(std::size(kClasses))];
  if (theme == Theme::kRead && d.chance(50)) x.cls = kReadPacket;
  if (theme == Theme::kGrant && d.chance(60)) {
    static constexpr uint32_t kGrants[] = {0x48, 0x49, kWritePacket};
    x.cls = kGrants[d.below(std::size(kGrants))];
  }
  x.n = static_cast<uint32_t>(d.range(1, x.cls <= kReadPacket || x.cls == kDataPacket ? 8 : 2));
  x.p = static_cast<uint32_t>(d.below(2));
  x.q = 1 - x.p;
  x.r = static_cast<uint32_t>(d.below(s.machine.rails));
  if (x.kind == FaultKind::kHold) x.d = d.range(5 * kUs, 400 * kUs);
  return x;
}

Fault timed_fault(Prng& d, const Scenario& s) {
  static constexpr FaultKind kKinds[] = {FaultKind::kBreak,    FaultKind::kBreak,      FaultKind::kBreak,
                                         FaultKind::kPortDown, FaultKind::kSilent,     FaultKind::kOneWay,
                                         FaultKind::kPause,    FaultKind::kNoResource, FaultKind::kAllDown,
                                         FaultKind::kDevice,   FaultKind::kForge};
  Fault x;
  x.kind = kKinds[d.below(std::size(kKinds))];
  x.p = static_cast<uint32_t>(d.below(2));
  x.q = 1 - x.p;
  x.r = static_cast<uint32_t>(d.below(s.machine.rails));
  x.t = d.below(kSpan);
  x.d = d.range(5 * kUs, 300 * kUs);
  if (x.kind == FaultKind::kAllDown && s.machine.may_lose_peer && d.chance(60)) x.d += s.machine.park_ns;
  if (x.kind == FaultKind::kDevice && s.machine.rails == 1) x.kind = FaultKind::kBreak;
  if (x.kind == FaultKind::kBreak || x.kind == FaultKind::kDevice || x.kind == FaultKind::kForge) x.d = 0;
  if (x.kind == FaultKind::kForge) x.n = static_cast<uint32_t>(d.next() >> 40);
  return x;
}

}  // namespace

void generate_dance(Prng& d, Scenario& out) {
  const auto theme = static_cast<Theme>(d.below(static_cast<uint64_t>(Theme::kCount)));
  make_machine(d, theme, out.machine);
  make_messages(d, out);
  bool device = false;
  if (theme == Theme::kDevice) {
    Fault x;
    x.kind = FaultKind::kDevice;
    x.p = static_cast<uint32_t>(d.below(2));
    x.q = 1 - x.p;
    x.r = static_cast<uint32_t>(d.below(out.machine.rails));
    x.t = d.below(80 * kUs);
    out.faults.push_back(x);
    device = true;
  }
  for (uint64_t i = d.range(1, 6); i > 0; --i) {
    Fault x = d.chance(70) ? packet_fault(d, theme, out) : timed_fault(d, out);
    if (x.kind == FaultKind::kDevice && device) continue;  // one rail must be left
    device = device || x.kind == FaultKind::kDevice;
    out.faults.push_back(x);
  }
  for (uint64_t i = d.chance(50) ? d.range(1, 5) : 0; i > 0; --i) {
    Fault x;
    x.kind = FaultKind::kEcho;
    x.p = static_cast<uint32_t>(d.below(2));
    x.q = 1 - x.p;
    x.r = static_cast<uint32_t>(d.below(out.machine.rails));
    x.n = static_cast<uint32_t>(d.next() >> 40);
    x.t = d.chance(50) ? 0 : d.below(kSpan);
    out.faults.push_back(x);
  }
  if (d.chance(5)) {
    Fault x;
    x.kind = FaultKind::kDeath;
    x.p = static_cast<uint32_t>(d.below(2));
    x.t = d.below(kSpan);
    out.faults.push_back(x);
  }
}

}  // namespace bfo::sim
