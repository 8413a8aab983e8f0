// SPDX-License-Identifier: BSD-3-Clause
//
// endpoint.cc: how an endpoint is named and described to the outside.
#include "btl/verbs/engine/endpoint.h"

#include <algorithm>
#include <cstdio>

#include "btl/verbs/engine/port.h"

namespace bfo::engine {

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::kIdle:
      return "idle";
    case Phase::kKnocking:
      return "knocking";
    case Phase::kMaking:
      return "making";
    case Phase::kRequesting:
      return "requesting";
    case Phase::kBinding:
      return "binding";
    case Phase::kProbing:
      return "probing";
    case Phase::kReplied:
      return "replied";
    case Phase::kUp:
      return "up";
    case Phase::kSuspect:
      return "suspect";
    case Phase::kDraining:
      return "draining";
    case Phase::kClosed:
      return "closed";
    case Phase::kGone:
      return "gone";
    case Phase::kUnusable:
      return "unusable";
  }
  return "?";
}

uint64_t connection_id(uint64_t nonce_a, uint64_t nonce_b) {
  const uint64_t low = std::min(nonce_a, nonce_b);
  const uint64_t high = std::max(nonce_a, nonce_b);
  uint64_t x = low * 0x9e3779b97f4a7c15ull ^ (high + 0x7f4a7c159e3779b9ull);
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  return x ^ x >> 32;
}

bfo_rail_state_t rail_state(const Endpoint& endpoint) {
  switch (endpoint.phase) {
    case Phase::kUp:
      return BFO_RAIL_UP;
    case Phase::kSuspect:
      return BFO_RAIL_SUSPECT;
    case Phase::kIdle:
      return BFO_RAIL_IDLE;
    case Phase::kKnocking:
    case Phase::kMaking:
    case Phase::kRequesting:
    case Phase::kBinding:
    case Phase::kProbing:
    case Phase::kReplied:
    case Phase::kClosed:
      // A rail that was up before is "down" until it is up again: its sends are refused, so that they take
      // another rail. Of one that never was up nobody has been told that it is down: what is sent waits for
      // the next attempt, or comes back with the word that it is lost.
      return endpoint.ever_up ? BFO_RAIL_DOWN : BFO_RAIL_CONNECTING;
    case Phase::kDraining:
      return BFO_RAIL_DOWN;
    case Phase::kGone:
    case Phase::kUnusable:
      return BFO_RAIL_UNUSABLE;
  }
  return BFO_RAIL_UNUSABLE;
}

namespace {

const char* why_not_up(const Endpoint& endpoint) {
  if (endpoint.port->partition_lost()) return "its partition key is not in the port's table";
  if (endpoint.port->state() != PortState::kActive) return "its port is not active";
  if (endpoint.peer_late) return "the peer's port was not active when that process started";
  if (endpoint.life == Life::kSilent) return "no sign of life from the peer over it";
  return endpoint.failed_attempts != 0 ? "the peer answers, but the path to it does not work"
                                       : "the peer does not answer over it";
}

}  // namespace

uint32_t never_up(const Endpoint& endpoint, char* why, size_t size) {
  const bool over = endpoint.phase == Phase::kGone || endpoint.phase == Phase::kUnusable;
  if (endpoint.ever_up || over || endpoint.tried_since_ns == 0 || endpoint.life == Life::kAnswers) return 0;
  if (endpoint.lack.tries != 0) {
    resource_text(endpoint.lack, why, size);
  } else {
    snprintf(why, size, "%s", why_not_up(endpoint));
  }
  const uint64_t ms = (endpoint.port->env().now_ns() - endpoint.tried_since_ns) / 1'000'000;
  return static_cast<uint32_t>(std::clamp<uint64_t>(ms, 1, UINT32_MAX));
}

void rail_info(const Endpoint& endpoint, bfo_rail_info_t* info) {
  *info = bfo_rail_info_t{};
  info->name.conn = connection_id(endpoint.port->nonce(), endpoint.peer_nonce);
  info->name.epoch = endpoint.epoch;
  info->state = rail_state(endpoint);
  info->port = endpoint.port->number();
  info->answers = endpoint.life == Life::kAnswers;
  snprintf(info->device, sizeof info->device, "%s", endpoint.port->device().name());
  snprintf(info->peer_port, sizeof info->peer_port, "lid %u ud qpn 0x%x", endpoint.peer.lid,
           endpoint.peer.ud_qpn);
}

}  // namespace bfo::engine
