// SPDX-License-Identifier: BSD-3-Clause
//
// console.h: the lines about lost rails on the terminal. A port that fails ends a connection of every process
// of its host to every peer. One process says it, in one line per port and cause; the other losses are
// counted, and the next line has their number. A port that fails again and again has lines that are further
// and further apart. A line names both ends: only together they show which node is sick. A host that reaches
// another one by no rail any more says so as long as messages wait for one.
// A port whose rate changes has a line, per rate; one over which a rail moves too little, per direction.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/claims.h"
#include "common/events.h"
#include "pml/bfo/glue/event_log.h"

namespace bfo::glue {

class Console {
 public:
  /// `print` gets each finished line, without a newline. `claims`: of this host.
  Console(void (*print)(const char* line), Claims& claims) : print_(print), claims_(claims) {}

  /// Prints the line of one failover, or counts it. `now_ns`: monotonic. Any thread.
  void tell(const FailoverEvent& event, const EventNames& names, uint64_t now_ns);
  /// Messages wait for a peer to which there is no rail. `park_timeout`: pml_bfo_park_timeout, in seconds.
  void tell_no_rail(const FailoverEvent& event, const EventNames& names, int park_timeout, uint64_t now_ns);
  /// A rail moves much less than it should.
  void tell_degraded(const DegradedEvent& event, const EventNames& names, uint64_t now_ns);
  /// A port runs at another rate.
  void tell_speed(const PortSpeed& speed, uint64_t now_ns);
  /// The BTL reports each episode once for the host.
  void tell_loss(const PortLoss& loss);

 private:
  void (*print_)(const char* line);
  Claims& claims_;
};

}  // namespace bfo::glue
