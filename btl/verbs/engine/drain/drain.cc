// SPDX-License-Identifier: BSD-3-Clause
//
// drain.cc: see drain.h.
//
// H1..H23: contrib/doc/hazards.md
#include "btl/verbs/engine/drain/drain.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "common/check.h"
#include "common/clock.h"
#include "btl/verbs/engine/rail/cause.h"
#include "btl/verbs/engine/drain/hold.h"
#include "btl/verbs/engine/send/qp_command.h"
#include "btl/verbs/engine/send/rdma.h"
#include "btl/verbs/engine/send/send.h"

namespace bfo::engine {
namespace {

/// Nothing but flushes was known when the rail went down. What was behind them on the queue has been seen
/// since, and the device has been asked.
void settle_cause(Endpoint& endpoint) {
  if (!endpoint.drain().cause_open) return;
  endpoint.drain().cause_open = false;
  bfo_rail_event_t& event = endpoint.down_event();
  if (only_flushed(event.cause, event.code)) flush_text(endpoint.finding(), event.text, sizeof event.text);
  const Host& host = endpoint.port->host();
  if (endpoint.announced && host.cause_known != nullptr) host.cause_known(host.ctx, endpoint, event);
}

/// Ends every posted fragment as unknown, in posting order, then the queued ones.
void hand_back(Endpoint& endpoint) {
  Port& port = *endpoint.port;
  const Host& host = port.host();
  settle_cause(endpoint);
  SendRing& ring = endpoint.ring();
  endpoint.drain().handed_back = true;
  for (;;) {
    SendSlot slot;
    const char* payload;
    {
      const Guard guard(port.lock());
      if (ring.tail == ring.head) break;
      slot = ring.slots[ring.tail & ring.mask];
      payload = ring.memory + static_cast<size_t>(ring.tail & ring.mask) * ring.slot_bytes;
      ring.slots[ring.tail & ring.mask].frag = nullptr;
      ++ring.tail;
      ++port.accounting().unknown[static_cast<size_t>(slot.kind)];
    }
    if (slot.frag != nullptr) {
      host.frag_done(host.ctx, endpoint, slot.frag, BFO_RC_UNKNOWN);
    } else if (slot.in_slot) {
      host.payload_failed(host.ctx, endpoint, slot.tag, payload, slot.length, BFO_RC_UNKNOWN);
    }
  }
  return_queued(endpoint);
}

void schedule_return(Endpoint& endpoint, uint64_t now) {
  constexpr uint64_t kSettled = 1'000'000'000;
  endpoint.timer().failures =
      now - endpoint.times().up_since_ns > kSettled ? 0 : endpoint.timer().failures + 1;
  need_begin(endpoint, now);
  handshake_pause(endpoint, endpoint.timer().failures, now);
  endpoint.connect_wanted = endpoint.port->failover() && !endpoint.peer.left && !endpoint.last().leaving &&
                            !endpoint.last().unusable();
  endpoint.skip_backoff = false;
}

/// A responder whose initiator left before the rail was up here: it never will be, and nothing else says so.
/// Why the epoch ends does not matter any more: it is no failure.
void report_left(Endpoint& endpoint, uint64_t now) {
  if (!endpoint.peer.left || endpoint.ever_up() || endpoint.announced || endpoint.lost_reported()) return;
  endpoint.down_event() = make_event(endpoint, BFO_CAUSE_SHUTDOWN, 0, 0, now);
  const Host& host = endpoint.port->host();
  endpoint.announced = true;
  host.rail_down(host.ctx, endpoint, endpoint.down_event());
}

/// Is it worth while to ask a device again that has refused to destroy a queue pair?
bool may_ask_again(const Endpoint& endpoint) {
  return !endpoint.last().device_dead && !endpoint.last().leaving && !endpoint.peer.left;
}

void finish(Endpoint& endpoint, uint64_t now) {
  Port& port = *endpoint.port;
  const Host& host = port.host();
  // Its queue pair may go on for ever, so no epoch may follow that could be fenced in its place (H12).
  if (endpoint.drain().fence == Drain::Fence::kRefused && !endpoint.last().device_dead)
    endpoint.last().not_destroyed = true;
  if (endpoint.last().unusable() && !endpoint.announced) {
    // A responder that never was up here: the initiator may be, and nothing else will tell it.
    endpoint.announced = true;
    host.rail_up(host.ctx, endpoint, make_event(endpoint, BFO_CAUSE_NONE, 0, 0, now));
    host.rail_down(host.ctx, endpoint, endpoint.down_event());
  }
  report_left(endpoint, now);
  if (!endpoint.drain().handed_back) hand_back(endpoint);
  ClosedEpoch& closed = endpoint.epochs()->last_closed;
  bfo_rail_event_t event = endpoint.down_event();
  {
    const Guard guard(port.lock());
    BFO_DCHECK(port.accounting_balances());
    BFO_DCHECK(endpoint.ring().head == endpoint.ring().tail && endpoint.queued.empty());
    endpoint.phase = endpoint.last().unusable() ? Phase::kUnusable
                     : endpoint.peer.left       ? Phase::kGone
                                                : Phase::kClosed;
    endpoint.times().phase_since_ns = now;
    event.now_ns = now;
    event.info.state = rail_state(endpoint);
    closed.name = event.info.name;
    closed.event = event;
    closed.result = endpoint.drain().fence == Drain::Fence::kFenced ? BFO_FENCED : BFO_UNFENCEABLE;
    closed.delivered = endpoint.delivered;
    closed.reported = endpoint.announced;
    closed.ring = endpoint.ring();
    closed.store = endpoint.epochs()->store;
    endpoint.ending() = CloseOrder{};  // carried out: what is sent from now on waits for the next epoch
  }
  schedule_return(endpoint, now);
  if (endpoint.announced) {
    if (!endpoint.ever_up()) endpoint.past = Past::kLost;
    report_closed(endpoint, event, closed.result, closed.delivered);
  }
  endpoint.announced = false;
}

}  // namespace

void drain_start(Endpoint& endpoint, uint64_t now) {
  Port& port = *endpoint.port;
  {
    const Guard guard(port.lock());
    BFO_DCHECK(port.accounting_balances());
    // Nothing that matters can be lost with it, whatever ends it.
    if (endpoint.last().leaving || endpoint.peer.left) {
      endpoint.ending().cause = BFO_CAUSE_SHUTDOWN;
      endpoint.ending().code = 0;
      endpoint.ending().vendor_err = 0;
    }
    if (endpoint.usable && !endpoint.ending().given_back()) port.note_rail_end();
    endpoint.phase = Phase::kDraining;
    endpoint.usable = false;
    endpoint.times().phase_since_ns = now;
  }
  ping_end(endpoint);
  const CloseOrder& order = endpoint.ending();
  endpoint.drain().begin(only_flushed(order.cause, order.code));
  endpoint.finding() = Finding{};
  // Both halves of what can carry data stop now; the rest of the queue comes back in microseconds instead of
  // one timeout after another.
  if (order.given_back()) {
    hold_begin(endpoint, now);
  } else {
    qp_stop(endpoint, drain_stopped);
  }
  endpoint.down_event() = make_event(endpoint, order.cause, order.code, order.vendor_err, now);
  endpoint.down_event().evidence_ns = order.evidence_ns;
  if (endpoint.announced) port.host().rail_down(port.host().ctx, endpoint, endpoint.down_event());
  report_left(endpoint, now);
}

void drain_stopped(Endpoint& endpoint) {
  Port& port = *endpoint.port;
  if (post_bare(endpoint, endpoint.qps().data.ib(), work_id(WorkKind::kMarker, endpoint.epoch)) == 0)
    endpoint.drain().marker_posted();
  endpoint.timer().due_ns = port.env().now_ns() + port.config().marker_bound_ns;
  port.need_service();
}

bool drain_destroyed(Endpoint& endpoint, bool fenced) {
  Port& port = *endpoint.port;
  Drain& drain = endpoint.drain();
  port.need_service();
  if (!fenced && may_ask_again(endpoint)) {
    const uint64_t now = port.env().now_ns();
    if (drain.refusals == 0) endpoint.times().phase_since_ns = now;  // it waits for the device from here on
    const uint64_t again_ns =
        destroy_again_ns(drain.refusals + 1u, time_since(endpoint.times().phase_since_ns, now));
    if (again_ns != 0) {
      ++drain.refusals;
      endpoint.timer().due_ns = now + again_ns;
      return false;
    }
  }
  drain.destroyed(fenced);
  return true;
}

void drain_step(Endpoint& endpoint, uint64_t now, bool queue_emptied) {
  if (endpoint.qps().command != nullptr) return;
  if (endpoint.drain().held) {
    if (hold_ends(endpoint, now)) qp_stop(endpoint, drain_stopped);
    return;
  }
  const bool asks_again = endpoint.drain().asks_again();
  if (!endpoint.drain().handed_back && endpoint.drain().marker == Drain::Marker::kBack) {
    hand_back(endpoint);
    if (!asks_again) endpoint.timer().due_ns = now + endpoint.port->config().last_receive_bound_ns;
  }
  if (asks_again) {
    const bool due = now >= endpoint.timer().due_ns || !may_ask_again(endpoint);
    if (due && queue_emptied) qp_fence(endpoint, drain_destroyed);
    return;
  }
  switch (drain_next(endpoint.drain().view(now >= endpoint.timer().due_ns, queue_emptied))) {
    case DrainStep::kWait:
      return;
    case DrainStep::kWaitOver:
      endpoint.drain().wait_over = true;
      return;
    case DrainStep::kDestroy:
      return qp_fence(endpoint, drain_destroyed);
    case DrainStep::kFinish:
      finish(endpoint, now);
      return;
  }
}

void return_queued(Endpoint& endpoint) {
  Port& port = *endpoint.port;
  const Host& host = port.host();
  for (;;) {
    Frag* frag;
    {
      const Guard guard(port.lock());
      if (endpoint.queued.empty()) return;
      frag = endpoint.queued.pop();
      ++endpoint.ended_before;
      ++port.accounting().never_sent[static_cast<size_t>(frag->kind)];
    }
    host.frag_done(host.ctx, endpoint, frag, BFO_RC_NEVER_SENT);
  }
}

void report_closed(Endpoint& endpoint, const bfo_rail_event_t& event, bfo_fence_result_t result,
                   uint64_t delivered) {
  const Host& host = endpoint.port->host();
  if (endpoint.has_resources()) {
    uint32_t& newest = endpoint.notices().closed_reported;
    newest = std::max(newest, event.info.name.epoch);
  }
  host.rail_closed(host.ctx, endpoint, event, result, delivered);
}

void report_lost_reply(Endpoint& endpoint) {
  ClosedEpoch* const closed = endpoint.last_closed();
  if (!endpoint.last().unusable() || closed == nullptr || closed->reported) return;
  const Host& host = endpoint.port->host();
  closed->reported = true;
  host.rail_down(host.ctx, endpoint, closed->event);
  report_closed(endpoint, closed->event, closed->result, closed->delivered);
}

void note_peer_closed(Endpoint& endpoint, const bfo_rail_name_t& name, uint64_t delivered) {
  Port& port = *endpoint.port;
  // What is closed there is over here too: RAILDOWN may not have been said.
  close_order_locked(endpoint, name.epoch, BFO_CAUSE_PEER_DOWN, 0, 0, port.env().now_ns());
  note_peer_over(endpoint, name.epoch);
  if (!endpoint.make_resources()) return endpoint.owe_end(name.epoch);
  if (endpoint.notices().gap_asked && endpoint.notices().gap_name.epoch > name.epoch)
    return;  // a delayed one
  endpoint.notices().gap_name = name;
  endpoint.notices().gap_delivered = delivered;
  endpoint.notices().gap_asked = true;
  port.need_service();
}

namespace {

/// The peer closed an epoch that this side gave up before it was up here: an attempt, nothing of which is
/// left. No later closing will tell the peer so, therefore it is told now, once: an answer asks for none.
bool abandoned(const Endpoint& endpoint, uint32_t epoch) {
  const bool between = endpoint.phase == Phase::kIdle || endpoint.phase == Phase::kSoliciting ||
                       endpoint.phase == Phase::kClosed;
  return endpoint.epoch > epoch || (endpoint.epoch == epoch && between);
}

void report_abandoned(Endpoint& endpoint, uint32_t epoch) {
  if (epoch <= endpoint.notices().closed_reported) return;
  bfo_rail_event_t event = make_event(endpoint, BFO_CAUSE_HANDSHAKE, 0, 0, endpoint.port->env().now_ns());
  event.info.name.epoch = epoch;
  report_closed(endpoint, event, BFO_FENCED, 0);
}

}  // namespace

void fence_step(Endpoint& endpoint) {
  const uint32_t epoch = endpoint.notices().fence_asked;
  ClosedEpoch* const closed = endpoint.last_closed();
  const bool drained = closed != nullptr && closed->name.epoch >= epoch;
  const bool last = endpoint.phase == Phase::kGone || endpoint.phase == Phase::kUnusable;
  const bool over =
      drained || last || abandoned(endpoint, epoch) || epoch <= endpoint.notices().closed_reported;
  if (!over) return;  // closing
  endpoint.notices().fence_asked = 0;
  if (epoch <= endpoint.notices().closed_reported) return;
  if (!drained) return report_abandoned(endpoint, epoch);
  closed->reported = true;
  report_closed(endpoint, closed->event, closed->result, closed->delivered);
}

void gap_step(Endpoint& endpoint) {
  Port& port = *endpoint.port;
  const Host& host = port.host();
  ClosedEpoch* const last = endpoint.last_closed();
  const Count count =
      count_of(endpoint.notices().gap_name.epoch, last != nullptr, last != nullptr ? last->name.epoch : 0);
  if (count == Count::kWait) {
    if (!abandoned(endpoint, endpoint.notices().gap_name.epoch)) return;
    endpoint.notices().gap_asked = false;
    report_abandoned(endpoint, endpoint.notices().gap_name.epoch);
    return;
  }
  endpoint.notices().gap_asked = false;
  ClosedEpoch& closed = *last;
  if (!closed.reported) {
    // The epoch was never up here, but it was there: the peer waits to hear that it is closed (H5).
    closed.reported = true;
    report_closed(endpoint, closed.event, closed.result, closed.delivered);
  }
  if (count == Count::kTooLate) return;
  const SendRing& ring = closed.ring;
  if (endpoint.notices().gap_delivered >= ring.sends_acked) return;
  uint64_t lost = ring.sends_acked - endpoint.notices().gap_delivered;
  const uint64_t depth = uint64_t{ring.mask} + 1;
  // Slots are overwritten in order: the youngest `depth` work requests are still described.
  for (uint64_t seq = ring.head > depth ? ring.head - depth : 0; seq < ring.head; ++seq) {
    const SendSlot& slot = ring.slots[seq & ring.mask];
    const bool in_gap = slot.send_no > endpoint.notices().gap_delivered && slot.send_no <= ring.sends_acked;
    if (!in_gap || !slot.in_slot) continue;
    const char* payload = ring.memory + static_cast<size_t>(seq & ring.mask) * ring.slot_bytes;
    host.payload_failed(host.ctx, endpoint, slot.tag, payload, slot.length, BFO_RC_UNKNOWN);
    --lost;
  }
  if (lost != 0) host.gap_lost(host.ctx, endpoint, closed.name, lost);
}

}  // namespace bfo::engine
