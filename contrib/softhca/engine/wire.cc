// SPDX-License-Identifier: BSD-3-Clause
//
// The wire: one attempt of one message between two ports.
#include "contrib/softhca/engine/wire.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "contrib/softhca/engine/mr.h"
#include "contrib/softhca/engine/qp.h"
#include "contrib/softhca/engine/snapshot.h"
#include "contrib/softhca/engine/world.h"
#include "contrib/softhca/fabric/tables.h"

namespace bfo::softhca {
namespace {

constexpr uint64_t kWhole = ~uint64_t{0};
constexpr uint32_t kMulticastQpn = 0xffffff;

bool port_is_up(Fabric& fabric, uint32_t index) {
  FabricHeader& h = fabric.header();
  return h.ports_table[index].state.load(std::memory_order_relaxed) == kPortActive &&
         h.devices_table[index / kMaxPortsPerDevice].fatal.load(std::memory_order_relaxed) == 0;
}

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
  record.src_lid = h.ports_table[qp.port_index].lid.load(std::memory_order_relaxed);
  record.dst_lid = qp.type == IBV_QPT_UD ? wqe.dlid : qp.attr.av.dlid;
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
  record.service = qp.type == IBV_QPT_RC ? Service::Rc : qp.type == IBV_QPT_UC ? Service::Uc : Service::Ud;
  record.direction = direction;
  record.rule = 0xff;
  return record;
}

void trace(Fabric& fabric, MessageRecord record, Verdict verdict, uint8_t rule, uint32_t offset = 0) {
  TraceRing& ring = fabric.header().trace;
  if (!enabled(ring)) return;
  record.verdict = verdict;
  record.rule = rule;
  record.offset = offset;
  append(ring, record);
}

/// Reserves `bytes` on a wire that is free from `free_at` on; returns when the last byte has left.
uint64_t occupy(std::atomic<uint64_t>& free_at, uint64_t earliest, uint64_t bytes, uint64_t rate) {
  if (rate == 0) return earliest;
  uint64_t busy = static_cast<uint64_t>(static_cast<__uint128_t>(bytes) * 1'000'000'000u / rate);
  uint64_t at = free_at.load(std::memory_order_relaxed);
  uint64_t end;
  do {
    end = (at > earliest ? at : earliest) + busy;
  } while (!free_at.compare_exchange_weak(at, end));
  return end;
}

bool carries_data_out(const Wqe& wqe) {
  return wqe.opcode != static_cast<uint8_t>(Opcode::Read);
}

/// Requester's segments of `wqe` as virtual addresses; false = protection error.
bool local_segments(Fabric& fabric, const QpEntry& qp, Wqe& wqe, Sge* out, uint32_t& count) {
  if ((wqe.flags & IBV_SEND_INLINE) != 0) {
    out[0] = {reinterpret_cast<uint64_t>(wqe.sge), wqe.length, 0};
    count = wqe.length == 0 ? 0 : 1;
    return true;
  }
  count = wqe.num_sge;
  uint32_t access = carries_data_out(wqe) && wqe.opcode != static_cast<uint8_t>(Opcode::CmpSwap) &&
                            wqe.opcode != static_cast<uint8_t>(Opcode::FetchAdd)
                        ? 0
                        : IBV_ACCESS_LOCAL_WRITE;
  KeyUser user{qp.pd, qp.process, qp.qpn.load(std::memory_order_relaxed)};
  return translate_list(fabric, wqe.sge, wqe.num_sge, user, access, out);
}

/// What the rules want done with this attempt; a rule that fires is reported.
Decision judge(Fabric& fabric, const MessageRecord& record) {
  Decision decision = decide(fabric.header().faults, record);
  if (decision.kind != ActionKind::None) [[unlikely]]
    snapshot_fault(fabric, decision);
  return decision;
}

/// Finds out whether a decision is about the message at hand; world actions are queued. Returns true when the
/// attempt is lost because of it, with the number of bytes that still get through in `cut`.
bool apply_decision(Fabric& fabric, const Decision& decision, uint32_t src_port, uint32_t dst_port,
                    uint64_t& cut, Later& later) {
  cut = 0;
  if (decision.kind == ActionKind::Drop) {
    cut = decision.cut_bytes;
    return true;
  }
  if (is_message_action(decision.kind) || decision.kind == ActionKind::None) return false;
  later.act(decision);
  if (decision.kind != ActionKind::PortDown && decision.kind != ActionKind::DeviceFatal) return false;
  auto hit = [&](uint32_t index) {
    return index != kNone && (decision.node == kAnyId || decision.node == port_node(index)) &&
           (decision.device == kAnyId || decision.device == port_device(index)) &&
           (decision.port == kAnyId || decision.port == port_number(index) ||
            decision.kind == ActionKind::DeviceFatal);
  };
  if (!hit(src_port) && !hit(dst_port)) return false;
  cut = decision.cut_bytes;
  return true;
}

/// Places the leading `cut` bytes of a message whose rest is lost.
void place_partial(Fabric& fabric, QpEntry& qp, Wqe& wqe, uint32_t dst_port, uint64_t cut, Later& later) {
  Sge local[kMaxSge];
  uint32_t count = 0;
  if (cut == 0 || cut > wqe.length || !local_segments(fabric, qp, wqe, local, count)) return;
  uint32_t dst_qpn = qp.type == IBV_QPT_UD ? wqe.dst_qpn : qp.attr.dest_qpn;
  respond(fabric, qp, wqe, dst_qpn, dst_port, local, count, cut < wqe.length ? cut : wqe.length - 1, later);
}

void answer_is(Wqe& wqe, WqeStage stage, uint8_t answer) {
  wqe.stage = stage;
  wqe.answer = answer;
}

/// The answer travels back: rules at both ports, then latency.
void send_answer(Fabric& fabric, QpEntry& qp, Wqe& wqe, uint32_t dst_port, AckSyndrome syndrome, bool lost,
                 const MessageRecord* request, Later& later) {
  FabricHeader& h = fabric.header();
  uint32_t hooks = h.hooks.load(std::memory_order_relaxed);
  wqe.complete_at = 0;
  if (hooks == 0) return;
  uint64_t delay = 0;
  if (request != nullptr && qp.type == IBV_QPT_RC && !lost) {
    for (Direction direction : {Direction::Tx, Direction::Rx}) {
      bool tx = direction == Direction::Tx;
      MessageRecord record =
          record_of(fabric, qp, wqe, tx ? dst_port : qp.port_index, tx ? qp.port_index : dst_port, direction);
      std::swap(record.src_qpn, record.dst_qpn);
      std::swap(record.src_lid, record.dst_lid);
      record.opcode = Opcode::Ack;
      record.syndrome = static_cast<uint8_t>(syndrome);
      if (syndrome != AckSyndrome::Ack) record.flags |= kRecordNak;
      Decision decision = (hooks & kHookFaults) != 0 ? judge(fabric, record) : Decision{};
      uint64_t cut;
      if (decision.kind == ActionKind::DropAck) lost = true;
      if (decision.kind == ActionKind::Corrupt) {
        answer_is(wqe, WqeStage::Refused, kAnswerStatus | IBV_WC_BAD_RESP_ERR);
      }
      if (decision.kind == ActionKind::Delay || decision.kind == ActionKind::Reorder)
        delay += decision.delay_ns;
      if (apply_decision(fabric, decision, qp.port_index, dst_port, cut, later)) lost = true;
      trace(fabric, record, lost ? Verdict::DroppedByRule : Verdict::Delivered, decision.rule);
      if (lost) break;
    }
  }
  if (lost) {
    wqe.stage = wqe.stage == WqeStage::Answered ? WqeStage::Executed : WqeStage::Lost;
    return;
  }
  if ((hooks & kHookShaping) != 0 || delay != 0) {
    uint64_t at = wqe.arrive_at != 0 ? wqe.arrive_at : fabric.now();
    PortEntry& dst = h.ports_table[dst_port];
    if (wqe.opcode == static_cast<uint8_t>(Opcode::Read) && wqe.stage == WqeStage::Answered) {
      at = occupy(dst.tx_free_ns, at, wqe.length, dst.rate.load());
    }
    at += dst.latency_ns.load() + delay;
    wqe.complete_at = at;
  }
}

/// A rule flips bits of one payload byte: the responder executes the message with that byte changed.
Response respond_corrupted(Fabric& fabric, QpEntry& qp, Wqe& wqe, uint32_t dst_qpn, uint32_t dst_port,
                           const Sge* local, uint32_t count, Later& later) {
  uint32_t offset = static_cast<uint32_t>(wqe.rule_note >> 32);
  uint8_t bits = static_cast<uint8_t>(wqe.rule_note);
  if (bits == 0) bits = 1;
  if (wqe.length > 0) offset %= wqe.length;
  if (!carries_data_out(wqe)) {
    Response response = respond(fabric, qp, wqe, dst_qpn, dst_port, local, count, kWhole, later);
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
  return respond(fabric, qp, wqe, dst_qpn, dst_port, &changed, payload.empty() ? 0 : 1, kWhole, later);
}

}  // namespace

uint32_t destination_port(Fabric& fabric, const QpEntry& qp, const Wqe& wqe) {
  uint16_t lid = qp.type == IBV_QPT_UD ? wqe.dlid : qp.attr.av.dlid;
  if (lid >= kMaxLids) return kNone;
  uint16_t index = fabric.header().lid_to_port[lid].load(std::memory_order_relaxed);
  return index == 0 ? kNone : index - 1u;
}

void transmit(Fabric& fabric, QpEntry& qp, Wqe& wqe, Later& later) {
  FabricHeader& h = fabric.header();
  ++qp.tx_packets;
  wqe.stage = WqeStage::Flying;
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
  uint64_t at = 0;
  if ((hooks & kHookShaping) != 0) {
    uint64_t bytes = carries_data_out(wqe) ? wqe.length : 0;
    at = occupy(src.tx_free_ns, fabric.now(), bytes, src.rate.load());
    if (dst_port != kNone) {
      PortEntry& dst = h.ports_table[dst_port];
      uint64_t rate = dst.rate.load();
      uint64_t busy = rate == 0 ? 0 : bytes * 1'000'000'000u / rate;
      uint64_t in = occupy(dst.rx_free_ns, at > busy ? at - busy : 0, bytes, rate);
      if (in > at) at = in;
    }
    at += src.latency_ns.load();
  }
  if ((hooks & kHookFaults) != 0) {
    MessageRecord record = record_of(fabric, qp, wqe, qp.port_index, dst_port, Direction::Tx);
    record.byte_offset = src.bytes.load(std::memory_order_relaxed) - wqe.length;
    Decision decision = judge(fabric, record);
    uint64_t cut = 0;
    if (apply_decision(fabric, decision, qp.port_index, dst_port, cut, later)) {
      if (cut > 0 && dst_port != kNone) place_partial(fabric, qp, wqe, dst_port, cut, later);
      trace(fabric, record, cut > 0 ? Verdict::Partial : Verdict::DroppedByRule, decision.rule,
            static_cast<uint32_t>(cut));
      wqe.stage = WqeStage::Lost;
      return;
    }
    switch (decision.kind) {
      case ActionKind::Delay:
      case ActionKind::Reorder:
        at = (at == 0 ? fabric.now() : at) + decision.delay_ns;
        trace(fabric, record, Verdict::Delayed, decision.rule);
        break;
      case ActionKind::DropAck:
        wqe.note = kNoteDropAck;
        break;
      case ActionKind::Duplicate:
        wqe.note = kNoteDuplicate;
        break;
      case ActionKind::Corrupt:
        wqe.note = kNoteCorrupt;
        wqe.rule_note = uint64_t{decision.offset} << 32 | decision.value;
        break;
      case ActionKind::Status:
        trace(fabric, record, Verdict::Injected, decision.rule);
        wqe.stage = WqeStage::Refused;
        wqe.answer = static_cast<uint8_t>(kAnswerStatus | decision.value);
        wqe.complete_at = at;
        return;
      case ActionKind::LateWrite:
        trace(fabric, record,
              hold_write(fabric, qp, wqe, dst_port, decision) ? Verdict::Held : Verdict::DroppedByRule,
              decision.rule);
        wqe.stage = WqeStage::Lost;
        return;
      default:
        break;
    }
  }
  if (at != 0 && at < qp.tx_last_arrival) at = qp.tx_last_arrival;  // a queue pair keeps its order
  qp.tx_last_arrival = at;
  wqe.arrive_at = at;
}

/// A multicast datagram: one copy to every member of the group whose port is up, the sender too if it joined.
static void arrive_multicast(Fabric& fabric, QpEntry& qp, Wqe& wqe, Later& later) {
  FabricHeader& h = fabric.header();
  wqe.stage = WqeStage::Answered;
  wqe.complete_at = 0;
  Sge local[kMaxSge];
  uint32_t count = 0;
  if (!port_is_up(fabric, qp.port_index)) return;
  if (!local_segments(fabric, qp, wqe, local, count)) {
    answer_is(wqe, WqeStage::Refused, kAnswerLocalFault);
    return;
  }
  for (McastGroup& group : h.mcast) {
    if (group.used.load(std::memory_order_acquire) == 0 || group.lid != wqe.dlid) continue;
    if (wqe.has_grh != 0 && std::memcmp(group.gid, wqe.dgid, sizeof(group.gid)) != 0) continue;
    uint32_t members = std::min(group.count, kMaxMcastMembers);
    for (uint32_t i = 0; i < members; ++i) {
      QpEntry* member = find_qp(fabric, group.qpn[i]);
      if (member == nullptr || !port_is_up(fabric, member->port_index)) continue;
      if (!in_one_segment(h.ports_table[qp.port_index], h.ports_table[member->port_index])) continue;
      respond(fabric, qp, wqe, group.qpn[i], member->port_index, local, count, kWhole, later);
    }
  }
}

void arrive(Fabric& fabric, QpEntry& qp, Wqe& wqe, Later& later) {
  FabricHeader& h = fabric.header();
  if (qp.type == IBV_QPT_UD && wqe.dst_qpn == kMulticastQpn) [[unlikely]] {
    arrive_multicast(fabric, qp, wqe, later);
    return;
  }
  uint32_t dst_port = destination_port(fabric, qp, wqe);
  uint32_t hooks = h.hooks.load(std::memory_order_relaxed);
  MessageRecord record;
  bool recorded = (hooks & (kHookFaults | kHookTrace)) != 0;
  uint8_t rule = 0xff;
  if (recorded) [[unlikely]] {
    record = record_of(fabric, qp, wqe, dst_port == kNone ? qp.port_index : dst_port, qp.port_index,
                       Direction::Rx);
  }
  const bool no_way =
      dst_port == kNone || !in_one_segment(h.ports_table[qp.port_index], h.ports_table[dst_port]);
  if (wqe.held != 0 || no_way || !port_is_up(fabric, qp.port_index) || !port_is_up(fabric, dst_port))
      [[unlikely]] {
    if (recorded) trace(fabric, record, no_way ? Verdict::DroppedNoPeer : Verdict::DroppedPortDown, rule);
    wqe.stage = WqeStage::Lost;
    return;
  }
  bool lose_answer = wqe.note == kNoteDropAck;
  uint8_t failure = 0;  // local status of the responder that a rule asks for
  if ((hooks & kHookFaults) != 0) [[unlikely]] {
    Decision decision = judge(fabric, record);
    rule = decision.rule;
    uint64_t cut = 0;
    if (apply_decision(fabric, decision, qp.port_index, dst_port, cut, later)) {
      if (cut > 0) place_partial(fabric, qp, wqe, dst_port, cut, later);
      trace(fabric, record, cut > 0 ? Verdict::Partial : Verdict::DroppedByRule, rule,
            static_cast<uint32_t>(cut));
      wqe.stage = WqeStage::Lost;
      return;
    }
    if (decision.kind == ActionKind::DropAck) lose_answer = true;
    if (decision.kind == ActionKind::Duplicate) wqe.note = kNoteDuplicate;
    if (decision.kind == ActionKind::Corrupt) {
      wqe.note = kNoteCorrupt;
      wqe.rule_note = uint64_t{decision.offset} << 32 | decision.value;
    }
    if (decision.kind == ActionKind::Status) failure = static_cast<uint8_t>(decision.value);
    if (decision.kind == ActionKind::LateWrite) {
      bool held = hold_write(fabric, qp, wqe, dst_port, decision);
      trace(fabric, record, held ? Verdict::Held : Verdict::DroppedByRule, rule);
      wqe.stage = WqeStage::Lost;
      return;
    }
  }
  Sge local[kMaxSge];
  uint32_t count = 0;
  if (!local_segments(fabric, qp, wqe, local, count)) [[unlikely]] {
    answer_is(wqe, WqeStage::Refused, kAnswerLocalFault);
    wqe.complete_at = 0;
    return;
  }
  uint32_t dst_qpn = qp.type == IBV_QPT_UD ? wqe.dst_qpn : qp.attr.dest_qpn;
  Response response;
  if (failure != 0) [[unlikely]] {
    response = respond_failure(fabric, qp, wqe, dst_qpn, failure, later);
  } else if (wqe.note == kNoteCorrupt) [[unlikely]] {
    response = respond_corrupted(fabric, qp, wqe, dst_qpn, dst_port, local, count, later);
  } else {
    response = respond(fabric, qp, wqe, dst_qpn, dst_port, local, count, kWhole, later);
  }
  if (wqe.note == kNoteDuplicate && response.reply == Reply::Ack) [[unlikely]] {
    respond(fabric, qp, wqe, dst_qpn, dst_port, local, count, kWhole, later);
    MessageRecord copy = record;
    copy.flags |= kRecordDuplicate | kRecordReplay;
    trace(fabric, copy, Verdict::Delivered, rule);
  }
  wqe.note = 0;
  AckSyndrome syndrome = AckSyndrome::Ack;
  Verdict verdict = Verdict::Nak;
  switch (response.reply) {
    case Reply::Ack:
      answer_is(wqe, WqeStage::Answered, 0);
      verdict = lose_answer ? Verdict::AckLost : Verdict::Delivered;
      break;
    case Reply::Silent:
      wqe.stage = WqeStage::Lost;
      if (recorded) trace(fabric, record, Verdict::DroppedBadState, rule);
      return;
    case Reply::LocalFault:
      answer_is(wqe, WqeStage::Refused, kAnswerLocalFault);
      wqe.complete_at = 0;
      return;
    case Reply::Rnr:
      syndrome = AckSyndrome::Rnr;
      wqe.rnr_timer = response.rnr_timer;
      verdict = Verdict::RnrNak;
      break;
    case Reply::SeqErr:
      syndrome = AckSyndrome::SeqErr;
      break;
    case Reply::InvReq:
      syndrome = AckSyndrome::InvReq;
      break;
    case Reply::RemAccess:
      syndrome = AckSyndrome::RemAccess;
      break;
    case Reply::RemOp:
      syndrome = AckSyndrome::RemOp;
      break;
  }
  if (syndrome != AckSyndrome::Ack) answer_is(wqe, WqeStage::Refused, static_cast<uint8_t>(syndrome));
  if (recorded) [[unlikely]] {
    record.syndrome = static_cast<uint8_t>(syndrome);
    if (response.replay) record.flags |= kRecordReplay;
    trace(fabric, record, verdict, rule);
  }
  send_answer(fabric, qp, wqe, dst_port, syndrome, lose_answer, recorded ? &record : nullptr, later);
  // Else the next answer would acknowledge this request too, and the rule would change nothing under traffic.
  if (lose_answer && wqe.stage == WqeStage::Executed) wqe.stage = WqeStage::Unanswered;
}

}  // namespace bfo::softhca
