// SPDX-License-Identifier: BSD-3-Clause
//
// need.cc: see need.h.
#include "btl/verbs/engine/rail/need.h"

#include <algorithm>

#include "common/clock.h"
#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {
namespace {

/// A number that changes when a message to or from the peer moves over another rail.
uint64_t moved_elsewhere(const Endpoint& endpoint) {
  const Host& host = endpoint.port->host();
  Endpoint* rails[kMostRails];
  const int count = host.rails(host.ctx, endpoint.peer.name, rails, kMostRails);
  uint64_t moved = 0;
  for (int i = 0; i < count; ++i) {
    const Endpoint& rail = *rails[i];
    if (rail.port == nullptr || rail.port == endpoint.port) continue;
    const Guard guard(rail.port->lock());
    moved += rail.ended_before + rail.ring().head + rail.queued.size() + rail.delivered;
  }
  return moved;
}

/// Messages have no other way when no other rail is up: then those that wait may be kept above.
Need need_seen(Endpoint& endpoint, uint64_t now) {
  const Host& host = endpoint.port->host();
  if (!host.other_rail_up(host.ctx, endpoint)) return Need::kWaits;
  if (host.rails == nullptr) return Need::kTalks;  // nobody can tell
  const uint64_t moved = moved_elsewhere(endpoint);
  if (moved != endpoint.need().moved_elsewhere) endpoint.need().talked_ns = now;
  endpoint.need().moved_elsewhere = moved;
  const bool talks = endpoint.need().talked_ns != 0 && time_since(endpoint.need().talked_ns, now) < kTalkNs;
  return talks ? Need::kTalks : Need::kNone;
}

/// The peer has answered the handshake that it needed, and the rail is about to come up: its word counts
/// until then, however long this process was away meanwhile.
bool answered(const Endpoint& endpoint) {
  return endpoint.phase == Phase::kBinding || endpoint.phase == Phase::kProbing;
}

}  // namespace

void need_look(Endpoint& endpoint, uint64_t now) {
  if (now < endpoint.need().next_look_ns) return;
  const bool active = endpoint.port->state() == PortState::kActive;
  endpoint.need().next_look_ns = now + (active ? kLookNs : kDownLookNs);
  endpoint.need().seen = need_seen(endpoint, now);
  if (now >= endpoint.need().peer_until_ns && !answered(endpoint)) endpoint.need().peer = Need::kNone;
}

void need_begin(Endpoint& endpoint, uint64_t now) {
  const Host& host = endpoint.port->host();
  if (host.rails != nullptr) endpoint.need().moved_elsewhere = moved_elsewhere(endpoint);
  endpoint.need().talked_ns = 0;
  endpoint.need().peer = Need::kNone;
  endpoint.need().next_look_ns = 0;
  need_look(endpoint, now);
}

void need_heard(Endpoint& endpoint, uint8_t said, uint64_t now) {
  endpoint.need().peer = static_cast<Need>(std::min(said, static_cast<uint8_t>(Need::kWaits)));
  endpoint.need().peer_until_ns = now + kTalkNs;
  need_look(endpoint, now);
}

Need own_need(const Endpoint& endpoint) {
  return endpoint.asked || !endpoint.queued.empty() ? Need::kWaits : endpoint.need().seen;
}

Need need_of(const Endpoint& endpoint) {
  return std::max(own_need(endpoint), endpoint.need().peer);
}

void handshake_pause(Endpoint& endpoint, uint32_t attempts, uint64_t now) {
  const Config& config = endpoint.port->config();
  const uint64_t most = config.retry_max_ns * (need_of(endpoint) == Need::kNone ? kIdlePauses : 1);
  const uint64_t base = std::min(most, config.retry_min_ns << std::min(attempts, 16u));
  endpoint.need().slow = base > config.retry_max_ns;
  endpoint.timer().due_ns = now + base / 2 + endpoint.port->env().random() % (base + 1);
}

}  // namespace bfo::engine
