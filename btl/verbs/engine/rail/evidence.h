// SPDX-License-Identifier: BSD-3-Clause
//
// evidence.h: what shows that an epoch is dead is recorded; the next poll acts on it (drain.h).
#pragma once

#include <cstdint>

#include "common/failover_btl.h"

namespace bfo::engine {

struct Endpoint;

/// Records that the current epoch of `endpoint` must end, if it is <= `epoch` and nobody said so before. The
/// next poll acts. Evidence that names a cause also replaces earlier evidence that was only a flush
/// (cause.h). Takes the lock. True when it was news.
bool close_order(Endpoint& endpoint, uint32_t epoch, bfo_rail_cause_t cause, int32_t code,
                 uint32_t vendor_err);
/// The same with the lock held.
bool close_order_locked(Endpoint& endpoint, uint32_t epoch, bfo_rail_cause_t cause, int32_t code,
                        uint32_t vendor_err, uint64_t evidence_ns);

/// The peer's half of `epoch` is closed: nothing that is posted here can end in peace. Under the lock.
void note_peer_over(Endpoint& endpoint, uint32_t epoch);

/// An event about the current epoch of `endpoint`.
bfo_rail_event_t make_event(const Endpoint& endpoint, bfo_rail_cause_t cause, int32_t code,
                            uint32_t vendor_err, uint64_t now);

}  // namespace bfo::engine
