// SPDX-License-Identifier: BSD-3-Clause
//
// packet_loss.h: packets that a port loses and its device sends again. It costs time, and no rail: who uses
// the port only hears of it. Once a second a control thread reads what the device has counted, for a process
// that has moved something over the port; of those of a host one does so. The files are the kernel's, which
// may ask a busy firmware: no other thread waits for them.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/device/control.h"
#include "btl/verbs/engine/device/loss_counters.h"
#include "btl/verbs/engine/device/verbs_api.h"
#include "btl/verbs/engine/port/host.h"
#include "btl/verbs/engine/port/loss_meter.h"

namespace bfo::engine {

/// Of one port. All members by the progress function.
class PacketLoss {
 public:
  static constexpr uint64_t kLookNs = 1'000'000'000;

  /// Signs of loss for a million packets that are too many; 0: nobody looks.
  void open(uint32_t per_million);
  bool due(uint64_t now) const { return now >= next_ns_; }

  /// The port as it is when it is looked at.
  struct Look {
    ControlLane& lane;
    const VerbsApi& api;
    ibv_context* context;
    const Host& host;
    const bool& finalizing;
    uint8_t number;
    uint64_t now;
    uint64_t work;         ///< that this process has done over it so far: any measure that grows
    uint64_t rails_ended;  ///< rails over it that were up and have ended so far
  };
  void look(const Look& at);

  /// How often the port was found to lose packets. Any thread may read it, perhaps a moment late.
  uint64_t found() const { return found_; }

 private:
  struct Reading;
  void take(const Reading& reading);
  void take(LossMeter& meter, bool in, const LossCount& count, const Reading& reading);

  LossCounters files_;
  LossMeter out_;
  LossMeter in_;
  uint64_t next_ns_ = UINT64_MAX;
  uint64_t work_ = 0;
  uint64_t rails_ended_ = 0;
  uint64_t found_ = 0;
  bool rail_ended_ = false;  ///< since what was read last
  bool under_way_ = false;
};

}  // namespace bfo::engine
