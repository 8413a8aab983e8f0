// SPDX-License-Identifier: BSD-3-Clause
//
// recv_machine.h: the receiver's half of one rendezvous transfer, as a table.
//
// It starts when a receive is matched with a RNDV or RGET. Filtering before the table as in send_machine.h;
// NOTIFY of the next round and of the current one are different events.
#pragma once

#include "pml/bfo/core/table.h"

namespace bfo::core {

enum class RecvPhase : uint8_t {
  kIdle,       ///< no rendezvous; the name is free
  kReceiving,  ///< the round is open: ACK, PUTs or READs pending or sent, data arrives
  kAsking,     ///< we saw an error: RECVERR pending or sent, waiting for NOTIFY
  kQuiescing,  ///< NOTIFY of the next round is here: waiting for own READs and for fences
  kQuiesced,   ///< new round begun, no access granted: RESTARTACK pending or sent, waiting for RNDV or RGET
  kClosing,    ///< outcome decided; waiting for the gate (ledger empty, nothing in flight)
  kCount
};

enum class RecvEvent : uint8_t {
  kFrag,         ///< FRAG of this round
  kFin,          ///< FIN: a grant is used up and its bytes are in place
  kFinRefused,   ///< FIN with fail: no byte of the grant was or will be written
  kReadDone,     ///< own READ succeeded
  kReadLost,     ///< own READ ended without success
  kCovered,      ///< every byte that fits has arrived (raised in kReceiving, kAsking and kQuiescing only)
  kOpenAgain,    ///< duplicate RNDV or RGET of this round, without the RESTART flag
  kReopen,       ///< RNDV or RGET of this round with the RESTART flag
  kNotify,       ///< NOTIFY of the next round
  kNotifyAgain,  ///< NOTIFY of the current round
  kSendDone,     ///< sender has finished: all its bytes were delivered
  kSendFailed,   ///< sender has ended with an error
  kControlLost,  ///< our ACK, PUT, RECVERR or RESTARTACK of this round ended without success
  kAsk,       ///< we cannot go on in this round: grants on a dead rail, or no rail the sender exposed is up
  kQuiesced,  ///< own READs ended, every grant is certified clean or fenced, FRAGs came (in kQuiescing only)
  kRailClosed,  ///< a rail of the peer closed: what we sent or were sent on it may be lost
  kGateOpen,    ///< ledger empty and nothing in flight (raised in kClosing only)
  kGiveUp,      ///< park time over, peer's process died, or a message was lost for good
  kCount
};

enum RecvAction : uint32_t {
  kRecvStore = 1u << 0,        ///< unpack what is new of this FRAG
  kRecvUseGrant = 1u << 1,     ///< count the grant's bytes; its ledger entry leaves now or when fenced
  kRecvDropGrant = 1u << 2,    ///< its ledger entry leaves; plan its range again
  kRecvCountRead = 1u << 3,    ///< count the READ's bytes
  kRecvAnswer = 1u << 4,       ///< pending: what this round needs, ACK, PUTs or READs
  kRecvAsk = 1u << 5,          ///< pending: RECVERR
  kRecvQuiesce = 1u << 6,      ///< drop certified grants, fence the others; raise kQuiesced when that is done
  kRecvNewRound = 1u << 7,     ///< round + 1
  kRecvRestartAck = 1u << 8,   ///< pending: RESTARTACK with the ranges received
  kRecvReopen = 1u << 9,       ///< take protocol and keys of this round from the header
  kRecvFinishOk = 1u << 10,    ///< outcome ok (or truncated); RGET: tell the sender FIN; test the gate
  kRecvFail = 1u << 11,        ///< outcome peer lost; fence what is left in the ledger
  kRecvAnswerNack = 1u << 12,  ///< tell the sender RESTARTNACK
  kRecvSenderDone = 1u << 13,  ///< everything granted and used was delivered: count it, fence before the gate
  kRecvComplete = 1u << 14,    ///< free the name, complete the request
  kRecvCertify = 1u << 15      ///< drop the grants that this NOTIFY certifies, by the rail it came over, too
};

inline constexpr size_t kRecvPhases = static_cast<size_t>(RecvPhase::kCount);
inline constexpr size_t kRecvEvents = static_cast<size_t>(RecvEvent::kCount);
using RecvCell = Cell<RecvPhase>;
using RecvTable = Table<RecvPhase, kRecvPhases, kRecvEvents>;

namespace detail {
constexpr RecvTable make_recv_table() {
  using S = RecvPhase;
  using E = RecvEvent;
  RecvTable t{};
  auto set = [&t](S s, E e, RecvCell c) { t[static_cast<size_t>(s)][static_cast<size_t>(e)] = c; };
  auto ign = [](const char* why) { return ignore<S>(why); };
  auto never = [](const char* why) { return bug<S>(why); };

  for (size_t e = 0; e < kRecvEvents; ++e)
    set(S::kIdle, static_cast<E>(e), never("a request without a name gets no events"));

  set(S::kReceiving, E::kFrag, go(S::kReceiving, kRecvStore));
  set(S::kReceiving, E::kFin, go(S::kReceiving, kRecvUseGrant));
  set(S::kReceiving, E::kFinRefused, go(S::kReceiving, kRecvDropGrant | kRecvAnswer));
  set(S::kReceiving, E::kReadDone, go(S::kReceiving, kRecvCountRead));
  set(S::kReceiving, E::kReadLost, go(S::kAsking, kRecvAsk));
  set(S::kReceiving, E::kCovered, go(S::kClosing, kRecvFinishOk));
  set(S::kReceiving, E::kOpenAgain, go(S::kReceiving, kRecvAnswer));
  set(S::kReceiving, E::kReopen, go(S::kReceiving, kRecvAnswer));
  set(S::kReceiving, E::kNotify, go(S::kQuiescing, kRecvQuiesce));
  set(S::kReceiving, E::kNotifyAgain, ign("duplicate: the round it announced is open"));
  set(S::kReceiving, E::kSendDone, go(S::kReceiving, kRecvSenderDone));
  set(S::kReceiving, E::kSendFailed, go(S::kClosing, kRecvFail));
  set(S::kReceiving, E::kControlLost, go(S::kReceiving, kRecvAnswer));
  set(S::kReceiving, E::kAsk, go(S::kAsking, kRecvAsk));
  set(S::kReceiving, E::kQuiesced, never("not quiescing"));
  set(S::kReceiving, E::kRailClosed, go(S::kReceiving, kRecvAnswer));
  set(S::kReceiving, E::kGateOpen, never("no outcome yet"));
  set(S::kReceiving, E::kGiveUp, go(S::kClosing, kRecvFail));

  set(S::kAsking, E::kFrag, go(S::kAsking, kRecvStore));
  set(S::kAsking, E::kFin, go(S::kAsking, kRecvUseGrant));
  set(S::kAsking, E::kFinRefused, go(S::kAsking, kRecvDropGrant));
  set(S::kAsking, E::kReadDone, go(S::kAsking, kRecvCountRead));
  set(S::kAsking, E::kReadLost, ign("already asked"));
  set(S::kAsking, E::kCovered, go(S::kClosing, kRecvFinishOk));
  set(S::kAsking, E::kOpenAgain, go(S::kAsking, kRecvAsk));
  set(S::kAsking, E::kReopen, go(S::kAsking, kRecvAsk));
  set(S::kAsking, E::kNotify, go(S::kQuiescing, kRecvQuiesce));
  set(S::kAsking, E::kNotifyAgain, ign("duplicate: the round it announced has failed"));
  set(S::kAsking, E::kSendDone, go(S::kAsking, kRecvSenderDone));
  set(S::kAsking, E::kSendFailed, go(S::kClosing, kRecvFail));
  set(S::kAsking, E::kControlLost, go(S::kAsking, kRecvAsk));
  set(S::kAsking, E::kAsk, ign("already asked"));
  set(S::kAsking, E::kQuiesced, never("not quiescing"));
  set(S::kAsking, E::kRailClosed, go(S::kAsking, kRecvAsk));
  set(S::kAsking, E::kGateOpen, never("no outcome yet"));
  set(S::kAsking, E::kGiveUp, go(S::kClosing, kRecvFail));

  set(S::kQuiescing, E::kFrag, go(S::kQuiescing, kRecvStore));
  set(S::kQuiescing, E::kFin, go(S::kQuiescing, kRecvUseGrant));
  set(S::kQuiescing, E::kFinRefused, go(S::kQuiescing, kRecvDropGrant));
  set(S::kQuiescing, E::kReadDone, go(S::kQuiescing, kRecvCountRead));
  set(S::kQuiescing, E::kReadLost, ign("its rail is being fenced"));
  set(S::kQuiescing, E::kCovered, go(S::kClosing, kRecvFinishOk | kRecvAnswerNack));
  set(S::kQuiescing, E::kOpenAgain, ign("older than the NOTIFY that ended its round"));
  set(S::kQuiescing, E::kReopen, ign("older than the NOTIFY that ended its round"));
  set(S::kQuiescing, E::kNotify, go(S::kQuiescing, kRecvCertify));
  set(S::kQuiescing, E::kNotifyAgain, ign("older than the one that ended this round"));
  set(S::kQuiescing, E::kSendDone, ign("older than the NOTIFY"));
  set(S::kQuiescing, E::kSendFailed, go(S::kClosing, kRecvFail));
  set(S::kQuiescing, E::kControlLost, ign("the round is ending"));
  set(S::kQuiescing, E::kAsk, ign("the round is ending"));
  set(S::kQuiescing, E::kQuiesced, go(S::kQuiesced, kRecvNewRound | kRecvRestartAck));
  set(S::kQuiescing, E::kRailClosed, ign("quiescence is tested after every closure"));
  set(S::kQuiescing, E::kGateOpen, never("no outcome yet"));
  set(S::kQuiescing, E::kGiveUp, go(S::kClosing, kRecvFail));

  const char* const shut = "the sender has not reopened this round: forged";
  set(S::kQuiesced, E::kFrag, ign(shut));
  set(S::kQuiesced, E::kFin, ign(shut));
  set(S::kQuiesced, E::kFinRefused, ign(shut));
  set(S::kQuiesced, E::kReadDone, never("every READ ended before this phase"));
  set(S::kQuiesced, E::kReadLost, never("every READ ended before this phase"));
  set(S::kQuiesced, E::kCovered, never("tested before this phase; nothing arrives in it"));
  set(S::kQuiesced, E::kOpenAgain, ign("a new round is opened with the RESTART flag only"));
  set(S::kQuiesced, E::kReopen, go(S::kReceiving, kRecvReopen | kRecvAnswer));
  set(S::kQuiesced, E::kNotify, ign("sender cannot be two rounds ahead: forged"));
  set(S::kQuiesced, E::kNotifyAgain, go(S::kQuiesced, kRecvRestartAck));
  set(S::kQuiesced, E::kSendDone, ign("older than the NOTIFY"));
  set(S::kQuiesced, E::kSendFailed, go(S::kClosing, kRecvFail));
  set(S::kQuiesced, E::kControlLost, go(S::kQuiesced, kRecvRestartAck));
  set(S::kQuiesced, E::kAsk, ign("a new round is on its way"));
  set(S::kQuiesced, E::kQuiesced, never("already quiesced"));
  set(S::kQuiesced, E::kRailClosed, go(S::kQuiesced, kRecvRestartAck));
  set(S::kQuiesced, E::kGateOpen, never("no outcome yet"));
  set(S::kQuiesced, E::kGiveUp, go(S::kClosing, kRecvFail));

  const char* const done = "outcome decided";
  set(S::kClosing, E::kFrag, ign(done));
  set(S::kClosing, E::kFin, go(S::kClosing, kRecvUseGrant));
  set(S::kClosing, E::kFinRefused, go(S::kClosing, kRecvDropGrant));
  set(S::kClosing, E::kReadDone, go(S::kClosing, kRecvCountRead));
  set(S::kClosing, E::kReadLost, ign("the ledger holds it until its rail is fenced"));
  set(S::kClosing, E::kCovered, never("outcome decided, nothing is counted"));
  set(S::kClosing, E::kOpenAgain, go(S::kClosing, kRecvAnswerNack));
  set(S::kClosing, E::kReopen, go(S::kClosing, kRecvAnswerNack));
  set(S::kClosing, E::kNotify, go(S::kClosing, kRecvQuiesce | kRecvAnswerNack));
  set(S::kClosing, E::kNotifyAgain, go(S::kClosing, kRecvAnswerNack));
  set(S::kClosing, E::kSendDone, ign(done));
  set(S::kClosing, E::kSendFailed, ign(done));
  set(S::kClosing, E::kControlLost, ign(done));
  set(S::kClosing, E::kAsk, ign(done));
  set(S::kClosing, E::kQuiesced, never("not quiescing"));
  set(S::kClosing, E::kRailClosed, ign("the gate is tested after every closure"));
  set(S::kClosing, E::kGateOpen, go(S::kIdle, kRecvComplete));
  set(S::kClosing, E::kGiveUp, ign("only the gate opens from here"));
  return t;
}
}  // namespace detail

inline constexpr RecvTable kRecvTable = detail::make_recv_table();
static_assert(complete(kRecvTable), "an empty cell, or one without a reason");

constexpr const RecvCell& step(RecvPhase p, RecvEvent e) {
  return kRecvTable[static_cast<size_t>(p)][static_cast<size_t>(e)];
}

inline constexpr const char* kRecvPhaseNames[kRecvPhases] = {"Idle",      "Receiving", "Asking",
                                                             "Quiescing", "Quiesced",  "Closing"};
inline constexpr const char* kRecvEventNames[kRecvEvents] = {
    "Frag",        "Fin",    "FinRefused", "ReadDone",    "ReadLost", "Covered",
    "OpenAgain",   "Reopen", "Notify",     "NotifyAgain", "SendDone", "SendFailed",
    "ControlLost", "Ask",    "Quiesced",   "RailClosed",  "GateOpen", "GiveUp"};
inline constexpr const char* kRecvActionNames[] = {"store",       "use-grant",   "drop-grant", "count-read",
                                                   "answer",      "ask",         "quiesce",    "new-round",
                                                   "restart-ack", "reopen",      "finish-ok",  "fail",
                                                   "answer-nack", "sender-done", "complete",   "certify"};

}  // namespace bfo::core
