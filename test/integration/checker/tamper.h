// SPDX-License-Identifier: BSD-3-Clause
//
// The tamper: plays a broken MPI for the self-test, by damaging one received message in a chosen way.
#pragma once

#include <cstdint>

#include "test/integration/checker/pool.h"
#include "test/integration/checker/stamp.h"

namespace bfo::checker {

class Tamper {
 public:
  enum class Mode {
    kOff,
    kCorrupt,
    kTorn,
    kStale,
    kEarly,
    kDoubled,
    kReordered,
    kMisdelivered,
    kShifted,
    kLateRead,
    kLateWriteHeld,
    kLateWriteFree,
    kOverrun,
    kUnderrun,
    kStatus,
    kTinySwap,
    kCount
  };
  static const char* name(Mode mode);
  /// The finding that must come out of it.
  static Kind expected(Mode mode);

  void arm(Mode mode) { mode_ = mode, fired_ = false; }
  bool fired() const { return fired_; }
  void before_verify(const Stamp& stamp, Buffer& buffer, const Message& due, int* count);
  void after_verify(Pool& pool);

 private:
  Mode mode_ = Mode::kOff;
  bool fired_ = false;
};

}  // namespace bfo::checker
