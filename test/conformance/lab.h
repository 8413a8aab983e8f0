// SPDX-License-Identifier: BSD-3-Clause
//
// The lab: the software HCA fabric of one test program, seen from outside: fault rules in, trace out. The
// verbs calls of the tests go through the drop-in library like those of any program; only the lab looks
// behind it. On other devices (kDevicesVariable) the tests that need no lab run as they are.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "contrib/softhca/fabric/fabric.h"

namespace bfo::conformance {

using softhca::MessageRecord;
using softhca::Opcode;
using softhca::Verdict;

/// Names the devices to test instead of the emulator's, separated by commas: two or more, each able to reach
/// the others.
inline constexpr char kDevicesVariable[] = "BFO_CONFORMANCE_DEVICES";

/// Factor on ACK and RNR timers in these tests.
inline constexpr double kTimescale = 0.01;

class Lab {
 public:
  /// True on devices that are not the emulator's: no rules, no trace. Asking for either then fails the test
  /// with a text that says "needs the emulator".
  static bool other_devices();

  /// The one lab of this process; its fabric exists once a device was opened.
  static Lab& get();

  /// Leaves the fabric. At the end of the program only: the drop-in library loses its record locks by it.
  void leave() { fabric_.reset(); }

  /// Adds rules; a mistake in them fails the test.
  void inject(std::string_view rules);
  void clear_rules();
  uint64_t fired(std::string_view rule);

  void restart_trace();
  /// Records since restart_trace that `wanted` accepts, oldest first.
  std::vector<MessageRecord> trace(const std::function<bool(const MessageRecord&)>& wanted);
  /// All records as text, for failure messages.
  std::string trace_text();

  softhca::FabricHeader& header();
  softhca::Fabric& fabric();

 private:
  Lab() = default;
  std::unique_ptr<softhca::Fabric> fabric_;
};

}  // namespace bfo::conformance
