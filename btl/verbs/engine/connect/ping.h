// SPDX-License-Identifier: BSD-3-Clause
//
// ping.h: is there anybody behind a silent handshake? A process answers handshakes only from its progress
// function, so one that computes for minutes is as silent as a dead one (H15). While a handshake gets no
// answer its endpoint sends PINGs to the peer's heartbeat (heartbeat.h), which the peer's event thread
// answers:
//
//     PONG                       the process lives and the path works, it is only busy: wait on, ask seldom
//     kPings without any PONG    the process or the path is dead: cm.cc gives the rail up
//
// Packets are counted, not time: a process that was away itself has sent no PING meanwhile and blames nobody.
// Only those count that have left, and after which all that came was read: with hundreds of peers a process
// that waits for a processor has more to say than it has send buffers, and is sent more than it has receives.
// Any handshake packet of the peer ends the question, because then its progress function runs.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include "btl/verbs/engine/rail/pings.h"

namespace bfo::engine {

// Progress function only, never under the port's lock.

/// The endpoint begins to wait for a handshake packet.
void ping_begin(Endpoint& endpoint, uint64_t now);
/// Its turn while it waits: sends PINGs that are due, judges.
void ping_step(Endpoint& endpoint, uint64_t now);
/// A PING that could not leave may leave now.
void ping_waiting(Endpoint& endpoint, uint64_t now);
/// The rail is needed now: the next PING is due soon.
void ping_soon(Endpoint& endpoint, uint64_t now);
/// A handshake packet of the peer came: its progress function runs.
void ping_heard(Endpoint& endpoint, uint64_t now);
/// REFUSE came: its progress function runs, and will say so again while it is asked.
void ping_refused(Endpoint& endpoint, uint64_t now);
/// A PONG came.
void ping_answered(Endpoint& endpoint, uint64_t now);
}  // namespace bfo::engine
