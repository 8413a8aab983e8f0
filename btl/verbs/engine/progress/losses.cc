// SPDX-License-Identifier: BSD-3-Clause
//
// losses.cc: when a port is looked at for packets that it loses (packet_loss.h).
#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {

void Port::look_for_loss(uint64_t now) {
  uint64_t work = 0;
  uint64_t ended = 0;
  {
    const Guard guard(lock_);
    work = accounting_.bytes_posted + accounting_.bytes_received;
    ended = rails_ended_;
  }
  packet_loss_.look(
      {lanes_.upkeep, api(), device_->context(), host_, finalizing_, number_, now, work, ended});
}

}  // namespace bfo::engine
