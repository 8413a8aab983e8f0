// SPDX-License-Identifier: BSD-3-Clause
//
// fake_engine.cc: the engine on the fake port, compiled once for all tests that use it: it takes longer than
// they do.
#include "test/unit/fake_port.h"

template class bfo::xfer::Engine<bfo::test::FakePort>;
