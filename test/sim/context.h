// SPDX-License-Identifier: BSD-3-Clause
//
// context.h: what every part of one simulated world shares: the clock, the queue of events, memory, the
// trace, and the first promise that was broken.
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "pml/bfo/core/recv_machine.h"
#include "pml/bfo/core/send_machine.h"
#include "test/sim/event_queue.h"
#include "test/sim/memory.h"
#include "test/sim/packet.h"
#include "test/sim/prng.h"
#include "test/sim/scenario.h"

namespace bfo::sim {

/// Things taken out of the product, to show that the checkers notice.
struct Hooks {
  bool no_fence = false;  ///< FENCED is reported while packets of the epoch can still land
  bool no_gate = false;   ///< requests complete whatever their ledger says
  const core::SendTable* send_table = &core::kSendTable;  ///< or one with a cell changed
  const core::RecvTable* recv_table = &core::kRecvTable;
  bool changed() const { return send_table != &core::kSendTable || recv_table != &core::kRecvTable; }
};

/// Totals of one run.
struct Stats {
  uint64_t messages = 0;
  uint64_t faults = 0;     ///< that took effect
  uint64_t failovers = 0;  ///< rail epochs that died
  uint64_t restarts = 0;   ///< rounds after the first
  uint64_t resent_bytes = 0;
  uint64_t application_bytes = 0;
  uint64_t posted_bytes = 0;   ///< payload given to rails
  uint64_t control_bytes = 0;  ///< headers and control messages given to rails
  uint64_t wire_bytes = 0;     ///< work requests the rails took, as they see them
  uint64_t self_bytes = 0;     ///< messages to oneself, which need no rail
  uint64_t read_bytes = 0;     ///< payload that receivers fetch
  uint64_t fetched_bytes = 0;  ///< of it, what was not handed back as never sent
  uint64_t again_bytes = 0;    ///< payload given to rails a second time; READs that went nowhere do not count
  uint64_t told_bytes = 0;     ///< of it, what records of failovers tell
  uint64_t late_packets = 0;   ///< executed after the sender was told their fate is unknown
  uint64_t duplicates = 0;
  uint64_t stale = 0;
  uint64_t malformed = 0;
  uint64_t forged = 0;
  uint64_t events = 0;
  uint64_t virtual_ns = 0;
  uint64_t by_protocol[4] = {};  ///< eager, copy, get, put (by what was seen on rails)
  uint64_t lost_requests = 0;    ///< ended with an error that the scenario allows
};

struct Context {
  uint64_t now = 0;
  Machine machine;
  Hooks hooks;
  EventQueue queue;
  Memory memory;
  PacketPool packets;
  Stats stats;
  uint64_t trace_hash = 0;
  bool tracing = false;
  bool failed = false;
  std::string violation;
  bool message_lost = false;  ///< a driver reported a gap that nothing can fill (H4 c)
  /// What of a message was given to rails (P4).
  struct Traffic {
    uint64_t posted = 0;
    uint64_t again = 0;        ///< of it, bytes that had been given to a rail before
    uint64_t failed = 0;       ///< of it, bytes whose fate was unknown
    uint64_t moved_again = 0;  ///< `again` without READs that went nowhere
    uint32_t restarts = 0;     ///< rounds after the first
    bool cut = false;          ///< its send or its receive ended with an error
    bool both_ways = false;    ///< announced with its first bytes, and to be read
    bool truncated = false;    ///< longer than its receive
    uint32_t bits = 0;         ///< where its bytes begin in `seen`
  };
  std::vector<Traffic> traffic;
  std::vector<uint64_t> seen;   ///< a bit per byte of every message: was it given to a rail?
  std::vector<uint64_t> moved;  ///< the same, but for READs that went nowhere (P8)

  void count_posted(uint32_t pair, uint64_t offset, uint64_t length) {
    traffic[pair].posted += length;
    traffic[pair].again += length - mark(seen, pair, offset, length);
  }
  void count_moved(uint32_t pair, uint64_t offset, uint64_t length) {
    const uint64_t again = length - mark(moved, pair, offset, length);
    traffic[pair].moved_again += again;
    stats.again_bytes += again;
  }
  /// Bytes that were not marked before.
  uint64_t mark(std::vector<uint64_t>& bits, uint32_t pair, uint64_t offset, uint64_t length) {
    const Traffic& t = traffic[pair];
    uint64_t fresh = 0;
    for (uint64_t i = offset, end = offset + length; i < end;) {
      uint64_t& word = bits[t.bits + i / 64];
      if (word == 0 && i % 64 == 0 && end - i >= 64) {  // most of all payload
        word = ~uint64_t{0};
        fresh += 64;
        i += 64;
        continue;
      }
      const uint64_t n = end - i < 64 - i % 64 ? end - i : 64 - i % 64;
      const uint64_t mask = (n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1) << i % 64;
      const uint64_t unseen = mask & ~word;
      // Nearly always all or nothing, and counting bits is slow without a processor newer than the
      // compiler's.
      fresh += unseen == mask ? n : unseen == 0 ? 0 : static_cast<uint64_t>(__builtin_popcountll(unseen));
      word |= mask;
      i += n;
    }
    return fresh;
  }
  /// Messages each process received lately, for replays; kept only when the scenario forges some.
  static constexpr unsigned kRecent = 32;
  bool keep_recent = false;
  Packet* recent[kMaxProcs][kRecent] = {};
  uint8_t recent_from[kMaxProcs][kRecent] = {};
  uint32_t recent_next[kMaxProcs] = {};

  struct Sleeper {
    uint64_t wake_ns = ~uint64_t{0};  ///< next kStep in the queue
    uint64_t paused_until = 0;
    bool dead = false;
  };
  Sleeper sleepers[kMaxProcs];

  /// Something happened that the run's identity includes.
  void note(uint64_t what, uint64_t a, uint64_t b) { trace_hash = mix(trace_hash ^ now, what << 48 ^ a, b); }
  /// Let process `p` run no later than `delay_ns` from now (later while it is paused).
  void wake(uint32_t p, uint64_t delay_ns) {
    Sleeper& s = sleepers[p];
    uint64_t t = now + delay_ns;
    if (t < s.paused_until) t = s.paused_until;
    if (s.dead || t >= s.wake_ns) return;
    s.wake_ns = t;
    queue.push(t, EventKind::kStep, p);
  }
  [[gnu::cold, gnu::format(printf, 2, 3)]] void fail(const char* format, ...) {
    if (failed) return;
    char text[400];
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    failed = true;
    violation = text;
  }
  [[gnu::cold, gnu::format(printf, 2, 3)]] void trace(const char* format, ...) {
    std::printf("%12.3f us  ", static_cast<double>(now) / 1000.0);
    va_list args;
    va_start(args, format);
    std::vprintf(format, args);
    va_end(args);
    std::putchar('\n');
  }
};

}  // namespace bfo::sim

/// One line of the trace; its arguments are not evaluated unless --trace was given.
#define SIM_TRACE(ctx, ...) ((ctx).tracing ? (ctx).trace(__VA_ARGS__) : (void)0)
