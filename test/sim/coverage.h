// SPDX-License-Identifier: BSD-3-Clause
//
// coverage.h: which cells of the state tables no run has used, and whether each has a written reason.
#pragma once

#include <string>

#include "test/sim/world.h"

namespace bfo::sim {

/// One line per cell that is Go or Ignore and was never used: "send Closing Put".
void print_unreached(const Coverage& c);
/// False, with a line per problem, when an unreached cell is not in `file` or when a cell listed there as
/// unreachable was used.
bool check_coverage(const Coverage& c, const std::string& file);

}  // namespace bfo::sim
