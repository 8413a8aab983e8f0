// SPDX-License-Identifier: BSD-3-Clause
//
// The wire: one attempt of one message between two ports.
#include "contrib/softhca/engine/wire.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "contrib/softhca/engine/hooks.h"
#include "contrib/softhca/engine/mr.h"
#include "contrib/softhca/engine/packet_loss.h"
#include "contrib/softhca/engine/qp.h"
#include "contrib/softhca/engine/subnet.h"
#include "contrib/softhca/engine/topology_faults.h"
#include "contrib/softhca/fabric/gids.h"
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

/// `bytes` are on their way to a port, at that rate, and have all come in at `end_ns`.
void note_coming(PortEntry& to, uint64_t bytes, uint64_t end_ns, uint64_t rate) {
  to.coming_rate.store(rate, std::memory_order_relaxed);
  to.coming_bytes.fetch_add(bytes, std::memory_order_relaxed);
  uint64_t at = to.coming_end_ns.load(std::memory_order_relaxed);
  while (at < end_ns && !to.coming_end_ns.compare_exchange_weak(at, end_ns)) {
  }
}

/// The rate of a way with these two ends; 0 = no limit.
uint64_t slower(uint64_t a, uint64_t b) {
  return a == 0 || (b != 0 && b < a) ? b : a;
}

bool carries_data_out(const Wqe& wqe) {
  return wqe.opcode != static_cast<uint8_t>(Opcode::kRead);
}

/// Requester's segments of `wqe` as virtual addresses; false = protection error.
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

void answer_is(Wqe& wqe, WqeStage stage, uint8_t answer) {
  wqe.stage = stage;
  wqe.answer = answer;
}

/// The attempt is lost on the wire. Its leading `cut` bytes were placed.
void lose(Fabric& fabric, QpEntry& qp, Wqe& wqe, uint32_t dst_port, const MessageRecord& record, uint8_t rule,
          uint64_t cut, DeferredActions& deferred) {
  if (cut > 0 && dst_port != kNone) place_partial(fabric, qp, wqe, dst_port, cut, deferred);
  trace(fabric, record, cut > 0 ? Verdict::kPartial : Verdict::kDroppedByRule, rule,
        static_cast<uint32_t>(cut));
  wqe.stage = WqeStage::kLost;
}

/// A rule keeps an RDMA write back; the requester sees it lost.
void hold(Fabric& fabric, QpEntry& qp, Wqe& wqe, uint32_t dst_port, const MessageRecord& record,
          const Decision& decision) {
  const bool held = hold_late_write(fabric, qp, wqe, dst_port, decision);
  trace(fabric, record, held ? Verdict::kHeld : Verdict::kDroppedByRule, decision.rule);
  wqe.stage = WqeStage::kLost;
}

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
      at = occupy(dst.tx_free_ns, at, wqe.length, dst.rate.load());
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

}  // namespace

