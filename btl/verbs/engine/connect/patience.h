// SPDX-License-Identifier: BSD-3-Clause
//
// patience.h: how long a first connection is waited for, and when a rail that has never been up is given up.
#pragma once

#include <cstdint>

namespace bfo::engine {

struct Endpoint;

/// The wait for a first connection. All times are CLOCK_MONOTONIC, in ns.
struct FirstConnection {
  uint64_t wanted_since_ns = 0;
  uint64_t wanted_present_ns = 0;  // the same by Presence::present_ns()
  uint64_t unanswered_ns = 0;      // what that does not count of the peer's silence since then
  bool waited_long = false;        // it has outlasted the bound, and the other rails are being tried
  uint64_t tried_since_ns = 0;     // the first try

  /// The bound counts from `now`, when the port had been present for `present`.
  void begin(uint64_t now, uint64_t present) {
    wanted_since_ns = now;
    wanted_present_ns = present;
    unanswered_ns = 0;
    waited_long = false;
  }
};

/// Handshakes in a row that the peer answered and whose path then failed.
struct PathFailures {
  uint32_t failures = 0;
  uint64_t failed_since_ns = 0;  // the first of them

  void note(uint64_t now) {
    if (failures++ == 0) failed_since_ns = now;
  }
};

/// The bound on a first connection counts from `now`.
void waits_from(Endpoint& endpoint, uint64_t now);
/// A turn of an endpoint that is not up: gives its rail up when what waits has waited for long enough, or
/// cannot get what it needs. True when it was given up. Progress function only.
bool first_connection_ends(Endpoint& endpoint, uint64_t now);
/// There is no memory for what a connection needs: says so, and what waits comes back. A later message tries
/// again.
void give_up_effort(Endpoint& endpoint, uint64_t now);

}  // namespace bfo::engine
