// SPDX-License-Identifier: BSD-3-Clause
//
// The world: what happens to ports, devices and processes rather than to one message. Used by fault rules and
// by softhcactl.
#pragma once

#include "contrib/softhca/engine/later.h"

namespace bfo::softhca {

/// Carries out a world action (ActionKind from PortDown on); kAnyId selects every node, device or port.
void act_on_world(Fabric& fabric, const Decision& decision, Later& later);

/// Link state of one port; raises PORT_ERR or PORT_ACTIVE in every context that has the device open. With
/// `duration_ns` a port that goes down comes back by itself.
void set_port_state(Fabric& fabric, uint32_t index, bool up, uint64_t duration_ns, Later& later);

/// Takes an RDMA write off the wire, with its data. False when it is no RDMA write or there is no room.
bool hold_write(Fabric& fabric, QpEntry& qp, Wqe& wqe, uint32_t dst_port, const Decision& decision);

/// Executes held writes that are due at `now`, or all whose port matches the decision when there is one.
/// Returns how many landed.
uint32_t release_held(Fabric& fabric, uint64_t now, const Decision* decision, Later& later);

/// Everything of the fabric that is due: timed rules, ports coming back, held writes. Returns the time of the
/// next one, kNever when there is none. Any process; each item happens once.
uint64_t world_tick(Fabric& fabric, uint64_t now);

/// Returns when everything that is due at `now` has happened, also what another process is carrying out;
/// after kSettleNs in any case, because that process may have died.
void world_settle(Fabric& fabric, uint64_t now);
inline constexpr uint64_t kSettleNs = 200'000'000;

}  // namespace bfo::softhca
