// SPDX-License-Identifier: BSD-3-Clause
//
// verdict.h: the verdict on a rail whose work stands still. The watchdog only suspects, and a suspected rail
// is only the second choice. Before it is ended its peer is asked, by datagrams over every rail that is up
// and over the suspected one itself, again and again, one question at a time:
//
//     asking side                            peer (its progress function)
//        QUESTION(rail, epoch, n) ---->        over each rail
//                 <---- ANSWER(rail, epoch, n, what has moved there)     each the way it came
//
//   answered over the suspected rail, or something moved    it is alive: no verdict
//   answered over another rail only, for several rounds     its path is dead: it is ended
//   not answered at all                                     nothing is known of the rail: no verdict
//
// The rails are compared with each other, not with a clock: what slows both processes down, slows all of them
// down. Of the two processes one decides, the decider: the one that initiates connections. The other one
// sends its question as an end request. What the decider ends has another rail that is up at both ends, and
// no two verdicts cross: watchdogs alone never end the last rail. An error that the device reports needs no
// inquiry.
//
// The verdict falls at a tick of the watchdog, because only a tick knows that no completion which waits in a
// queue explains the silence. The answer that completes the proof makes that tick due at once. No other
// answer does: questions keep the pace of the ticks.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/datagram/cm_packet.h"
#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {

// Progress function only, never under the port's lock.

/// One tick of a rail that has been silent for long enough to ask: ends it when enough is known, asks on
/// otherwise.
void verdict_step(Endpoint& about, uint64_t now);
/// Its probe failed: asks at once.
void verdict_probe_failed(Endpoint& about, uint64_t now);
/// A QUESTION or ANSWER came in over `carrier`.
void verdict_packet(Endpoint& carrier, const Packet& packet, uint64_t now);
/// Work has completed, or the epoch is over: the inquiry ends.
void verdict_clear(Endpoint& about);

}  // namespace bfo::engine
