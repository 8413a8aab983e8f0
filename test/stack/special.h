// SPDX-License-Identifier: BSD-3-Clause
//
// special.h: configurations whose machines and faults need more than the weights of scenario.cc.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include "test/sim/prng.h"
#include "test/stack/scenario.h"

namespace bfo::stack {

/// Faults of single packets, at most `n`: which packet, not when.
void add_packet_faults(sim::Prng& d, std::uint64_t n, Scenario& s);

/// Data is held in the fabric, and its connection fails meanwhile: it lands long after its requester knows.
void add_late_data(sim::Prng& d, Scenario& s);
/// Processes that compute for long, and lose their connections meanwhile.
void add_absences(sim::Prng& d, Scenario& s);

/// Few long messages: see `dance`.
void make_dance(sim::Prng& d, Machine& m);
/// Some kinds of handshake datagrams are lost until the fabric heals.
void lose_kinds(sim::Prng& d, Machine& m);
/// RTU never arrives: a responder comes up with the first message (H18).
void lose_ready(sim::Prng& d, Machine& m);
/// No queue pair gives up by itself: only clocks and verdicts end a rail (H15).
void only_clocks(sim::Prng& d, Machine& m);
/// Processes that wait poll seldom, so that long runs are affordable.
void wait_slowly(sim::Prng& d, Machine& m);
/// A park time that is shorter than some outages. Requests may end with an error, but everything ends.
void park_briefly(sim::Prng& d, Machine& m);
/// A park time that is shorter than the time in which processes compute; nobody may be given up (H15).
void compute_long(sim::Prng& d, Machine& m);
/// A device that dies may refuse to destroy its queue pairs (H12).
void refuse_fences(sim::Prng& d, Machine& m);

}  // namespace bfo::stack
