// SPDX-License-Identifier: BSD-3-Clause
//
// closing.h: the end of an epoch, as data: why it ends, how far its drain is, what is kept of it afterwards,
// and what the layer above wants to know about it. drain.h has the functions.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>

#include "btl/verbs/engine/rail/ring.h"
#include "btl/verbs/engine/rail/rules.h"
#include "common/failover_btl.h"

namespace bfo::engine {

/// Evidence that an epoch must end; the first one counts.
struct CloseOrder {
  bool asked = false;
  bfo_rail_cause_t cause = BFO_CAUSE_NONE;
  int32_t code = 0;
  uint32_t vendor_err = 0;
  uint64_t evidence_ns = 0;

  /// Nothing is wrong with the rail: its queue pairs are needed elsewhere.
  bool given_back() const {
    return cause == BFO_CAUSE_GIVEN_BACK || (cause == BFO_CAUSE_PEER_DOWN && code == BFO_CAUSE_GIVEN_BACK);
  }
};

/// How far the drain of the current epoch is.
struct Drain {
  /// The work request behind all others.
  enum class Marker : uint8_t { kNone, kPosted, kBack };
  /// What the device has answered to destroy_qp of the data queue pair.
  enum class Fence : uint8_t { kOpen, kFenced, kRefused };

  Marker marker = Marker::kNone;
  Fence fence = Fence::kOpen;
  bool last_receive_done = false;
  bool no_hold = false;        ///< the peer's half is gone, or there is evidence. Guarded by the port's lock
  bool wait_over : 1 = false;  ///< nothing is left to wait for since an earlier round of progress
  bool handed_back : 1 = false;  ///< the fragments
  bool cause_open : 1 = false;   ///< all evidence was a flush; cause_known() follows
  bool held : 1 = false;  ///< the queue pairs still work, until what was posted on both sides has ended
  uint8_t rounds_behind =
      0;                 ///< of progress since the evidence came that did not empty the completion queues
  uint8_t refusals = 0;  ///< the device, which lives, has refused to destroy the data queue pair

  /// A drain begins. The last-receive event may be here already, and the end of the peer's half.
  void begin(bool only_flushed) {
    const bool last_receive = last_receive_done;
    const bool gone = no_hold;
    *this = Drain{};
    last_receive_done = last_receive;
    no_hold = gone;
    cause_open = only_flushed;
  }
  void marker_posted() {
    if (marker == Marker::kNone) marker = Marker::kPosted;
  }
  void destroyed(bool gone) { fence = gone ? Fence::kFenced : Fence::kRefused; }
  /// Is the device to be asked once more to destroy it?
  bool asks_again() const { return refusals != 0 && fence == Fence::kOpen; }

  /// What drain_next() decides from.
  DrainView view(bool overdue, bool queue_emptied) const {
    return {handed_back, marker != Marker::kNone, last_receive_done, overdue,
            wait_over,   fence != Fence::kOpen,   queue_emptied};
  }
};

/// What is kept of the last closed epoch, to answer fence() again and to hand back a gap (H4).
struct ClosedEpoch {
  bfo_rail_name_t name{};
  bfo_rail_event_t event{};
  bfo_fence_result_t result = BFO_FENCED;
  uint64_t delivered = 0;
  bool reported = false;  ///< rail_closed was called for it
  SendRing ring;          ///< its store stays untouched until the next epoch closes
  int store = -1;         ///< index into Epochs::stores
};

/// What the layer above has asked about epochs that end, and what it has heard. The next poll answers.
struct Notices {
  bfo_rail_name_t gap_name{};    ///< the epoch that the peer has closed
  uint64_t gap_delivered = 0;    ///< how many SENDs of it the peer has delivered
  uint32_t fence_asked = 0;      ///< fence() on an epoch that is not closed: its end is reported, also if it
                                 ///< never was up here; 0 = none
  uint32_t closed_reported = 0;  ///< the newest epoch that was reported closed
  bool gap_asked = false;        ///< peer_closed() came
  bool repeat_closed = false;    ///< fence() on a closed epoch: report it again
};

}  // namespace bfo::engine
