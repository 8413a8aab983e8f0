// SPDX-License-Identifier: BSD-3-Clause
//
// handshakes.h: how many handshakes are under way on a port, which come first, and how often they are
// repeated. A cable that is put back, or a first collective operation, wants hundreds of connections at once,
// and a firmware makes them one after the other: messages that wait go first, then peers that are talked to
// over other rails, and no peer is asked hundreds of times because others are served. Rails that nobody needs
// come back in the background.
//
// Both ends of a rail see the same traffic, but not the same messages waiting: SOLICIT and REQ say how much
// their sender needs the rail.
//
// Places cannot be kept by a peer that does not answer, nor by processes that wait for each other's: without
// an answer a handshake goes on, but its place is free again.
#pragma once

#include <cstdint>

namespace bfo::engine {

class Port;
struct Endpoint;

/// How much a rail that is not up is needed. The values travel in SOLICIT and REQ.
enum class Need : uint8_t {
  kNone = 0,   // nobody speaks to the peer
  kTalks = 1,  // messages go to it or come from it over other rails
  kWaits = 2,  // messages wait for this one
};

/// How much a rail that is not up is needed, as far as an endpoint knows.
struct NeedState {
  Need seen = Need::kNone;       // by the last look
  Need peer = Need::kNone;       // what the peer said ..
  bool slow = false;             // the timer has the long pause of a rail that nobody needs
  uint64_t peer_until_ns = 0;    // .. which counts until then
  uint64_t moved_elsewhere = 0;  // at the last look
  uint64_t talked_ns = 0;        // when something last moved over another rail; 0: not since it was lost
  uint64_t next_look_ns = 0;
};

/// When an endpoint does something next without being asked: retransmission, reconnection, or the bound of a
/// step of its drain.
struct Timer {
  uint64_t due_ns = 0;
  uint32_t attempts = 0;  // of the current retransmission
  uint32_t failures = 0;  // epochs that ended soon: reconnection back-off
};

/// So many handshakes that this process began are under way on a port at most, and it makes queue pairs for
/// as many that peers began.
inline constexpr uint32_t kHandshakes = 16;
/// A SOLICIT or REQ without an answer keeps its place for so long, in time in which this process could hear
/// it, and for so long at most.
inline constexpr uint64_t kSlowAnswerNs = 100'000'000;
inline constexpr uint64_t kSlowestAnswerNs = 2'000'000'000;
/// Handshakes that no message waits for begin so far apart at least ..
inline constexpr uint64_t kUnhurriedNs = 1'000'000;
/// .. and those to peers that nobody speaks to, whichever end begins.
inline constexpr uint64_t kIdleNs = 10'000'000;
/// They are repeated after a pause of at most so many times Config::retry_max_ns.
inline constexpr uint64_t kIdlePauses = 8;
/// A peer counts as talked to for so long after the last message, and what it said of its need for as long.
inline constexpr uint64_t kTalkNs = 1'000'000'000;
/// Time between two looks at the traffic of a peer; while the own port is down.
inline constexpr uint64_t kLookNs = 2'000'000;
inline constexpr uint64_t kDownLookNs = 100'000'000;

/// The handshakes of a port, counted before each turn of its endpoints.
struct Handshakes {
  uint32_t begun = 0;     // by this process, under way
  uint32_t answered = 0;  // begun by peers; the queue pairs are being made
  uint32_t urgent = 0;    // could begin, and messages wait for them
  uint32_t talking = 0;   // could begin, and the peer is talked to
  uint64_t next_unhurried_ns = 0;
  uint64_t next_idle_ns = 0;
};

// Progress function only, not under the port's lock.

/// Counts what is under way and what could begin.
void handshakes_count(Port& port, uint64_t now);
/// Takes a place for a handshake of this process. False: not now; the endpoint asks again in its next turn.
bool handshake_begins(const Endpoint& endpoint, uint64_t now);
/// The same for a REQ that came.
bool handshake_answered(Endpoint& endpoint, uint64_t now);

/// Looks at the traffic of the peer, if that is due.
void need_look(Endpoint& endpoint, uint64_t now);
/// The rail was lost: what moved over the others before does not count.
void need_begin(Endpoint& endpoint, uint64_t now);
/// The peer says how much it needs the rail.
void need_heard(Endpoint& endpoint, uint8_t said, uint64_t now);
/// As of the last look, what this side sees ..
Need own_need(const Endpoint& endpoint);
/// .. and both.
Need need_of(const Endpoint& endpoint);

/// Sets the timer of the next try: exponential back-off with jitter in [base / 2, base * 3 / 2], base
/// doubling with each of `attempts` from Config::retry_min_ns.
void handshake_pause(Endpoint& endpoint, uint32_t attempts, uint64_t now);
/// A rail that is needed now does not wait for the end of an idle one's pause.
void handshake_wake(Endpoint& endpoint, uint64_t now);

}  // namespace bfo::engine
