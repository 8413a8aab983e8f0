// SPDX-License-Identifier: BSD-3-Clause
//
// plan_trace.h: what the planner (moves/plan.h) decided about a message, and the numbers that made it. For
// the log only.
#pragma once

#include <cstdint>

#include "pml/bfo/xfer/args.h"

namespace bfo::xfer {

/// What a rail is taken to move, and why.
enum class Basis : uint8_t {
  kNominal,     ///< pml_bfo_weights: the rate of its port
  kGiven,       ///< pml_bfo_weights: a list
  kMeasured,    ///< of its own pieces
  kTold,        ///< by the peer, which writes
  kPort,        ///< measured of its port, to other peers
  kLate,        ///< something in flight is older than it should be
  kKeepsUp,     ///< this process is its limit: at least that
  kLeast,       ///< it was seen to move at least that
  kMost,        ///< it was seen to move at most that
  kLikeFastest  ///< it was not measured
};

/// Mbit/s of 1 in a list of weights, of which only the ratios count.
inline constexpr uint64_t kGivenUnit = 1000;

struct PlanTrace {
  enum class What : uint8_t {
    kKeys,   ///< the keys that an RGET offers
    kRead,   ///< by the receiver
    kGrant,  ///< of a PUT, by the receiver
    kFrag    ///< by the sender
  };
  struct OneRail {
    uint8_t index = 0;
    uint8_t late = 0;  ///< 0: its READs end as fast as they are posted
    uint32_t weight = 0;
    uint64_t inflight_bytes = 0;
    Basis basis = Basis::kLikeFastest;
    uint64_t rate = 0;  ///< Mbit/s; below 2: nothing is known
    uint64_t latency_ns = 0;
  };
  What what = What::kKeys;
  int rail = -1;            ///< its index; -1: several, or none
  uint64_t size = 0;        ///< of the piece; 0: the message waits
  uint64_t length = 0;      ///< of the message
  uint64_t left = 0;        ///< of the range that is next
  uint64_t bytes_out = 0;   ///< in flight; 0 where the planner does not need it
  uint32_t pieces_out = 0;  ///< in flight
  bool uneven = false;      ///< rates count, and not weights
  unsigned n_rails = 0;
  OneRail rails[kMaxRails];
};

}  // namespace bfo::xfer
