// SPDX-License-Identifier: BSD-3-Clause
//
// The hooks: the record of an attempt, and what the decision of a rule means for it.
#include "contrib/softhca/engine/hooks.h"

#include <infiniband/verbs.h>

#include "contrib/softhca/engine/qp.h"
#include "contrib/softhca/engine/snapshot.h"

namespace bfo::softhca {

MessageRecord record_of(Fabric& fabric, const QpEntry& qp, const Wqe& wqe, uint32_t here, uint32_t there,
                        Direction direction) {
  FabricHeader& h = fabric.header();
  MessageRecord record{};
  record.time_ns = fabric.now();
  record.message_ordinal = wqe.ordinal;
  record.qp_ordinal = qp.tx_messages;
  record.remote_addr = wqe.remote_addr;
  record.length = wqe.length;
  record.rkey = wqe.rkey;
  record.psn = wqe.psn;
  record.src_qpn = qp.qpn.load(std::memory_order_relaxed);
  record.dst_qpn = qp.type == IBV_QPT_UD ? wqe.dst_qpn : qp.attr.dest_qpn;
  record.imm = wqe.imm;
  record.pid = fabric.pid();
  record.packets = is_read(wqe) ? 1 : wqe.packets;
  record.src_lid = h.ports_table[qp.port_index].lid.load(std::memory_order_relaxed);
  record.dst_lid = qp.type == IBV_QPT_UD ? wqe.dlid : qp.attr.av.dlid;
  record.path = path_bits(h, record.dst_lid);
  record.node = static_cast<uint16_t>(port_node(here));
  record.device = static_cast<uint16_t>(port_device(here));
  record.port = static_cast<uint16_t>(port_number(here));
  record.peer_node = record.peer_device = record.peer_port = kAnyId;
  if (there != kNone) {
    record.peer_node = static_cast<uint16_t>(port_node(there));
    record.peer_device = static_cast<uint16_t>(port_device(there));
    record.peer_port = static_cast<uint16_t>(port_number(there));
  }
  record.attempt = wqe.attempt;
  record.flags = static_cast<uint16_t>(((wqe.flags & IBV_SEND_SOLICITED) ? kRecordSolicited : 0) |
                                       ((wqe.flags & IBV_SEND_SIGNALED) ? kRecordSignaled : 0) |
                                       ((wqe.flags & IBV_SEND_INLINE) ? kRecordInline : 0));
  record.opcode = static_cast<Opcode>(wqe.opcode);
  record.service = qp.type == IBV_QPT_RC ? Service::kRc : qp.type == IBV_QPT_UC ? Service::kUc : Service::kUd;
  record.direction = direction;
  record.rule = 0xff;
  return record;
}

void trace(Fabric& fabric, MessageRecord record, Verdict verdict, uint8_t rule, uint32_t offset) {
  TraceRing& ring = fabric.header().trace;
  if (!enabled(ring)) return;
  record.verdict = verdict;
  record.rule = rule;
  record.offset = offset;
  append(ring, record);
}

Decision judge(Fabric& fabric, const MessageRecord& record) {
  Decision decision = decide(fabric.header().faults, record);
  if (decision.kind != ActionKind::kNone) [[unlikely]]
    snapshot_fault(fabric, decision);
  return decision;
}

bool apply_decision(const Decision& decision, uint32_t src_port, uint32_t dst_port, uint64_t& cut,
                    DeferredActions& deferred) {
  cut = 0;
  if (decision.kind == ActionKind::kDrop) {
    cut = decision.cut_bytes;
    return true;
  }
  if (is_message_action(decision.kind) || decision.kind == ActionKind::kNone) return false;
  deferred.act(decision);
  if (decision.kind != ActionKind::kPortDown && decision.kind != ActionKind::kDeviceFatal) return false;
  auto hit = [&](uint32_t index) {
    return index != kNone && (decision.node == kAnyId || decision.node == port_node(index)) &&
           (decision.device == kAnyId || decision.device == port_device(index)) &&
           (decision.port == kAnyId || decision.port == port_number(index) ||
            decision.kind == ActionKind::kDeviceFatal);
  };
  if (!hit(src_port) && !hit(dst_port)) return false;
  cut = decision.cut_bytes;
  return true;
}

void note_corruption(Wqe& wqe, const Decision& decision) {
  wqe.note = kNoteCorrupt;
  wqe.rule_note = uint64_t{decision.offset} << 32 | decision.value;
}

}  // namespace bfo::softhca
