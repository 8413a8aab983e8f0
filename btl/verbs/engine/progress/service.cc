// SPDX-License-Identifier: BSD-3-Clause
//
// service.cc: what a port does when something other than a completion needs service: control threads are
// back, endpoints have a turn.
#include "btl/verbs/engine/connect/attempt.h"
#include "btl/verbs/engine/connect/cm.h"
#include "btl/verbs/engine/drain/drain.h"
#include "btl/verbs/engine/drain/hold.h"
#include "btl/verbs/engine/connect/leave.h"
#include "btl/verbs/engine/connect/ping.h"
#include "btl/verbs/engine/send/cm_send.h"
#include "btl/verbs/engine/base/memory.h"
#include "btl/verbs/engine/connect/connect_timeout.h"
#include "btl/verbs/engine/rail/port.h"
#include "btl/verbs/engine/connect/handshakes.h"

namespace bfo::engine {
namespace {

/// An error of a queue pair is read before the rest of what came: a BYE of a peer that has left since may be
/// in another completion queue, behind the messages of others. Of an error alone nobody could tell that it is
/// none.
bool bye_may_follow(Endpoint& endpoint, bool emptied) {
  constexpr uint8_t kMostRounds = 32;
  const bool error = endpoint.ending().cause == BFO_CAUSE_WC_ERROR;
  if (emptied || !error || endpoint.peer.left || endpoint.last().leaving) return false;
  return endpoint.drain().rounds_behind++ < kMostRounds;
}

/// The repair of the datagram queue pair of `port`.
struct Repair : DatagramQpRepair {
  Port* port = nullptr;
};

}  // namespace

void Port::finish_commands() {
  addresses_.lane().finish();
  lanes_.finish();
}

void Port::repair_datagrams(uint64_t now) {
  if (!cm_repair_.due(now) || state_ == PortState::kDead) return;
  auto* const repair = make<Repair>();
  if (repair == nullptr) return;
  repair->port = this;
  repair->qp = cm_qp_;
  repair->droppable = true;
  repair->run = [](Command& self) {
    auto& command = static_cast<DatagramQpRepair&>(self);
    command.revived = command.qp.revive();
  };
  repair->done = [](Command& self) {
    auto& command = static_cast<Repair&>(self);
    command.port->datagrams_repaired(command);
    unmake(&command);
  };
  cm_repair_.broken = false;
  cm_repair_.running = true;
  cm_qp_.suspend();
  lanes_.upkeep.submit(*repair, Urgency::kFirst);
}

void Port::datagrams_repaired(const DatagramQpRepair& repair) {
  constexpr uint64_t kRetryNs = 10'000'000;
  cm_repair_.running = false;
  if (repair.revived) {
    cm_qp_ = repair.qp;
    return;
  }
  cm_qp_.resume();
  cm_repair_.broken = true;
  cm_repair_.next_ns = env_.now_ns() + kRetryNs;
}

void Port::service(uint64_t now, bool emptied) {
  finish_commands();
  stock_.service();
  repair_datagrams(now);
  if (paths_.wanted() && paths_.service(now)) addresses_.path_answered(now);
  timers_ = cm_repair_.broken || paths_.asking();
  awaiting_peer_ = background_ = false;
  bool again = false;
  handshakes_count(*this, now);
  for (Endpoint* endpoint = endpoints_; endpoint != nullptr;) {
    Endpoint* next = endpoint->next;
    service_one(*endpoint, now, emptied, &again);
    endpoint = next;
  }
  // The queue pair of a rail that has just been lost may be stopped by now, and its fragments are waited for.
  lanes_.stops.finish();
  if (again) need_service();
}

void Port::service_unconnected(Endpoint& endpoint, uint64_t now) {
  if (!endpoint.has_resources()) {
    {
      const Guard guard(lock_);
      cm_connect(endpoint);  // there may be memory for it now
    }
    if (!endpoint.has_resources()) return give_up_for_memory(endpoint, now);
  }
  if (endpoint.first_connection().tried_since_ns == 0) endpoint.first_connection().tried_since_ns = now;
  if (cm_awaits_peer(endpoint, now)) {
    awaiting_peer_ = true;
    return;
  }
  cm_step(endpoint, now);
  // A port that is down has nothing to wait for but its event, and its peers shall not keep the others busy.
  if (state_ != PortState::kActive && endpoint.queued.empty()) return;
  // Nor shall rails that nobody needs.
  const bool waits = endpoint.phase == Phase::kIdle || endpoint.phase == Phase::kSoliciting ||
                     endpoint.phase == Phase::kRequesting || endpoint.phase == Phase::kClosed;
  (waits && need_of(endpoint) == Need::kNone ? background_ : timers_) = true;
}

void Port::service_one(Endpoint& endpoint, uint64_t now, bool emptied, bool* again) {
  if (cm_send_waiting(endpoint)) ping_waiting(endpoint, env_.now_ns());
  if (endpoint.last().leaving) {
    leave_step(endpoint, now);
    timers_ = timers_ || leave_pending(endpoint);
  }
  switch (endpoint.phase) {
    case Phase::kUp:
    case Phase::kSuspect:
      if (endpoint.ending().asked && bye_may_follow(endpoint, emptied)) {
        *again = true;
      } else if (endpoint.ending().asked) {
        drain_start(endpoint, now);
        *again = *again || endpoint.qps().command == nullptr;
        timers_ = timers_ || is_held(endpoint);
      }
      break;
    case Phase::kReplied:
      if (endpoint.ending().asked) {
        drain_start(endpoint, now);
        *again = *again || endpoint.qps().command == nullptr;
        timers_ = timers_ || is_held(endpoint);
        break;
      }
      cm_step(endpoint, now);
      timers_ = true;
      break;
    case Phase::kMaking:
    case Phase::kRequesting:
    case Phase::kBinding:
    case Phase::kProbing:
      if (endpoint.ending().asked) attempt_drop(endpoint, now);
      if (endpoint.peer.left) {
        *again = true;  // the attempt is dropped; the next turn reports the end
        timers_ = true;
      } else {
        service_unconnected(endpoint, now);
      }
      break;
    case Phase::kDraining:
      drain_step(endpoint, now, emptied);
      // The end of a command asks for service by itself. What is held waits for the peer, or for the device.
      if (is_held(endpoint) || endpoint.drain().asks_again()) {
        timers_ = true;
      } else {
        *again = *again || endpoint.qps().command == nullptr;
      }
      break;
    case Phase::kIdle:
    case Phase::kSoliciting:
    case Phase::kClosed:
      if (endpoint.peer.left) {
        cm_peer_left(endpoint, now);
      } else if (endpoint.connect_wanted || !endpoint.queued.empty()) {
        service_unconnected(endpoint, now);
      } else {
        ping_end(endpoint);
      }
      break;
    case Phase::kGone:
    case Phase::kUnusable:
      break;
  }
  report_lost_reply(endpoint);
  if (endpoint.notices().gap_asked) gap_step(endpoint);
  if (endpoint.notices().fence_asked != 0) fence_step(endpoint);
  if (const ClosedEpoch* const closed = endpoint.last_closed();
      endpoint.notices().repeat_closed && closed != nullptr) {
    endpoint.notices().repeat_closed = false;
    report_closed(endpoint, closed->event, closed->result, closed->delivered);
  }
}

uint64_t Port::queued_bytes(uint64_t now) {
  if (now == queued_at_ns_) return queued_bytes_;
  const Guard guard(lock_);
  uint64_t bytes = 0;
  for (const Endpoint* e = endpoints_; e != nullptr; e = e->next) {
    if (!is_up(e->phase)) continue;
    const SendRing& ring = e->ring();
    for (uint64_t seq = ring.tail; seq != ring.head; ++seq) bytes += ring.slots[seq & ring.mask].length;
  }
  queued_at_ns_ = now;
  queued_bytes_ = bytes;
  return bytes;
}

}  // namespace bfo::engine
