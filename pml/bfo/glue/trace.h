// SPDX-License-Identifier: BSD-3-Clause
//
// trace.h: what pml_bfo_verbose prints, in words. From level 10 on each change of a rail, from 20 each header
// that is dropped and why, from 30 each restart message, sent and received, from 40 each plan for a piece of
// a long message. No Open MPI here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/failover_btl.h"
#include "pml/bfo/xfer/counters.h"
#include "pml/bfo/xfer/plan_trace.h"

namespace bfo::glue {

constexpr int kTraceRails = 10;
constexpr int kTraceDrops = 20;
constexpr int kTraceRestarts = 30;
constexpr int kTracePlans = 40;

/// The other end of a rail, or of a message.
struct TracedPeer {
  int rank = -1;  ///< -1: its BTL does not say who sent it
  const char* host = "";
};

/// "rail 1 (softhca1 port 1) to rank 0 on host n1 (lid 3 qpn 0x4043), epoch 2: down: RETRY_EXC_ERR".
/// `index`: of the rail at its peer. `what`: "up", "down", ...
void describe_rail(char* out, size_t size, unsigned index, const TracedPeer& peer,
                   const bfo_rail_event_t& event, const char* what);

/// True for the messages of a restart and what answers them.
bool is_restart_message(uint8_t type);
/// "RNDVRESTARTACK of request 3.1 (there 9.2), round 2, ranges 0-65536 131072-196608". `bytes` may be any.
void describe_restart(char* out, size_t size, uint8_t type, const void* bytes, size_t length);

/// "plan with rank 1 on host n1: READ of 262144 bytes over rail 1, of a message of 1048576 bytes; ...", with
/// what the planner knew of the message and of each rail.
void describe_plan(char* out, size_t size, const TracedPeer& peer, const xfer::PlanTrace& plan);

/// "812 Mbit/s (measured)", what a rail is taken to move and why; empty when nothing is known.
void describe_rate(char* out, size_t size, xfer::Basis basis, uint64_t rate, uint64_t latency_ns);

/// Why a header was dropped, by what was counted while it was handled; nullptr: it was not.
const char* why_dropped(const xfer::Counters& before, const xfer::Counters& after, uint8_t tag,
                        const void* bytes, size_t length);

/// The name of a message type of PROTOCOL.md, "unknown" of another one.
const char* type_name(uint8_t type);

}  // namespace bfo::glue
