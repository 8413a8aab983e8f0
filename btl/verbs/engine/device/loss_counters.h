// SPDX-License-Identifier: BSD-3-Clause
//
// loss_counters.h: the signs of lost packets that a device counts for each port, whoever's packets they were:
// files of the kernel below ports/N/hw_counters, whose names each driver has its own of.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bfo::engine {

/// What went one way.
struct LossCount {
  uint64_t signs = 0;    ///< that packets were lost, about one each
  uint64_t packets = 0;  ///< 0: not known
  bool known = false;
};

struct LossCounts {
  LossCount out;  ///< packets that the port has sent, or the acknowledgments of these
  LossCount in;   ///< packets that were sent to it
};

/// ibv_read_sysfs_file() of libibverbs. The length of the text, without its newline; not positive: none.
using ReadFile = int (*)(const char* directory, const char* file, char* text, size_t size);

/// The files that a port has: what is not there the first time is not looked for again.
class LossCounters {
 public:
  /// Reads those of port `number` below `directory` (ibv_device::ibdev_path). A direction of which there are
  /// no signs, or no packets, is not known.
  LossCounts read(ReadFile read, const char* directory, uint8_t number);
  /// There is nothing to read.
  bool none() const { return looked_ && there_ == 0; }

 private:
  bool looked_ = false;
  uint32_t there_ = 0;  ///< a bit for each name
};

}  // namespace bfo::engine
