// SPDX-License-Identifier: BSD-3-Clause
//
// rail_state.h: what the engine keeps per rail, and the rails of a peer.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>

#include "common/events.h"
#include "common/ids.h"
#include "common/status.h"
#include "pml/bfo/xfer/args.h"
#include "pml/bfo/xfer/port.h"
#include "pml/bfo/xfer/rails/degraded.h"
#include "pml/bfo/xfer/rails/goodput.h"
#include "pml/bfo/xfer/rails/message_time.h"
#include "pml/bfo/xfer/rails/short_time.h"
#include "pml/bfo/xfer/rails/write_ahead.h"

namespace bfo::xfer {

/// READs that have to end in time until a rail counts as one that keeps up: of a new one, and after a late
/// one.
inline constexpr uint8_t kUnsure = 8;
inline constexpr uint8_t kLate = 16;

/// A record that waits for what has to be sent again is looked at when all of that was, by what it was at the
/// last look, or when the time that a look takes is small against what was sent since.
struct RecordDue {
  uint64_t bytes = 0;
  uint64_t messages = 0;
  uint64_t calls = 0;    ///< what was sent again in so many pieces is enough
  uint64_t late_ns = 0;  ///< look then in any case: it may have been received, or not be wanted any more
  bool now() const { return calls == 0 || (bytes == 0 && messages == 0); }
  void sent(uint64_t n, bool whole_message) {
    bytes -= n < bytes ? n : bytes;
    if (whole_message && messages != 0) --messages;
    if (calls != 0) --calls;
  }
};

/// A BTL may queue what it cannot send. So many control messages may be under way on one rail, more than fit
/// into its send queue; then it counts as one that takes nothing now.
inline constexpr uint32_t kMostControl = 1024;

template <class P>
struct Rail {
  typename P::RailHandle handle{};
  RailLimits limits;
  Peer<P>* peer = nullptr;
  RailState state = RailState::kIdle;
  uint8_t index = 0;
  /// 0: its last READs had ended when it was looked at next, so it moves data as fast as READs are posted
  uint8_t late = kUnsure;
  bool down_pending = false;    ///< RAILDOWN to the peer
  bool closed_pending = false;  ///< EPOCHCLOSED to the peer
  RailName name;                ///< current (or last) connection
  RailName dead;                ///< the connection that RAILDOWN and EPOCHCLOSED are about
  uint32_t closed_epoch = 0;    ///< every epoch <= this is fenced
  uint32_t up_epoch = 0;        ///< the newest epoch that was up at this side
  bool unfenceable = false;
  bool peer_alive = false;  ///< not up, but the BTL reports that the peer's process is alive and only busy
  uint64_t unfenceable_ns = 0;     ///< when the device was found to be unfenceable
  uint32_t peer_closed_epoch = 0;  ///< every epoch <= this is closed at the peer
  int32_t dead_cause = 0;
  uint64_t dead_delivered = 0;
  /// bytes of long messages posted and not ended, which the scheduler balances
  uint64_t inflight_bytes = 0;
  Goodput goodput;                 ///< what it was measured to move
  ShortTime short_time;            ///< how long its short messages were seen to take
  MessageTime message_time;        ///< the same of longer eager ones
  Degraded* degraded = nullptr;    ///< is that much less than it should be? nullptr: it was not measured
  uint32_t control_out = 0;        ///< control messages posted and not ended: at most kMostControl
  FailoverEvent* event = nullptr;  ///< of its last loss; nullptr until the first one
  FailoverEvent* back = nullptr;   ///< of its return; nullptr while it was not lost, or its return is told
  bool event_open = false;
  bool event_pending = false;  ///< it is complete except for what has to be sent again
  uint8_t samples_out = 0;     ///< MATCHes that are timed, posted and not ended
  RecordDue due;               ///< when it is looked at then
  WriteAhead writes;           ///< what is written over it

  /// May one more control message be given to its BTL?
  bool takes_control() const { return control_out < kMostControl; }
  /// Is it up in that epoch?
  bool usable(uint32_t of_epoch) const {
    return name.epoch == of_epoch && (state == RailState::kUp || state == RailState::kSuspect);
  }
};

/// Has `a` less in flight than `b`, for its weight? Loads stay far below 2^32 * weight.
template <class P>
bool lighter(const Rail<P>& a, const Rail<P>& b) {
  return a.inflight_bytes * b.limits.weight < b.inflight_bytes * a.limits.weight;
}

/// Can a message that came over `rail` be from `peer`? nullptr: its BTL does not name senders.
template <class P>
bool from_peer(const Rail<P>* rail, const Peer<P>* peer) {
  return rail == nullptr || rail->peer == peer;
}

/// The rails of a peer. Each has its own allocation, because others point to it.
template <class P>
struct RailSet {
  Rail<P>* at[kMaxRails] = {};
  Rail<P>& operator[](unsigned i) { return *at[i]; }
  const Rail<P>& operator[](unsigned i) const { return *at[i]; }
};

}  // namespace bfo::xfer