uint64_t received_bytes(Fabric& fabric, uint32_t port) {
  const PortEntry& p = fabric.header().ports_table[port];
  const uint64_t all = p.coming_bytes.load(std::memory_order_relaxed);
  const uint64_t end = p.coming_end_ns.load(std::memory_order_relaxed);
  const uint64_t now = fabric.now();
  if (end <= now) return all;
  const auto left = static_cast<__uint128_t>(end - now) * p.coming_rate.load(std::memory_order_relaxed);
  return all - static_cast<uint64_t>(std::min<__uint128_t>(left / 1'000'000'000u, all));
}

uint32_t destination_port(Fabric& fabric, const QpEntry& qp, const Wqe& wqe) {
  uint16_t lid = qp.type == IBV_QPT_UD ? wqe.dlid : qp.attr.av.dlid;
  if (lid >= kMaxLids) return kNone;
  uint16_t index = fabric.header().lid_to_port[lid].load(std::memory_order_relaxed);
  return index == 0 ? kNone : index - 1u;
}

/// The time at which an attempt that leaves now is at its destination; 0 = at once. Takes the time on both
/// links.
static uint64_t take_links(Fabric& fabric, const Wqe& wqe, PortEntry& src, uint32_t dst_port) {
  uint64_t bytes = carries_data_out(wqe) ? wqe.length : 0;
  uint64_t at = occupy(src.tx_free_ns, fabric.now(), bytes, src.rate.load());
  if (dst_port != kNone) {
    PortEntry& dst = fabric.header().ports_table[dst_port];
    uint64_t rate = dst.rate.load();
    uint64_t busy = rate == 0 ? 0 : bytes * 1'000'000'000u / rate;
    uint64_t in = occupy(dst.rx_free_ns, at > busy ? at - busy : 0, bytes, rate);
    if (in > at) at = in;
  }
  return at + src.latency_ns.load();
}

/// The fault rules at the port of the requester. False when the attempt ends there: its stage says how. A
/// rule may move `at`, the time of arrival.
static bool rules_let_leave(Fabric& fabric, QpEntry& qp, Wqe& wqe, uint32_t dst_port, uint64_t& at,
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
  uint64_t at = (hooks & kHookShaping) != 0 ? take_links(fabric, wqe, src, dst_port) : 0;
  if ((hooks & kHookFaults) != 0 && !rules_let_leave(fabric, qp, wqe, dst_port, at, deferred)) return;
  if (at != 0 && at < qp.tx_last_arrival) at = qp.tx_last_arrival;  // a queue pair keeps its order
  qp.tx_last_arrival = at;
  wqe.arrive_at = at;
  if (at == 0 || dst_port == kNone || !port_is_up(fabric, dst_port) || !carries_data_out(wqe)) return;
  PortEntry& dst = h.ports_table[dst_port];
  if (!in_one_segment(src, dst)) return;
  note_coming(dst, wqe.length, at, slower(src.rate.load(), dst.rate.load()));
}

/// A multicast datagram: one copy to every member of the group whose port is up, the sender too if it joined.
static void arrive_multicast(Fabric& fabric, QpEntry& qp, Wqe& wqe, DeferredActions& deferred) {
  FabricHeader& h = fabric.header();
  wqe.stage = WqeStage::kAnswered;
  wqe.complete_at = 0;
  Sge local[kMaxSge];
  uint32_t count = 0;
  if (!port_is_up(fabric, qp.port_index)) return;
  if (!local_segments(fabric, qp, wqe, local, count)) {
    answer_is(wqe, WqeStage::kRefused, kAnswerLocalFault);
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
      respond(fabric, qp, wqe, group.qpn[i], member->port_index, local, count, kWhole, deferred);
    }
  }
}

/// A datagram to the subnet administrator, which has no port of its own.
static void arrive_administrator(Fabric& fabric, QpEntry& qp, Wqe& wqe, DeferredActions& deferred) {
  constexpr uint32_t kMost = 512;
  wqe.stage = WqeStage::kAnswered;
  wqe.complete_at = 0;
  Sge local[kMaxSge];
  uint32_t count = 0;
  if (!local_segments(fabric, qp, wqe, local, count)) {
    answer_is(wqe, WqeStage::kRefused, kAnswerLocalFault);
    return;
  }
  bool taken = false;
  if (port_is_up(fabric, qp.port_index) && wqe.length <= kMost) {
    uint8_t request[kMost];
    uint32_t length = 0;
    for (uint32_t i = 0; i < count; ++i) {
      std::memcpy(request + length, reinterpret_cast<const void*>(local[i].addr), local[i].length);
      length += local[i].length;
    }
    taken = administrate(fabric, qp, wqe, request, length, deferred);
  }
  if ((fabric.header().hooks.load(std::memory_order_relaxed) & kHookTrace) == 0) return;
  const MessageRecord record = record_of(fabric, qp, wqe, qp.port_index, qp.port_index, Direction::kRx);
  trace(fabric, record, taken ? Verdict::kDelivered : Verdict::kDroppedNoPeer, 0xff);
}

namespace {

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
