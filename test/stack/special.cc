// SPDX-License-Identifier: BSD-3-Clause
//
// special.cc: see special.h.
#include "test/stack/special.h"

#include <iterator>

#include "btl/verbs/engine/packet.h"
#include "pml/bfo/core/wire.h"

namespace bfo::stack {
namespace {

using core::MsgType;
using engine::PacketType;

constexpr std::uint32_t tag(MsgType t) {
  return static_cast<std::uint32_t>(t);
}
constexpr unsigned bit(PacketType t) {
  return 1u << static_cast<unsigned>(t);
}

/// Nothing happens by chance that ends a rail or delays a verb.
void calm(Machine& m) {
  const FabricTraits plain;
  m.fabric.ah_fails = plain.ah_fails;
  m.fabric.verb_blocks = plain.verb_blocks;
  m.fabric.packet_late = plain.packet_late;
  m.fabric.datagram_loss = m.fabric.datagram_twice = m.fabric.datagram_late = 0;
}

}  // namespace

void add_packet_faults(sim::Prng& d, std::uint64_t n, Scenario& s) {
  static constexpr FaultKind kKinds[] = {FaultKind::kLose,      FaultKind::kNoAnswer, FaultKind::kErrorNow,
                                         FaultKind::kErrorDone, FaultKind::kHold,     FaultKind::kHold};
  static constexpr std::uint32_t kClasses[] = {
      PacketFault::kData,        PacketFault::kData,     PacketFault::kData,
      PacketFault::kWrite,       PacketFault::kRead,     PacketFault::kAny,
      PacketFault::kRestart,     PacketFault::kRestart,  tag(MsgType::kRndv),
      tag(MsgType::kRget),       tag(MsgType::kAck),     tag(MsgType::kPut),
      tag(MsgType::kFin),        tag(MsgType::kFin),     tag(MsgType::kRestartNotify),
      tag(MsgType::kRestartAck), tag(MsgType::kRecvErr), tag(MsgType::kRailDown),
      tag(MsgType::kEpochClosed)};
  for (; n > 0; --n) {
    Fault x;
    x.kind = kKinds[d.below(std::size(kKinds))];
    x.packets = kClasses[d.below(std::size(kClasses))];
    x.n = static_cast<std::uint32_t>(d.range(1, x.packets <= PacketFault::kData ? 8 : 2));
    x.p = static_cast<std::uint32_t>(d.below(s.machine.procs));
    x.q = static_cast<std::uint32_t>((x.p + 1 + d.below(s.machine.procs - 1)) % s.machine.procs);
    x.r = static_cast<std::uint32_t>(d.below(s.machine.rails));
    x.d = x.kind == FaultKind::kHold ? d.range(20 * kUs, d.chance(50) ? kMs : 20 * kMs) : 5 * kMs;
    s.faults.push_back(x);
  }
}

void add_late_data(sim::Prng& d, Scenario& s) {
  static constexpr std::uint32_t kClasses[] = {PacketFault::kWrite, PacketFault::kRead, PacketFault::kData};
  Fault x;
  x.kind = FaultKind::kHold;
  x.packets = kClasses[d.below(std::size(kClasses))];
  x.n = static_cast<std::uint32_t>(d.range(1, 4));
  x.p = static_cast<std::uint32_t>(d.below(2));
  x.q = 1 - x.p;
  x.r = static_cast<std::uint32_t>(d.below(s.machine.rails));
  x.d = d.range(30 * kUs, d.chance(70) ? 400 * kUs : 5 * kMs);
  s.faults.push_back(x);
  x.kind = FaultKind::kErrorNow;
  x.packets = d.chance(50) ? x.packets : PacketFault::kAny;
  x.n += static_cast<std::uint32_t>(d.range(1, 2));
  s.faults.push_back(x);
}

void add_absences(sim::Prng& d, Scenario& s) {
  for (std::uint64_t n = d.range(1, 2); n > 0; --n) {
    Fault away;
    away.kind = FaultKind::kSleep;
    away.t = d.below(10 * kMs);
    away.p = static_cast<std::uint32_t>(d.below(s.machine.procs));
    away.d = d.range(s.machine.park_ns / 2, 4 * s.machine.park_ns);
    s.faults.push_back(away);
    for (std::uint32_t r = 0; r < s.machine.rails; ++r) {
      Fault x;
      x.kind = FaultKind::kErrorNow;
      x.t = away.t;
      x.q = away.p;
      x.p = static_cast<std::uint32_t>((away.p + 1 + d.below(s.machine.procs - 1)) % s.machine.procs);
      x.r = r;
      x.d = away.d;
      s.faults.push_back(x);
    }
  }
}

void make_dance(sim::Prng& d, Machine& m) {
  calm(m);
  m.timeout = 7;
  m.retry_count = static_cast<std::uint8_t>(d.range(1, 3));
  m.max_send = d.chance(50) ? 1088 : 2048;
  m.fabric.err_lands = d.chance(50) ? 1000 : 0;
  if (d.chance(50)) m.control_ns = kMs;
  m.late_data = d.chance(60);
}

void lose_kinds(sim::Prng& d, Machine& m) {
  static constexpr PacketType kTypes[] = {PacketType::kKnock, PacketType::kRequest, PacketType::kReply,
                                          PacketType::kReady};
  for (std::uint64_t n = d.range(1, 2); n > 0; --n)
    m.fabric.types_lost |= bit(kTypes[d.below(std::size(kTypes))]);
  m.fabric.datagram_loss = static_cast<unsigned>(d.below(30));
}

void lose_ready(sim::Prng&, Machine& m) {
  calm(m);
  m.fabric.types_lost = bit(PacketType::kReady);
  m.fabric.never_healed = true;
  m.one_way = true;
}

void only_clocks(sim::Prng& d, Machine& m) {
  calm(m);
  m.timeout = 19;  // 2.1 s
  m.retry_count = 7;
  m.clocks_only = true;
  m.fabric.jitter_ns = d.chance(50) ? 500 : 20 * kUs;
}

void wait_slowly(sim::Prng&, Machine& m) {
  m.idle_ns = 20 * kMs;
}

void park_briefly(sim::Prng& d, Machine& m) {
  m.park_ns = d.range(kMs, d.chance(50) ? 100 * kMs : 2 * kSecond);
  m.may_fail = true;
}

void compute_long(sim::Prng& d, Machine& m) {
  calm(m);
  m.park_ns = d.range(2 * kSecond, 10 * kSecond);
  m.absences = true;
  m.idle_ns = 20 * kMs;
}

void refuse_fences(sim::Prng& d, Machine& m) {
  m.fabric.fence_fails = true;
  m.park_ns = d.range(kMs, kSecond);
  m.may_fail = true;
}

}  // namespace bfo::stack
