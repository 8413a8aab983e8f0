// SPDX-License-Identifier: BSD-3-Clause
//
// watchdog.cc: the watchdog of a port. Silence only makes a rail suspect, because a slow or computing peer
// is not a dead one (H15). After half of the time the path is tested by a zero-byte write on the probe queue
// pair, and the peer is asked over the other rails (verdict.h). Ticks are Config::tick_ns apart, but for the
// one that is due at once because the peer's last answer completes the proof.
//
// The length of the silence that counts depends on what is normal here. It is the largest of
// Config::suspect_ns, twice the longest silence of that rail that ended by itself, and three times the
// longest delay of this process' own ticks. The measured values fade. After a longer absence of this process
// the measurement begins anew.
//
// H1..H23: contrib/doc/hazards.md
#include <algorithm>
#include <cstdio>

#include "btl/verbs/engine/rail/port.h"
#include "btl/verbs/engine/send/send.h"
#include "btl/verbs/engine/watchdog/suspect.h"
#include "btl/verbs/engine/watchdog/verdict.h"

namespace bfo::engine {
namespace {

constexpr uint64_t kMostBound = 16;      // times Config::suspect_ns
constexpr uint64_t kSilenceFades = 512;  // a measured silence loses this part in a tick: half of it in 0.7 s
constexpr uint64_t kDelayFades = 128;

/// Nothing is under way, or something has completed since the last tick.
bool moved(const Endpoint& endpoint) {
  return endpoint.ring().head == endpoint.ring().tail || endpoint.ring().tail != endpoint.watch().seen_tail;
}

}  // namespace

uint64_t SeenCompletions::proven(uint64_t elapsed, bool emptied, uint32_t depth) {
  unproven_ns_ += elapsed;
  uint64_t proven = 0;
  if (emptied) {
    proven = unproven_ns_;
  } else if (marked_ns_ != 0) {
    if ((full_polls_ - marked_polls_) * kPollBatch < depth) return 0;
    proven = marked_ns_;
  }
  unproven_ns_ -= proven;
  marked_ns_ = unproven_ns_;
  marked_polls_ = full_polls_;
  return proven;
}

/// The part of the time since the last tick that counts as silence. A time slice that another process had
/// counts: the HCA continued meanwhile, and its completions were taken just now. A longer absence of this
/// process does not count as silence of the rail.
uint64_t Port::note_delay(uint64_t elapsed) {
  const uint64_t late = elapsed > config_.tick_ns ? elapsed - config_.tick_ns : 0;
  const bool here = elapsed <= std::max({config_.suspect_ns, 2 * config_.tick_ns, 3 * delay_ns_});
  delay_ns_ -= delay_ns_ / kDelayFades;
  // A longer absence is not scheduling: the application computes or sleeps.
  if (late <= kMostBound / 2 * config_.suspect_ns) delay_ns_ = std::max(delay_ns_, late);
  if (here) return elapsed;
  for (Endpoint* endpoint = endpoints_; endpoint != nullptr; endpoint = endpoint->next) {
    if (endpoint->epochs() != nullptr) endpoint->watch().silent_ns = 0;
  }
  return 0;
}

uint64_t Port::silence_bound(const Endpoint& endpoint) const {
  const uint64_t usual = std::max(2 * endpoint.watch().slowest_ns, 3 * delay_ns_);
  return std::clamp(usual, config_.suspect_ns, kMostBound * config_.suspect_ns);
}

void Port::tick(uint64_t now, bool emptied) {
  const uint64_t watched_ns = seen_.proven(note_delay(now - last_tick_ns_), emptied, cqs_.depth());
  last_tick_ns_ = now;
  next_tick_ns_ = now + config_.tick_ns;
  if (emptied) srq_.calm();
  srq_.flush();
  review_receives(now);
  if (host_.dropped != nullptr) tell_heartbeat_drops();
  if (failover_ && packet_loss_.due(now)) look_for_loss(now);
  const int thread_error = control_threads_.take_error();
  if (thread_error != 0 && host_.thread_missing != nullptr) host_.thread_missing(host_.ctx, thread_error);
  for (Endpoint* endpoint = endpoints_; endpoint != nullptr; endpoint = endpoint->next) {
    if (endpoint->usable && failover_ && config_.suspect_ns != 0) watch_progress(*endpoint, now, watched_ns);
  }
  if (background_) need_service();
  if (state_ == PortState::kDown && now >= next_look_ns_) {
    next_look_ns_ = now + kDownLookNs;
    for (Endpoint* endpoint = endpoints_; endpoint != nullptr; endpoint = endpoint->next) {
      if (endpoint->phase == Phase::kClosed && endpoint->connect_wanted) need_look(*endpoint, now);
    }
  }
  if (awaiting_peer_ && now >= next_await_ns_) {
    next_await_ns_ = now + kAwaitLookNs;
    need_service();
  }
  if (state_ == PortState::kDown && now >= next_port_query_ns_) {
    next_port_query_ns_ = now + kPortQueryNs;
    ask_device(IBV_EVENT_PORT_ACTIVE, now);
  }
}

Port::Silence Port::listen(Endpoint& endpoint, uint64_t now, uint64_t watched_ns) {
  Watch& watch = endpoint.watch();
  const Guard guard(lock_);
  if (moved(endpoint)) {
    watch.slowest_ns -= watch.slowest_ns / kSilenceFades;
    watch.slowest_ns = std::max(watch.slowest_ns, watch.silent_ns);
    // A rail that has recovered is not ended for an earlier fault. If its probe failed, the probe queue pair
    // cannot be used again in this epoch: from now on only the rail's work and its peer are asked.
    watch.moved(endpoint.ring().tail);
    verdict_clear(endpoint);
    if (endpoint.phase == Phase::kUp) return Silence::kNothing;
    endpoint.phase = Phase::kUp;
    return Silence::kOver;
  }
  if (watched_ns == 0) return Silence::kNothing;
  if (++watch.silent_ticks == 1) {
    // Unsignaled work reports nothing by itself. A signaled marker behind it does.
    ring_mark(endpoint);
    watched_ns = std::min(watched_ns, config_.tick_ns);
  }
  watch.silent_ns += watched_ns;
  if (endpoint.phase == Phase::kSuspect) return Silence::kGoesOn;
  const uint64_t bound = silence_bound(endpoint);
  if (watch.silent_ns < bound / 2) return Silence::kNothing;
  if (watch.suspected_ns == 0) watch.suspected_ns = now;
  if (watch.silent_ns < bound) return Silence::kAsk;
  endpoint.phase = Phase::kSuspect;
  return Silence::kSuspected;
}

void Port::watch_progress(Endpoint& endpoint, uint64_t now, uint64_t watched_ns) {
  Watch& watch = endpoint.watch();
  bfo_rail_event_t event;
  char why[40];
  switch (listen(endpoint, now, watched_ns)) {
    case Silence::kNothing:
      return;
    case Silence::kOver:
      event = make_event(endpoint, BFO_CAUSE_NONE, 0, 0, now);
      return host_.rail_up(host_.ctx, endpoint, event);
    case Silence::kAsk:
      // Ask before the rail is suspect, so that the answer has come by then.
      if (!watch.probe_done()) send_path_probe(endpoint);
      return verdict_step(endpoint, now);
    case Silence::kGoesOn:
      // The path works, but the work does not move (a receiver without buffers, a slow peer). Ask again from
      // time to time.
      if (watch.silent_ticks % 16 == 0) send_path_probe(endpoint);
      return verdict_step(endpoint, now);
    case Silence::kSuspected:
      snprintf(why, sizeof why, "no completion for %u ms",
               static_cast<unsigned>(watch.silent_ns / 1'000'000));
      report_suspect(endpoint, why, now);
  }
}

}  // namespace bfo::engine
