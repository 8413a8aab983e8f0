// SPDX-License-Identifier: BSD-3-Clause
//
// receive_sizing.h: how far a port is with changing the number of its receive buffers (receives.cc).
#pragma once

#include <cstdint>

namespace bfo::engine {

struct ReceiveSizing {
  /// The request to the device to say when buffers run short.
  enum class Arming : uint8_t {
    kIdle,
    kAsked,
    kOutdated,  ///< asked, and their number has changed meanwhile
  };

  bool growing = false;  ///< more are being registered
  bool shrank = false;   ///< some were withdrawn since they last grew
  Arming arming = Arming::kIdle;
  uint64_t next_growth_ns = 0;
  uint64_t next_review_ns = 0;
  uint64_t review_pause_ns = 0;  ///< between two reviews
};

}  // namespace bfo::engine
