// SPDX-License-Identifier: BSD-3-Clause
//
// endpoint.cc: how an endpoint is named and described to the outside.
//
// H1..H23: contrib/doc/hazards.md
#include "btl/verbs/engine/rail/endpoint.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/clock.h"
#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {

constexpr ConnectionResources without_memory() {
  ConnectionResources none;
  none.shortage.object = Object::kBuffers;
  none.shortage.error = ENOMEM;
  return none;
}
constinit const ConnectionResources kNoResources = without_memory();

bool Endpoint::make_resources() {
  if (has_resources()) return true;
  auto* const made = make<ConnectionResources>();
  if (made == nullptr) return false;
  // Numbers that an endpoint to the same peer, removed since, cannot have reached.
  made->packets.sent = port->env().now_ns();
  made->notices.fence_asked = std::exchange(peer.owed_epoch, 0);
  // The progress function follows the pointer without the lock.
  __atomic_store_n(&resources_, made, __ATOMIC_RELEASE);
  return true;
}

bool Endpoint::make_epochs() {
  if (epochs() == nullptr) resources_->epochs = make<Epochs>();
  return epochs() != nullptr;
}

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::kIdle:
      return "idle";
    case Phase::kSoliciting:
      return "soliciting";
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
    case Phase::kSoliciting:
    case Phase::kMaking:
    case Phase::kRequesting:
    case Phase::kBinding:
    case Phase::kProbing:
    case Phase::kReplied:
    case Phase::kClosed:
      // A rail that was up before is "down" until it is up again: its sends are refused, so that they take
      // another rail. Of one that never was up nobody has been told that it is down: what is sent waits for
      // the next attempt, or comes back with the word that it is lost.
      return endpoint.ever_up() ? BFO_RAIL_DOWN : BFO_RAIL_CONNECTING;
    case Phase::kDraining:
      return BFO_RAIL_DOWN;
    case Phase::kGone:
    case Phase::kUnusable:
      return BFO_RAIL_UNUSABLE;
  }
  return BFO_RAIL_UNUSABLE;
}

namespace {

uint64_t ms_since(const Endpoint& endpoint, uint64_t begin) {
  return std::max(time_since(begin, endpoint.port->env().now_ns()) / 1'000'000, uint64_t{1});
}

/// Evidence against a rail that has never been up, other than that something is missing: words, and for how
/// many milliseconds. A handshake that is late is none: a process that computes or sleeps answers none, and
/// takes its own turns when it is back (H15).
struct Evidence {
  const char* why;
  uint64_t ms;
};

Evidence evidence(const Endpoint& endpoint) {
  constexpr uint32_t kEpochs = 4;  // got as far as a REQ
  const Port& port = *endpoint.port;
  const uint64_t tried = ms_since(endpoint, endpoint.first_connection().tried_since_ns);
  if (port.partition_lost()) return {"its partition key is not in the port's table", tried};
  if (port.state() != PortState::kActive) return {"its port is not active", tried};
  if (endpoint.peer.initially_down)
    return {"the peer's port was not active when that process started", tried};
  if (endpoint.pings().state == Pinged::kSilent) return {"no sign of life from the peer over it", tried};
  const char* const no_path = "the peer answers, but the path to it does not work";
  if (endpoint.path_failures().failures > 1)
    return {no_path, ms_since(endpoint, endpoint.path_failures().failed_since_ns)};
  if (endpoint.epoch >= kEpochs) return {no_path, tried};
  // A PING is answered whatever the process does. The last one may be on its way.
  const uint64_t unanswered = endpoint.pings().unanswered < 2 ? 0 : endpoint.pings().unanswered - 1;
  return {"the peer does not answer over it", unanswered * ping_pause_ns(port) / 1'000'000};
}

}  // namespace

uint32_t never_up(const Endpoint& endpoint, char* why, size_t size) {
  const bool over = endpoint.phase == Phase::kGone || endpoint.phase == Phase::kUnusable;
  if (endpoint.ever_up() || over || endpoint.first_connection().tried_since_ns == 0 ||
      endpoint.pings().state == Pinged::kAnswers)
    return 0;
  uint64_t ms = 0;
  if (endpoint.shortage().tries != 0) {
    resource_text(endpoint.shortage(), why, size);
    ms = ms_since(endpoint, endpoint.first_connection().tried_since_ns);
  } else {
    const Evidence against = evidence(endpoint);
    snprintf(why, size, "%s", against.why);
    ms = against.ms;
  }
  return static_cast<uint32_t>(std::min<uint64_t>(ms, UINT32_MAX));
}

uint8_t path_number(const Endpoint& endpoint, uint32_t epoch) {
  const uint8_t paths = path_count(endpoint.port->address(), endpoint.peer.address);
  if (paths == 1) return 0;
  return static_cast<uint8_t>((connection_id(endpoint.port->nonce(), endpoint.peer.nonce) + epoch) % paths);
}

void name_port(const PortAddress& address, char* text, size_t size) {
  static_assert(INET6_ADDRSTRLEN <= sizeof bfo_rail_info_t::own_port);
  constexpr ibv_gid kNone{};
  if (memcmp(&address.gid, &kNone, sizeof kNone) == 0 ||
      inet_ntop(AF_INET6, address.gid.raw, text, static_cast<socklen_t>(size)) == nullptr)
    snprintf(text, size, "lid %u", address.lid);
}

void rail_info(const Endpoint& endpoint, bfo_rail_info_t* info) {
  *info = bfo_rail_info_t{};
  info->name.conn = connection_id(endpoint.port->nonce(), endpoint.peer.nonce);
  info->name.epoch = endpoint.epoch;
  info->state = rail_state(endpoint);
  info->port = endpoint.port->number();
  info->answers = endpoint.pings().state == Pinged::kAnswers;
  snprintf(info->device, sizeof info->device, "%s", endpoint.port->device().name());
  snprintf(info->peer_port, sizeof info->peer_port, "lid %u ud qpn 0x%x",
           over_path(endpoint.peer.address, path_number(endpoint, endpoint.epoch)).lid,
           endpoint.peer.address.cm_qpn);
  name_port(endpoint.port->address(), info->own_port, sizeof info->own_port);
}

}  // namespace bfo::engine
