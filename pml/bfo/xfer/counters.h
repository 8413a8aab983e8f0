// SPDX-License-Identifier: BSD-3-Clause
//
// counters.h: the configuration of an engine, its counters, and the types of its reports.
//
// P1..P8: contrib/doc/design.md
#pragma once

#include <cstdint>

#include "common/ids.h"
#include "common/status.h"
#include "pml/bfo/core/wire.h"

namespace bfo::xfer {

/// What the failure of a process does to receives and probes from any source (wildcard.h).
enum class AnySource : uint8_t {
  kError,   ///< they end with its error on every communicator of which it is a member
  kWait,    ///< they continue while any other member is left
  kRuntime  ///< they continue: the runtime tells who waits for them
};

/// What counts when the rails of a peer share messages.
enum class Weights : uint8_t {
  kMeasured,  ///< what they are measured to move, when that differs
  kNominal,   ///< the rates of their ports
  kGiven      ///< RailLimits::given
};

struct Config {
  uint64_t park_timeout_ns = 30'000'000'000;  ///< without any rail up to a peer before its requests fail
  uint32_t send_depth = 4;                    ///< FRAGs or writes in flight per request and usable rail
  uint32_t rdma_depth = 4;                    ///< PUTs or READs in flight per request and usable rail
  size_t short_limit = 0;                     ///< messages below this many bytes stay on the preferred rail
  uint32_t max_named = Name::kSlotMask + 1;   ///< unfinished rendezvous, in each direction
  uint32_t first_send = 1;                    ///< first generation of the names of sends
  uint32_t first_receive = 1;                 ///< the same of receives
  uint64_t unknown_limit = 1u << 30;          ///< bytes kept per peer for communicators that do not exist yet
  bool use_get = true;
  bool use_put = true;
  uint64_t degraded_ns = 1'000'000'000;  ///< a rail that is low for so long is degraded (degraded.h); 0: none
  uint64_t connect_wait_ns = 0;  ///< long messages wait so long at the first contact (first_contact.h)
  AnySource any_source_on_loss = AnySource::kError;
  Weights weights = Weights::kMeasured;
  bool trace_plans = false;  ///< Port::trace_plan() is called for each piece of a long message

  /// Names begin at a generation that `random` says, and those of receives half way round from those of
  /// sends. A BTL may not say from whom a message came: then a name that was guessed, or is one of the other
  /// direction, is nobody's.
  void begin_names(uint64_t random) {
    constexpr uint32_t kHalf = 1u << (Name::kGenBits - 1);
    first_send = static_cast<uint32_t>(random % (kHalf - 1)) + 1;
    first_receive = first_send + kHalf;
  }
};

/// Totals since the start, for performance variables and tests. They balance (P8): what all processes sent
/// and read is equal to what the applications gave to their sends plus what was sent and read again
/// (record.h). The record of a failover has the part of `bytes_resent` and `messages_resent` that was counted
/// before the record was complete.
struct Counters {
  uint64_t eager_sent = 0;
  uint64_t rndv_sent = 0;
  uint64_t bytes_sent = 0;  ///< application bytes handed to rails, resent ones included
  /// application bytes of READs that ended, without those that were never posted
  uint64_t bytes_read = 0;
  uint64_t bytes_resent = 0;     ///< of both, bytes transferred again, counted when they are transferred
  uint64_t bytes_headers = 0;    ///< headers and control messages, except those of `eager_sent`
  uint64_t messages_resent = 0;  ///< MATCH, RNDV, RGET posted again
  uint64_t duplicates = 0;       ///< messages dropped because they had arrived before
  uint64_t stale = 0;      ///< of an older round, a finished request or a fenced epoch; old SEQSYNC answers
  uint64_t malformed = 0;  ///< truncated, forged, outside the window, of an unknown type
  /// for communicators that were not made, over BTLs that name nobody: others needed their room
  uint64_t unknown_pushed_out = 0;
  uint64_t ignored = 0;   ///< table cells Ignore
  uint64_t restarts = 0;  ///< rounds begun after the first
  uint64_t control_sent = 0;
  uint64_t rails_lost = 0;
  /// rails that the progress clock suspected; no loss, only another rail was preferred
  uint64_t suspicions = 0;
  uint64_t degradations = 0;    ///< rails that were found to move much less than they should
  uint64_t rails_degraded = 0;  ///< not a total: rails that do now
  uint64_t deferred = 0;        ///< callbacks that came during another one and were handled later
  uint64_t fences = 0;
  uint64_t looked_at = 0;  ///< requests, for the records of failovers
  uint64_t peers_lost = 0;

  /// Bytes of headers and control messages. Those of eager messages follow from their number.
  uint64_t bytes_protocol() const { return bytes_headers + eager_sent * sizeof(core::MatchHdr); }
};

struct ProbeResult {
  int32_t source = 0;
  int32_t tag = 0;
  uint64_t length = 0;
  Outcome outcome = Outcome::kOk;  ///< not kOk: there is no message, and none will come
};

/// What the port knows about an event of one rail: see bfo_rail_event_t.
struct RailEvent {
  RailName name;
  int32_t cause = 0;
  int32_t code = 0;
  uint64_t evidence_ns = 0;
  const char* text = "";
  /// the peer's process has finalized in order: this is no failure, and it is not reported
  bool left = false;
  /// the rail has never been up, and joins later: its port was down when its process started, or its first
  /// handshake takes long and goes on. No failure either
  bool late = false;
  bool given_back = false;  ///< a second rail, for a peer that had none: no failure
};

}  // namespace bfo::xfer
