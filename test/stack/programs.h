// SPDX-License-Identifier: BSD-3-Clause
//
// programs.h: configurations that differ in what the processes do: communicators that come and go, receives
// that are cancelled, messages to oneself, processes that die, and headers that no correct peer sends.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include "test/sim/prng.h"
#include "test/stack/scenario.h"

namespace bfo::stack {

/// Up to `n` headers with live names that the phase of their request ignores (echo.cc).
void add_echoes(sim::Prng& d, uint64_t n, Scenario& s);
/// Up to `n` forged headers, and true ones of another process (forge.cc).
void add_forged(sim::Prng& d, uint64_t n, Scenario& s);
/// Three more communicators, one after the other with the same context id (H6), and messages for them.
void add_communicators(sim::Prng& d, Scenario& s);
/// One process dies.
void add_death(sim::Prng& d, Scenario& s);

/// As make_dance(), with short times; drains, fences and writes that are late, and devices that cannot be
/// fenced.
void answer_echoes(sim::Prng& d, Machine& m);
/// Small numbers of everything: fragment records, room for READs and pieces; rails that differ.
void be_odd(sim::Prng& d, Machine& m);
/// A process dies: receives from any source go on.
void lose_a_process(sim::Prng& d, Machine& m);

}  // namespace bfo::stack
