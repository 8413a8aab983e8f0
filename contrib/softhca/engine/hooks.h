// SPDX-License-Identifier: BSD-3-Clause
//
// The hooks: where the fault rules and the trace see one attempt of one message.
#pragma once

#include "contrib/softhca/engine/deferred_actions.h"

namespace bfo::softhca {

/// The attempt as a hook at port `here` sees it; `there` is the port at the other end, kNone = unknown.
MessageRecord record_of(Fabric& fabric, const QpEntry& qp, const Wqe& wqe, uint32_t here, uint32_t there,
                        Direction direction);

/// Adds the record to the trace if that is on. `rule` decided, 0xff = none; `offset`: bytes placed.
void trace(Fabric& fabric, MessageRecord record, Verdict verdict, uint8_t rule, uint32_t offset = 0);

/// What the rules want done with this attempt. A rule that fires is reported.
Decision judge(Fabric& fabric, const MessageRecord& record);

/// True when the attempt is lost because of the decision; `cut` is the number of its bytes that get through.
/// An action on a port, a device or a process is queued in `deferred`.
bool apply_decision(const Decision& decision, uint32_t src_port, uint32_t dst_port, uint64_t& cut,
                    DeferredActions& deferred);

/// A rule changes the payload: remembers how, for the responder.
void note_corruption(Wqe& wqe, const Decision& decision);

}  // namespace bfo::softhca
