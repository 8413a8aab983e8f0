// SPDX-License-Identifier: BSD-3-Clause
//
// attempt.cc: see attempt.h.
#include "btl/verbs/engine/connect/attempt.h"

#include <cerrno>

#include "common/check.h"
#include "btl/verbs/engine/send/cm_send.h"
#include "btl/verbs/engine/rail/port.h"
#include "btl/verbs/engine/send/send.h"
#include "btl/verbs/engine/watchdog/verdict.h"
#include "btl/verbs/engine/connect/resource.h"

namespace bfo::engine {
namespace {

/// Every work request may come back as an error completion, the drain's markers too.
uint32_t completions_of(const Port& port) {
  return port.settings().send_depth + kProbeDepth;
}

/// What messages and the queue pairs need. Object::kNone, or what cannot be made now, with errno.
Object make_room(Endpoint& endpoint) {
  Port& port = *endpoint.port;
  const Host& host = port.host();
  errno = 0;
  if (!ring_reserve(endpoint)) return Object::kMemory;
  if (host.prepare != nullptr && !host.prepare(host.ctx)) return Object::kMemory;
  endpoint.qps().reserved = completions_of(port);
  endpoint.qps().send_cq = port.cqs().reserve(endpoint.qps().reserved);
  return endpoint.qps().send_cq != nullptr ? Object::kNone : Object::kCompletionQueue;
}

}  // namespace

void set_phase(Endpoint& endpoint, Phase phase, uint64_t now) {
  endpoint.port->note_step();
  const Guard guard(endpoint.port->lock());
  endpoint.phase = phase;
  endpoint.usable = phase == Phase::kUp || phase == Phase::kSuspect;
  endpoint.times().phase_since_ns = now;
  endpoint.times().phase_ran_ms = static_cast<uint32_t>(endpoint.port->run_time().ran_ns() / 1'000'000);
}

bool attempt_has_room(Endpoint& endpoint) {
  Port& port = *endpoint.port;
  const Host& host = port.host();
  StockNeed need = host.prepare_needs == nullptr ? StockNeed{} : host.prepare_needs(host.ctx);
  need.wish += ring_needs(endpoint);
  need.least += ring_needs(endpoint);
  const bool queue = port.cqs().ready(completions_of(port));
  return port.stock().ready(need) && queue;
}

void attempt_begin(Endpoint& endpoint, uint32_t epoch) {
  const Guard guard(endpoint.port->lock());
  endpoint.epoch = epoch;
  endpoint.announced = false;
  endpoint.delivered = 0;
  endpoint.ending() = CloseOrder{};
  endpoint.drain() = Drain{};
  // An epoch that ends before it is up must not be taken for the last one: its count would look like a gap.
  ring_forget(endpoint);
  if (endpoint.epochs() != nullptr) endpoint.watch().begin_epoch();
  endpoint.timer().attempts = 0;
  verdict_clear(endpoint);
}

void attempt_failed(Endpoint& endpoint, uint64_t now) {
  set_phase(endpoint, Phase::kClosed, now);
  ++endpoint.timer().failures;
  handshake_pause(endpoint, endpoint.timer().failures, now);
}

void attempt_make(Endpoint& endpoint, const Packet* request, QpReady* ready, uint64_t now) {
  const uint64_t bits = endpoint.port->env().random();
  endpoint.qps().data_psn = bits & 0xffffff;
  endpoint.qps().probe_psn = bits >> 24 & 0xffffff;
  const Object missing = make_room(endpoint);
  if (missing != Object::kNone) {
    resource_failed(endpoint, missing, errno);
    return attempt_failed(endpoint, now);
  }
  cm_prepare_send(endpoint);  // made at the same time
  set_phase(endpoint, Phase::kMaking, now);
  qp_make(endpoint, request, ready);
}

void attempt_drop(Endpoint& endpoint, uint64_t now) {
  BFO_DCHECK(!endpoint.announced && endpoint.phase != Phase::kReplied);
  qp_destroy(endpoint);
  {
    const Guard guard(endpoint.port->lock());
    endpoint.ending() = CloseOrder{};  // carried out: what is sent from now on waits for the next attempt
  }
  attempt_failed(endpoint, now);
}

}  // namespace bfo::engine
