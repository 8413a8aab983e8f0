// SPDX-License-Identifier: BSD-3-Clause
//
// What an attempt needs where it leaves and where it arrives: its data, and how it ends on the way.
#pragma once

#include "contrib/softhca/engine/deferred_actions.h"

namespace bfo::softhca {

inline constexpr uint64_t kWhole = ~uint64_t{0};  ///< no byte of a message is cut off

inline bool carries_data_out(const Wqe& wqe) {
  return wqe.opcode != static_cast<uint8_t>(Opcode::kRead);
}

/// Requester's segments of `wqe` as virtual addresses; false = protection error.
bool local_segments(Fabric& fabric, const QpEntry& qp, Wqe& wqe, Sge* out, uint32_t& count);

inline void answer_is(Wqe& wqe, WqeStage stage, uint8_t answer) {
  wqe.stage = stage;
  wqe.answer = answer;
}

/// The attempt is lost on the wire. Its leading `cut` bytes were placed.
void lose(Fabric& fabric, QpEntry& qp, Wqe& wqe, uint32_t dst_port, const MessageRecord& record, uint8_t rule,
          uint64_t cut, DeferredActions& deferred);

/// A rule keeps an RDMA write back; the requester sees it lost.
void hold(Fabric& fabric, QpEntry& qp, Wqe& wqe, uint32_t dst_port, const MessageRecord& record,
          const Decision& decision);

}  // namespace bfo::softhca
