// SPDX-License-Identifier: BSD-3-Clause
//
// first_connection.h: a connection is wanted, and since when. connect_timeout.h says how long it is waited
// for.
#pragma once

#include <cstdint>

namespace bfo::engine {

struct Endpoint;

/// The wait for a first connection. All times are CLOCK_MONOTONIC, in ns.
struct FirstConnection {
  uint64_t wanted_since_ns = 0;
  uint64_t wanted_ran_ns = 0;   ///< the same by RunTime::ran_ns()
  uint64_t unanswered_ns = 0;   ///< what that does not count of the peer's silence since then
  bool waited_long = false;     ///< it has outlasted the bound, and the other rails are being tried
  uint64_t tried_since_ns = 0;  ///< the first try

  /// The bound counts from `now`, when this process had run for `ran`.
  void begin(uint64_t now, uint64_t ran) {
    wanted_since_ns = now;
    wanted_ran_ns = ran;
    unanswered_ns = 0;
    waited_long = false;
  }
};

/// Handshakes in a row that the peer answered and whose path then failed.
struct PathFailures {
  uint32_t failures = 0;
  uint64_t failed_since_ns = 0;  ///< the first of them

  void note(uint64_t now) {
    if (failures++ == 0) failed_since_ns = now;
  }
};

/// The bound on a first connection counts from `now`.
void waits_from(Endpoint& endpoint, uint64_t now);
/// Asks for the connection; the next poll starts it. Under the lock.
void cm_connect(Endpoint& endpoint);

}  // namespace bfo::engine
