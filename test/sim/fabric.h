// SPDX-License-Identifier: BSD-3-Clause
//
// fabric.h: the queue pairs of all processes and the wires between them, with the residence of every message:
// in the send queue, in the fabric, executed by the receiver's HCA, completed but not polled, delivered. What
// the sender learns is chosen independently of what the receiver's HCA did, within what a reliable connection
// allows: packets are executed in order, acknowledgements cover a prefix of the executed ones.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>
#include <vector>

#include "test/sim/context.h"
#include "test/sim/packet.h"

namespace bfo::sim {

enum class Hw : uint8_t { kNone, kReady, kError, kDestroyed };
enum class Link : uint8_t { kIdle, kConnecting, kUp, kSuspect, kDown, kClosed, kUnusable };

/// One process's end of one connection: its queue pair, and what its driver thinks of it. What a driver looks
/// at in every step is in one line of the cache.
struct alignas(64) Half {
  // identity
  uint16_t index = 0;
  uint8_t proc = 0;
  uint8_t peer = 0;
  uint8_t rail = 0;
  uint8_t slot = 0;  ///< among the halves of its process
  // what a poll asks for
  Hw hw = Hw::kNone;
  Link link = Link::kIdle;
  PacketFifo<&Packet::next_wqe> wqes;  ///< posted, end not reported
  PacketFifo<&Packet::next_cq> cq;     ///< received, not polled
  int32_t error_cause = 0;             ///< completion with error, not polled; 0 none
  uint32_t gap_epoch = 0;              ///< the peer counted (H4); not yet compared

  bool usable() const { return link == Link::kUp || link == Link::kSuspect; }
  /// A poll would find nothing.
  bool nothing_to_poll() const {
    if (link == Link::kIdle) return true;
    return wqes.empty() && cq.empty() && error_cause == 0 && usable() && gap_epoch == 0;
  }

  Half* other = nullptr;
  void* engine_rail = nullptr;  ///< xfer::Rail<SimPort>*; nullptr while the engine does not know the peer
  Prng dice;
  std::vector<uint16_t> faults;  ///< packet faults that watch this half

  // queue pair
  uint32_t epoch = 0;
  uint64_t conn = 0;
  PacketFifo<&Packet::next_fabric> wire;  ///< given to the HCA, not executed, not lost
  PacketFifo<&Packet::next_kept> kept;    ///< sends that completed, for gaps (H4)
  uint64_t tx_free_ns = 0;                ///< when the send queue has put out what it has
  uint64_t last_arrival_ns = 0;
  uint32_t next_ordinal = 0;
  uint32_t executed = 0;    ///< by the receiver, of ours: a prefix
  uint32_t acked = 0;       ///< of those: a prefix
  uint32_t ack_stop = ~0u;  ///< acknowledgements from this ordinal on never return
  uint64_t blocked_since = 0;
  uint64_t ack_blocked_since = 0;
  uint64_t wire_at = ~uint64_t{0};  ///< earliest kFabric event in the queue
  bool ack_armed = false;
  bool retry_armed = false;
  bool broken = false;  ///< a packet of ours was lost: nothing behind it is executed
  const char* error_text = "";

  // driver
  uint64_t up_ns = 0;            ///< kConnecting: when the handshake ends
  uint64_t destroy_ns = 0;       ///< kDown: when destroy_qp returns
  uint64_t linger_until_ns = 0;  ///< .. and not before (kLinger)
  uint64_t backoff_ns = 0;
  bool reconnect_armed = false;
  uint64_t wanted_since = 0;  ///< kIdle: first handshake attempt
  bool fence_again = false;   ///< closed already: report it again
  bool device_gone = false;   ///< does not come back
  int32_t down_cause = 0;
  uint64_t evidence_ns = 0;
  uint64_t sends_ok = 0;   ///< SENDs of this epoch reported delivered
  uint64_t delivered = 0;  ///< SENDs of this epoch handed to the engine
  uint64_t lost_in_cq = 0;
  // the epoch before this one, and the peer's word about it (H4)
  PacketFifo<&Packet::next_kept> old_kept;
  uint32_t old_epoch = 0;
  uint64_t old_sends_ok = 0;
  uint64_t gap_delivered = 0;
  uint32_t gap_done = 0;  ///< newest epoch compared
  uint32_t refused = 0;   ///< NoResource fault active
  uint64_t taken = 0;     ///< work requests since the run began
  uint64_t ended = 0;     ///< of these, reported
};

class Fabric {
 public:
  explicit Fabric(Context& ctx) : ctx_(ctx) {}
  void reset();
  Half& half(uint32_t p, uint32_t q, uint32_t r) {
    return halves_[(p * ctx_.machine.procs + q) * ctx_.machine.rails + r];
  }
  Half& half(uint32_t index) { return halves_[index]; }
  /// The halves of a process, by slot.
  Half* halves_of(uint32_t p) { return &half(p, 0, 0); }
  /// A poll may find something at this half. To be called with every change that makes it so.
  void attend(const Half& h) { attended_[h.proc] |= uint64_t{1} << h.slot; }
  void leave_alone(const Half& h) { attended_[h.proc] &= ~(uint64_t{1} << h.slot); }
  /// A bit per slot of the halves that a poll must look at.
  uint64_t attended(uint32_t p) const { return attended_[p]; }
  size_t halves() const { return halves_.size(); }

  /// Give one work request to a queue pair that is connecting or up. The fabric owns one reference.
  void post(Half& h, Packet* p);
  void give(Half& h, Packet* p);
  /// Ask for a connection; the first attempt comes after `delay_ns`.
  void want_connection(Half& h, uint64_t delay_ns);
  /// The queue pair goes to ERR: nothing leaves its send queue any more.
  void to_error(Half& h, int32_t cause, const char* text);
  void destroy(Half& h);
  void device_lost(uint32_t p, uint32_t r);
  bool blocked(uint32_t p, uint32_t q, uint32_t r) const {
    return port_down_[p][r] != 0 || port_down_[q][r] != 0 || one_way_[p][q][r] != 0;
  }
  bool port_active(uint32_t p, uint32_t r) const { return port_down_[p][r] == 0; }

  void on_wire(Half& h);
  void on_ack(Half& h, uint32_t epoch);
  void on_retry_out(Half& h, uint32_t epoch);
  void on_reconnect(Half& h);

  uint8_t port_down_[kMaxProcs][kMaxSimRails] = {};
  uint8_t one_way_[kMaxProcs][kMaxProcs][kMaxSimRails] = {};
  std::vector<Fault>* faults = nullptr;
  std::vector<uint32_t> fault_counts;

 private:
  void packet_faults(Half& h, Packet* p);
  bool execute(Half& h, Packet* p);
  void lose_wire(Half& h, PacketFifo<&Packet::next_fabric> rest);
  void arm_wire(Half& h, uint64_t at);
  void arm_ack(Half& h, uint64_t delay);
  void arm_retry(Half& h, uint64_t delay);
  void finish_read(Half& h, Packet* p);
  void establish(Half& h);
  void never_connected(Half& h, int32_t cause, const char* text);
  void start_epoch(Half& h, uint32_t epoch, uint64_t conn);

  Context& ctx_;
  std::vector<Half> halves_;
  static_assert(kMaxProcs * kMaxSimRails <= 64);
  uint64_t attended_[kMaxProcs] = {};
};

}  // namespace bfo::sim
