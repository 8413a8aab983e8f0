// SPDX-License-Identifier: BSD-3-Clause
//
// handshakes.h: how many handshakes are under way on a port. A cable that is put back, or a first collective
// operation, wants hundreds of connections at once, and a firmware makes them one after the other: messages
// that wait go first, and no peer is asked hundreds of times because others are served.
//
// Places cannot be kept by a peer that does not answer, nor by processes that wait for each other's: without
// an answer a handshake goes on, but its place is free again.
#pragma once

#include <cstdint>

namespace bfo::engine {

class Port;
struct Endpoint;

/// So many handshakes that this process began are under way on a port at most, and it makes queue pairs for
/// as many that peers began.
inline constexpr uint32_t kHandshakes = 16;
/// A KNOCK or REQ without an answer keeps its place for so long.
inline constexpr uint64_t kSlowAnswerNs = 100'000'000;
/// Handshakes that no message waits for begin so far apart at least.
inline constexpr uint64_t kUnhurriedNs = 1'000'000;

/// The handshakes of a port, counted before each turn of its endpoints.
struct Handshakes {
  uint32_t begun = 0;     // by this process, under way
  uint32_t answered = 0;  // begun by peers; the queue pairs are being made
  uint32_t urgent = 0;    // could begin, and messages wait for them
  uint64_t next_unhurried_ns = 0;
};

// Progress function only, not under the port's lock.

/// Counts what is under way and what could begin.
void handshakes_count(Port& port, uint64_t now);
/// Takes a place for a handshake of this process. False: not now; the endpoint asks again in its next turn.
bool handshake_begins(const Endpoint& endpoint, uint64_t now);
/// The same for a REQ that came.
bool handshake_answered(const Endpoint& endpoint);

}  // namespace bfo::engine
