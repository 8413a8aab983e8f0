// SPDX-License-Identifier: BSD-3-Clause
//
// weights.h: the value of pml_bfo_weights: what counts when the rails of a peer share messages. Does not use
// Open MPI.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pml/bfo/xfer/counters.h"

namespace bfo::glue {

/// A list names rails by their ports here, "mlx5_0:1=4,mlx5_1=1", so that one value does for all hosts that
/// are wired alike: without a port number all ports of the device, of another BTL its name. A rail that it
/// does not name counts 1.
class GivenWeights {
 public:
  static constexpr uint32_t kMost = 1'000'000;

  /// False: it means nothing; `why` says so as the end of a sentence about the value.
  bool parse(const char* text, std::string* why);
  xfer::Weights kind() const { return kind_; }
  /// Of a rail over that port; 0: the list does not name it. A name with the port's number goes first.
  uint32_t of(const char* device, unsigned port) const;

 private:
  struct One {
    std::string device;
    unsigned port = 0;  ///< 0: all
    uint32_t weight = 1;
  };
  bool add(const std::string& item, std::string* why);

  xfer::Weights kind_ = xfer::Weights::kMeasured;
  std::vector<One> list_;
};

}  // namespace bfo::glue
