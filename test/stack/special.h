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
void add_packet_faults(sim::Prng& d, uint64_t n, Scenario& s);

/// Data is held in the fabric, and its connection fails meanwhile: it lands long after its requester knows.
void add_late_data(sim::Prng& d, Scenario& s);
/// Processes that compute for long, and lose their connections meanwhile.
void add_absences(sim::Prng& d, Scenario& s);

/// Messages of a burst are held in the fabric while their connection fails; the receiver's half stays open.
void add_slow_copies(sim::Prng& d, Scenario& s);
/// FIN messages that fail.
void add_lost_fins(sim::Prng& d, Scenario& s);
/// Connections that fail with their first messages.
void add_early_faults(sim::Prng& d, Scenario& s);
/// The device of one rail dies, or its completion queues overrun with a message that it has acknowledged.
void add_last_words(sim::Prng& d, Scenario& s);

/// Few long messages: see `dance`.
void make_dance(sim::Prng& d, Machine& m);
/// Some kinds of handshake datagrams are lost until the fabric heals.
void lose_kinds(sim::Prng& d, Machine& m);
/// READY never arrives: a responder comes up with the first message (H18).
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

/// Completions are late, and written bytes reach memory after their acknowledgement.
void slow_device(sim::Prng& d, Machine& m);
/// As make_dance(); see add_last_words().
void last_words(sim::Prng& d, Machine& m);
/// As make_dance(), with data that is late, and one process whose fences take long.
void slow_fences(sim::Prng& d, Machine& m);
/// Writes whose bytes reach memory after their acknowledgement, and FINs that fail.
void lose_fins(sim::Prng& d, Machine& m);
/// Connections that fail early and come back late.
void reopen_often(sim::Prng& d, Machine& m);
/// QP_LAST_WQE_REACHED is never raised, and processes poll seldom.
void poll_seldom(sim::Prng& d, Machine& m);
/// As last_words(), with a device that cannot be fenced and a short park time.
void fail_alone(sim::Prng& d, Machine& m);
/// Queue pairs retry for 17 s, and a port that goes down stays down: everything ends soon all the same.
void ports_that_stay_down(sim::Prng& d, Machine& m);
/// Nothing goes wrong: what waits for its window goes on within a fraction of a second.
void short_stall(sim::Prng& d, Machine& m);
/// See add_slow_copies().
void late_copies(sim::Prng& d, Machine& m);
/// Completion queues are left alone for up to 20 us while messages arrive one after another.
void moderate_polls(sim::Prng& d, Machine& m);
void trust_rails(sim::Prng& d, Machine& m);
/// Messages go one way, and processes meet with the first one; see add_early_faults().
void meet_late(sim::Prng& d, Machine& m);
/// Rates, latencies and losses of ports that change (weather.cc).
void change_weather(sim::Prng& d, Machine& m);

}  // namespace bfo::stack
