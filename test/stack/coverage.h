// SPDX-License-Identifier: BSD-3-Clause
//
// coverage.h: which cells of the state tables no run has used, and whether each has a written reason.
#pragma once

#include <cstdint>
#include <string>

#include "test/stack/port.h"

namespace bfo::stack {

/// How often each table cell was used.
struct Coverage {
  uint64_t send[core::kSendPhases][core::kSendEvents] = {};
  uint64_t recv[core::kRecvPhases][core::kRecvEvents] = {};
  void add(const Engine& pml);
};

/// One line per cell that is Go or Ignore and was never used: "send Closing Put".
void print_unreached(const Coverage& c);
/// False, with a line per problem, when an unreached cell is not in `file` or when a cell listed there as
/// unreachable was used.
bool check_coverage(const Coverage& c, const std::string& file);

}  // namespace bfo::stack
