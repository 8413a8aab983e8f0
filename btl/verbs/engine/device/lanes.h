// SPDX-License-Identifier: BSD-3-Clause
//
// lanes.h: the control lanes of a port, one for each kind of control verb that must not wait for the others.
#pragma once

#include <atomic>
#include <cstdint>

#include "btl/verbs/engine/device/control.h"

namespace bfo::engine {

struct PortLanes {
  ControlLane setups;         ///< makes queue pairs and connects them
  ControlLane queue_pairs;    ///< destroys them
  ControlLane stops;          ///< moves them to ERR, which must wait for neither
  ControlLane registrations;  ///< of memory, and what the shared receive queue is asked for
  ControlLane
      upkeep;  ///< reads the port's attributes, repairs its datagram queue pair, makes completion queues

  /// They share `threads`.
  void open(ControlMode mode, std::atomic<bool>* service_needed, ControlThreads& threads) {
    stops.open(mode, 1, service_needed, &threads, true);
    queue_pairs.open(mode, 1, service_needed, &threads);
    registrations.open(mode, 1, service_needed, &threads);
    // Peers whose neighbour does not answer keep as many threads for about a second each; the others go on.
    setups.open(mode, ControlLane::kMaxWidth, service_needed, &threads);
    upkeep.open(mode, 2, service_needed, &threads);
  }
  /// Ends the commands whose verbs have returned.
  void finish() {
    setups.finish();
    stops.finish();
    queue_pairs.finish();
    registrations.finish();
    upkeep.finish();
  }
  /// False when a verb has not returned after `timeout_ns`: its thread keeps the device.
  bool close(uint64_t timeout_ns) {
    // Queue pairs that were made or stopped are destroyed next.
    bool ended = setups.close(timeout_ns);
    ended = stops.close(timeout_ns) && ended;
    ended = queue_pairs.close(timeout_ns) && ended;
    ended = registrations.close(timeout_ns) && ended;
    return upkeep.close(timeout_ns) && ended;
  }
};

}  // namespace bfo::engine
