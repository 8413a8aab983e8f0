// SPDX-License-Identifier: BSD-3-Clause
//
// Topology faults: faults of ports, devices and processes, as opposed to faults of one message. Fault rules
// and softhcactl cause them.
#pragma once

#include "contrib/softhca/engine/deferred_actions.h"

namespace bfo::softhca {

/// Carries out a topology action (ActionKind from PortDown on); kAnyId selects every node, device or port.
void act_on_topology(Fabric& fabric, const Decision& decision, DeferredActions& deferred);

/// Link state of one port; raises PORT_ERR or PORT_ACTIVE in every context that has the device open. With
/// `duration_ns` a port that goes down comes back by itself.
void set_port_state(Fabric& fabric, uint32_t index, bool up, uint64_t duration_ns, DeferredActions& deferred);

/// What the link of a port reports from now on, by pack() of link_speed.h. DEVICE_SPEED_CHANGE follows when
/// that is another speed.
void set_link_speed(Fabric& fabric, uint32_t index, uint64_t packed, DeferredActions& deferred);

/// Keeps an RDMA write and a copy of its data back from the wire. False when the request is no RDMA write, or
/// when no more writes can be kept.
bool hold_late_write(Fabric& fabric, QpEntry& qp, Wqe& wqe, uint32_t dst_port, const Decision& decision);

/// Executes the held writes that are due at `now`. With a decision: all of the ports that it names. Returns
/// how many were placed in memory.
uint32_t release_late_writes(Fabric& fabric, uint64_t now, const Decision* decision,
                             DeferredActions& deferred);

/// Does all that is due in the fabric: timed rules, ports that become active again, held writes. Returns the
/// time of the next item, kNever when there is none. Any process may call it. Each item happens once.
uint64_t topology_tick(Fabric& fabric, uint64_t now);

/// Returns when all that is due at `now` has happened, including what another process is carrying out.
/// Returns after kSettleNs in any case, because that process may have died.
void topology_settle(Fabric& fabric, uint64_t now);
inline constexpr uint64_t kSettleNs = 200'000'000;

}  // namespace bfo::softhca
