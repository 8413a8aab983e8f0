// SPDX-License-Identifier: BSD-3-Clause
//
// sizes.h: what the PML keeps per process, request and communicator, in bytes. Printed by contrib/bench,
// pinned by memory_sizes_test.
#pragma once

#include <cstddef>

#include "pml/bfo/glue/request.h"

namespace bfo::glue {

struct Size {
  const char* what;
  size_t bytes;
  size_t limit;
};

inline constexpr size_t kPeer = sizeof(Peer);
inline constexpr size_t kRail = sizeof(Rail);

/// The limits leave no room for anything large; who needs more says so here, and why.
inline constexpr Size kSizes[] = {
    // Open MPI's base 520; links, rank, length, number, state
    {"send request", sizeof(SendRequest), 640},
    // Open MPI's base 504; links, communicator, what was asked for, status
    {"receive request", sizeof(RecvRequest), 656},
    // of a message that is a rendezvous, while it is one: four range sets, names, registration of eight rails
    {"send in a rendezvous, more", sizeof(xfer::SendRndv<BtlPort>), 512},
    // the same, and the keys of eight rails
    {"receive in a rendezvous, more", sizeof(xfer::RecvRndv<BtlPort>), 768},
    // lists of what waits and of receives in a rendezvous, which are found by what they are about, pointers
    // to eight rails, which of them are used for what, where it is found what their ports move to others, for
    // how long its first messages have waited for them, and when short ones were timed
    {"peer without a rail", kPeer, 688},
    // state, limits, what was measured of it, short messages too, and what is written over it
    {"peer with one rail", kPeer + kRail, 1176},
    {"peer with two rails", kPeer + 2 * kRail, 1664},
    // its last loss, once there was one
    {"rail that was lost, more", sizeof(FailoverEvent), 264},
    {"rail that was measured, more", sizeof(xfer::Degraded), 120},
    {"communicator", sizeof(Comm), 256},
    {"rank of a communicator", sizeof(void*), 8},
    // numbers of both directions and of the next looks, queues, a checkpoint for eight rails
    {"rank that was spoken to, more", sizeof(xfer::Proc<BtlPort>), 264},
    // besides the payload; with the 14 bytes of its header
    {"unexpected message", sizeof(xfer::Unexpected<BtlPort>), 144},
    // with the longest control message
    {"fragment under way", sizeof(FragRecord), 288},
};

}  // namespace bfo::glue
