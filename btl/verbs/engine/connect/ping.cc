// SPDX-License-Identifier: BSD-3-Clause
//
// ping.cc: see ping.h.
#include "btl/verbs/engine/connect/ping.h"

#include <algorithm>

#include "btl/verbs/engine/connect/cm.h"
#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {
namespace {

/// A usual handshake is over long before: only slow peers are asked.
constexpr uint64_t kFirstPingNs = 100'000'000;

bool waits_for_peer(const Endpoint& endpoint) {
  return endpoint.phase == Phase::kSoliciting || endpoint.phase == Phase::kRequesting ||
         endpoint.phase == Phase::kReplied;
}

bool can_ask(const Endpoint& endpoint) {
  return endpoint.port->config().peer_timeout_ns != 0 && endpoint.peer.address.heartbeat_qpn != 0;
}

/// A peer that nobody speaks to is asked as seldom as one that answers; and not by all processes at once,
/// although all may have lost it at the same time.
uint64_t next_ping_pause_ns(const Endpoint& endpoint) {
  const Port& port = *endpoint.port;
  const uint64_t usual = ping_pause_ns(port);
  if (need_of(endpoint) != Need::kNone) return usual + port.env().random() % (usual / 8 + 1);
  const uint64_t pause = port.config().peer_timeout_ns / 2;
  return pause / 2 + port.env().random() % (pause + 1);
}

/// Sends a PING. One that has not left is not counted, and its silence says nothing; it leaves when it can.
/// Nor do those count whose answer may have been dropped here.
void ask(Endpoint& endpoint, uint64_t now) {
  Pings& state = endpoint.pings();
  state.ping_ns = now + next_ping_pause_ns(endpoint);
  const uint16_t overruns = endpoint.port->datagram_overruns();
  if (state.overruns != overruns) state.unanswered = 0;
  state.overruns = overruns;
  const uint32_t number = std::min(state.unanswered + 1, kPings);
  if (cm_ping(endpoint, number)) state.unanswered = number;
}

}  // namespace

void ping_begin(Endpoint& endpoint, uint64_t now) {
  endpoint.pings().begin(now + std::min(ping_pause_ns(*endpoint.port), kFirstPingNs));
}

void ping_step(Endpoint& endpoint, uint64_t now) {
  if (!waits_for_peer(endpoint) || !can_ask(endpoint) || now < endpoint.pings().ping_ns) return;
  if (endpoint.pings().unanswered >= kPings) set_pinged(endpoint, Pinged::kSilent);
  // Asked for ever: a peer that was stopped, or a path that was broken, may come back.
  ask(endpoint, now);
}

void ping_waiting(Endpoint& endpoint, uint64_t now) {
  if (waits_for_peer(endpoint) && can_ask(endpoint)) ask(endpoint, now);
}

void ping_soon(Endpoint& endpoint, uint64_t now) {
  endpoint.pings().ping_ns =
      std::min(endpoint.pings().ping_ns, now + std::min(ping_pause_ns(*endpoint.port), kFirstPingNs));
}

void ping_answered(Endpoint& endpoint, uint64_t now) {
  if (!waits_for_peer(endpoint)) return;
  endpoint.pings().begin(now + endpoint.port->config().peer_timeout_ns / 2);
  set_pinged(endpoint, Pinged::kAnswers);
}

void ping_heard(Endpoint& endpoint, uint64_t now) {
  if (!waits_for_peer(endpoint)) return;
  ping_begin(endpoint, now);
  set_pinged(endpoint, Pinged::kUnknown);
}

void ping_refused(Endpoint& endpoint, uint64_t now) {
  if (!waits_for_peer(endpoint)) return;
  endpoint.pings().begin(now + endpoint.port->config().peer_timeout_ns / 2);
  set_pinged(endpoint, Pinged::kUnknown);
}

}  // namespace bfo::engine
