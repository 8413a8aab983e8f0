// SPDX-License-Identifier: BSD-3-Clause
//
// Datagrams that no single queue pair behind a port takes: to a multicast group, to the subnet administrator.
#pragma once

#include "contrib/softhca/engine/deferred_actions.h"

namespace bfo::softhca {

inline constexpr uint32_t kMulticastQpn = 0xffffff;

/// A multicast datagram: one copy to every member of the group whose port is up, the sender too if it joined.
void arrive_multicast(Fabric& fabric, QpEntry& qp, Wqe& wqe, DeferredActions& deferred);

/// A datagram to the subnet administrator, which has no port of its own.
void arrive_administrator(Fabric& fabric, QpEntry& qp, Wqe& wqe, DeferredActions& deferred);

}  // namespace bfo::softhca
