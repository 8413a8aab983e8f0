// SPDX-License-Identifier: BSD-3-Clause
//
// The self-test of the checker: every detector must fire on damage of its kind, and only then.
#pragma once

#include <mpi.h>

#include "test/integration/checker/worker.h"

namespace bfo::checker {

/// Collective. Plays rounds of traffic with one damage each; returns the number of damages that were not
/// noticed, or noticed as something else.
int self_test(Worker& worker, MPI_Comm comm);

/// Waits for a message that nobody sends; the watchdog ends the process.
void stall_test(Worker& worker, MPI_Comm comm);

}  // namespace bfo::checker
