// SPDX-License-Identifier: BSD-3-Clause
//
// One attempt: its data, and how it ends on the way.
#include "contrib/softhca/engine/attempt.h"

#include <infiniband/verbs.h>

#include "contrib/softhca/engine/hooks.h"
#include "contrib/softhca/engine/mr.h"
#include "contrib/softhca/engine/responder.h"
#include "contrib/softhca/engine/topology_faults.h"

namespace bfo::softhca {

bool local_segments(Fabric& fabric, const QpEntry& qp, Wqe& wqe, Sge* out, uint32_t& count) {
  if ((wqe.flags & IBV_SEND_INLINE) != 0) {
    out[0] = {reinterpret_cast<uint64_t>(wqe.sge), wqe.length, 0};
    count = wqe.length == 0 ? 0 : 1;
    return true;
  }
  count = wqe.num_sge;
  uint32_t access = carries_data_out(wqe) && wqe.opcode != static_cast<uint8_t>(Opcode::kCmpSwap) &&
                            wqe.opcode != static_cast<uint8_t>(Opcode::kFetchAdd)
                        ? 0
                        : IBV_ACCESS_LOCAL_WRITE;
  KeyUser user{qp.pd, qp.process, qp.qpn.load(std::memory_order_relaxed)};
  return translate_list(fabric, wqe.sge, wqe.num_sge, user, access, out);
}

namespace {

/// Places the leading `cut` bytes of a message whose rest is lost.
void place_partial(Fabric& fabric, QpEntry& qp, Wqe& wqe, uint32_t dst_port, uint64_t cut,
                   DeferredActions& deferred) {
  Sge local[kMaxSge];
  uint32_t count = 0;
  if (cut == 0 || cut > wqe.length || !local_segments(fabric, qp, wqe, local, count)) return;
  uint32_t dst_qpn = qp.type == IBV_QPT_UD ? wqe.dst_qpn : qp.attr.dest_qpn;
  respond(fabric, qp, wqe, dst_qpn, dst_port, local, count, cut < wqe.length ? cut : wqe.length - 1,
          deferred);
}

}  // namespace

void lose(Fabric& fabric, QpEntry& qp, Wqe& wqe, uint32_t dst_port, const MessageRecord& record, uint8_t rule,
          uint64_t cut, DeferredActions& deferred) {
  if (cut > 0 && dst_port != kNone) place_partial(fabric, qp, wqe, dst_port, cut, deferred);
  trace(fabric, record, cut > 0 ? Verdict::kPartial : Verdict::kDroppedByRule, rule,
        static_cast<uint32_t>(cut));
  wqe.stage = WqeStage::kLost;
}

void hold(Fabric& fabric, QpEntry& qp, Wqe& wqe, uint32_t dst_port, const MessageRecord& record,
          const Decision& decision) {
  const bool held = hold_late_write(fabric, qp, wqe, dst_port, decision);
  trace(fabric, record, held ? Verdict::kHeld : Verdict::kDroppedByRule, decision.rule);
  wqe.stage = WqeStage::kLost;
}

}  // namespace bfo::softhca
