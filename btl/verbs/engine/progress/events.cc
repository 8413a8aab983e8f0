// SPDX-License-Identifier: BSD-3-Clause
//
// events.cc: what a port does about asynchronous events, in the progress function. The table is in async.h.
#include <cstring>

#include "btl/verbs/engine/rail/port.h"
#include "btl/verbs/engine/watchdog/suspect.h"

namespace bfo::engine {

void Port::take_events(Device& device, Port* const* ports, int count) {
  EventNote note;
  while (device.events().take(&note)) {
    for (int i = 0; i < count; ++i) ports[i]->on_event(note);
  }
  if (!device.events().take_overflow()) return;
  for (int i = 0; i < count; ++i) ports[i]->ask_device(IBV_EVENT_CLIENT_REREGISTER, ports[i]->env_.now_ns());
}

void Port::on_event(const EventNote& note) {
  if (finalizing_) return;
  const EventReaction reaction = event_row(note.type).reaction;
  if (note.port != 0 && note.port != number_) return;  // the other port of the same device
  switch (reaction) {
    case EventReaction::kIgnore:
      return;
    case EventReaction::kCloseRail:
    case EventReaction::kSuspectRail:
    case EventReaction::kLastReceive:
      if (Endpoint* const endpoint = qps_.find(note.qpn); endpoint != nullptr) on_qp_event(*endpoint, note);
      return;
    case EventReaction::kPortDown:
      if (state_ == PortState::kActive) state_ = PortState::kDown;
      outages_.note(false, note.when_ns);
      damping_.note(false, note.when_ns);
      if (reading_ == Reading::kUnderWay) reading_ = Reading::kOutdated;
      next_port_query_ns_ = note.when_ns + kPortQueryNs;
      return close_all(CloseOrder{true, BFO_CAUSE_ASYNC_EVENT, note.type, 0, note.when_ns}, false);
    case EventReaction::kPortUp:
    case EventReaction::kPortRefresh:
      return ask_device(note.type, note.when_ns);
    case EventReaction::kMoreReceives:
      return grow_receives();
    case EventReaction::kQueueDead:
    case EventReaction::kDeviceDead:
      return close_all(CloseOrder{true, BFO_CAUSE_ASYNC_EVENT, note.type, 0, note.when_ns}, true);
  }
}

void Port::on_qp_event(Endpoint& endpoint, const EventNote& note) {
  const EventReaction reaction = event_row(note.type).reaction;
  if (reaction == EventReaction::kSuspectRail) return suspect(endpoint, event_name(note.type), env_.now_ns());
  if (reaction == EventReaction::kLastReceive) {
    if (endpoint.qps().data.number() == note.qpn) endpoint.drain().last_receive_done = true;
    return need_service();
  }
  const Guard guard(lock_);
  close_order_locked(endpoint, endpoint.epoch, BFO_CAUSE_ASYNC_EVENT, note.type, 0, note.when_ns);
}

/// The port is active, but it may go again at once (damping.h), and nobody needs it.
bool Port::left_alone(uint64_t now) {
  if (damping_.free_ns(now) <= now) return false;
  for (Endpoint* endpoint = endpoints_; endpoint != nullptr; endpoint = endpoint->next) {
    if (!endpoint->connect_wanted || endpoint->peer.left) continue;
    if (!host_.other_rail_up(host_.ctx, *endpoint)) return false;
  }
  return true;
}

void Port::port_up() {
  const bool first_time = start_ == Start::kDown;
  if (first_time) start_ = Start::kJoined;
  addresses_.forgive();
  addresses_.renew();
  up_since_ns_ = env_.now_ns();
  for (Endpoint* endpoint = endpoints_; endpoint != nullptr; endpoint = endpoint->next) {
    const bool joins = first_time && !endpoint->connect_wanted && !endpoint->peer.left &&
                       host_.other_rail_up(host_.ctx, *endpoint) && make_resources(*endpoint);
    if (!endpoint->has_resources()) continue;
    endpoint->timer().failures = 0;
    endpoint->skip_backoff = true;
    endpoint->timer().attempts = 0;
    endpoint->need().next_look_ns = 0;
    // Its peers that have another rail to us wait to be spoken to.
    if (joins) {
      endpoint->connect_wanted = true;
      endpoint->first_connection().begin(up_since_ns_, run_time_.ran_ns());
    }
  }
  need_service();
}

void Port::close_all(const CloseOrder& order, bool for_good) {
  if (for_good) {
    state_ = PortState::kDead;
    outages_.note(false, order.evidence_ns);
  }
  const Guard guard(lock_);
  for (Endpoint* endpoint = endpoints_; endpoint != nullptr; endpoint = endpoint->next) {
    if (for_good) {
      if (endpoint->has_resources()) endpoint->last().device_dead = true;
      endpoint->connect_wanted = false;
    }
    close_order_locked(*endpoint, endpoint->epoch, order.cause, order.code, 0, order.evidence_ns);
  }
  need_service();
}

void Port::close_unaddressed(const GidTable& before, const CloseOrder& order) {
  const Guard guard(lock_);
  for (Endpoint* endpoint = endpoints_; endpoint != nullptr; endpoint = endpoint->next) {
    const uint8_t index = endpoint->qps().own_gid;
    if (index == kNoGid) continue;
    const GidEntry* const was = before.at(index);
    const GidEntry* const is = gids_.at(index);
    const bool stays = was != nullptr && is != nullptr && was->type == is->type &&
                       memcmp(was->gid.raw, is->gid.raw, sizeof is->gid.raw) == 0;
    if (!stays) close_order_locked(*endpoint, endpoint->epoch, order.cause, order.code, 0, order.evidence_ns);
  }
  need_service();
}

}  // namespace bfo::engine
