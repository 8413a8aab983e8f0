// SPDX-License-Identifier: BSD-3-Clause
//
// The snapshot: writes the counters of the fabric to the file that SOFTHCA_COUNTERS names, when a rule fires,
// when a process leaves and when the last one does. Does nothing without that variable.
#pragma once

#include "contrib/softhca/fabric/fabric.h"

namespace bfo::softhca {

/// A rule has fired. Only its first firings are worth a snapshot: a rule may fire on each message. Any
/// thread, also with locks of the fabric held: it only reads shared memory and appends to a file.
void snapshot_fault(const Fabric& fabric, const Decision& decision);

/// This process leaves; others may stay. Before Fabric::leave().
void snapshot_exit(const Fabric& fabric);

/// The last process has left: also names the rules that never fired, on stderr. After Fabric::leave().
void snapshot_end(const Fabric& fabric);

}  // namespace bfo::softhca
