// SPDX-License-Identifier: BSD-3-Clause
//
// no_gate.h: takes the PML's completion gate away, for a test that must notice. Put in front of the source
// file that instantiates the engine (-include), it makes one whose requests complete whatever their ledger
// says.
#pragma once

#include "pml/bfo/glue/request.h"
#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

template <>
inline bool Transfers<glue::BtlPort>::gate_removed() const {
  return true;
}

}  // namespace bfo::xfer
