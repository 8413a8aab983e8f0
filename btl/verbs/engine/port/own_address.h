// SPDX-License-Identifier: BSD-3-Clause
//
// own_address.h: which address of a port is used towards a peer. See gids.h for the rule.
#pragma once

#include "btl/verbs/engine/port/own_port.h"

namespace bfo::engine {

/// Fills in what packets to `to` are sent with: `settings->gid_index`, and the address itself. False: the
/// port has no address of its type. Of a port that does not list its addresses nothing is changed.
bool set_own_address(const OwnPort& port, const PortAddress& to, QpSettings* settings, PortAddress* own);

}  // namespace bfo::engine
