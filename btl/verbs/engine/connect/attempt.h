// SPDX-License-Identifier: BSD-3-Clause
//
// attempt.h: one attempt to make a connection, from its first queue pair until the rail is up or the attempt
// is dropped. cm.h decides when there is one.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/rail/endpoint.h"
#include "btl/verbs/engine/send/qp_command.h"

namespace bfo::engine {

// Progress function only, never under the port's lock.

void set_phase(Endpoint& endpoint, Phase phase, uint64_t now);
/// True when the memory and the completion queue that an attempt needs are there, or cannot be had:
/// attempt_make() finds out. False: a control thread is making them.
bool attempt_has_room(Endpoint& endpoint);
/// Sets the counters of a fresh epoch. Nothing can be posted yet.
void attempt_begin(Endpoint& endpoint, uint32_t epoch);
/// Begins to make the queue pairs; with `request` they are connected, too. `ready` follows.
void attempt_make(Endpoint& endpoint, const Packet* request, QpReady* ready, uint64_t now);
/// The attempt has ended and everything it had made is destroyed. Sets when the next one may begin.
void attempt_failed(Endpoint& endpoint, uint64_t now);
/// Drops an attempt that did not come up: nothing was posted on it by anybody above.
void attempt_drop(Endpoint& endpoint, uint64_t now);

}  // namespace bfo::engine
