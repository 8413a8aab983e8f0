// SPDX-License-Identifier: BSD-3-Clause
//
// sim_engine.cc: the component's engine on the simulated port, compiled once for the whole simulator.
#include "test/sim/sim_port.h"

static_assert(bfo::xfer::Port<bfo::sim::SimPort>);
template class bfo::xfer::Engine<bfo::sim::SimPort>;
