// SPDX-License-Identifier: BSD-3-Clause
//
// contract.h: what common/failover_btl.h asks of one rail, and what a port asks of the other ports of its
// process (Host in port.h). The component and the simulator of the whole stack call the same functions.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/rail/port.h"
#include "btl/verbs/engine/send/send.h"

namespace bfo::engine {

// ---- one rail, see bfo_failover_btl_t. All of these take the lock.

/// Sets the user pointer of `rail` and reads its state (`now` may be nullptr). A change of state is made
/// under the lock and reported after that. So every change that `now` does not show is reported with `user`.
void rail_attach(Endpoint& rail, void* user, bfo_rail_info_t* now);
/// Starts or hurries the connection.
void rail_connect(Endpoint& rail);
/// Closes all epochs <= `epoch`; one that is closed is reported again.
void rail_fence(Endpoint& rail, uint32_t epoch);
/// The peer said over another rail that its half is down, or closed with `delivered` messages handed up.
void rail_peer_down(Endpoint& rail, const bfo_rail_name_t& name, int32_t cause);
void rail_peer_closed(Endpoint& rail, const bfo_rail_name_t& name, uint64_t delivered);
/// This process leaves in order (leave.h). True while the peer has not answered.
bool rail_leave(Endpoint& rail);
/// What the rail took and how much of it has ended.
Work rail_work(Endpoint& rail);
/// Work of all rails of `port` that has not ended. Marks unsignaled work.
uint64_t port_outstanding(Port& port);

// ---- the ports of one process

/// The rails to the process `peer_name`, at most `room` of them, into `out`; their number.
int rails_to(Port* const* ports, int count, uint64_t peer_name, Endpoint** out, int room);
/// True when another rail to the peer of `rail` is up.
bool other_rail_up(Port* const* ports, int count, const Endpoint& rail);
/// Connects the idle rails to the peer of `rail` on other ports; `initially_down`: only on ports that were
/// down when they were opened, at which a peer does not ask for a connection.
void connect_others(Port* const* ports, int count, const Endpoint& rail, bool initially_down);

}  // namespace bfo::engine
