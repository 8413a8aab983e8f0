// SPDX-License-Identifier: BSD-3-Clause
//
// drain.h: the end of an epoch. Every fragment ends once, every successful receive is handed up, then the
// queue pairs are destroyed: that, and only that, proves that no access of the epoch can happen any more.
//
//     evidence -> queue pairs to ERR, marker behind all work, rail_down
//              -> marker back (or time bound): fragments back in posting order, then the queued ones
//              -> last receive reached (or time bound), completion queue seen empty
//              -> destroy_qp -> rail_closed(FENCED | UNFENCEABLE) -> reconnection by cm.h
// A rail that is given back works: its queue pairs go to ERR later (hold.h).
//
// If the marker does not come back in time the fragments are given back after destroy_qp instead: before that
// the device may still read them.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>

#include "btl/verbs/engine/rail/port.h"
#include "btl/verbs/engine/rail/evidence.h"

namespace bfo::engine {

// Progress function only.

/// Starts the drain of an endpoint that is up or has replied.
void drain_start(Endpoint& endpoint, uint64_t now);
/// One step of it. `queue_emptied`: the completion queue was seen empty in this round of progress. While a
/// command for a queue pair is under way at the control thread there is no step: its end comes back through
/// drain_stopped() or drain_destroyed(), and asks for the next one.
void drain_step(Endpoint& endpoint, uint64_t now, bool queue_emptied);

/// Ends everything queued as never sent.
void return_queued(Endpoint& endpoint);
/// The queue pairs are in ERR, or the device refuses that.
void drain_stopped(Endpoint& endpoint);
/// The device has answered to destroy_qp. `fenced`: the queue pairs are gone. False: it has refused, and is
/// asked again by a later drain_step().
bool drain_destroyed(Endpoint& endpoint, bool fenced);
/// Tells the host that an epoch is closed.
void report_closed(Endpoint& endpoint, const bfo_rail_event_t& event, bfo_fence_result_t result,
                   uint64_t delivered);
/// The device is dead and nothing can be answered over it any more: an epoch that was never up here, but
/// perhaps at the peer, is reported down and closed without being asked for.
void report_lost_reply(Endpoint& endpoint);
/// The peer closed epoch `name` after it was handed `delivered` SENDs. Under the lock; the next poll acts.
void note_peer_closed(Endpoint& endpoint, const bfo_rail_name_t& name, uint64_t delivered);
/// Compares the peer's count of messages with this side's (H4) once both belong to the same closed epoch.
void gap_step(Endpoint& endpoint);
/// Reports the end of the epoch that fence() named, when it has come. An attempt that was dropped has no
/// drain that would report it. An attempt that began later does not matter.
void fence_step(Endpoint& endpoint);

}  // namespace bfo::engine
