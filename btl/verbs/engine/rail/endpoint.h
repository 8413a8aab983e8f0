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
#include "btl/verbs/engine/rail/pings.h"
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

/// Name of `phase` for texts and tests. Static string.
const char* phase_name(Phase phase);

/// What an endpoint keeps of its epochs. Made with the first ring, so it is there in every phase that drains,
/// and lasts as long as the endpoint.
struct Epochs {
  RingStore stores[2];
  int store = 0;  ///< the one that the ring uses
  bfo_rail_event_t down_event{};
  ClosedEpoch last_closed;
  Watch watch;
  Finding finding;  ///< what the device said about a cause that is open
};

/// What zero-byte writes address: memory of a peer's port.
struct ProbeTarget {
  uint64_t address = 0;
  uint32_t rkey = 0;
};

/// The way of the connection manager's datagrams to the peer, and which of them wait for its address handle.
struct Outbox {
  Address* address = nullptr;  ///< of the peer's port, in the own port's cache; nullptr: not looked for yet
  bool waits = false;          ///< a handshake packet waits for the address handle
  bool ping_waits = false;     ///< a PING waits for it
  PacketType type{};           ///< which packet
  uint32_t epoch = 0;
};

/// What the layer above has heard of a rail in all of its epochs.
enum class Past : uint8_t {
  kNone,  ///< nothing
  kLost,  ///< it never was up, and rail_down was reported all the same
  kUp,    ///< it was up
};

/// Times of the current phase, and of the current or last epoch.
struct PhaseTimes {
  uint64_t phase_since_ns = 0;
  uint64_t up_since_ns = 0;
  uint32_t phase_ran_ms = 0;  ///< RunTime::ran_ns() when the phase began
};

/// What a connection needs, from the first time somebody wants it, or its peer speaks. Most peers of a large
/// job are known and nothing more: they share kNoResources, which is only read.
struct ConnectionResources {
  SendRing ring;
  Epochs* epochs = nullptr;
  Outbox outbox;
  PacketNumbers packets;
  QueuePairs qps;
  ProbeTarget probe_target;  ///< the peer's
  FirstConnection first_connection;
  Timer timer;
  PhaseTimes times;
  NeedState need;
  Pings pings;
  PathFailures path_failures;
  Shortage shortage;
  CloseOrder ending;
  Notices notices;
  Drain drain;
};
static_assert(sizeof(ConnectionResources) <= 520,
              "peers of a large job have one each when they are spoken to");

/// What endpoints without their own read: nothing is connected, and memory is what they lack.
extern const ConnectionResources kNoResources;

/// An endpoint. Plain data: the functions that act on it are in send.h, rdma.h, cm.h and drain.h. The
/// glue embeds it as first member. Fields are guarded by the port's lock when Open MPI uses threads;
/// `delivered` and the timers belong to the progress function alone.
struct Endpoint : KnownPeer {
  Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  ~Endpoint() {
    if (!has_resources()) return;
    unmake(resources_->epochs);
    unmake(resources_);
  }

  bool ever_up() const { return past == Past::kUp; }
  bool lost_reported() const { return past == Past::kLost; }
  bool has_resources() const { return resources_ != &kNoResources; }
  /// Makes those that all parts below lie in, if they are not there. False when memory is short. Before
  /// anything is written to a part. Under the lock.
  bool make_resources();
  /// The same for what is kept of its epochs, once there are resources.
  bool make_epochs();
  /// It could not be made: the end of `epoch` is reported when it is there.
  void owe_end(uint32_t epoch) {
    if (peer.owed_epoch < epoch) peer.owed_epoch = epoch;
  }

  /// The parts of its connection. Of an endpoint without resources they can only be read.
  SendRing& ring() { return resources_->ring; }
  const SendRing& ring() const { return resources_->ring; }
  Outbox& outbox() { return resources_->outbox; }
  const Outbox& outbox() const { return resources_->outbox; }
  PacketNumbers& packets() { return resources_->packets; }
  const PacketNumbers& packets() const { return resources_->packets; }
  QueuePairs& qps() { return resources_->qps; }
  const QueuePairs& qps() const { return resources_->qps; }
  ProbeTarget& probe_target() { return resources_->probe_target; }
  const ProbeTarget& probe_target() const { return resources_->probe_target; }
  FirstConnection& first_connection() { return resources_->first_connection; }
  const FirstConnection& first_connection() const { return resources_->first_connection; }
  Timer& timer() { return resources_->timer; }
  const Timer& timer() const { return resources_->timer; }
  PhaseTimes& times() { return resources_->times; }
  const PhaseTimes& times() const { return resources_->times; }
  NeedState& need() { return resources_->need; }
  const NeedState& need() const { return resources_->need; }
  Pings& pings() { return resources_->pings; }
  const Pings& pings() const { return resources_->pings; }
  PathFailures& path_failures() { return resources_->path_failures; }
  const PathFailures& path_failures() const { return resources_->path_failures; }
  Shortage& shortage() { return resources_->shortage; }
  const Shortage& shortage() const { return resources_->shortage; }
  CloseOrder& ending() { return resources_->ending; }
  const CloseOrder& ending() const { return resources_->ending; }
  Notices& notices() { return resources_->notices; }
  const Notices& notices() const { return resources_->notices; }
  Drain& drain() { return resources_->drain; }
  const Drain& drain() const { return resources_->drain; }
  LastEpoch& last() { return resources_->qps.last; }
  const LastEpoch& last() const { return resources_->qps.last; }

  /// What is kept of its epochs; nullptr: none has begun. The three after that: in a phase that is up or
  /// drains.
  Epochs* epochs() const { return resources_->epochs; }
  Watch& watch() { return epochs()->watch; }
  const Watch& watch() const { return epochs()->watch; }
  bfo_rail_event_t& down_event() { return epochs()->down_event; }
  Finding& finding() { return epochs()->finding; }
  /// The last epoch that was drained and closed; nullptr: none yet.
  ClosedEpoch* last_closed() const {
    return epochs() != nullptr && epochs()->last_closed.store >= 0 ? &epochs()->last_closed : nullptr;
  }

  /// hot
  Phase phase = Phase::kIdle;
  bool usable = false;     ///< phase is kUp or kSuspect: one test on the send path
  bool initiator = false;  ///< the lower name initiates: no simultaneous open can occur
  bool announced = false;  ///< rail_up was reported for the current epoch
  uint32_t epoch = 0;      ///< current or last one; 0 = none yet
  Port* port = nullptr;

 private:
  /// Whoever writes to the shared one, which lies in read-only memory, does not get far.
  ConnectionResources* resources_ = const_cast<ConnectionResources*>(&kNoResources);

 public:
  [[no_unique_address]] FragFifo queued;  ///< accepted, not posted: connecting, or no slot free
  Past past = Past::kNone;
  bool connect_wanted = false;       ///< connect when possible
  bool skip_backoff = false;         ///< skip the reconnection back-off once
  bool asked = false;                ///< somebody above waits for it to come up
  uint64_t delivered = 0;            ///< SENDs of this epoch handed up
  std::atomic<void*> user{nullptr};  ///< how whoever hears of it calls it: rail_attach() in contract.h

  uint64_t ended_before = 0;  ///< work that ended and is not in the ring: of older epochs, or never posted
  Endpoint* next = nullptr;   ///< list of the port
};
static_assert(sizeof(Endpoint) <= 152, "every rank of a large job has one on each port");

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
/// A GID is unique; a LID is so in its subnet, and is what a port has that has no GID.
void name_port(const PortAddress& address, char* text, size_t size);

}  // namespace bfo::engine
