// SPDX-License-Identifier: BSD-3-Clause
//
// Asynchronous events: affiliated ones go to the context that owns the object, unaffiliated ones to every
// context that has the device open.
#pragma once

#include <infiniband/verbs.h>

#include "contrib/softhca/engine/deferred_actions.h"

namespace bfo::softhca {

void raise_qp_event(Fabric& fabric, const QpEntry& qp, ibv_event_type type, DeferredActions& deferred);
void raise_cq_event(Fabric& fabric, const CqEntry& cq, ibv_event_type type, DeferredActions& deferred);
void raise_srq_event(Fabric& fabric, const SrqEntry& srq, ibv_event_type type, DeferredActions& deferred);
/// `port` counts from 1; ignored for IBV_EVENT_DEVICE_FATAL.
void raise_port_event(Fabric& fabric, uint32_t node, uint32_t device, uint32_t port, ibv_event_type type,
                      DeferredActions& deferred);

/// Takes the oldest event of a context; false when there is none. The owner only.
bool take_event(Fabric& fabric, ContextEntry& context, AsyncRecord& record);

}  // namespace bfo::softhca
