// SPDX-License-Identifier: BSD-3-Clause
//
// port.h: one active HCA port: its completion queues, shared receives, connection manager and endpoints, and
// the progress function.
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include <atomic>
#include <cstdint>

#include "btl/verbs/engine/port/address.h"
#include "btl/verbs/engine/device/arrivals.h"
#include "btl/verbs/engine/device/async.h"
#include "btl/verbs/engine/device/cq.h"
#include "btl/verbs/engine/rail/endpoint.h"
#include "btl/verbs/engine/device/moderation.h"
#include "btl/verbs/engine/port/own_port.h"
#include "btl/verbs/engine/port/packet_loss.h"
#include "btl/verbs/engine/port/path.h"
#include "btl/verbs/engine/device/port_query.h"
#include "btl/verbs/engine/rail/need.h"
#include "btl/verbs/engine/rail/run_time.h"
#include "btl/verbs/engine/rail/receive_sizing.h"
#include "btl/verbs/engine/datagram/heartbeat.h"
#include "btl/verbs/engine/device/srq.h"
#include "btl/verbs/engine/device/stock.h"
#include "btl/verbs/engine/base/table.h"
#include "btl/verbs/engine/datagram/trust.h"
#include "btl/verbs/engine/rail/watch.h"
#include "btl/verbs/engine/device/datagram_qp.h"
#include "common/check.h"
#include "common/recursive_lock.h"

namespace bfo::engine {

/// Taken only when several threads may call in. After a message was posted it is given back by a plain store:
/// the locked instruction of a mutex would wait for the stores to the device before it.
class PortLock {
 public:
  /// `threads` is read at each use: MPI may be initialized for one thread first, and for several later, while
  /// nobody holds the lock. nullptr: never.
  void open(const bool* threads) {
    if (threads != nullptr) threads_ = threads;
  }
  void lock() {
    if (*threads_) lock_threaded();
  }
  void unlock() {
    if (*threads_) unlock_threaded();
  }

 private:
  [[gnu::noinline]] void lock_threaded() {
    BFO_DCHECK(!lock_.mine());  // who holds it uses the functions that say so
    lock_.lock();
  }
  [[gnu::noinline]] void unlock_threaded() { lock_.unlock(); }

