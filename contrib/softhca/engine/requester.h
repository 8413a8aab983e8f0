// SPDX-License-Identifier: BSD-3-Clause
//
// The requester: the send queue of a queue pair, from posting to completion. (Retransmission: retry.cc.)
#pragma once

#include <infiniband/verbs.h>

#include "contrib/softhca/engine/deferred_actions.h"

namespace bfo::softhca {

/// What a work request needs besides ibv_send_wr: a resolved address handle.
struct Destination {
  uint32_t qpn = 0;
  uint32_t qkey = 0;
  AddressVector av{};
};

/// ibv_post_send. `resolve` turns a UD request's address handle into a Destination. Returns 0 or an errno and
/// sets *bad. Owner, any thread.
using Resolve = bool (*)(const ibv_send_wr& request, Destination& destination);
int post_send(Fabric& fabric, QpEntry& qp, ibv_send_wr* list, ibv_send_wr** bad, Resolve resolve);

/// Moves the send queue on as far as time and answers allow. Holds sq_lock.
void progress_sends(Fabric& fabric, QpEntry& qp, DeferredActions& deferred);

/// Progress for every own queue pair in `qps` that waits for something; returns the earliest time at which
/// there will be more to do (kNever = none). No lock held.
uint64_t progress_pending(Fabric& fabric, const uint32_t* qps, uint32_t count);

// --- shared by requester.cc and retry.cc; all hold sq_lock ---

/// The answer to the request at `index` is a NAK or RNR NAK: retransmit later, or fail. True when the queue
/// pair goes on.
bool handle_nak(Fabric& fabric, QpEntry& qp, uint32_t index, DeferredActions& deferred);
/// Local ACK timer: starts, checks, retransmits or gives up. True when something changed.
bool check_timer(Fabric& fabric, QpEntry& qp, uint64_t now, DeferredActions& deferred);
/// Everything from `index` on will be transmitted again.
void rewind_sends(Fabric& fabric, QpEntry& qp, uint32_t index);
/// The request at `index` ends with `status`, the queue pair goes to its error state.
void fail_send(Fabric& fabric, QpEntry& qp, uint32_t index, ibv_wc_status status, DeferredActions& deferred);

/// Waiting time of entry `index` (0..31) of the RNR NAK timer table, in ns.
uint64_t rnr_wait_ns(uint8_t index);
/// Local ACK timeout for the 5-bit exponent, in ns; kNever for 0.
uint64_t ack_timeout_ns(uint8_t exponent);

}  // namespace bfo::softhca
