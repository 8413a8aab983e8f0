// SPDX-License-Identifier: BSD-3-Clause
//
// endpoint.h: one rail of one peer: the connection of one local port to one remote port, epoch after epoch.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <atomic>
#include <cstdint>

#include "btl/verbs/engine/rail/cause.h"
#include "btl/verbs/engine/rail/closing.h"
#include "btl/verbs/engine/base/frag.h"
#include "btl/verbs/engine/rail/evidence.h"
#include "btl/verbs/engine/rail/first_connection.h"
#include "btl/verbs/engine/rail/liveness_state.h"
#include "btl/verbs/engine/base/memory.h"
#include "btl/verbs/engine/rail/need.h"
#include "btl/verbs/engine/datagram/peer.h"
#include "btl/verbs/engine/datagram/heartbeat.h"
#include "btl/verbs/engine/device/qp.h"
#include "btl/verbs/engine/rail/shortage.h"
#include "btl/verbs/engine/rail/ring.h"
#include "btl/verbs/engine/rail/rules.h"
#include "btl/verbs/engine/datagram/trust.h"
#include "btl/verbs/engine/rail/watch.h"
#include "common/failover_btl.h"

namespace bfo::engine {

class Port;
struct Address;
struct QpCommand;

/// Name of `phase` for texts and tests. Static string.
const char* phase_name(Phase phase);

/// What an endpoint needs from its first connection on. Most peers of a large job are never spoken to: it is
/// made with the first ring, and lasts as long as the endpoint.
struct Connection {
  RingStore stores[2];
  bfo_rail_event_t down_event{};
  ClosedEpoch last_closed;
  Watch watch;
  Finding finding;  // what the device said about a cause that is open
};

/// What zero-byte writes address: memory of a peer's port.
struct ProbeTarget {
  uint64_t address = 0;
  uint32_t rkey = 0;
};

/// The way of the connection manager's datagrams to the peer, and which of them wait for its address handle.
struct Outbox {
  Address* address = nullptr;  // of the peer's port, in the own port's cache; nullptr: not looked for yet
  bool waits = false;          // a handshake packet waits for the address handle
  bool ping_waits = false;     // a PING waits for it
  PacketType type{};           // which packet
  uint32_t epoch = 0;
};

/// What the layer above has heard of a rail in all of its epochs.
enum class Past : uint8_t {
  kNone,  // nothing
  kLost,  // it never was up, and rail_down was reported all the same
  kUp,    // it was up
};

/// What an endpoint needs from the first time somebody wants it, or its peer speaks. Most peers of a large
/// job are known and nothing more: they share kNoEffort, which is only read.
struct Effort {
  SendRing ring;
  Connection* connection = nullptr;  // ring_reserve() makes it: there in every phase that drains
  QpCommand* command = nullptr;      // under way on the queue pairs; they are its own meanwhile
  Outbox outbox;
  PacketNumbers packets;     // trust.h
  QueuePairs qps;            // qp.h
  ProbeTarget probe_target;  // the peer's
  FirstConnection first;     // first_connection.h
  Timer timer;               // need.h
  uint64_t up_since_ns = 0;
  NeedState need;          // need.h
  LivenessState liveness;  // liveness_state.h
  PathFailures path;       // first_connection.h
  Shortage shortage;       // shortage.h
  CloseOrder close;
  Notices notices;
  uint64_t phase_since_ns = 0;
  Drain drain;
  bool device_dead = false;
  bool leaving = false;           // this process goes away in order (leave.h)
  uint8_t own_gid = kNoGid;       // index of the port's address that the last queue pairs were connected with
  int8_t store = 0;               // of connection->stores, the one `ring` uses
  uint32_t phase_present_ms = 0;  // Presence::present_ns() when the phase began
};
static_assert(sizeof(Effort) <= 520, "known peers of a large job have one each when they are spoken to");

/// What endpoints without one of their own read: nothing is connected, and memory is what they lack.
extern const Effort kNoEffort;

/// An endpoint. Plain data: the functions that act on it are in send.h, rdma.h, cm.h and drain.h. The
/// glue embeds it as first member. Fields are guarded by the port's lock when Open MPI uses threads;
/// `delivered` and the timers belong to the progress function alone.
struct Endpoint : KnownPeer {
  Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  ~Endpoint() {
    if (!has_effort()) return;
    unmake(effort->connection);
    unmake(effort);
  }

  bool ever_up() const { return past == Past::kUp; }
  bool lost_reported() const { return past == Past::kLost; }
  bool has_effort() const { return effort != &kNoEffort; }
  /// Makes it if it is not there. False when memory is short. Before anything is written to it. Under the
  /// lock.
  bool begin_effort();
  /// It could not be made: the end of `epoch` is reported when it is there.
  void owe_end(uint32_t epoch) {
    if (peer.owed_epoch < epoch) peer.owed_epoch = epoch;
  }

  // hot
  Phase phase = Phase::kIdle;
  bool usable = false;     // phase is kUp or kSuspect: one test on the send path
  bool initiator = false;  // the lower name initiates: no simultaneous open can occur
  bool announced = false;  // rail_up was reported for the current epoch
  uint32_t epoch = 0;      // current or last one; 0 = none yet
  Port* port = nullptr;
  Effort* effort = const_cast<Effort*>(&kNoEffort);
  [[no_unique_address]] FragFifo queued;  // accepted, not posted: connecting, or no slot free
  Past past = Past::kNone;
  bool connect_wanted = false;       // connect when possible
  bool skip_backoff = false;         // skip the reconnection back-off once
  bool asked = false;                // somebody above waits for it to come up
  uint64_t delivered = 0;            // SENDs of this epoch handed up
  std::atomic<void*> user{nullptr};  // how whoever hears of it calls it: rail_attach() in contract.h

  uint64_t ended_before = 0;  // work that ended and is not in the ring: of older epochs, or never posted
  Endpoint* next = nullptr;   // list of the port
};
static_assert(sizeof(Endpoint) <= 152, "every rank of a large job has one on each port");

/// Of an endpoint that is up.
inline Watch& watch_of(Endpoint& endpoint) {
  return endpoint.effort->connection->watch;
}
inline const Watch& watch_of(const Endpoint& endpoint) {
  return endpoint.effort->connection->watch;
}

/// The last epoch that was drained and closed; nullptr: none yet.
inline ClosedEpoch* last_closed(const Endpoint& endpoint) {
  Connection* const connection = endpoint.effort->connection;
  return connection != nullptr && connection->last_closed.store >= 0 ? &connection->last_closed : nullptr;
}

/// The connection's name, equal on both sides: mixed from both port nonces.
uint64_t connection_id(uint64_t nonce_a, uint64_t nonce_b);

/// The number of the path (qp.h) that `epoch` of the connection takes: each epoch the next one, because the
/// last one may be what broke. Equal on both sides once both know the other's address.
uint8_t path_number(const Endpoint& endpoint, uint32_t epoch);

/// What failover_btl.h calls the state of `endpoint`.
bfo_rail_state_t rail_state(const Endpoint& endpoint);

/// Why a rail that was asked for has not been up yet, in words, and for how many milliseconds that has been
/// so; 0: it was up, nobody has asked, or nothing proves more than that a process was busy outside MPI.
uint32_t never_up(const Endpoint& endpoint, char* why, size_t size);

/// Fills `info` for the current epoch of `endpoint`.
void rail_info(const Endpoint& endpoint, bfo_rail_info_t* info);

}  // namespace bfo::engine
