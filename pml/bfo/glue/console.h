// SPDX-License-Identifier: BSD-3-Clause
//
// console.h: the line about a lost rail on the terminal. A port that fails ends a rail to every peer. One
// line per port and second is printed; the others are counted, and the next line has their number.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/events.h"
#include "pml/bfo/glue/event_log.h"

namespace bfo::glue {

class Console {
 public:
  // `print` gets each finished line, without a newline.
  explicit Console(void (*print)(const char* line)) : print_(print) {}

  // Prints the line of one failover, or counts it. `now_ns`: monotonic.
  void tell(const FailoverEvent& event, const EventNames& names, uint64_t now_ns);
  // Prints the number of those that were only counted.
  void finish(int rank);

 private:
  static constexpr size_t kPorts = 16;
  static constexpr uint64_t kQuietNs = 1'000'000'000;
  struct Port {
    char device[64];
    unsigned number;
    uint64_t told_ns;
    unsigned counted;
  };
  Port* find(const EventNames& names);

  void (*print_)(const char* line);
  Port ports_[kPorts] = {};
  size_t used_ = 0;
};

}  // namespace bfo::glue
