// SPDX-License-Identifier: BSD-3-Clause
//
// The wire: one attempt of one message between two ports. It decides whether there is a path and when the
// attempt arrives. It asks the fault rules, and takes the responder's answer back.
#pragma once

#include "contrib/softhca/engine/responder.h"

namespace bfo::softhca {

/// Wqe::answer beyond AckSyndrome.
inline constexpr uint8_t kAnswerLocalFault = 0x40;
inline constexpr uint8_t kAnswerStatus = 0x80;  ///< | ibv_wc_status a rule wants

/// Port index behind the address of `wqe` (or of the connection); kNone when nothing has that LID.
uint32_t destination_port(Fabric& fabric, const QpEntry& qp, const Wqe& wqe);

/// The attempt leaves the requester: asks the rules, takes the time on the wire, sets stage and arrive_at.
void transmit(Fabric& fabric, QpEntry& qp, Wqe& wqe, DeferredActions& deferred);

/// The attempt arrives: executes it and sets stage, answer and complete_at.
void arrive(Fabric& fabric, QpEntry& qp, Wqe& wqe, DeferredActions& deferred);

}  // namespace bfo::softhca
