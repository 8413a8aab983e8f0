// SPDX-License-Identifier: BSD-3-Clause
//
// liveness.h: is there anybody behind a silent handshake? A process answers handshakes only from its progress
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

#include <cstdint>

namespace bfo::engine {

class Port;
struct Endpoint;

/// What is known of the process behind a handshake that gets no answer.
enum class Liveness : uint8_t {
  kUnknown,
  kAnswers,  // its event thread answers: it lives, and is busy outside MPI
  kSilent,   // nothing came back for Config::peer_timeout_ns: the process or the path is dead
};

/// What an endpoint has asked, and heard.
struct LivenessState {
  Liveness state = Liveness::kUnknown;
  uint16_t overruns = 0;    // Port::datagram_overruns() when the last PING left
  uint32_t unanswered = 0;  // PINGs that have left since the last PONG
  uint64_t ping_ns = 0;     // when the next one is due

  /// The questions begin anew; the first one is due at `ping`.
  void begin(uint64_t ping) {
    unanswered = 0;
    ping_ns = ping;
  }
};

/// So many PINGs in a row without an answer are evidence of death: datagrams may be lost. The bound of
/// Config::peer_timeout_ns is divided among them.
inline constexpr uint32_t kPings = 10;

/// Time between two PINGs; 0: none are sent.
uint64_t liveness_pause_ns(const Port& port);

// Progress function only, never under the port's lock.

/// The endpoint begins to wait for a handshake packet.
void liveness_begin(Endpoint& endpoint, uint64_t now);
/// Its turn while it waits: sends PINGs that are due, judges.
void liveness_step(Endpoint& endpoint, uint64_t now);
/// A PING that could not leave may leave now.
void liveness_ask_waiting(Endpoint& endpoint, uint64_t now);
/// The rail is needed now: the next PING is due soon.
void liveness_ask_soon(Endpoint& endpoint, uint64_t now);
/// A handshake packet of the peer came: its progress function runs.
void liveness_heard(Endpoint& endpoint, uint64_t now);
/// REFUSE came: its progress function runs, and will say so again while it is asked.
void liveness_refused(Endpoint& endpoint, uint64_t now);
/// A PONG came.
void liveness_answered(Endpoint& endpoint, uint64_t now);
/// Nothing is known, because nothing is asked: the rail is up, or cannot be.
void liveness_unknown(Endpoint& endpoint);

}  // namespace bfo::engine
