// SPDX-License-Identifier: BSD-3-Clause
//
// Packets that are lost while their connection goes on: how the two ends see it, as the counters of their
// ports tell, and what it costs to send again.
#pragma once

#include "contrib/softhca/fabric/fabric.h"

namespace bfo::softhca {

/// What a port sees of a lost packet.
enum class LossSign : uint8_t {
  kAckTimeout,     ///< a requester here has waited too long for an answer
  kSequenceNak,    ///< the responder there misses a request
  kEarlyResponse,  ///< a response has come, and not the one before it
  kEarlyRequest,   ///< a request has come, and not the one before it
};

void note_loss(Fabric& fabric, uint32_t port, LossSign sign, uint32_t times = 1);

/// Packets of a request were lost, `times` of them, and others of the same request come behind each: the
/// responder asks for it, and the requester goes back to it. Returns for how long. Holds sq_lock.
uint64_t repeat_request(Fabric& fabric, QpEntry& qp, uint32_t dst_port, uint32_t times);
/// The same of the response to a READ.
uint64_t repeat_response(Fabric& fabric, QpEntry& qp, uint32_t dst_port, uint32_t times);

}  // namespace bfo::softhca
