// SPDX-License-Identifier: BSD-3-Clause
//
// The subnet administrator, as far as there is one: it answers what a program asks for the path between two
// ports (SubnAdmGet of a PathRecord; InfiniBand Architecture Specification vol. 1, 15.2). It has no queue
// pair and no process: the request is answered where it arrives.
#pragma once

#include "contrib/softhca/engine/deferred_actions.h"

namespace bfo::softhca {

/// True for a datagram to the general services interface (QP 1) of the port with the subnet manager's LID.
bool is_for_administrator(const FabricHeader& h, const QpEntry& qp, const Wqe& wqe);

/// The administrator takes the `length` bytes of `request`, which queue pair `qp` has sent by `wqe`, and
/// answers. False when it drops them. Holds sq_lock of `qp`.
bool administrate(Fabric& fabric, QpEntry& qp, const Wqe& wqe, const uint8_t* request, uint32_t length,
                  DeferredActions& deferred);

}  // namespace bfo::softhca
