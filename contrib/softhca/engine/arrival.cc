// SPDX-License-Identifier: BSD-3-Clause
//
// The wire where an attempt arrives: whether it does, what the responder makes of it, and the way back.
#include <infiniband/verbs.h>

#include <utility>
#include <vector>

#include "contrib/softhca/engine/attempt.h"
#include "contrib/softhca/engine/datagram.h"
#include "contrib/softhca/engine/hooks.h"
#include "contrib/softhca/engine/links.h"
#include "contrib/softhca/engine/packet_loss.h"
#include "contrib/softhca/engine/qp.h"
#include "contrib/softhca/engine/subnet.h"
#include "contrib/softhca/engine/wire.h"
#include "contrib/softhca/fabric/gids.h"

namespace bfo::softhca {
namespace {

/// The answer travels back: rules at both ports, then latency.
void send_answer(Fabric& fabric, QpEntry& qp, Wqe& wqe, uint32_t dst_port, AckSyndrome syndrome, bool lost,
                 const MessageRecord* request, DeferredActions& deferred) {
  FabricHeader& h = fabric.header();
  uint32_t hooks = h.hooks.load(std::memory_order_relaxed);
  wqe.complete_at = 0;
  if (hooks == 0) return;
  uint64_t delay = 0;
  if (request != nullptr && qp.type == IBV_QPT_RC && !lost) {
    for (Direction direction : {Direction::kTx, Direction::kRx}) {
      bool tx = direction == Direction::kTx;
      MessageRecord record =
          record_of(fabric, qp, wqe, tx ? dst_port : qp.port_index, tx ? qp.port_index : dst_port, direction);
      std::swap(record.src_qpn, record.dst_qpn);
      std::swap(record.src_lid, record.dst_lid);
      record.path = qp.attr.av.src_path_bits;
      record.opcode = Opcode::kAck;
      record.syndrome = static_cast<uint8_t>(syndrome);
      record.packets = is_read(wqe) && wqe.stage == WqeStage::kAnswered ? wqe.packets : 1;
      if (syndrome != AckSyndrome::kAck) record.flags |= kRecordNak;
      Decision decision = (hooks & kHookFaults) != 0 ? judge(fabric, record) : Decision{};
      uint64_t cut;
      if (decision.kind == ActionKind::kDropAck) lost = true;
      if (decision.kind == ActionKind::kCorrupt) {
        answer_is(wqe, WqeStage::kRefused, kAnswerStatus | IBV_WC_BAD_RESP_ERR);
      }
      if (decision.kind == ActionKind::kDelay || decision.kind == ActionKind::kReorder)
        delay += decision.delay_ns;
      if (decision.kind == ActionKind::kLose) {
        delay += repeat_response(fabric, qp, dst_port, decision.value);
        if (decision.value64 != 0) lost = true;
      }
      if (apply_decision(decision, qp.port_index, dst_port, cut, deferred)) lost = true;
      trace(fabric, record, lost ? Verdict::kDroppedByRule : Verdict::kDelivered, decision.rule);
      if (lost) break;
    }
  }
  if (lost) {
    wqe.stage = wqe.stage == WqeStage::kAnswered ? WqeStage::kExecuted : WqeStage::kLost;
    return;
  }
  if ((hooks & kHookShaping) != 0 || delay != 0) {
    uint64_t at = wqe.arrive_at != 0 ? wqe.arrive_at : fabric.now();
    PortEntry& dst = h.ports_table[dst_port];
    if (wqe.opcode == static_cast<uint8_t>(Opcode::kRead) && wqe.stage == WqeStage::kAnswered) {
      at = occupy(tx_of(dst), at, wqe.length, dst.rate.load());
      note_coming(h.ports_table[qp.port_index], wqe.length, at, dst.rate.load());
    }
    at += dst.latency_ns.load() + delay;
    wqe.complete_at = at;
  }
}

/// A rule flips bits of one payload byte: the responder executes the message with that byte changed.
Response respond_corrupted(Fabric& fabric, QpEntry& qp, Wqe& wqe, uint32_t dst_qpn, uint32_t dst_port,
                           const Sge* local, uint32_t count, DeferredActions& deferred) {
  uint32_t offset = static_cast<uint32_t>(wqe.rule_note >> 32);
  uint8_t bits = static_cast<uint8_t>(wqe.rule_note);
  if (bits == 0) bits = 1;
  if (wqe.length > 0) offset %= wqe.length;
  if (!carries_data_out(wqe)) {
    Response response = respond(fabric, qp, wqe, dst_qpn, dst_port, local, count, kWhole, deferred);
    for (uint32_t i = 0; i < count; offset -= local[i++].length) {
      if (offset >= local[i].length) continue;
      reinterpret_cast<uint8_t*>(local[i].addr)[offset] ^= bits;
      break;
    }
    return response;
  }
  std::vector<uint8_t> payload;
  payload.reserve(wqe.length);
  for (uint32_t i = 0; i < count; ++i) {
    const uint8_t* from = reinterpret_cast<const uint8_t*>(local[i].addr);
    payload.insert(payload.end(), from, from + local[i].length);
  }
  if (offset < payload.size()) payload[offset] ^= bits;
  Sge changed{reinterpret_cast<uint64_t>(payload.data()), static_cast<uint32_t>(payload.size()), 0};
  return respond(fabric, qp, wqe, dst_qpn, dst_port, &changed, payload.empty() ? 0 : 1, kWhole, deferred);
}

/// One attempt at its destination: what a stage of arrive() passes to the next one.
struct Arrival {
  Fabric& fabric;
  QpEntry& qp;  ///< of the requester
  Wqe& wqe;
  DeferredActions& deferred;
  uint32_t dst_port;      ///< kNone = no port has the LID
  MessageRecord* record;  ///< nullptr = neither rules nor the trace are on
  bool lose_answer = false;
  uint8_t failure = 0;  ///< completion status of the responder that a rule asks for
  uint8_t rule = 0xff;  ///< that decided
};

/// A datagram names the address of its destination, which may have changed since the address handle was made.
/// A connected queue pair keeps the entry of the table that it was connected with.
bool address_is_there(const Arrival& a) {
  const FabricHeader& h = a.fabric.header();
  if (!is_ethernet(h) || a.qp.type != IBV_QPT_UD) [[likely]]
    return true;
  return has_gid(h, a.dst_port, a.wqe.dgid, a.qp.port_index, a.wqe.sgid_index);
}

/// Stage 1: there is a path, and both ports are up. Otherwise the attempt is lost.
bool path_is_open(Arrival& a) {
  const PortEntry* ports = a.fabric.header().ports_table;
  const bool no_path = a.dst_port == kNone || !in_one_segment(ports[a.qp.port_index], ports[a.dst_port]) ||
                       !address_is_there(a);
  if (a.wqe.held == 0 && !no_path && port_is_up(a.fabric, a.qp.port_index) &&
      port_is_up(a.fabric, a.dst_port)) [[likely]]
    return true;
  if (a.record != nullptr)
    trace(a.fabric, *a.record, no_path ? Verdict::kDroppedNoPeer : Verdict::kDroppedPortDown, a.rule);
  a.wqe.stage = WqeStage::kLost;
  return false;
}

/// Stage 2: the fault rules at the port of the responder. False when the attempt is lost there.
bool rules_let_arrive(Arrival& a) {
  Decision decision = judge(a.fabric, *a.record);
  a.rule = decision.rule;
  uint64_t cut = 0;
  if (apply_decision(decision, a.qp.port_index, a.dst_port, cut, a.deferred)) {
    lose(a.fabric, a.qp, a.wqe, a.dst_port, *a.record, a.rule, cut, a.deferred);
    return false;
  }
  switch (decision.kind) {
    case ActionKind::kDropAck:
      a.lose_answer = true;
      return true;
    case ActionKind::kDuplicate:
      a.wqe.note = kNoteDuplicate;
      return true;
    case ActionKind::kCorrupt:
      note_corruption(a.wqe, decision);
      return true;
    case ActionKind::kStatus:
      a.failure = static_cast<uint8_t>(decision.value);
      return true;
    case ActionKind::kLateWrite:
      hold(a.fabric, a.qp, a.wqe, a.dst_port, *a.record, decision);
      return false;
    default:
      return true;
  }
}

/// Stage 3: the responder executes the request, twice when a rule duplicates it.
Response execute(Arrival& a) {
  Sge local[kMaxSge];
  uint32_t count = 0;
  if (!local_segments(a.fabric, a.qp, a.wqe, local, count)) [[unlikely]]
    return {.reply = Reply::kLocalFault};
  const uint32_t dst_qpn = a.qp.type == IBV_QPT_UD ? a.wqe.dst_qpn : a.qp.attr.dest_qpn;
  Response response;
  if (a.failure != 0) [[unlikely]] {
    response = respond_failure(a.fabric, a.qp, a.wqe, dst_qpn, a.failure, a.deferred);
  } else if (a.wqe.note == kNoteCorrupt) [[unlikely]] {
    response = respond_corrupted(a.fabric, a.qp, a.wqe, dst_qpn, a.dst_port, local, count, a.deferred);
  } else {
    response = respond(a.fabric, a.qp, a.wqe, dst_qpn, a.dst_port, local, count, kWhole, a.deferred);
  }
  if (a.wqe.note == kNoteDuplicate && response.reply == Reply::kAck) [[unlikely]] {
    respond(a.fabric, a.qp, a.wqe, dst_qpn, a.dst_port, local, count, kWhole, a.deferred);
    if (a.record != nullptr) {
      MessageRecord copy = *a.record;
      copy.flags |= kRecordDuplicate | kRecordReplay;
      trace(a.fabric, copy, Verdict::kDelivered, a.rule);
    }
  }
  a.wqe.note = 0;
  return response;
}

/// The syndrome of a reply that travels back.
constexpr AckSyndrome syndrome_of(Reply reply) {
  switch (reply) {
    case Reply::kRnr:
      return AckSyndrome::kRnr;
    case Reply::kSeqErr:
      return AckSyndrome::kSeqErr;
    case Reply::kInvReq:
      return AckSyndrome::kInvReq;
    case Reply::kRemAccess:
      return AckSyndrome::kRemAccess;
    case Reply::kRemOp:
      return AckSyndrome::kRemOp;
    case Reply::kAck:
    case Reply::kSilent:
    case Reply::kLocalFault:
      break;
  }
  return AckSyndrome::kAck;
}

/// Stage 4: the reply, if there is one, is traced and travels back.
void answer(Arrival& a, const Response& response) {
  if (response.reply == Reply::kSilent) {
    a.wqe.stage = WqeStage::kLost;
    if (a.record != nullptr) trace(a.fabric, *a.record, Verdict::kDroppedBadState, a.rule);
    return;
  }
  if (response.reply == Reply::kLocalFault) {
    answer_is(a.wqe, WqeStage::kRefused, kAnswerLocalFault);
    a.wqe.complete_at = 0;
    return;
  }
  const AckSyndrome syndrome = syndrome_of(response.reply);
  Verdict verdict = Verdict::kNak;
  if (syndrome == AckSyndrome::kAck) {
    answer_is(a.wqe, WqeStage::kAnswered, 0);
    if (is_read(a.wqe)) a.qp.response_packets_in += a.wqe.packets;
    verdict = a.lose_answer ? Verdict::kAckLost : Verdict::kDelivered;
  } else {
    answer_is(a.wqe, WqeStage::kRefused, static_cast<uint8_t>(syndrome));
  }
  if (response.reply == Reply::kRnr) {
    a.wqe.rnr_timer = response.rnr_timer;
    verdict = Verdict::kRnrNak;
  }
  if (a.record != nullptr) [[unlikely]] {
    a.record->syndrome = static_cast<uint8_t>(syndrome);
    if (response.replay) a.record->flags |= kRecordReplay;
    trace(a.fabric, *a.record, verdict, a.rule);
  }
  send_answer(a.fabric, a.qp, a.wqe, a.dst_port, syndrome, a.lose_answer, a.record, a.deferred);
  // Else the next answer would acknowledge this request too, and the rule would change nothing under traffic.
  if (a.lose_answer && a.wqe.stage == WqeStage::kExecuted) a.wqe.stage = WqeStage::kUnanswered;
}

}  // namespace

void arrive(Fabric& fabric, QpEntry& qp, Wqe& wqe, DeferredActions& deferred) {
  if (qp.type == IBV_QPT_UD && wqe.dst_qpn == kMulticastQpn) [[unlikely]] {
    arrive_multicast(fabric, qp, wqe, deferred);
    return;
  }
  if (is_for_administrator(fabric.header(), qp, wqe)) [[unlikely]] {
    arrive_administrator(fabric, qp, wqe, deferred);
    return;
  }
  const uint32_t hooks = fabric.header().hooks.load(std::memory_order_relaxed);
  MessageRecord record;  // not initialized: most attempts need none
  Arrival a{fabric, qp, wqe, deferred, destination_port(fabric, qp, wqe), nullptr};
  a.lose_answer = wqe.note == kNoteDropAck;
  if ((hooks & (kHookFaults | kHookTrace)) != 0) [[unlikely]] {
    record = record_of(fabric, qp, wqe, a.dst_port == kNone ? qp.port_index : a.dst_port, qp.port_index,
                       Direction::kRx);
    a.record = &record;
  }
  if (!path_is_open(a)) return;
  if ((hooks & kHookFaults) != 0 && !rules_let_arrive(a)) [[unlikely]]
    return;
  answer(a, execute(a));
}

}  // namespace bfo::softhca
