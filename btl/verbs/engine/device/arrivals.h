// SPDX-License-Identifier: BSD-3-Clause
//
// arrivals.h: how many bytes have come in at a port, as its device counts them. A rail whose work takes long
// shows nothing else of life: what stands before a question in a queue moves, or it does not. The counter is
// a file of the kernel, which may ask a busy firmware, so a control thread reads it.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/device/control.h"
#include "btl/verbs/engine/device/verbs_api.h"

namespace bfo::engine {

/// Of one port. All members by the progress function.
class Arrivals {
 public:
  /// Has them counted by a command of `lane`, unless that is under way, or was not long ago.
  void count(ControlLane& lane, const VerbsApi& api, ibv_context* context, uint8_t number, uint64_t now_ns,
             uint64_t pause_ns);
  /// As they were counted last; 0: nobody has of late, or the device cannot tell.
  uint64_t bytes() const { return bytes_; }
  /// A count is under way.
  bool under_way() const { return under_way_; }

 private:
  struct Counting;

  uint64_t bytes_ = 0;
  uint64_t called_ns_ = 0;
  uint64_t asked_ns_ = 0;
  bool under_way_ = false;
  bool outdated_ = false;  ///< the one under way
};

}  // namespace bfo::engine
