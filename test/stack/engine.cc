// SPDX-License-Identifier: BSD-3-Clause
//
// engine.cc: the PML's engine on the BTL's, compiled once.
#include "test/stack/port.h"

static_assert(bfo::xfer::Port<bfo::stack::StackPort>);
template class bfo::xfer::Engine<bfo::stack::StackPort>;
