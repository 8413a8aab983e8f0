// SPDX-License-Identifier: BSD-3-Clause
//
// unstored.h: messages that could not be kept, because there was no memory, and whose sender has no record
// here. Any process that this one meets later may be the sender, so each is declared failed when its record
// is made. Only the size of the last such message is kept, for the report. Used under the engine's lock.
// Needs no memory, cannot fail.
#pragma once

#include <cstddef>

namespace bfo::xfer {

class Unstored {
 public:
  /// A message of `size` bytes. `failover`: it came over a rail with the failover contract.
  void note(bool failover, size_t size) { (failover ? over_failover_ : over_other_) = size; }
  /// What was to be kept, `size` bytes, may have concerned any process.
  void note_any(size_t size) { over_failover_ = over_other_ = size; }
  /// Size of a message that may have come from a peer with such a rail; 0: there is none.
  size_t over(bool failover) const { return failover ? over_failover_ : over_other_; }

 private:
  size_t over_failover_ = 0;
  size_t over_other_ = 0;  ///< their BTLs do not name the sender
};

}  // namespace bfo::xfer
