// SPDX-License-Identifier: BSD-3-Clause
//
// pings.h: what is known of the process behind a handshake that gets no answer. ping.h asks.
#pragma once

#include <cstdint>

namespace bfo::engine {

class Port;
struct Endpoint;

/// What is known of the process behind a handshake that gets no answer.
enum class Pinged : uint8_t {
  kUnknown,
  kAnswers,  ///< its event thread answers: it lives, and is busy outside MPI
  kSilent,   ///< nothing came back for Config::peer_timeout_ns: the process or the path is dead
};

/// What an endpoint has asked, and heard.
struct Pings {
  Pinged state = Pinged::kUnknown;
  uint16_t overruns = 0;    ///< Port::datagram_overruns() when the last PING left
  uint32_t unanswered = 0;  ///< PINGs that have left since the last PONG
  uint64_t ping_ns = 0;     ///< when the next one is due

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
uint64_t ping_pause_ns(const Port& port);

/// Reports the change, if there is one. Progress function only, never under the port's lock, as the next one.
void set_pinged(Endpoint& endpoint, Pinged state);
/// Nothing is known, because nothing is asked: the rail is up, or cannot be.
void ping_end(Endpoint& endpoint);

}  // namespace bfo::engine
