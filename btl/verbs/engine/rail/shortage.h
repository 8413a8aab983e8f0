// SPDX-License-Identifier: BSD-3-Clause
//
// shortage.h: what is missing for a rail, as it is counted and told. resource.h says what is done about it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "btl/verbs/engine/datagram/cm_packet.h"

namespace bfo::engine {

struct Address;
struct Endpoint;

/// Of one port, since it was opened. Written by the progress function.
struct ResourceCounts {
  std::array<uint64_t, kObjects> failures{};  ///< by Object: calls that failed
  uint64_t refused_by_peers = 0;              ///< REFUSE received
  uint64_t rails_missing = 0;                 ///< decisions to do without a rail
  uint64_t given_back = 0;                    ///< second rails that ended for a peer without any
  uint64_t short_until_ns = 0;                ///< queue pairs are short: no second rail begins until then
  uint64_t speaker = 0;                       ///< except to this peer, until it is said
  uint64_t tell_ns = 0;                       ///< all peers are told no sooner than then
  uint32_t ask_next = 0;                      ///< which peers are asked for theirs next
};

/// What an endpoint is waiting for.
struct Shortage {
  Object object = Object::kNone;
  bool there = false;     ///< the peer cannot make it
  bool reported = false;  ///< Host::rail_missing was called
  int32_t error = 0;      ///< errno
  uint32_t tries = 0;
  uint32_t seen = 0;  ///< failures of the address handle that are in `tries`
  uint64_t since_ns = 0;
  uint64_t last_ns = 0;
};

/// A failure that came so long after the last one is the first of a new series.
inline constexpr uint64_t kResourceQuietNs = 30'000'000'000;

// Progress function only.

/// Counts one failure in the endpoint's present series. `there`: the peer's.
void note_shortage(Endpoint& endpoint, Object object, int error, bool there, uint64_t now);
/// The address handle to the peer has failed; no-op for failures that have been counted.
void resource_unaddressed(Endpoint& endpoint, const Address& address);

/// What is missing, in at most `size` bytes: "cannot make a queue pair: ENOMEM".
void resource_text(const Shortage& shortage, char* text, size_t size);
/// The limit that was probably met, and what helps. `bytes` is the locked memory this process may have,
/// UINT64_MAX without a limit.
void resource_remedy(const Shortage& shortage, uint64_t bytes, char* text, size_t size);

}  // namespace bfo::engine
