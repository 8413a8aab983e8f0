// SPDX-License-Identifier: BSD-3-Clause
//
// connect_timeout.h: how long a first connection is waited for, and when a rail that has never been up is
// given up.
#pragma once

#include "btl/verbs/engine/rail/first_connection.h"

namespace bfo::engine {

/// A turn of an endpoint that is not up: gives its rail up when what waits has waited for long enough, or
/// cannot get what it needs. True when it was given up. Progress function only.
bool first_connection_ends(Endpoint& endpoint, uint64_t now);
/// There is no memory for what a connection needs: says so, and what waits comes back. A later message tries
/// again.
void give_up_for_memory(Endpoint& endpoint, uint64_t now);

}  // namespace bfo::engine
