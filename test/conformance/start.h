// SPDX-License-Identifier: BSD-3-Clause
//
// The start of a conformance program: a fabric of its own, chosen before the library looks at the
// environment.
#pragma once

namespace bfo::conformance {

/// Returns when this process has the environment of a fabric of its own; restarts the program once to get it.
/// Ends the process with a sentence when the software HCA is not there.
void enter_fabric(char** argv);

}  // namespace bfo::conformance
