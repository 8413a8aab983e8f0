// SPDX-License-Identifier: BSD-3-Clause
//
// The wire where an attempt leaves.
#include "contrib/softhca/engine/wire.h"

#include <infiniband/verbs.h>

#include "contrib/softhca/engine/attempt.h"
#include "contrib/softhca/engine/hooks.h"
#include "contrib/softhca/engine/links.h"
#include "contrib/softhca/engine/packet_loss.h"

namespace bfo::softhca {
namespace {

/// The rate of a way with these two ends; 0 = no limit.
uint64_t slower(uint64_t a, uint64_t b) {
  return a == 0 || (b != 0 && b < a) ? b : a;
}

/// The fault rules at the port of the requester. False when the attempt ends there: its stage says how. A
/// rule may move `at`, the time of arrival.
bool rules_let_leave(Fabric& fabric, QpEntry& qp, Wqe& wqe, uint32_t dst_port, uint64_t& at,
                     DeferredActions& deferred) {
  MessageRecord record = record_of(fabric, qp, wqe, qp.port_index, dst_port, Direction::kTx);
  record.byte_offset =
      fabric.header().ports_table[qp.port_index].bytes.load(std::memory_order_relaxed) - wqe.length;
  Decision decision = judge(fabric, record);
  uint64_t cut = 0;
  if (apply_decision(decision, qp.port_index, dst_port, cut, deferred)) {
    lose(fabric, qp, wqe, dst_port, record, decision.rule, cut, deferred);
    return false;
  }
  switch (decision.kind) {
    case ActionKind::kDelay:
    case ActionKind::kReorder:
      at = (at == 0 ? fabric.now() : at) + decision.delay_ns;
      trace(fabric, record, Verdict::kDelayed, decision.rule);
      return true;
    case ActionKind::kLose:
      // An unreliable message ends with its first packet that is lost.
      if (decision.value64 != 0 || qp.type != IBV_QPT_RC) {
        lose(fabric, qp, wqe, dst_port, record, decision.rule, 0, deferred);
        return false;
      }
      at = (at == 0 ? fabric.now() : at) + repeat_request(fabric, qp, dst_port, decision.value);
      trace(fabric, record, Verdict::kDelayed, decision.rule);
      return true;
    case ActionKind::kDropAck:
      wqe.note = kNoteDropAck;
      return true;
    case ActionKind::kDuplicate:
      wqe.note = kNoteDuplicate;
      return true;
    case ActionKind::kCorrupt:
      note_corruption(wqe, decision);
      return true;
    case ActionKind::kStatus:
      trace(fabric, record, Verdict::kInjected, decision.rule);
      answer_is(wqe, WqeStage::kRefused, static_cast<uint8_t>(kAnswerStatus | decision.value));
      wqe.complete_at = at;
      return false;
    case ActionKind::kLateWrite:
      hold(fabric, qp, wqe, dst_port, record, decision);
      return false;
    default:
      return true;
  }
}

}  // namespace

uint32_t destination_port(Fabric& fabric, const QpEntry& qp, const Wqe& wqe) {
  uint16_t lid = qp.type == IBV_QPT_UD ? wqe.dlid : qp.attr.av.dlid;
  if (lid >= kMaxLids) return kNone;
  uint16_t index = fabric.header().lid_to_port[lid].load(std::memory_order_relaxed);
  return index == 0 ? kNone : index - 1u;
}

void transmit(Fabric& fabric, QpEntry& qp, Wqe& wqe, DeferredActions& deferred) {
  FabricHeader& h = fabric.header();
  qp.tx_packets += carries_data_out(wqe) ? wqe.packets : 1;
  wqe.stage = WqeStage::kFlying;
  wqe.arrive_at = 0;
  uint32_t hooks = h.hooks.load(std::memory_order_relaxed);
  if (hooks == 0) [[likely]]
    return;
  PortEntry& src = h.ports_table[qp.port_index];
  if (wqe.attempt == 0) {
    wqe.ordinal = src.messages.fetch_add(1, std::memory_order_relaxed);
    src.bytes.fetch_add(wqe.length, std::memory_order_relaxed);
  }
  uint32_t dst_port = destination_port(fabric, qp, wqe);
  uint64_t at = (hooks & kHookShaping) != 0
                    ? take_links(fabric, carries_data_out(wqe) ? wqe.length : 0, src, dst_port)
                    : 0;
  if ((hooks & kHookFaults) != 0 && !rules_let_leave(fabric, qp, wqe, dst_port, at, deferred)) return;
  if (at != 0 && at < qp.tx_last_arrival) at = qp.tx_last_arrival;  // a queue pair keeps its order
  qp.tx_last_arrival = at;
  wqe.arrive_at = at;
  if (at == 0 || dst_port == kNone || !port_is_up(fabric, dst_port) || !carries_data_out(wqe)) return;
  PortEntry& dst = h.ports_table[dst_port];
  if (!in_one_segment(src, dst)) return;
  note_coming(dst, wqe.length, at, slower(src.rate.load(), dst.rate.load()));
}

}  // namespace bfo::softhca
