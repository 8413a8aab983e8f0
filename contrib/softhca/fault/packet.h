// SPDX-License-Identifier: BSD-3-Clause
//
// The packet: one wire attempt of one message as the fault rules and the trace see it, and the decision that
// the rules return. Both are plain data in shared memory and hold no pointers.
//
// The engine calls the fault hooks at these points, in this order, for every attempt of every message:
//
//   requester port, Direction::kTx, the request     (drop, delay, status, late write, port down ... )
//   responder port, Direction::kRx, the request
//   responder port, Direction::kTx, opcode Ack      (RC only: the ACK, NAK or READ/ATOMIC response going
//   back) requester port, Direction::kRx, opcode Ack
//
// "node, device, port" of a record always name the port the hook belongs to and "peer_*" the other end, so a
// rule that names a port and a direction is complete: a one-way loss is "port P, tx, drop".
//
// The hooks call decide() of fault/rule.h and append() of fault/trace.h. No lock of the engine is held then,
// except that of the requester's send queue. Neither function blocks.
#pragma once

#include <cstdint>

namespace bfo::softhca {

inline constexpr uint64_t kNever = ~uint64_t{0};
inline constexpr uint16_t kAnyId = 0xffff;

/// Operation of a message. Values are stable: they are written to traces.
enum class Opcode : uint8_t {
  kSend = 0,
  kSendImm = 1,
  kWrite = 2,
  kWriteImm = 3,
  kRead = 4,
  kCmpSwap = 5,
  kFetchAdd = 6,
  kSendInv = 7,
  kAck = 8,        ///< response: ACK, NAK, RNR NAK, READ or ATOMIC response (syndrome says which)
  kEvent = 9,      ///< trace only: an asynchronous event or a port change (syndrome = ibv_event_type)
  kState = 10,     ///< trace only: a QP changed state (psn = old state, length = new state)
  kComplete = 11,  ///< trace only: a completion was written (syndrome = ibv_wc_status)
  kFault = 12,     ///< trace only: a rule fired (message_ordinal = rule index)
};

enum class Service : uint8_t { kRc = 0, kUc = 1, kUd = 2 };

/// Seen from the port the record names: Tx leaves it, Rx arrives at it.
enum class Direction : uint8_t { kTx = 0, kRx = 1 };

enum RecordFlag : uint16_t {
  kRecordSolicited = 1 << 0,
  kRecordSignaled = 1 << 1,
  kRecordInline = 1 << 2,
  kRecordReplay = 1 << 3,  ///< the responder had executed this PSN before; acknowledged, not executed again
  kRecordLate = 1 << 4,    ///< a held (late) write being released
  kRecordNak = 1 << 5,     ///< Ack records: negative
  kRecordDuplicate = 1 << 6,  ///< second copy made by a Duplicate rule
};

/// What the engine finally did with the attempt; written to the trace.
enum class Verdict : uint8_t {
  kDelivered = 0,  ///< executed at the responder
  kDroppedByRule = 1,
  kDroppedPortDown = 2,
  kDroppedNoPeer = 3,    ///< no such LID, QP, or the peer process is gone
  kDroppedBadState = 4,  ///< the responder QP does not receive in its state, or has another partner
  kAckLost = 5,          ///< executed, but the acknowledgement does not reach the requester
  kNak = 6,
  kRnrNak = 7,
  kHeld = 8,              ///< late write: kept for a later release
  kReleased = 9,          ///< late write: executed now
  kReleasedDropped = 10,  ///< late write: no longer accepted by the responder's QP
  kDelayed = 11,
  kInjected = 12,  ///< completed with the status a rule asked for
  kPartial = 13,   ///< only the first `offset` bytes were placed before the loss
};

/// One wire attempt of one message. 128 bytes, fixed layout, shared by fault rules and trace.
struct MessageRecord {
  uint64_t seq;              ///< fabric-wide record number; set by the trace ring
  uint64_t time_ns;          ///< CLOCK_MONOTONIC
  uint64_t message_ordinal;  ///< ordinal of the message on its source port, from 0; attempts of one message
                             ///< share it
  uint64_t qp_ordinal;       ///< same on its source QP
  uint64_t byte_offset;      ///< payload bytes the source port had sent before this message
  uint64_t remote_addr;      ///< RDMA and atomics only
  uint32_t length;           ///< payload bytes
  uint32_t rkey;
  uint32_t psn;  ///< 24 bits
  uint32_t src_qpn;
  uint32_t dst_qpn;
  uint32_t offset;  ///< bytes placed (Verdict::kPartial)
  uint32_t imm;
  int32_t pid;       ///< process that executes the record
  uint32_t packets;  ///< that carry it; 0 = one
  uint16_t src_lid;
  uint16_t dst_lid;
  uint16_t node;  ///< node, device index, port of the hook (see above)
  uint16_t device;
  uint16_t port;
  uint16_t peer_node;
  uint16_t peer_device;
  uint16_t peer_port;
  uint16_t attempt;  ///< 0 = first transmission
  uint16_t flags;    ///< RecordFlag
  Opcode opcode;
  Service service;
  Direction direction;
  Verdict verdict;
  uint8_t syndrome;  ///< Ack: AckSyndrome; others see Opcode
  uint8_t rule;      ///< rule that decided, 0xff = none
  uint8_t path;      ///< of the destination's LIDs, counted from 0, the one it goes to
  uint8_t reserved[17];
};
static_assert(sizeof(MessageRecord) == 128);

enum class AckSyndrome : uint8_t {
  kAck = 0,
  kRnr = 1,
  kSeqErr = 2,
  kInvReq = 3,
  kRemAccess = 4,
  kRemOp = 5,
};

/// What a rule asks the engine to do. "Message" actions concern the attempt at hand, "topology" actions the
/// fabric.
enum class ActionKind : uint8_t {
  kNone = 0,
  /// message actions
  kDrop = 1,     ///< lose the attempt; with `cut_bytes` > 0 that many leading payload bytes are placed first
  kDropAck = 2,  ///< execute it, lose every answer (this attempt; count decides how many)
  kDelay = 3,    ///< deliver `delay_ns` later, order on the QP kept
  kDuplicate = 4,  ///< execute, then present a second copy with the same PSN
  kReorder = 5,    ///< between QPs: as Delay, other QPs overtake
  kCorrupt = 6,    ///< xor `value` into payload byte `offset`; an Ack record: answer with an illegal opcode
  kStatus = 7,  ///< complete the work request with ibv_wc_status `value`; QP goes to the matching error state
  kLateWrite = 8,  ///< hold an RDMA write, the requester times out; released after `delay_ns`, or only by
                   ///< ReleaseLate when that is 0 (decide() answers Drop for its retransmissions)
  /// topology actions (target = Decision::node/device/port; the attempt is lost when the target is its own
  /// port)
  kPortDown = 9,  ///< for `duration_ns` (0 = for good); `cut_bytes` as in Drop
  kPortUp = 10,
  kDeviceFatal = 11,
  kLidChange = 12,    ///< new LID in `value`
  kGidChange = 13,    ///< new low 64 bits in `value64`
  kPkeyChange = 14,   ///< P_Key index 0 becomes `value`
  kCqOverrun = 15,    ///< the CQ the message's completion would go to overflows
  kKill = 16,         ///< SIGKILL the process owning the target: the owner of `qpn` when that is not 0, else
                      ///< every process of the target node
  kStop = 17,         ///< SIGSTOP it; SIGCONT after `duration_ns` when not 0
  kSetRate = 18,      ///< port rate becomes `value64` bytes per second
  kSetLatency = 19,   ///< port latency becomes `value64` ns
  kReleaseLate = 20,  ///< release every held late write of the target port
  kSmChange = 21,
  kClientReregister = 22,
  kRaiseEvent =
      23,          ///< ibv_event_type `value`: affiliated ones at the QP `qpn` (its CQ, its SRQ), 0 = each QP
  kSetLimit = 25,  ///< objects of ObjectKind `value` per device: `value64` - 1, 0 = the default
  kSetMemlock = 26,  ///< bytes a process of the node may register: `value64` - 1, 0 = no limit
  kSetSegment = 27,  ///< the port reaches only ports of segment `value`; kOwnSegment = none but itself
  kGidTable = 28,    ///< the GID table becomes `value64`, by pack() of gid_list.h
  kSetSpeed = 29,    ///< the link reports the speed `value64`, by pack() of link_speed.h
  /// message action
  kLose = 30,  ///< packets are lost: `value` that others of the message follow, and the last one when
               ///< `value64` is not 0
  /// verb action
  kVerbFault = 24,  ///< a control verb sleeps `delay_ns`, then fails with errno `value` when that is not 0
};

/// Objects whose number a device limits; the words of the fault language are max-qp, max-cq, ...
enum class ObjectKind : uint32_t { kQp, kCq, kMr, kSrq, kAh, kPd };
inline constexpr uint32_t kObjectKinds = 6;

/// ActionKind::kSetSegment: each port becomes a segment of its own.
inline constexpr uint32_t kOwnSegment = 0xffffffff;
inline constexpr uint32_t kMostSegment = 0x7fffffff;

/// Result of decide() and tick(). Value-initialised means "deliver normally".
struct Decision {
  ActionKind kind = ActionKind::kNone;
  uint8_t rule = 0xff;
  uint16_t node = kAnyId;  ///< topology actions: target; kAnyId = every one
  uint16_t device = kAnyId;
  uint16_t port = kAnyId;
  uint32_t qpn = 0;  ///< topology actions on a QP or its process; 0 = none named
  uint32_t value = 0;
  uint32_t offset = 0;
  uint64_t value64 = 0;
  uint64_t cut_bytes = 0;
  uint64_t delay_ns = 0;
  uint64_t duration_ns = 0;
};

/// True for the action on a control verb.
constexpr bool is_verb_action(ActionKind kind) {
  return kind == ActionKind::kVerbFault;
}

/// True for actions on the attempt at hand rather than on the fabric.
constexpr bool is_message_action(ActionKind kind) {
  return (kind >= ActionKind::kDrop && kind <= ActionKind::kLateWrite) || kind == ActionKind::kLose;
}

}  // namespace bfo::softhca
