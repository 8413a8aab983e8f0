// SPDX-License-Identifier: BSD-3-Clause
//
// life.cc: see life.h.
#include "btl/verbs/engine/life.h"

#include <algorithm>

#include "btl/verbs/engine/cm.h"

namespace bfo::engine {
namespace {

/// A usual handshake is over long before: only slow peers are asked.
constexpr uint64_t kFirstPingNs = 100'000'000;

bool waits_for_peer(const Endpoint& endpoint) {
  return endpoint.phase == Phase::kSoliciting || endpoint.phase == Phase::kRequesting ||
         endpoint.phase == Phase::kReplied;
}

bool can_ask(const Endpoint& endpoint) {
  return endpoint.port->config().peer_timeout_ns != 0 && endpoint.peer.pulse_qpn != 0;
}

/// A peer that nobody speaks to is asked as seldom as one that answers; and not by all processes at once,
/// although all may have lost it at the same time.
uint64_t ping_pause_ns(const Endpoint& endpoint) {
  const Port& port = *endpoint.port;
  if (need_of(endpoint) != Need::kNone) return life_pause_ns(port);
  const uint64_t pause = port.config().peer_timeout_ns / 2;
  return pause / 2 + port.env().random() % (pause + 1);
}

void set_life(Endpoint& endpoint, Life life) {
  const bool told = endpoint.effort->life == Life::kAnswers;
  const bool answers = life == Life::kAnswers;
  endpoint.effort->life = life;
  if (told == answers) return;
  const Host& host = endpoint.port->host();
  host.peer_answers(host.ctx, endpoint, answers);
}

}  // namespace

void life_begin(Endpoint& endpoint, uint64_t now) {
  const uint64_t step = life_pause_ns(*endpoint.port);
  endpoint.effort->unanswered = 0;
  endpoint.effort->ping_ns = now + std::min(step, kFirstPingNs);
}

void life_step(Endpoint& endpoint, uint64_t now) {
  if (!waits_for_peer(endpoint) || !can_ask(endpoint) || now < endpoint.effort->ping_ns) return;
  if (endpoint.effort->unanswered >= kPings) {
    set_life(endpoint, Life::kSilent);
  } else {
    ++endpoint.effort->unanswered;
  }
  // Asked for ever: a peer that was stopped, or a path that was broken, may come back.
  cm_ping(endpoint);
  endpoint.effort->ping_ns = now + ping_pause_ns(endpoint);
}

void life_hurry(Endpoint& endpoint, uint64_t now) {
  endpoint.effort->ping_ns =
      std::min(endpoint.effort->ping_ns, now + std::min(life_pause_ns(*endpoint.port), kFirstPingNs));
}

void life_answered(Endpoint& endpoint, uint64_t now) {
  if (!waits_for_peer(endpoint)) return;
  endpoint.effort->unanswered = 0;
  endpoint.effort->ping_ns = now + endpoint.port->config().peer_timeout_ns / 2;
  set_life(endpoint, Life::kAnswers);
}

void life_heard(Endpoint& endpoint, uint64_t now) {
  if (!waits_for_peer(endpoint)) return;
  life_begin(endpoint, now);
  set_life(endpoint, Life::kUnknown);
}

void life_refused(Endpoint& endpoint, uint64_t now) {
  if (!waits_for_peer(endpoint)) return;
  endpoint.effort->unanswered = 0;
  endpoint.effort->ping_ns = now + endpoint.port->config().peer_timeout_ns / 2;
  set_life(endpoint, Life::kUnknown);
}

void life_unknown(Endpoint& endpoint) {
  if (!endpoint.has_effort()) return;
  endpoint.effort->unanswered = 0;
  set_life(endpoint, Life::kUnknown);
}

}  // namespace bfo::engine
