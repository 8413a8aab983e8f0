// SPDX-License-Identifier: BSD-3-Clause
//
// table_rules.h: what holds for the state tables as such, whatever the engine does with them. core_test asks
// it of the component's tables, closure_cells_test of tables with a cell changed.
#pragma once

#include <string>

#include "pml/bfo/core/recv_machine.h"
#include "pml/bfo/core/send_machine.h"

namespace bfo::core {

/// Events that only this process can raise: they alone may be bugs.
constexpr bool local(SendEvent e) {
  switch (e) {
    case SendEvent::kControlLost:
    case SendEvent::kDataLost:
    case SendEvent::kDrained:
    case SendEvent::kAllDelivered:
    case SendEvent::kRailClosed:
    case SendEvent::kGateOpen:
    case SendEvent::kGiveUp:
      return true;
    default:
      return false;
  }
}
constexpr bool local(RecvEvent e) {
  switch (e) {
    case RecvEvent::kReadDone:
    case RecvEvent::kReadLost:
    case RecvEvent::kCovered:
    case RecvEvent::kControlLost:
    case RecvEvent::kAsk:
    case RecvEvent::kQuiesced:
    case RecvEvent::kRailClosed:
    case RecvEvent::kGateOpen:
    case RecvEvent::kGiveUp:
      return true;
    default:
      return false;
  }
}

/// What the actions of a machine are to the rules.
struct SendRules {
  using Phase = SendPhase;
  using Event = SendEvent;
  static constexpr uint32_t kComplete = kSendComplete, kDecide = kSendFinishOk | kSendFail,
                            kNewRound = kSendNewRound;
  static constexpr Phase kRoundEnds = Phase::kDraining;
  static constexpr Event kRoundEvent = Event::kDrained;
};
struct RecvRules {
  using Phase = RecvPhase;
  using Event = RecvEvent;
  static constexpr uint32_t kComplete = kRecvComplete, kDecide = kRecvFinishOk | kRecvFail,
                            kNewRound = kRecvNewRound;
  static constexpr Phase kRoundEnds = Phase::kQuiescing;
  static constexpr Event kRoundEvent = Event::kQuiesced;
};

/// The rule that a cell breaks, or nothing.
template <class R, class C>
const char* broken_rule(typename R::Phase p, typename R::Event e, const C& c) {
  using Phase = typename R::Phase;
  using Event = typename R::Event;
  const bool go = c.kind == CellKind::kGo;
  const bool gate = p == Phase::kClosing && e == Event::kGateOpen;
  if (p != Phase::kIdle && c.kind == CellKind::kBug && !local(e)) return "no message can reach a bug";
  if ((go && (c.actions & R::kComplete)) != gate) return "only the gate completes";
  if (go && (c.next == Phase::kIdle) != gate) return "only the gate ends a request";
  if (go && p == Phase::kClosing && !gate && c.next != Phase::kClosing) return "only the gate leaves Closing";
  if (go && (c.actions & R::kDecide) && (p == Phase::kClosing || c.next != Phase::kClosing))
    return "the outcome is decided once, on the way into Closing";
  if (go && (c.actions & R::kNewRound) && !(p == R::kRoundEnds && e == R::kRoundEvent))
    return "a round ends only when nothing of it is under way";
  return nullptr;
}

template <class R, class T>
std::string broken_rules(const T& t) {
  std::string all;
  for (size_t p = 0; p < t.size(); ++p)
    for (size_t e = 0; e < t[p].size(); ++e)
      if (const char* why =
              broken_rule<R>(static_cast<typename R::Phase>(p), static_cast<typename R::Event>(e), t[p][e]))
        all += std::string(why) + ": phase " + std::to_string(p) + ", event " + std::to_string(e) + "\n";
  return all;
}

/// After a rail closed, a phase that waits for the peer sends again, or waits only for its own fragments, or
/// for messages the receiver repeats.
inline std::string broken_wait(const SendTable& s, const RecvTable& r) {
  std::string all;
  const auto send = [&](SendPhase p, uint32_t action) {
    const auto& c = s[static_cast<size_t>(p)][static_cast<size_t>(SendEvent::kRailClosed)];
    if (c.kind != CellKind::kGo || !(c.actions & action))
      all += std::string("a waiting sender repeats: ") + kSendPhaseNames[static_cast<size_t>(p)] + "\n";
  };
  const auto recv = [&](RecvPhase p, uint32_t action) {
    const auto& c = r[static_cast<size_t>(p)][static_cast<size_t>(RecvEvent::kRailClosed)];
    if (c.kind != CellKind::kGo || !(c.actions & action))
      all += std::string("a waiting receiver repeats: ") + kRecvPhaseNames[static_cast<size_t>(p)] + "\n";
  };
  send(SendPhase::kOpening, kSendOpen);
  send(SendPhase::kNotified, kSendNotify);
  recv(RecvPhase::kReceiving, kRecvAnswer);
  recv(RecvPhase::kAsking, kRecvAsk);
  recv(RecvPhase::kQuiesced, kRecvRestartAck);
  return all;
}

}  // namespace bfo::core
