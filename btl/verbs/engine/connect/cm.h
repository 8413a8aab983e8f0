// SPDX-License-Identifier: BSD-3-Clause
//
// cm.h: the connection manager. Fixed roles: the process with the lower name initiates, so two sides can
// never open at once.
//
//     responder                      initiator
//        SOLICIT(last closed epoch) ---->          only when the responder wants the connection first
//                 <---- REQ(n, queue pairs)        its own epochs < n are closed before it is sent
//        fences its epochs < n
//        REP(n, queue pairs) ---->
//                 <---- zero-byte write (probe)    nothing else is posted before it succeeds
//                 <---- READY(n)                   or the first message
//     BYE(n): the sender is going away in order; nobody reconnects to it. Answered by a BYE (leave.h)
//     REFUSE(n, object, errno): the sender cannot make its part now (resource.h); in place of a REQ or a REP.
//     Of an epoch n that is up: its device is short of objects, second rails are asked to give theirs back
//     PING to the peer's heartbeat, PONG from there: asked while a handshake gets no answer (ping.h)
//
// SOLICIT and REQ say how much their sender needs the rail (handshakes.h).
//
// Every packet names both processes and both port nonces, has a number and is summed with the key of the port
// it goes to: one of another job, of another life of the same process name, of a forger, or sent again by
// somebody else is dropped and counted (trust.h). Lost packets are repeated with back-off; all are
// idempotent.
#pragma once

#include <cstddef>
#include <cstdint>

#include "btl/verbs/engine/datagram/cm_packet.h"
#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {

/// Timers of an endpoint that is connecting or closed. Progress function only, as all of the
/// following.
void cm_step(Endpoint& endpoint, uint64_t now);
/// True when nothing is to be done for a peer whose port was down when it was published: it speaks first when
/// that port comes up. Not so while no other rail is up, nor for a while after this port came up, because
/// both may have been down.
bool cm_awaits_peer(const Endpoint& endpoint, uint64_t now);
/// A datagram came in.
void cm_receive(Port& port, const char* data, size_t length);
/// A control thread has made the queue pairs, the responder's connected to the initiator's; or could not make
/// `missing`, with errno `error`.
void cm_qps_made(Endpoint& endpoint, Object missing, int error);
/// Initiator: the queue pairs are connected to the responder's, or are not.
void cm_qps_connected(Endpoint& endpoint, Object missing, int error);
/// The probe before traffic came back.
void cm_probe_done(Endpoint& endpoint, int status);
/// Responder: READY or the first message came. No-op when up already.
void cm_established(Endpoint& endpoint);
/// Says BYE, once, without waiting.
void cm_bye(Endpoint& endpoint);
/// The peer has left and there is no epoch to drain: the rail is gone, which is reported if it never was up.
void cm_peer_left(Endpoint& endpoint, uint64_t now);
/// Sends a PING, the `number`-th without an answer, to the peer's heartbeat. False: it could not leave.
bool cm_ping(Endpoint& endpoint, uint32_t number);
/// Gives queued fragments of a rail that never came up back as never sent and reports the rail down and
/// closed.
void cm_failed(Endpoint& endpoint, bfo_rail_cause_t cause, int32_t code, uint64_t now);

}  // namespace bfo::engine