  static constexpr bool kNever = false;
  const bool* threads_ = &kNever;
  RecursiveLock lock_;
};

/// Holds a PortLock for a scope.
class Guard {
 public:
  explicit Guard(PortLock& lock) : lock_(lock) { lock_.lock(); }
  ~Guard() { lock_.unlock(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  PortLock& lock_;
};

/// A port. open(), close(), add(), remove(), poll() and take_events() by one thread at a time (the caller
/// serialises them); the functions of send.h, rdma.h, cm.h and
/// drain.h by any thread.
class Port : public OwnPort {
 public:
  Port() = default;
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  /// Makes all queues on port `number` of `device`. False with errno; `*what` then names the object that
  /// could not be made (static string).
  bool open(Device& device, uint8_t number, const Config& config, const Host& host, const Environment& env,
            const char** what);
  /// Destroys everything, calling nobody back. Endpoints must have been removed, and the event thread must
  /// have forgotten the heartbeat. False when the device refused something.
  bool close();

  /// Adds `endpoint` (identity and peer address filled in); the caller keeps owning it. False when memory is
  /// short.
  bool add(Endpoint& endpoint);
  /// Ends `endpoint` without any callback: says BYE to a connected peer, destroys its queue pairs and forgets
  /// it.
  void remove(Endpoint& endpoint);

  /// Endpoint::make_resources() with the lock.
  bool make_resources(Endpoint& endpoint) {
    const Guard guard(lock_);
    return endpoint.make_resources();
  }

  /// Work was posted: what comes next is looked for at once. Any thread.
  void note_posted() { posted_.store(true, std::memory_order_relaxed); }

  /// One round of progress. Returns the number of completions handled.
  int poll();
  /// True when this port need not be polled in this turn: nothing came or was posted for a while, nothing is
  /// due, and it was looked at not long ago. Counts as a poll for the clock.
  bool skip_poll();
  /// True when nothing came in the last polls, nothing was posted and nothing is due.
  bool idle() const {
    return polls_until_idle_ == 0 && !timers_ && !posted_.load(std::memory_order_relaxed) &&
           !service_needed_.load(std::memory_order_relaxed);
  }
  /// Acts on asynchronous events waiting at the device; for all ports of it. `ports` lists them.
  static void take_events(Device& device, Port* const* ports, int count);

  /// True while a connection that is needed is being made, or its peer's first message is on its way.
  /// Progress function only, as the next ones.
  bool connecting() const {
    return timers_ || (awaited_ != nullptr && awaited_->usable && awaited_->delivered == 0);
  }
  /// A handshake has made a step.
  void note_step() { ++steps_; }
  /// Of all handshakes so far.
  uint64_t steps() const { return steps_; }
  /// The endpoint has come up, and its peer said that messages wait; nullptr: they were waited for.
  void await_message(const Endpoint* endpoint) { awaited_ = endpoint; }

  /// The endpoint and epoch of the message being delivered; nullptr outside of Host::deliver.
  Endpoint* receiving() const { return receiving_; }

  // For the functions of this engine.
  /// True while the port's table does not have its partition key: it counts as down.
  bool partition_lost() const { return partition_lost_; }
  /// True until the port is active for the first time.
  bool never_active() const { return start_ == Start::kDown; }
  /// True when it was not active when it was opened.
  bool initially_down() const { return start_ != Start::kActive; }
  /// When the port came up, if it was down before; else 0.
  uint64_t up_since_ns() const { return up_since_ns_; }
  Handshakes& handshakes() { return handshakes_; }
  const RunTime& run_time() const { return run_time_; }
  PortLock& lock() { return lock_; }
  CqSet& cqs() { return cqs_; }
  Srq& srq() { return srq_; }
  DatagramQp& cm_qp() { return cm_qp_; }
  /// How often so many datagrams had come when this process looked that others may have found no buffer.
  uint16_t datagram_overruns() const { return datagram_overruns_; }
  Heartbeat& heartbeat() { return heartbeat_; }
  /// errno of the heartbeat responder that could not be made at open(); 0: it is there.
  int heartbeat_error() const { return heartbeat_error_; }
  AddressCache& addresses() { return addresses_; }
  PathRecords& paths() { return paths_; }
  /// Control verbs on queue pairs: those that make and connect them, those that destroy them, and the way to
  /// ERR, which must wait for neither.
  ControlLane& setups() { return lanes_.setups; }
  ControlLane& queue_pairs() { return lanes_.queue_pairs; }
  ControlLane& stops() { return lanes_.stops; }
  /// Registration and deregistration of memory, and what the shared receive queue is asked for.
  ControlLane& registrations() { return lanes_.registrations; }
  /// Memory for rings and fragments.
  Stock& stock() { return stock_; }
  /// What grow_receives() asked for has ended, or what shrink_receives() did.
  void receives_grown(const SrqGrowth& growth);
  void receives_shrunk(const SrqShrink& shrink);
  void receives_armed();
  Table<Endpoint>& qps() { return qps_; }
  Endpoint* find_peer(uint64_t name) const { return static_cast<Endpoint*>(heartbeat_.find(name)); }
  Endpoint* endpoints() const { return endpoints_; }
  ResourceCounts& resources() { return resources_; }
  /// Bytes that came in, as they were counted last; 0: not known.
  uint64_t arrived() const { return arrivals_.bytes(); }
  /// Has them counted anew, and returns the same.
  uint64_t count_arrivals(uint64_t now) {
    arrivals_.count(lanes_.upkeep, api(), device_->context(), number_, now, config_.tick_ns);
    return arrived();
  }
  const PacketLoss& packet_loss() const { return packet_loss_; }
  /// A rail that was up ends, and its last packets may have been lost. Under the lock.
  void note_rail_end() { ++rails_ended_; }
  /// Bytes of all work that the device has of this port. Counted once for a time `now`: when a port stands
  /// still, all its peers are silent in the same tick. Progress function only.
  uint64_t queued_bytes(uint64_t now);
  /// That is under way.
  bool counts_arrivals() const { return arrivals_.under_way(); }
  const char* probe_target() const { return probe_target_; }
  uint32_t probe_target_rkey() const { return probe_target_mr_ == nullptr ? 0 : probe_target_mr_->rkey; }
  /// Makes the next poll() a tick, unless no time has passed since the last one: that would tell nothing.
  /// Progress function only.
  void tick_soon() {
    next_tick_ns_ = last_tick_ns_ + 1;
    until_clock_ = 1;
  }
  /// Reads the port's attributes in this call; true when its address changed.
  bool refresh();
  /// With a failover layer above: closed rails reconnect and the watchdog runs. Without (the default),
  /// the first error is final.
  void set_failover(bool on) { failover_ = on; }
  bool failover() const { return failover_; }
  /// A rail is about to come up: makes what its loss will need, a thread that is there. One try: what cannot
  /// be had is made then.
  void expect_losses() {
    if (!failover_ || losses_expected_) return;
    losses_expected_ = true;
    if (config_.control == ControlMode::kThread) control_threads_.keep(1);
  }
  /// From now on no callback is made; poll() does nothing.
  void stop_callbacks() { finalizing_ = true; }
  /// True when every accepted piece of work is ended, posted or queued (P3). Under the lock.
  bool accounting_balances() const;
  uint64_t program_errors = 0;  ///< completions that only a program error explains (H16)

 private:
  void handle(const ibv_wc& wc);
  void handle_receive(const ibv_wc& wc);
  void drop_receive(const ibv_wc& wc, const Endpoint* endpoint);
  void tell_heartbeat_drops();
  void handle_probe(const ibv_wc& wc);
  void handle_error(const ibv_wc& wc);
  void first_message(Endpoint& endpoint);
  void service(uint64_t now, bool emptied);
  void finish_commands();
  bool end_commands();
  void service_one(Endpoint& endpoint, uint64_t now, bool emptied, bool* again);
  void service_unconnected(Endpoint& endpoint, uint64_t now);
  void tick(uint64_t now, bool emptied);
  uint64_t note_delay(uint64_t elapsed);
  uint64_t silence_bound(const Endpoint& endpoint) const;
  /// What the watchdog sees of an endpoint in one tick.
  enum class Silence : uint8_t { kNothing, kOver, kAsk, kSuspected, kGoesOn };
  Silence listen(Endpoint& endpoint, uint64_t now, uint64_t watched_ns);
  void watch_progress(Endpoint& endpoint, uint64_t now, uint64_t watched_ns);
  void look_for_loss(uint64_t now);
  void on_event(const EventNote& note);
  void on_qp_event(Endpoint& endpoint, const EventNote& note);
  PortQuestion question() const;
  /// Reads the port's attributes on a control thread, because of an event of this type, and acts on them.
  void ask_device(int32_t type, uint64_t when_ns);
  void begin_reading();
  void end_reading(const PortQuery& query);
  void act_on(const PortQuery& query);
  bool take_reading(const PortReading& reading);
  bool take_partition(const PortReading& reading);
  void move_datagrams();
  void repair_datagrams(uint64_t now);
  void datagrams_repaired(const DatagramQpRepair& repair);
  void port_up();
  bool left_alone(uint64_t now);
  void close_all(const CloseOrder& order, bool for_good);
  /// Closes the rails whose own address was in `before` and is not there any more.
  void close_unaddressed(const GidTable& before, const CloseOrder& order);
  bool open_queues(const char** what);
  void grow_receives();
  void arm_receives();
  void review_receives(uint64_t now);
  void shrink_receives();

  /// The port since it was opened.
  enum class Start : uint8_t {
    kActive,
    kDown,    ///< never active so far
    kJoined,  ///< active, or it was since
  };
  /// Of the port's attributes, on a control thread.
  enum class Reading : uint8_t {
    kNone,
    kUnderWay,
    kOutdated,  ///< and it went down meanwhile
  };

  /// hot
  ibv_cq* cq_ = nullptr;
  bool polling_ = false;
  uint32_t until_clock_ = 1;
  uint32_t polls_until_idle_ = 0;  ///< polls that must bring nothing before the port is idle
  Endpoint* receiving_ = nullptr;
  std::atomic<bool> posted_{false};  ///< work, since the last poll; a hint
  Moderation moderation_;
  PortLock lock_;

  ControlThreads control_threads_;  ///< of all that have a lane

  CqSet cqs_;
  Srq srq_;
  DatagramQp cm_qp_;
  Heartbeat heartbeat_;
  int heartbeat_error_ = 0;
  AddressCache addresses_;
  Stock stock_;
  PortNews news_;
  Table<Endpoint> qps_;  ///< by queue pair number; by process name: heartbeat_
  Endpoint* endpoints_ = nullptr;
  Handshakes handshakes_;
  RunTime run_time_;
  uint64_t last_tick_ns_ = 0;
  uint64_t next_tick_ns_ = 0;
  SeenCompletions seen_;
  Arrivals arrivals_;
  PacketLoss packet_loss_;
  uint64_t rails_ended_ = 0;  ///< see note_rail_end()
  uint64_t queued_at_ns_ = 0;
  uint64_t queued_bytes_ = 0;
  uint64_t delay_ns_ = 0;   ///< longest time that this process was late for a tick, fading
  uint32_t datagrams_ = 0;  ///< received since the completion queues were last empty
  uint16_t datagram_overruns_ = 0;
  uint64_t next_port_query_ns_ = 0;
  bool timers_ = false;                ///< some endpoint waits for a time: look at the clock often
  bool awaiting_peer_ = false;         ///< some endpoint waits for its peer (cm_awaits_peer)
  uint64_t steps_ = 0;                 ///< of handshakes
  const Endpoint* awaited_ = nullptr;  ///< its first message is on its way
  bool background_ = false;            ///< some endpoint that is not up waits, and nobody needs it
  ReceiveSizing receives_;
  Start start_ = Start::kActive;
  Reading reading_ = Reading::kNone;
  DatagramQpState cm_repair_;
  bool partition_lost_ = false;
  uint16_t pkey_ = 0;  ///< entry of the partition key table in use; 0: not known
  bool failover_ = false;
  bool losses_expected_ = false;  ///< see expect_losses()
  char* probe_target_ = nullptr;
  ibv_mr* probe_target_mr_ = nullptr;
  DropCounts told_drops_{};  ///< of the heartbeat, at the last look
  ResourceCounts resources_;
  uint64_t up_since_ns_ = 0;
  uint64_t next_await_ns_ = 0;
  uint64_t next_look_ns_ = 0;
  PathRecords paths_;
};

/// One round of progress over all ports of a process. While one of them has traffic, those that are idle are
/// polled in one turn of kSkipTurns only: their queues would cost its messages time.
int poll_ports(Port* const* ports, int count);
inline constexpr uint32_t kSkipTurns = 16;

/// While endpoints wait for their peers they are looked at this often, in case no other rail to their peers
/// is up any more.
inline constexpr uint64_t kAwaitLookNs = 1'000'000'000;
/// For so long after a port came up its rails are tried whatever the peers' ports were.
inline constexpr uint64_t kInitiallyDownNs = 5'000'000'000;

/// A down port is asked for its state this often, in case the event that it is active was lost.
inline constexpr uint64_t kPortQueryNs = 500'000'000;
/// One that is left alone for a while (damping.h) this often: its peers may have no other rail any more.
inline constexpr uint64_t kAloneLookNs = 50'000'000;

}  // namespace bfo::engine
