// SPDX-License-Identifier: BSD-3-Clause
//
// special.cc: see special.h.
#include "test/stack/special.h"

#include <algorithm>
#include <iterator>

#include "btl/verbs/engine/datagram/cm_packet.h"
#include "pml/bfo/core/wire.h"

namespace bfo::stack {
namespace {

using core::MsgType;
using engine::PacketType;

constexpr uint32_t tag(MsgType t) {
  return static_cast<uint32_t>(t);
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

/// One process stops its queue pairs, or destroys them, long after it was told to.
void slow_lanes(sim::Prng& d, Machine& m, uint32_t process, bool stops) {
  m.control_threads = true;
  m.control_ns = 20 * kUs;
  m.events_ns = 20 * kUs;
  m.slow_process = process;
  (stops ? m.stop_ns : m.queue_pair_ns) = d.range(kMs, 8 * kMs);
}

}  // namespace

void add_packet_faults(sim::Prng& d, uint64_t n, Scenario& s) {
  static constexpr FaultKind kKinds[] = {FaultKind::kLose,      FaultKind::kNoAnswer, FaultKind::kErrorNow,
                                         FaultKind::kErrorDone, FaultKind::kHold,     FaultKind::kHold};
  static constexpr uint32_t kClasses[] = {
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
    x.n = static_cast<uint32_t>(d.range(1, x.packets <= PacketFault::kData ? 8 : 2));
    x.p = static_cast<uint32_t>(d.below(s.machine.procs));
    x.q = static_cast<uint32_t>((x.p + 1 + d.below(s.machine.procs - 1)) % s.machine.procs);
    x.r = static_cast<uint32_t>(d.below(s.machine.rails));
    x.d = x.kind == FaultKind::kHold ? d.range(20 * kUs, d.chance(50) ? kMs : 20 * kMs) : 5 * kMs;
    s.faults.push_back(x);
  }
}

void add_late_data(sim::Prng& d, Scenario& s) {
  static constexpr uint32_t kClasses[] = {PacketFault::kWrite, PacketFault::kRead, PacketFault::kData};
  Fault x;
  x.kind = FaultKind::kHold;
  x.packets = kClasses[d.below(std::size(kClasses))];
  x.n = static_cast<uint32_t>(d.range(1, 4));
  x.p = static_cast<uint32_t>(d.below(2));
  x.q = 1 - x.p;
  x.r = static_cast<uint32_t>(d.below(s.machine.rails));
  x.d = d.range(30 * kUs, d.chance(70) ? 400 * kUs : 5 * kMs);
  s.faults.push_back(x);
  x.kind = FaultKind::kErrorNow;
  x.packets = d.chance(50) ? x.packets : PacketFault::kAny;
  x.n += static_cast<uint32_t>(d.range(1, 2));
  s.faults.push_back(x);
}

void add_absences(sim::Prng& d, Scenario& s) {
  for (uint64_t n = d.range(1, 2); n > 0; --n) {
    Fault away;
    away.kind = FaultKind::kSleep;
    away.t = d.below(10 * kMs);
    away.p = static_cast<uint32_t>(d.below(s.machine.procs));
    away.d = d.range(s.machine.park_ns / 2, 4 * s.machine.park_ns);
    s.faults.push_back(away);
    for (uint32_t r = 0; r < s.machine.rails; ++r) {
      Fault x;
      x.kind = FaultKind::kErrorNow;
      x.t = away.t;
      x.q = away.p;
      x.p = static_cast<uint32_t>((away.p + 1 + d.below(s.machine.procs - 1)) % s.machine.procs);
      x.r = r;
      x.d = away.d;
      s.faults.push_back(x);
    }
  }
}

void add_slow_copies(sim::Prng& d, Scenario& s) {
  for (uint64_t n = d.range(1, 3); n > 0; --n) {
    Fault x;
    x.kind = FaultKind::kHold;
    x.packets = PacketFault::kAny;
    x.n = static_cast<uint32_t>(d.range(1, 60));
    x.q = 1;
    x.r = static_cast<uint32_t>(d.below(s.machine.rails));
    x.d = d.range(300 * kUs, 4 * kMs);
    s.faults.push_back(x);
    x.kind = d.chance(70) ? FaultKind::kErrorNow : FaultKind::kErrorDone;
    x.n += static_cast<uint32_t>(d.range(1, 3));
    s.faults.push_back(x);
  }
}

void add_lost_fins(sim::Prng& d, Scenario& s) {
  for (uint64_t n = d.range(1, 3); n > 0; --n) {
    Fault x;
    x.kind = d.chance(80) ? FaultKind::kErrorNow : FaultKind::kLose;
    x.packets = tag(MsgType::kFin);
    x.n = static_cast<uint32_t>(d.range(1, 4));
    x.p = static_cast<uint32_t>(d.below(2));
    x.q = 1 - x.p;
    x.r = static_cast<uint32_t>(d.below(s.machine.rails));
    x.d = 5 * kMs;
    s.faults.push_back(x);
  }
}

void add_early_faults(sim::Prng& d, Scenario& s) {
  for (uint64_t n = d.range(1, 4); n > 0; --n) {
    Fault x;
    static constexpr FaultKind kKinds[] = {FaultKind::kErrorNow, FaultKind::kErrorDone, FaultKind::kNoAnswer,
                                           FaultKind::kHold};
    x.kind = kKinds[d.below(std::size(kKinds))];
    x.packets = PacketFault::kAny;
    x.n = static_cast<uint32_t>(d.range(1, 3));
    x.p = static_cast<uint32_t>(d.below(s.machine.procs - 1));
    x.q = static_cast<uint32_t>(d.range(x.p + 1, s.machine.procs - 1));
    x.r = static_cast<uint32_t>(d.below(s.machine.rails));
    x.d = d.range(100 * kUs, 5 * kMs);
    s.faults.push_back(x);
    if (!d.chance(50)) continue;
    x.kind = FaultKind::kSleep;
    x.t = d.below(kMs);
    x.p = x.q;
    s.faults.push_back(x);
  }
}

void add_last_words(sim::Prng& d, Scenario& s) {
  static constexpr uint32_t kClasses[] = {
      PacketFault::kRestart,     PacketFault::kRestart,      PacketFault::kData,
      tag(MsgType::kRndv),       tag(MsgType::kRget),        tag(MsgType::kAck),
      tag(MsgType::kPut),        tag(MsgType::kFin),         tag(MsgType::kRestartNotify),
      tag(MsgType::kRestartAck), tag(MsgType::kRestartNack), tag(MsgType::kRecvErr),
      tag(MsgType::kRailDown),   tag(MsgType::kEpochClosed), tag(MsgType::kSendDone)};
  Fault x;
  x.p = static_cast<uint32_t>(d.below(2));
  x.q = 1 - x.p;
  x.r = static_cast<uint32_t>(d.below(s.machine.rails));
  if (d.chance(75)) {
    x.kind = FaultKind::kUnread;
    x.packets = kClasses[d.below(std::size(kClasses))];
    x.n = static_cast<uint32_t>(d.range(1, 3));
    x.d = 5 * kMs;
  } else {
    x.kind = FaultKind::kDevice;
    x.t = d.below(600 * kUs);
  }
  s.faults.push_back(x);
}

void make_dance(sim::Prng& d, Machine& m) {
  calm(m);
  m.timeout = 7;
  m.retry_count = static_cast<uint8_t>(d.range(1, 3));
  m.max_send = d.chance(50) ? 1088 : 2048;
  m.fabric.err_lands = d.chance(50) ? 1000 : 0;
  if (d.chance(50)) m.control_ns = kMs;
  m.late_data = d.chance(60);
}

void lose_kinds(sim::Prng& d, Machine& m) {
  static constexpr PacketType kTypes[] = {PacketType::kSolicit, PacketType::kRequest, PacketType::kReply,
                                          PacketType::kReady};
  for (uint64_t n = d.range(1, 2); n > 0; --n) m.fabric.types_lost |= bit(kTypes[d.below(std::size(kTypes))]);
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

void slow_device(sim::Prng& d, Machine& m) {
  calm(m);
  m.fabric.cqe_late = static_cast<unsigned>(d.range(20, 500));
  m.fabric.cqe_ns = d.range(10 * kUs, d.chance(70) ? 200 * kUs : 2 * kMs);
  m.fabric.write_late = d.chance(70) ? static_cast<unsigned>(d.range(100, 1000)) : 0;
  m.fabric.write_ns = d.range(2 * kUs, d.chance(70) ? 20 * kUs : 200 * kUs);
}

void last_words(sim::Prng& d, Machine& m) {
  make_dance(d, m);
  m.last_words = true;
}

void ports_that_stay_down(sim::Prng& d, Machine& m) {
  calm(m);
  m.timeout = 19;  // 2.1 s
  m.retry_count = 7;
  m.ports_stay_down = true;
  m.heal_ns = 2 * kSecond;
  m.lazy = m.lazy && d.chance(50);
}

void short_stall(sim::Prng&, Machine& m) {
  calm(m);
  m.heal_ns = 300 * kMs;
}

void slow_fences(sim::Prng& d, Machine& m) {
  make_dance(d, m);
  m.late_data = true;
  m.fabric.err_lands = 1000;
  slow_lanes(d, m, static_cast<uint32_t>(d.below(2)), d.chance(50));
}

void lose_fins(sim::Prng& d, Machine& m) {
  calm(m);
  m.use_put = true;
  m.use_get = false;
  m.fins_lost = true;
  m.fabric.write_late = static_cast<unsigned>(d.range(300, 1000));
  m.fabric.write_ns = d.range(20 * kUs, kMs);
}

void reopen_often(sim::Prng& d, Machine& m) {
  m.timeout = 6;
  m.retry_count = 1;
  m.fabric.verb_blocks = 0;
  m.fabric.late_ns = 3 * kMs;
  if (d.chance(30)) lose_kinds(d, m);
}

void poll_seldom(sim::Prng& d, Machine& m) {
  calm(m);
  m.fabric.no_last_receive = 1;
  m.control_threads = false;
  m.polls = static_cast<uint32_t>(d.range(1, 3));
  m.idle_ns = 20 * kMs;
}

void fail_alone(sim::Prng& d, Machine& m) {
  make_dance(d, m);
  m.last_words = true;
  m.fabric.fence_fails = true;
  m.park_ns = d.range(kMs, 50 * kMs);
}

void late_copies(sim::Prng& d, Machine& m) {
  calm(m);
  m.seq_step = d.chance(70) ? 1024 : 512;
  m.slow_copies = true;
  m.one_way = true;
  slow_lanes(d, m, 1, true);
  m.fabric.err_lands = 0;
}

void trust_rails(sim::Prng& d, Machine& m) {
  m.reads_in_time = d.chance(80) ? 0 : 1;  // 0: always
}

void moderate_polls(sim::Prng& d, Machine& m) {
  m.poll_gap_ns = d.range(3 * kUs, 20 * kUs);
  m.polls = static_cast<uint32_t>(d.range(1, 2));
  m.one_way = true;
  m.receive_depth = m.receive_first = m.send_depth = 128;
  m.fabric.jitter_ns = 500;
}

void meet_late(sim::Prng& d, Machine& m) {
  calm(m);
  m.seq_step = d.chance(70) ? 1024 : 512;
  m.lazy = true;
  m.one_way = d.chance(70);
  m.early_faults = true;
  m.timeout = static_cast<uint8_t>(d.range(5, 8));
  m.retry_count = 1;
  if (d.chance(40)) m.fabric.types_lost = bit(PacketType::kReady);
  if (d.chance(30)) m.fabric.datagram_late = 40;
  m.fabric.late_ns = 3 * kMs;
}

}  // namespace bfo::stack
