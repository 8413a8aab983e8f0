// SPDX-License-Identifier: BSD-3-Clause
//
// clock.cc: the progress clock of a port. Silence is only suspected; a zero-byte write on the probe queue
// pair, sent after half of the time, decides, and it never ends the last rail to a peer: a slow or computing
// peer is not a dead one (H15).
#include <algorithm>
#include <cstdio>

#include "btl/verbs/engine/drain.h"
#include "btl/verbs/engine/port.h"
#include "btl/verbs/engine/rdma.h"
#include "btl/verbs/engine/send.h"

namespace bfo::engine {
namespace {

constexpr uint64_t path_probe_id(uint32_t epoch) {
  return work_id(WorkKind::kProbe, uint64_t{epoch} << 1 | 1);
}

/// Nothing is under way, or something has completed since the last tick.
bool moved(const Endpoint& endpoint) {
  return endpoint.ring.head == endpoint.ring.tail || endpoint.ring.tail != endpoint.seen_tail;
}

}  // namespace

void Port::judge_probe(Endpoint& endpoint) {
  // A failed probe ends a rail only when the peer stays reachable: the last rail lives until its own work
  // fails.
  if (!host_.other_rail_up(host_.ctx, endpoint)) return;
  const Guard guard(lock_);
  if (moved(endpoint)) return;  // the next tick takes note
  close_order_locked(endpoint, endpoint.epoch, BFO_CAUSE_PROBE_FAILED, endpoint.probe_status, 0,
                     endpoint.suspected_ns);
}

/// How much longer nothing can have completed but what was taken from the queues. A queue that is never seen
/// empty, because other peers are busy, hides what came last; but what waited in it some time ago has been
/// taken when as many completions were as it holds.
uint64_t Port::watched(uint64_t elapsed, bool emptied) {
  unproven_ns_ += elapsed;
  uint64_t proven = 0;
  if (emptied) {
    proven = unproven_ns_;
  } else if (marked_ns_ != 0) {
    if ((full_polls_ - marked_polls_) * kPollBatch < cqs_.depth()) return 0;
    proven = marked_ns_;
  }
  unproven_ns_ -= proven;
  marked_ns_ = unproven_ns_;
  marked_polls_ = full_polls_;
  return proven;
}

void Port::tick(uint64_t now, bool emptied) {
  // When this process was away from MPI for long, the silence is its own. A time slice that another process
  // had counts: the HCA went on, and what it completed was taken from the queue just now.
  const uint64_t elapsed = now - last_tick_ns_;
  const bool here = elapsed <= std::max(config_.suspect_ns, 2 * config_.tick_ns);
  const uint64_t watched_ns = watched(here ? elapsed : 0, emptied);
  last_tick_ns_ = now;
  next_tick_ns_ = now + config_.tick_ns;
  for (Endpoint* endpoint = endpoints_; endpoint != nullptr; endpoint = endpoint->next) {
    if (endpoint->usable && failover_ && config_.suspect_ns != 0) progress_clock(*endpoint, now, watched_ns);
  }
  if (resting_ && now >= next_rest_ns_) {
    next_rest_ns_ = now + kRestLookNs;
    need_attention();
  }
  if (state_ == PortState::kDown && now >= next_port_query_ns_) {
    next_port_query_ns_ = now + kPortQueryNs;
    refresh();
    if (state_ == PortState::kActive) port_up();
  }
}

Port::Silence Port::listen(Endpoint& endpoint, uint64_t now, uint64_t watched_ns) {
  const Guard guard(lock_);
  if (moved(endpoint)) {
    endpoint.seen_tail = endpoint.ring.tail;
    endpoint.silent_ticks = 0;
    endpoint.silent_ns = 0;
    // A rail that recovered is not ended for what was wrong before. If its probe failed, it cannot be asked
    // again in this epoch: from now on its own work decides.
    endpoint.probe_done = endpoint.probe_failed = false;
    if (endpoint.phase == Phase::kUp) return Silence::kNothing;
    endpoint.phase = Phase::kUp;
    return Silence::kOver;
  }
  if (watched_ns == 0) return Silence::kNothing;
  if (++endpoint.silent_ticks == 1) {
    // Unsignaled work says nothing by itself: a marker behind it does.
    ring_mark(endpoint);
    watched_ns = std::min(watched_ns, config_.tick_ns);
  }
  endpoint.silent_ns += watched_ns;
  if (endpoint.phase == Phase::kSuspect) return Silence::kGoesOn;
  if (endpoint.silent_ns < config_.suspect_ns / 2) return Silence::kNothing;
  if (!endpoint.probing_path && !endpoint.probe_done) endpoint.suspected_ns = now;
  if (endpoint.silent_ns < config_.suspect_ns) return Silence::kAsk;
  endpoint.phase = Phase::kSuspect;
  return Silence::kSuspected;
}

void Port::progress_clock(Endpoint& endpoint, uint64_t now, uint64_t watched_ns) {
  bfo_rail_event_t event;
  switch (listen(endpoint, now, watched_ns)) {
    case Silence::kNothing:
      return;
    case Silence::kOver:
      event = make_event(endpoint, BFO_CAUSE_NONE, 0, 0, now);
      return host_.rail_up(host_.ctx, endpoint, event);
    case Silence::kAsk:
      // Asked before the rail is suspect, so that the answer is there by then.
      if (!endpoint.probe_done) send_path_probe(endpoint);
      return;
    case Silence::kGoesOn:
      return suspect_more(endpoint);
    case Silence::kSuspected:
      event = make_event(endpoint, BFO_CAUSE_NONE, 0, 0, now);
      snprintf(event.text, sizeof event.text, "no completion for %u ms",
               static_cast<unsigned>(config_.suspect_ns / 1'000'000));
      host_.rail_suspect(host_.ctx, endpoint, event);
      if (!endpoint.probe_done) send_path_probe(endpoint);
  }
}

void Port::suspect_more(Endpoint& endpoint) {
  if (endpoint.probe_failed) {
    need_attention();  // judged again: another rail may be up by now
    return;
  }
  // The path answered, the work still stands (a receiver without buffers, a slow peer): ask again now and
  // then.
  if (endpoint.silent_ticks % 16 == 0) send_path_probe(endpoint);
}

void Port::send_path_probe(Endpoint& endpoint) {
  if (endpoint.probing_path || endpoint.probe_failed) return;
  endpoint.probing_path = post_bare(endpoint, endpoint.probe.ib(), path_probe_id(endpoint.epoch)) == 0;
}

}  // namespace bfo::engine
