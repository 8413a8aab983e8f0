// SPDX-License-Identifier: BSD-3-Clause
//
// evidence.cc: see evidence.h.
#include "btl/verbs/engine/rail/evidence.h"

#include <cstdio>

#include "btl/verbs/engine/rail/port.h"

namespace bfo::engine {
namespace {

/// Evidence about the epoch that ends already: it counts when it says why, and all before was a flush, or the
/// peer's word that its half has ended, of which this is why. An event may also be older than what was seen
/// first.
bool name_cause(Endpoint& endpoint, const CloseOrder& better, uint32_t epoch) {
  CloseOrder& first = endpoint.ending();
  if (!first.asked || endpoint.epoch > epoch) return false;
  const bool is_event = better.cause == BFO_CAUSE_ASYNC_EVENT;
  const bool consequence =
      only_flushed(first.cause, first.code) ||
      (is_event && (first.cause == BFO_CAUSE_PEER_DOWN || better.evidence_ns < first.evidence_ns));
  if (!consequence) return false;
  if (!names_cause(better.cause, better.code)) return false;
  first.cause = better.cause;
  first.code = better.code;
  first.vendor_err = better.vendor_err;
  if (endpoint.phase != Phase::kDraining) return true;
  bfo_rail_event_t& event = endpoint.down_event();
  event.cause = better.cause;
  event.code = better.code;
  event.vendor_err = better.vendor_err;
  snprintf(event.text, sizeof event.text, "%s", cause_text(better.cause, better.code));
  return true;
}

}  // namespace

bfo_rail_event_t make_event(const Endpoint& endpoint, bfo_rail_cause_t cause, int32_t code,
                            uint32_t vendor_err, uint64_t now) {
  bfo_rail_event_t event{};
  rail_info(endpoint, &event.info);
  event.cause = cause;
  event.code = code;
  event.vendor_err = vendor_err;
  event.evidence_ns = now;
  event.now_ns = now;
  if (cause == BFO_CAUSE_RESOURCE) {
    resource_text(endpoint.shortage(), event.text, sizeof event.text);
  } else {
    snprintf(event.text, sizeof event.text, "%s", cause_text(cause, code));
  }
  return event;
}

bool close_order_locked(Endpoint& endpoint, uint32_t epoch, bfo_rail_cause_t cause, int32_t code,
                        uint32_t vendor_err, uint64_t evidence_ns) {
  const CloseOrder order{true, cause, code, vendor_err, evidence_ns};
  const bool breaks =
      cause == BFO_CAUSE_WC_ERROR || cause == BFO_CAUSE_ASYNC_EVENT || cause == BFO_CAUSE_POST_FAILED;
  if (breaks && endpoint.phase == Phase::kDraining && endpoint.epoch <= epoch) {
    endpoint.drain().no_hold = true;
    endpoint.port->need_service();
  }
  if (!ends_epoch(endpoint.phase, endpoint.ending().asked, endpoint.epoch, epoch))
    return name_cause(endpoint, order, epoch);
  endpoint.ending() = order;
  endpoint.port->need_service();
  return true;
}

void note_peer_over(Endpoint& endpoint, uint32_t epoch) {
  if (!endpoint.has_resources() || !endpoint.ending().asked || endpoint.epoch > epoch) return;
  endpoint.drain().no_hold = true;
  endpoint.port->need_service();
}

bool close_order(Endpoint& endpoint, uint32_t epoch, bfo_rail_cause_t cause, int32_t code,
                 uint32_t vendor_err) {
  const Guard guard(endpoint.port->lock());
  return close_order_locked(endpoint, epoch, cause, code, vendor_err, endpoint.port->env().now_ns());
}

}  // namespace bfo::engine
