// SPDX-License-Identifier: BSD-3-Clause
//
// cause.h: why an epoch ended, in words. A flushed work request is a consequence: the queue pair was in ERR
// already, and what put it there may be reported later, or elsewhere, or not at all. So evidence that is only
// a flush starts the drain, whatever names the cause until the epoch is over takes its place, and the queue
// pair and its port are asked once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "btl/verbs/engine/device/verbs_api.h"
#include "common/failover_btl.h"

namespace bfo::engine {

/// What the queue pair and its port said when they were asked why work was flushed.
struct Finding {
  bool asked = false;
  int qp_error = 0;  ///< errno of the question
  int port_error = 0;
  ibv_qp_state qp = IBV_QPS_UNKNOWN;
  ibv_port_state port = IBV_PORT_NOP;
};

/// Code of BFO_CAUSE_PROBE_FAILED at the side that granted the end request of the peer (verdict.h).
inline constexpr int32_t kCodeAskedByPeer = -1;

/// The evidence is a consequence of something else.
constexpr bool only_flushed(bfo_rail_cause_t cause, int32_t code) {
  return cause == BFO_CAUSE_WC_ERROR && code == IBV_WC_WR_FLUSH_ERR;
}

/// The evidence says more than a flush does. What the peer says of the same epoch does not: it may be our own
/// word that came back.
constexpr bool names_cause(bfo_rail_cause_t cause, int32_t code) {
  return cause == BFO_CAUSE_ASYNC_EVENT || (cause == BFO_CAUSE_WC_ERROR && code != IBV_WC_WR_FLUSH_ERR);
}

/// Asks. Two control verbs: never in progress.
Finding find_cause(const VerbsApi& api, ibv_qp* qp, ibv_context* context, uint8_t port);

/// "RETRY_EXC_ERR", "IBV_EVENT_PORT_ERR"; not for BFO_CAUSE_RESOURCE. Static string.
const char* cause_text(bfo_rail_cause_t cause, int32_t code);
/// What can be said when nothing but flushes was seen.
void flush_text(const Finding& finding, char* text, size_t size);

}  // namespace bfo::engine
