// SPDX-License-Identifier: BSD-3-Clause
//
// dump.h: the text of pml_dump about rails: which were lost and why, which never came up, what waits for one.
// Does not use Open MPI.
#pragma once

#include <cstdint>

#include "common/events.h"

namespace bfo::glue {

/// Gets one line, without a newline.
using DumpLine = void (*)(const char* line);

/// Totals of this process since its start.
struct DumpedProcess {
  int rank = 0;
  uint64_t rails_lost = 0;
  uint64_t suspicions = 0;
  uint64_t degradations = 0;
  uint64_t fences = 0;
  uint64_t restarts = 0;
  uint64_t peers_lost = 0;
  uint64_t messages_resent = 0;
  uint64_t bytes_resent = 0;
  uint64_t missing_ns = 0;  ///< with at least one rail missing
};
void dump_process(const DumpedProcess& process, DumpLine print);

/// What waits for a peer, or in it. `unreachable_ns`: for so long no rail to it has been up; 0: one is, or
/// nothing waits.
struct DumpedPeer {
  unsigned rails = 0;
  unsigned up = 0;
  bool failed = false;
  bool finalized = false;
  uint64_t unreachable_ns = 0;
  uint32_t ready_sends = 0;
  uint32_t ready_receives = 0;
  uint32_t rendezvous_sends = 0;
  uint32_t rendezvous_receives = 0;
  uint32_t stored = 0;   ///< messages that wait for a rail
  uint32_t stalled = 0;  ///< sends that wait for the sequence window
  uint64_t unknown_held = 0;
};
void dump_peer(const DumpedPeer& peer, DumpLine print);

/// `lost`: the record of its last loss, nullptr when there was none; `lost_open`: what was lost with it has
/// not all gone again. `never_ms`: it has never been up, and was tried for so long; 0: that is not so.
struct DumpedRail {
  unsigned index = 0;
  const char* device = "";  ///< the BTL's name where it has none
  unsigned port = 0;
  const char* peer_port = "";
  const char* state = "";
  bool peer_alive = false;  ///< not up, but the peer's process is alive
  uint32_t epoch = 0;
  uint64_t bytes_in_flight = 0;
  const char* rate = "";  ///< what it is taken to move, in words (describe_rate); empty: nothing is known
  bool rate_counts = false;
  bool degraded = false;
  uint64_t degraded_since_ns = 0;  ///< of the clock of dump_rail()
  uint32_t mbits = 0;              ///< of a degraded rail: what it moves, and another one
  uint32_t mbits_of_others = 0;
  const FailoverEvent* lost = nullptr;
  bool lost_open = false;
  uint32_t never_ms = 0;
  const char* never_why = "";
};
void dump_rail(const DumpedRail& rail, uint64_t now_ns, DumpLine print);

}  // namespace bfo::glue
