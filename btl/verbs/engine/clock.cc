// SPDX-License-Identifier: BSD-3-Clause
//
// clock.cc: the progress clock of a port. Silence is only suspected; a zero-byte write on the probe queue
// pair decides, and it never ends the last rail to a peer: a slow or computing peer is not a dead one (H15).
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

}  // namespace

void Port::judge_probe(Endpoint& endpoint) {
  // A failed probe ends a rail only when the peer stays reachable: the last rail lives until its own work
  // fails.
  if (!host_.other_rail_up(host_.ctx, endpoint)) return;
  const Guard guard(lock_);
  close_order_locked(endpoint, endpoint.epoch, BFO_CAUSE_PROBE_FAILED, endpoint.probe_status, 0,
                     endpoint.suspected_ns);
}

void Port::tick(uint64_t now) {
  // When this process was away from MPI the silence is its own: only ticks that follow each other count.
  const bool continuous = now - next_tick_ns_ < config_.tick_ns;
  next_tick_ns_ = now + config_.tick_ns;
  for (Endpoint* endpoint = endpoints_; endpoint != nullptr; endpoint = endpoint->next) {
    if (endpoint->usable && failover_ && config_.suspect_ns != 0) progress_clock(*endpoint, now, continuous);
  }
  if (state_ == PortState::kDown && now >= next_port_query_ns_) {
    next_port_query_ns_ = now + kPortQueryNs;
    refresh();
    if (state_ == PortState::kActive) port_up();
  }
}

void Port::progress_clock(Endpoint& endpoint, uint64_t now, bool continuous) {
  uint64_t tail;
  {
    const Guard guard(lock_);
    tail = endpoint.ring.tail;
    const bool idle = endpoint.ring.head == tail;
    if (idle || tail != endpoint.seen_tail) {
      endpoint.seen_tail = tail;
      endpoint.silent_ticks = 0;
      endpoint.probe_done = false;
      if (endpoint.phase == Phase::kUp) return;
      endpoint.phase = Phase::kUp;
    } else {
      if (continuous) ++endpoint.silent_ticks;
      // Unsignaled work says nothing by itself: a marker behind it does.
      if (endpoint.silent_ticks == 1) ring_mark(endpoint);
      const uint64_t silent_ns = endpoint.silent_ticks * config_.tick_ns;
      if (silent_ns < config_.suspect_ns) return;
      if (endpoint.phase == Phase::kSuspect) return suspect_more(endpoint);
      endpoint.phase = Phase::kSuspect;
      endpoint.suspected_ns = now;
    }
  }
  bfo_rail_event_t event = make_event(endpoint, BFO_CAUSE_NONE, 0, 0, now);
  if (endpoint.phase == Phase::kUp) {
    host_.rail_up(host_.ctx, endpoint, event);
    return;
  }
  snprintf(event.text, sizeof event.text, "no completion for %u ms",
           static_cast<unsigned>(config_.suspect_ns / 1'000'000));
  host_.rail_suspect(host_.ctx, endpoint, event);
  send_path_probe(endpoint);
}

void Port::suspect_more(Endpoint& endpoint) {
  if (endpoint.probe_failed) {
    need_attention();  // judged again: another rail may be up by now
    return;
  }
  // The path answered, the work still stands (a receiver without buffers, a slow peer): ask again now and
  // then.
  if (!endpoint.probing_path && endpoint.silent_ticks % 16 == 0) send_path_probe(endpoint);
}

void Port::send_path_probe(Endpoint& endpoint) {
  if (endpoint.probing_path || endpoint.probe_failed) return;
  endpoint.probing_path = post_bare(endpoint, endpoint.probe.ib(), path_probe_id(endpoint.epoch)) == 0;
}

}  // namespace bfo::engine
