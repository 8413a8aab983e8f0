// SPDX-License-Identifier: BSD-3-Clause
//
// need.h: how much a rail that is not up is needed, and so how soon the next try comes: rails that nobody
// needs come back in the background (handshakes.h).
//
// Both ends of a rail see the same traffic, but not the same messages waiting: SOLICIT and REQ say how much
// their sender needs the rail.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/datagram/cm_packet.h"

namespace bfo::engine {

class Port;
struct Endpoint;

/// How much a rail that is not up is needed, as far as an endpoint knows.
struct NeedState {
  Need seen = Need::kNone;       ///< by the last look
  Need peer = Need::kNone;       ///< what the peer said last
  bool slow = false;             ///< the timer has the long pause of a rail that nobody needs
  uint64_t peer_until_ns = 0;    ///< until when `peer` counts
  uint64_t moved_elsewhere = 0;  ///< at the last look
  uint64_t talked_ns = 0;        ///< when something last moved over another rail; 0: not since it was lost
  uint64_t next_look_ns = 0;
};

/// When an endpoint does something next without being asked: retransmission, reconnection, or the bound of a
/// step of its drain.
struct Timer {
  uint64_t due_ns = 0;
  uint32_t attempts = 0;  ///< of the current retransmission
  uint32_t failures = 0;  ///< epochs that ended soon: reconnection back-off
};

/// The handshakes of a port, counted before each turn of its endpoints.
struct Handshakes {
  uint32_t begun = 0;     ///< by this process, under way
  uint32_t answered = 0;  ///< begun by peers; the queue pairs are being made
  uint32_t urgent = 0;    ///< could begin, and messages wait for them
  uint32_t talking = 0;   ///< could begin, and the peer is talked to
  uint64_t next_unhurried_ns = 0;
  uint64_t next_idle_ns = 0;
};

/// They are repeated after a pause of at most so many times Config::retry_max_ns.
inline constexpr uint64_t kIdlePauses = 8;
/// A peer counts as talked to for so long after the last message, and what it said of its need for as long.
inline constexpr uint64_t kTalkNs = 1'000'000'000;
/// Time between two looks at the traffic of a peer; while the own port is down.
inline constexpr uint64_t kLookNs = 2'000'000;
inline constexpr uint64_t kDownLookNs = 100'000'000;

// Progress function only, not under the port's lock.

/// Looks at the traffic of the peer, if that is due.
void need_look(Endpoint& endpoint, uint64_t now);
/// The rail was lost: what moved over the others before does not count.
void need_begin(Endpoint& endpoint, uint64_t now);
/// The peer says how much it needs the rail.
void need_heard(Endpoint& endpoint, uint8_t said, uint64_t now);
/// How much this side needs the rail, as of the last look.
Need own_need(const Endpoint& endpoint);
/// How much either side needs it.
Need need_of(const Endpoint& endpoint);

/// Sets the timer of the next try: exponential back-off with jitter in [base / 2, base * 3 / 2], base
/// doubling with each of `attempts` from Config::retry_min_ns.
void handshake_pause(Endpoint& endpoint, uint32_t attempts, uint64_t now);

}  // namespace bfo::engine
