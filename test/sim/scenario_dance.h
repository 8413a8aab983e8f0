// SPDX-License-Identifier: BSD-3-Clause
//
// scenario_dance.h: the configuration "dance": two processes, one to three messages, and faults that hit the
// messages of the restart dance itself. Short, so that many run per second, and made to come to the cells of
// the state tables that longer stories seldom reach.
#pragma once

#include "test/sim/prng.h"
#include "test/sim/scenario.h"

namespace bfo::sim {

/// `out` is empty except for its name.
void generate_dance(Prng& d, Scenario& out);

}  // namespace bfo::sim
