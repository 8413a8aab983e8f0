// SPDX-License-Identifier: BSD-3-Clause
//
// send_machine.h: the sender's half of one rendezvous transfer, as a table.
//
// Events from the wire are filtered before they get here: the name matched a live request of the peer they
// came from, and their round was compared. An event without suffix is of the request's current round; older
// rounds are dropped (counted), except RECVERR, which has its own event because it must be answered.
#pragma once

#include "pml/bfo/core/table.h"

namespace bfo::core {

enum class SendPhase : uint8_t {
  kIdle,      ///< no rendezvous; the name is free
  kOpening,   ///< RNDV or RGET of this round pending or sent, receiver may not have matched
  kSending,   ///< receiver answered; data moves
  kDraining,  ///< a fragment failed, or the receiver did: waiting for our own fragments to end
  kNotified,  ///< new round begun; NOTIFY pending or sent, waiting for RESTARTACK or NACK
  kClosing,   ///< outcome decided; waiting for the gate (ledger empty, nothing in flight)
  kCount
};

enum class SendEvent : uint8_t {
  kAck,           ///< ACK: matched, send by copy
  kPut,           ///< PUT: matched, a grant to write to
  kFin,           ///< FIN of an RGET: receiver has read everything
  kNack,          ///< receiver has finished
  kNackFailed,    ///< receiver has ended with an error
  kRecvErr,       ///< receiver saw an error in this round
  kRecvErrOld,    ///< the same of an older round
  kRestartAck,    ///< receiver has quiesced for this round
  kControlLost,   ///< our RNDV, RGET or NOTIFY of this round ended without success
  kDataLost,      ///< a FRAG or RDMA write of this round ended without success
  kDrained,       ///< nothing of this round is in flight any more (raised in kDraining only)
  kAllDelivered,  ///< acknowledged, and every byte of the round delivered (raised in kSending only)
  kRailClosed,    ///< a rail of the peer closed: what we sent or were sent on it may be lost
  kGateOpen,      ///< ledger empty and nothing in flight (raised in kClosing only)
  kGiveUp,        ///< park time over, peer's process died, or a message was lost for good
  kCount
};

enum SendAction : uint32_t {
  kSendOpen = 1u << 0,        ///< pending: RNDV or RGET
  kSendStart = 1u << 1,       ///< receiver known: start sending by copy
  kSendWrite = 1u << 2,       ///< serve the grant of this PUT
  kSendNewRound = 1u << 3,    ///< round + 1
  kSendNotify = 1u << 4,      ///< pending: NOTIFY
  kSendPlan = 1u << 5,        ///< plan the new round from the ranges in RESTARTACK
  kSendDrain = 1u << 6,       ///< stop posting; raise kDrained when nothing is in flight
  kSendFinishOk = 1u << 7,    ///< outcome ok; raise kGateOpen when the gate is open
  kSendFail = 1u << 8,        ///< outcome peer lost; fence what is left in the ledger
  kSendAnswerDone = 1u << 9,  ///< tell the receiver SENDDONE
  kSendComplete = 1u << 10    ///< free the name, complete the request
};

inline constexpr size_t kSendPhases = static_cast<size_t>(SendPhase::kCount);
inline constexpr size_t kSendEvents = static_cast<size_t>(SendEvent::kCount);
using SendCell = Cell<SendPhase>;
using SendTable = Table<SendPhase, kSendPhases, kSendEvents>;

namespace detail {
constexpr SendTable make_send_table() {
  using S = SendPhase;
  using E = SendEvent;
  SendTable t{};
  auto set = [&t](S s, E e, SendCell c) { t[static_cast<size_t>(s)][static_cast<size_t>(e)] = c; };
  auto ign = [](const char* why) { return ignore<S>(why); };
  auto never = [](const char* why) { return bug<S>(why); };

  for (size_t e = 0; e < kSendEvents; ++e)
    set(S::kIdle, static_cast<E>(e), never("a request without a name gets no events"));

  set(S::kOpening, E::kAck, go(S::kSending, kSendStart));
  set(S::kOpening, E::kPut, go(S::kSending, kSendWrite));
  set(S::kOpening, E::kFin, go(S::kClosing, kSendFinishOk));
  set(S::kOpening, E::kNack, go(S::kClosing, kSendFinishOk));
  set(S::kOpening, E::kNackFailed, go(S::kClosing, kSendFail));
  set(S::kOpening, E::kRecvErr, go(S::kDraining, kSendDrain));
  set(S::kOpening, E::kRecvErrOld, ign("that round is over and this one is open"));
  set(S::kOpening, E::kRestartAck, ign("duplicate: the round it grants is open"));
  set(S::kOpening, E::kControlLost, go(S::kOpening, kSendOpen));
  set(S::kOpening, E::kDataLost, never("no data is posted before the receiver answers"));
  set(S::kOpening, E::kDrained, never("nothing failed"));
  set(S::kOpening, E::kAllDelivered, never("only an acknowledged round can be delivered"));
  set(S::kOpening, E::kRailClosed, go(S::kOpening, kSendOpen));
  set(S::kOpening, E::kGateOpen, never("no outcome yet"));
  set(S::kOpening, E::kGiveUp, go(S::kClosing, kSendFail));

  set(S::kSending, E::kAck, ign("duplicate answer"));
  set(S::kSending, E::kPut, go(S::kSending, kSendWrite));
  set(S::kSending, E::kFin, go(S::kClosing, kSendFinishOk));
  set(S::kSending, E::kNack, go(S::kClosing, kSendFinishOk));
  set(S::kSending, E::kNackFailed, go(S::kClosing, kSendFail));
  set(S::kSending, E::kRecvErr, go(S::kDraining, kSendDrain));
  set(S::kSending, E::kRecvErrOld, ign("that round is over and this one is open"));
  set(S::kSending, E::kRestartAck, ign("duplicate: the round it grants is open"));
  set(S::kSending, E::kControlLost, ign("it had arrived: the receiver answered it"));
  set(S::kSending, E::kDataLost, go(S::kDraining, kSendDrain));
  set(S::kSending, E::kDrained, never("nothing failed"));
  set(S::kSending, E::kAllDelivered, go(S::kClosing, kSendFinishOk));
  set(S::kSending, E::kRailClosed, ign("our own fragments tell us; the receiver repeats what is pending"));
  set(S::kSending, E::kGateOpen, never("no outcome yet"));
  set(S::kSending, E::kGiveUp, go(S::kClosing, kSendFail));

  set(S::kDraining, E::kAck, ign("the round is ending"));
  set(S::kDraining, E::kPut, ign("the round is ending: NOTIFY certifies the grant unused"));
  set(S::kDraining, E::kFin, go(S::kClosing, kSendFinishOk));
  set(S::kDraining, E::kNack, go(S::kClosing, kSendFinishOk));
  set(S::kDraining, E::kNackFailed, go(S::kClosing, kSendFail));
  set(S::kDraining, E::kRecvErr, ign("NOTIFY will follow"));
  set(S::kDraining, E::kRecvErrOld, ign("NOTIFY will follow"));
  set(S::kDraining, E::kRestartAck, ign("duplicate: the round it grants is ending"));
  set(S::kDraining, E::kControlLost, ign("the round is ending"));
  set(S::kDraining, E::kDataLost, go(S::kDraining, kSendDrain));
  set(S::kDraining, E::kDrained, go(S::kNotified, kSendNewRound | kSendNotify));
  set(S::kDraining, E::kAllDelivered, never("a hurt round is never delivered"));
  set(S::kDraining, E::kRailClosed, ign("our own fragments tell us"));
  set(S::kDraining, E::kGateOpen, never("no outcome yet"));
  set(S::kDraining, E::kGiveUp, go(S::kClosing, kSendFail));

  set(S::kNotified, E::kAck, ign("receiver cannot be in this round: forged"));
  set(S::kNotified, E::kPut, ign("receiver cannot be in this round: forged"));
  set(S::kNotified, E::kFin, ign("receiver cannot be in this round: forged"));
  set(S::kNotified, E::kNack, go(S::kClosing, kSendFinishOk));
  set(S::kNotified, E::kNackFailed, go(S::kClosing, kSendFail));
  set(S::kNotified, E::kRecvErr, ign("receiver cannot be in this round: forged"));
  set(S::kNotified, E::kRecvErrOld, go(S::kNotified, kSendNotify));
  set(S::kNotified, E::kRestartAck, go(S::kOpening, kSendPlan | kSendOpen));
  set(S::kNotified, E::kControlLost, go(S::kNotified, kSendNotify));
  set(S::kNotified, E::kDataLost, never("everything of the old round has ended"));
  set(S::kNotified, E::kDrained, never("already drained"));
  set(S::kNotified, E::kAllDelivered, never("nothing of this round is posted"));
  set(S::kNotified, E::kRailClosed, go(S::kNotified, kSendNotify));
  set(S::kNotified, E::kGateOpen, never("no outcome yet"));
  set(S::kNotified, E::kGiveUp, go(S::kClosing, kSendFail));

  const char* const done = "outcome decided";
  set(S::kClosing, E::kAck, ign(done));
  set(S::kClosing, E::kPut, ign(done));
  set(S::kClosing, E::kFin, ign(done));
  set(S::kClosing, E::kNack, ign(done));
  set(S::kClosing, E::kNackFailed, ign(done));
  set(S::kClosing, E::kRecvErr, go(S::kClosing, kSendAnswerDone));
  set(S::kClosing, E::kRecvErrOld, go(S::kClosing, kSendAnswerDone));
  set(S::kClosing, E::kRestartAck, ign(done));
  set(S::kClosing, E::kControlLost, ign(done));
  set(S::kClosing, E::kDataLost, ign("the ledger holds it until its rail is fenced"));
  set(S::kClosing, E::kDrained, never("not draining"));
  set(S::kClosing, E::kAllDelivered, never("outcome decided, nothing is counted"));
  set(S::kClosing, E::kRailClosed, ign("the gate is tested after every closure"));
  set(S::kClosing, E::kGateOpen, go(S::kIdle, kSendComplete));
  set(S::kClosing, E::kGiveUp, ign("only the gate opens from here"));
  return t;
}
}  // namespace detail

inline constexpr SendTable kSendTable = detail::make_send_table();
static_assert(complete(kSendTable), "an empty cell, or one without a reason");

constexpr const SendCell& step(SendPhase p, SendEvent e) {
  return kSendTable[static_cast<size_t>(p)][static_cast<size_t>(e)];
}

inline constexpr const char* kSendPhaseNames[kSendPhases] = {"Idle",     "Opening",  "Sending",
                                                             "Draining", "Notified", "Closing"};
inline constexpr const char* kSendEventNames[kSendEvents] = {
    "Ack",     "Put",          "Fin",        "Nack",        "NackFailed",
    "RecvErr", "RecvErrOld",   "RestartAck", "ControlLost", "DataLost",
    "Drained", "AllDelivered", "RailClosed", "GateOpen",    "GiveUp"};
inline constexpr const char* kSendActionNames[] = {"open",   "start",       "write",   "new-round",
                                                   "notify", "plan",        "drain",   "finish-ok",
                                                   "fail",   "answer-done", "complete"};

}  // namespace bfo::core
