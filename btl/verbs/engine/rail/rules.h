// SPDX-License-Identifier: BSD-3-Clause
//
// rules.h: the decisions of the connection manager and of the drain, without their effects. cm.cc and
// drain.cc act on them; the closure model of epochs (test/sim/closure_epoch.h) walks the same functions.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>

#include "btl/verbs/engine/datagram/cm_packet.h"

namespace bfo::engine {

/// Where an endpoint stands: one state, which connecting (cm.h, attempt.h), the watchdog and the drain
/// change.
///
///     initiator: kIdle -> kMaking -> kRequesting -> kBinding -> kProbing -> kUp
///     responder: kIdle -> kSoliciting -> kMaking -> kReplied -> kUp
///     both:      kUp <-> kSuspect -> kDraining -> kClosed -> kMaking | kSoliciting ...
///
/// In kMaking and kBinding a control thread has the queue pairs. The attempt can be given up meanwhile, which
/// leads to kClosed at once: the command destroys what it has made, and the next attempt waits for that.
enum class Phase : uint8_t {
  kIdle,        ///< never connected, nothing wanted
  kSoliciting,  ///< responder: asks the initiator to start
  kMaking,      ///< the queue pairs are being made; responder: REQ has come, and they are connected, too
  kRequesting,  ///< initiator: REQ sent, waits for REP
  kBinding,     ///< initiator: REP has come, the queue pairs are being connected
  kProbing,     ///< initiator: queue pairs ready, zero-byte write on its way
  kReplied,     ///< responder: REP sent, waits for READY or for the first message
  kUp,
  kSuspect,   ///< up, but work stands still
  kDraining,  ///< queue pair in ERR, on the way to kClosed
  kClosed,    ///< between epochs
  kGone,      ///< the peer left in order, or the endpoint is being deleted
  kUnusable,  ///< the device is dead, or has refused to destroy a queue pair (H12)
};

constexpr bool is_up(Phase phase) {
  return phase == Phase::kUp || phase == Phase::kSuspect;
}

/// True for an attempt that is dropped when it fails: nothing was posted on it by anybody above, and the peer
/// has not been told that this side is ready.
constexpr bool is_attempt(Phase phase) {
  return phase == Phase::kMaking || phase == Phase::kRequesting || phase == Phase::kBinding ||
         phase == Phase::kProbing;
}

/// True when there is an epoch that evidence can end.
constexpr bool has_epoch(Phase phase) {
  return is_up(phase) || is_attempt(phase) || phase == Phase::kReplied;
}

/// Does evidence about epochs <= `epoch` end the epoch `own` of an endpoint in `phase`? The epoch is the unit
/// of death: later evidence for the same one is no news, evidence for an older one is none (H19).
constexpr bool ends_epoch(Phase phase, bool asked, uint32_t own, uint32_t epoch) {
  return !asked && own <= epoch && has_epoch(phase);
}

/// What an endpoint does about a packet.
enum class Answer : uint8_t {
  kDrop,
  kStart,         ///< the peer has nothing left of its epochs up to the packet's: the next one can begin
  kStartOver,     ///< the same, but an attempt of that epoch is under way: it is given up first
  kRequestAgain,  ///< ours was lost
  kSolicit,       ///< stale: tell the peer where we are
  kAccept,
  kReplyAgain,
  kProbe,
  kReadyAgain,
  kEstablish,
  kEndEpoch,  ///< the peer has closed, or given up, the epoch this side still uses
  kLeave
};

/// Epochs are 32 bits wide, never 0, and do not come round: an honest peer is ahead by the attempts that did
/// not reach this side, some per second. One that claims more could make all 32 bits run out. answer()
/// asks this of every packet that may move or end the epoch of this side. What else is done about a REFUSE
/// (resource.h) looks at no epoch, and an inquiry (verdict.h) acts only on one that is equal: those need not
/// ask.
inline constexpr uint32_t kEpochJump = 1u << 28;
constexpr bool plausible_epoch(uint32_t theirs, uint32_t ours) {
  return theirs <= ours || theirs - ours <= kEpochJump;
}

/// SOLICIT asks the initiator for an epoch behind `theirs`.
constexpr Answer answer_solicit(Phase phase, uint32_t theirs, uint32_t ours) {
  switch (phase) {
    case Phase::kIdle:
    case Phase::kClosed:
      return Answer::kStart;
    case Phase::kRequesting:
      return theirs >= ours ? Answer::kStartOver : Answer::kRequestAgain;
    case Phase::kMaking:
    case Phase::kBinding:
    case Phase::kProbing:
      return theirs >= ours ? Answer::kStartOver : Answer::kDrop;
    case Phase::kUp:
    case Phase::kSuspect:
      return theirs >= ours ? Answer::kEndEpoch : Answer::kDrop;
    default:
      return Answer::kDrop;
  }
}

/// REQ opens epoch `theirs` at the responder, and says that the initiator has closed everything before.
constexpr Answer answer_request(Phase phase, uint32_t theirs, uint32_t ours) {
  switch (phase) {
    case Phase::kIdle:
    case Phase::kSoliciting:
    case Phase::kClosed:
      return theirs > ours ? Answer::kAccept : Answer::kSolicit;
    case Phase::kReplied:
      // A newer one means that the initiator gave up this epoch: it comes again when this side is fenced.
      return theirs > ours ? Answer::kEndEpoch : theirs == ours ? Answer::kReplyAgain : Answer::kDrop;
    case Phase::kMaking:
      // REP follows when the queue pairs are there.
    case Phase::kUp:
    case Phase::kSuspect:
      return theirs > ours ? Answer::kEndEpoch : Answer::kDrop;
    default:
      return Answer::kDrop;
  }
}

constexpr Answer answer_reply(Phase phase, uint32_t theirs, uint32_t ours) {
  if (theirs != ours) return Answer::kDrop;
  return is_up(phase) ? Answer::kReadyAgain : phase == Phase::kRequesting ? Answer::kProbe : Answer::kDrop;
}

/// REFUSE(n) of an initiator stands for the REQ it cannot send: it has closed everything before epoch n.
constexpr Answer answer_refuse(Phase phase, uint32_t theirs, uint32_t ours) {
  const bool later = theirs > ours && (is_up(phase) || phase == Phase::kReplied || phase == Phase::kMaking);
  return later ? Answer::kEndEpoch : Answer::kDrop;
}

/// A rail that is up may outlive a delayed BYE of an older epoch; an attempt that is not up yet has nobody
/// left to answer it.
constexpr Answer answer_bye(Phase phase, uint32_t theirs, uint32_t ours) {
  return is_up(phase) && theirs < ours ? Answer::kDrop : Answer::kLeave;
}

/// What an endpoint in `phase` of epoch `ours` does about a packet about epoch `theirs`. PINGs, missing
/// resources and suspected rails are not judged here (ping.h, resource.h, verdict_rules.h).
constexpr Answer answer(PacketType type, bool initiator, Phase phase, uint32_t theirs, uint32_t ours) {
  if (phase == Phase::kUnusable) return Answer::kDrop;
  if (phase == Phase::kGone) return type == PacketType::kBye ? Answer::kLeave : Answer::kDrop;
  if (!plausible_epoch(theirs, ours)) return Answer::kDrop;
  switch (type) {
    case PacketType::kSolicit:
      return initiator ? answer_solicit(phase, theirs, ours) : Answer::kDrop;
    case PacketType::kRequest:
      return initiator ? Answer::kDrop : answer_request(phase, theirs, ours);
    case PacketType::kReply:
      return initiator ? answer_reply(phase, theirs, ours) : Answer::kDrop;
    case PacketType::kReady:
      return phase == Phase::kReplied && theirs == ours ? Answer::kEstablish : Answer::kDrop;
    case PacketType::kBye:
      return answer_bye(phase, theirs, ours);
    case PacketType::kRefuse:
      return initiator ? Answer::kDrop : answer_refuse(phase, theirs, ours);
    case PacketType::kPing:
    case PacketType::kPong:
    case PacketType::kQuestion:
    case PacketType::kAnswer:
      break;
  }
  return Answer::kDrop;
}

/// Is the sender's address taken from a packet with this answer? From handshakes that are accepted only.
constexpr bool tells_address(PacketType type, Answer answer) {
  // A REQ that comes again does not change what the queue pairs were connected with.
  return answer != Answer::kDrop && answer != Answer::kReplyAgain && type <= PacketType::kReady;
}

/// A packet that waited for its address handle: does it still say what is true? A later packet, or the end of
/// the epoch, may have overtaken it.
constexpr bool still_current(PacketType type, Phase phase, uint32_t packet, uint32_t epoch) {
  if (packet != epoch) return false;
  switch (type) {
    case PacketType::kSolicit:
      return phase == Phase::kSoliciting;
    case PacketType::kRequest:
      return phase == Phase::kRequesting;
    case PacketType::kReply:
      return phase == Phase::kReplied;
    case PacketType::kReady:
      return is_up(phase);
    case PacketType::kRefuse:
      return !is_up(phase);
    default:
      return false;
  }
}

/// What a drain has reached.
struct DrainView {
  bool handed_back;    ///< the fragments have been given back
  bool marker_posted;  ///< and so far not come back, if the fragments have not been given back
  bool last_receive;   ///< no receive can succeed any more
  bool overdue;        ///< what is waited for has taken too long
  bool wait_over;      ///< a round of progress has passed since there is nothing left to wait for
  bool destroyed;      ///< the device has answered to destroy_qp
  bool emptied;        ///< the completion queues were seen empty in this round
};
enum class DrainStep : uint8_t { kWait, kWaitOver, kDestroy, kFinish };

/// Without its marker (not posted, or overdue) a drain gives the fragments back after destroy_qp. The queues
/// must be seen empty in a round that began after everything else was reached: the next one. The same again
/// after destroy_qp, which takes its time: what was received before is delivered.
constexpr DrainStep drain_next(const DrainView& at) {
  if (at.destroyed) return at.emptied ? DrainStep::kFinish : DrainStep::kWait;
  const bool waits = at.handed_back ? !at.last_receive : at.marker_posted;
  if (waits && !at.overdue) return DrainStep::kWait;
  if (!at.wait_over) return DrainStep::kWaitOver;
  return at.emptied ? DrainStep::kDestroy : DrainStep::kWait;
}

/// A device that has refused to destroy a queue pair for the nth time, for the first time `since_ns` ago, is
/// asked again after so long; 0: it is not. The reason may pass (a firmware that is busy), and until the
/// queue pair is gone nothing that it may still move can be complete. Ten seconds in all, and the verb that
/// is under way then.
constexpr uint64_t destroy_again_ns(unsigned refusals, uint64_t since_ns) {
  constexpr uint64_t kFirst = 10'000'000;
  constexpr uint64_t kLongest = 5'120'000'000;
  constexpr uint64_t kInAll = 10'000'000'000;
  const uint64_t after = refusals < 10 ? kFirst << (refusals - 1) : kLongest;
  return since_ns < kInAll ? after : 0;
}

/// A peer's count of the messages it received in an epoch, against the last epoch this side has closed.
enum class Count : uint8_t {
  kWait,     ///< our half is not closed yet
  kTooLate,  ///< the slots are gone, and so is the epoch's count
  kCompare
};
constexpr Count count_of(uint32_t theirs, bool any_closed, uint32_t closed) {
  if (!any_closed || closed < theirs) return Count::kWait;
  return closed > theirs ? Count::kTooLate : Count::kCompare;
}

}  // namespace bfo::engine
