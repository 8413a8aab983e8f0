// SPDX-License-Identifier: BSD-3-Clause
//
// events.h: the record of one failover: who lost which rail, why, how long it took, what was sent again
// (P8); that of a rail's return; and the word that a rail moves too little. Filled by xfer, written as one
// JSON line by whoever owns a file.
//
// P1..P8: contrib/doc/design.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace bfo {

/// Times are CLOCK_MONOTONIC nanoseconds (the Port's clock); 0 = did not happen.
struct FailoverEvent {
  const char* what = "failover";  ///< "failover", "peer_lost", "message_lost", "no_memory", "rail_up",
                                  ///< "no_rail"
  int32_t rail = -1;              ///< index of the rail in the peer's set
  uint64_t conn = 0;
  uint32_t epoch = 0;
  const void* peer = nullptr;         ///< points at the Port's PeerHandle
  const void* rail_handle = nullptr;  ///< points at the Port's RailHandle
  int32_t cause = 0;                  ///< bfo_rail_cause_t
  int32_t code = 0;
  char text[96] = {};         ///< cause in words
  uint64_t evidence_ns = 0;   ///< first evidence
  uint64_t down_ns = 0;       ///< the PML was told
  uint64_t closed_ns = 0;     ///< fenced
  uint64_t resumed_ns = 0;    ///< first byte sent again on another rail
  uint64_t bytes_resent = 0;  ///< from the loss until the record was complete; each in one record
  uint64_t messages_resent = 0;
  uint64_t bytes_waiting = 0;  ///< have to go again, and had not: no rail is left, or it died once more
  uint64_t messages_waiting = 0;
  uint64_t duplicates_dropped = 0;
  uint64_t restarts = 0;    ///< requests that went through the restart dance
  uint32_t rails_left = 0;  ///< to that peer, when the PML was told
  uint64_t waited_ns = 0;   ///< of "no_rail" only: for so long there has been none to that peer
  /// Of "rail_up" only. Its rail, epoch, cause, evidence_ns and down_ns are those of the loss that it ends.
  uint64_t up_ns = 0;
  uint32_t up_epoch = 0;
  uint32_t rails_up = 0;  ///< to that peer, with this one
};

/// A rail moves much less than it should, or is well again. Rates in million bits per second.
struct DegradedEvent {
  bool degraded = true;  ///< false: it has recovered
  int32_t rail = -1;
  uint32_t epoch = 0;
  const void* peer = nullptr;         ///< points at the Port's PeerHandle
  const void* rail_handle = nullptr;  ///< points at the Port's RailHandle
  bool in = false;                    ///< measured is what comes to this process, else what goes out
  uint32_t rate = 0;                  ///< what it moves at most, or did before it recovered
  uint32_t before = 0;                ///< the most it was seen to move; 0: it was never well
  uint32_t others = 0;                ///< what another rail to that peer moves at least
  uint64_t low_ns = 0;                ///< for so long
  uint64_t age_ns = 0;                ///< of what is in flight; 0: nothing is
  uint32_t rails_low = 0;             ///< rails over the same port here that are as slow, with this one
  uint32_t rails_judged = 0;          ///< rails over that port of which anything is known
};

}  // namespace bfo
