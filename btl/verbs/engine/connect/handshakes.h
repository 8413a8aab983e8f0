// SPDX-License-Identifier: BSD-3-Clause
//
// handshakes.h: how many handshakes are under way on a port, and which come first. A cable that is put back,
// or a first collective operation, wants hundreds of connections at once, and a firmware makes them one after
// the other: messages that wait go first, then peers that are talked to over other rails, and no peer is
// asked hundreds of times because others are served. Rails that nobody needs come back in the background.
//
// Places cannot be kept by a peer that does not answer, nor by processes that wait for each other's: without
// an answer a handshake goes on, but its place is free again.
#pragma once

#include "btl/verbs/engine/rail/need.h"

namespace bfo::engine {

class Port;
struct Endpoint;

/// So many handshakes that this process began are under way on a port at most, and it makes queue pairs for
/// as many that peers began.
inline constexpr uint32_t kHandshakes = 16;
/// A SOLICIT or REQ without an answer keeps its place for so long, in time in which this process could hear
/// it, and for so long at most.
inline constexpr uint64_t kSlowAnswerNs = 100'000'000;
inline constexpr uint64_t kSlowestAnswerNs = 2'000'000'000;
/// Handshakes that no message waits for begin so far apart at least.
inline constexpr uint64_t kUnhurriedNs = 1'000'000;
/// The same for those to peers that nobody speaks to, whichever end begins.
inline constexpr uint64_t kIdleNs = 10'000'000;
// Progress function only, not under the port's lock.

/// Counts what is under way and what could begin.
void handshakes_count(Port& port, uint64_t now);
/// Takes a place for a handshake of this process. False: not now; the endpoint asks again in its next turn.
bool handshake_begins(const Endpoint& endpoint, uint64_t now);
/// The same for a REQ that came.
bool handshake_answered(Endpoint& endpoint, uint64_t now);

/// A rail that is needed now does not wait for the end of an idle one's pause.
void handshake_wake(Endpoint& endpoint, uint64_t now);

}  // namespace bfo::engine
