// SPDX-License-Identifier: BSD-3-Clause
//
// shrink.h: the smallest schedule that still breaks the same promise.
//
// P1..P8: contrib/doc/design.md
#pragma once

#include <cstdint>

#include "test/sim/world.h"

namespace bfo::sim {

/// Drop messages, faults and communicators from a failing scenario, and simplify what is left, as long as it
/// still fails with the same kind of violation ("P1", ...). At most `runs` runs.
Scenario shrink(World& world, const Scenario& failing, const Hooks& hooks, uint32_t runs);

}  // namespace bfo::sim
