// SPDX-License-Identifier: BSD-3-Clause
//
// heartbeat.h: proof that this process lives, for peers that wait for its first answer. A process that
// computes outside MPI answers no handshake; a dead one does not either. So each port has a second datagram
// queue pair, with a completion queue of its own, that only the event thread serves: it answers PING with
// PONG and knows nothing of connections. It shares no state with the progress function, so neither waits for
// the other.
//
// A PING is judged as every packet of cm.h (trust.h); the PONG goes to the queue pair that the modex
// told, at the address that the PING names. Anything else is dropped and counted, and nothing is sent for it.
// Each peer has one address handle, kept: a PING costs no verb but the send of its answer. Control threads
// make the handles (control.h), and repair the queue pair: a neighbour that cannot be resolved delays no
// other peer's PONG, and the event thread always has time for the devices.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "btl/verbs/engine/device/control.h"
#include "btl/verbs/engine/datagram/cm_packet.h"
#include "btl/verbs/engine/device/gids.h"
#include "btl/verbs/engine/datagram/peer.h"
#include "btl/verbs/engine/datagram/trust.h"
#include "btl/verbs/engine/device/datagram_qp.h"
#include "btl/verbs/engine/device/async.h"

namespace bfo::engine {

class Heartbeat;

/// The way back to one peer, with its address handle. Event thread only, `over` excepted, and what a command
/// under way owns.
struct HeartbeatRoute : Command {
  Heartbeat* heartbeat = nullptr;
  PortAddress to;                   ///< LID, GID with its type and link layer count
  bool global = false;              ///< with a GRH, whatever the settings say
  ibv_ah* handle = nullptr;         ///< nullptr: cannot be made now
  uint64_t asked_ns = 0;            ///< when it was made, or could not be
  uint32_t failures = 0;            ///< in a row
  uint32_t address = 0;             ///< Heartbeat::addresses_ when it was made
  uint32_t under_way = 0;           ///< answers that the device still sends with it
  std::atomic<bool> over{false};    ///< replaced, or the peer is gone: destroyed when nothing is under way
  HeartbeatRoute* older = nullptr;  ///< list of the heartbeat
  bool waits = false;               ///< an answer waits for the handle, or for a send buffer:
  Packet pong;
  uint32_t qkey = 0;
  bool asked = false;  ///< a command is under way, which owns what follows
  const VerbsApi* api = nullptr;
  ibv_pd* pd = nullptr;
  ibv_ah_attr attr{};
  ibv_ah* made = nullptr;
};

/// DatagramQp::revive() as a command.
struct HeartbeatRepair : Command {
  Heartbeat* heartbeat = nullptr;
  DatagramQp qp;  ///< a copy
  bool revived = false;
};

/// What the heartbeat needs for a peer from its first PING on: most peers of a large job never ask. Under its
/// lock.
struct HeartbeatTalk {
  uint64_t pongs_sent = 0;  ///< the last sequence number
  ReplayWindow pings_taken;
  HeartbeatRoute* route = nullptr;
};

/// Opened and closed by the progress function's side while the event thread does not serve it.
class Heartbeat final : public Served {
 public:
  Heartbeat()
      : Served([](const Served& self) { return static_cast<const Heartbeat&>(self).fd(); },
               [](Served& self) { return static_cast<Heartbeat&>(self).serve(); }) {}

  /// What a PING must name and be summed with, and the clock (CLOCK_MONOTONIC).
  struct Identity {
    uint64_t own_name = 0;
    uint64_t nonce = 0;
    SipKey key;
    uint64_t (*now_ns)() = nullptr;
  };
  /// Makes the queue pair with its completion queue and channel. False with errno; nothing is left behind
  /// then.
  bool open(const VerbsApi& api, ibv_context* context, ibv_pd* pd, Arena& arena, const QpSettings& settings,
            const Identity& identity, ControlMode mode, ControlThreads& threads);
  /// Ends the commands. False when one does not come back: it uses the device for ever.
  bool end_commands();
  /// No peer may be left. False when the device refused something. Idempotent.
  bool close();

  /// Readable when serve() has something to do; -1 when closed.
  int fd() const { return channel_ == nullptr ? -1 : channel_->fd; }
  /// The queue pair to send a PING to; 0 when closed.
  uint32_t number() const { return qp_.number(); }

  /// What address handles and, after the next repair, the queue pair are made with. Any thread.
  void set_address(const QpSettings& settings, const GidTable& gids);
  ibv_qp* queue_pair() const { return qp_.ib(); }

  /// From now on `peer` is answered, until remove(). False when memory is short. One thread at a time.
  bool add(KnownPeer& peer);
  void remove(uint64_t name);
  /// The peer that was added under this name, or nullptr. Not while another thread adds or removes one.
  KnownPeer* find(uint64_t name) const { return peers_.find(name); }

  /// Event thread: answers what waits. False: there is more to do, or a control thread is making a handle or
  /// repairing the queue pair; call again after a pause.
  bool serve();
  ControlLane& lane() { return lane_; }

  /// Datagrams that were no PING of a peer, all and by reason. Any thread.
  uint64_t dropped() const;
  uint64_t dropped(Drop reason) const {
    return drops_[static_cast<size_t>(reason)].load(std::memory_order_relaxed);
  }

  /// A destination that has no handle is tried again after this, doubled kDoublings times at most; on
  /// Ethernet, where the neighbour behind it may change, a handle is made anew after kRenewNs when a PONG
  /// seems not to arrive.
  static constexpr uint64_t kRetryNs = 250'000'000;
  static constexpr uint32_t kDoublings = 3;
  static constexpr uint64_t kRenewNs = 5'000'000'000;

 private:
  bool open_queue(ibv_context* context);
  void finish(const ibv_wc& wc);
  void answer(const char* data, uint32_t length, bool global);
  Drop prepare(const Packet& ping, bool global, Packet* pong, HeartbeatRoute** route, uint32_t* qkey);
  HeartbeatRoute* route_to(HeartbeatTalk& talk, const PortAddress& to, bool global, bool unheard);
  void ask_handle(HeartbeatRoute& route);
  static void create(Command& command);
  static void created(Command& command);
  void send_pong(HeartbeatRoute& route);
  void send_waiting();
  HeartbeatTalk* talk_to(KnownPeer& peer);
  void repair();
  void repaired(const HeartbeatRepair& repair);
  void drop_routes(bool all);
  void lost_sends();
  void count(Drop reason) { drops_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed); }

  const VerbsApi* api_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  DatagramQp qp_;
  Identity identity_;
  ControlLane lane_;  ///< event thread
  std::atomic<bool> results_{false};
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;  ///< never held during a verb
  QpSettings settings_;                                ///< under it
  GidTable gids_;                                      ///< under it: of the port
  uint32_t addresses_ = 0;                             ///< under it: changes of the settings
  PeerTable peers_;                   ///< changed under it, by process name; their talks, too
  HeartbeatRoute* routes_ = nullptr;  ///< event thread, as all that follows
  std::array<HeartbeatRoute*, DatagramQp::kSends> sending_{};  ///< of the answers under way, by send buffer
  bool unsent_ = false;                                        ///< an answer waits for a send buffer
  bool broken_ = false;     ///< a completion failed: repair before the next answer
  bool repairing_ = false;  ///< a control thread has the queue pair
  bool dead_ = false;       ///< the device refuses: silent for good
  std::array<std::atomic<uint64_t>, kDrops> drops_{};
};

}  // namespace bfo::engine
