// SPDX-License-Identifier: BSD-3-Clause
//
// engine.cc: the transfer engine over Open MPI's BTLs, compiled once for the whole component.
#include "pml/bfo/glue/module.h"

static_assert(bfo::xfer::Port<bfo::glue::BtlPort>);
template class bfo::xfer::Engine<bfo::glue::BtlPort>;
