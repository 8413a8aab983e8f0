// SPDX-License-Identifier: BSD-3-Clause
//
// own_address.h: which address of a port is used towards a peer, and which of the peer's addresses is tried
// when one does not answer. See gids.h for the rule.
#pragma once

#include "btl/verbs/engine/device/gids.h"
#include "btl/verbs/engine/device/qp.h"

namespace bfo::engine {

class Port;
struct Endpoint;

/// Fills in what packets to `to` are sent with: `settings->gid_index`, and the address itself. False: the
/// port has no address of its type. Of a port that does not list its addresses nothing is changed.
bool set_own_address(const Port& port, const PortAddress& to, QpSettings* settings, PortAddress* own);

/// Before a packet that begins a connection: the peer's next address in the order of rank_theirs(), when the
/// port has none for the current one, or packets to it had no answer. Progress function only.
void try_next_address(Endpoint& endpoint);

}  // namespace bfo::engine
