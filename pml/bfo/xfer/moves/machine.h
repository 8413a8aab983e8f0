// SPDX-License-Identifier: BSD-3-Clause
//
// machine.h: the phases of requests, as the two state tables move them. The only file that changes a phase
// (contrib/tidy). What a step asks for, the caller does (restart.h).
//
// The usual message ends in one go instead of three steps, or two, of its table. Each such end is listed here
// with the steps that it stands for; a table in which they lead elsewhere, or ask for something else, does
// not compile. The closure models take the same steps, with anything in between and with nothing, so each of
// these ends is a path that they cover.
//
// Counts how often each cell was used, for the coverage reports of the simulators. Used under the engine's
// lock. Needs no memory, cannot fail.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/check.h"
#include "pml/bfo/core/recv_machine.h"
#include "pml/bfo/core/send_machine.h"

namespace bfo::xfer {

/// Where the steps `events` of `table` lead from `from`: the phase, and all that they ask for. `go`: none of
/// them is ignored.
template <class Phase>
struct Walk {
  Phase phase;
  uint32_t actions = 0;
  bool go = true;
  constexpr bool operator==(const Walk&) const = default;
};
template <class Table, class Phase, class Event, size_t N>
constexpr Walk<Phase> walk(const Table& table, Phase from, const Event (&events)[N]) {
  Walk<Phase> w{from};
  for (const Event e : events) {
    const auto& cell = table[static_cast<size_t>(w.phase)][static_cast<size_t>(e)];
    w.go = w.go && cell.kind == core::CellKind::kGo;
    w.phase = cell.next;
    w.actions |= cell.actions;
  }
  return w;
}

/// The ends of a send in one go. Its caller has done what FinishOk and Complete ask for.
inline constexpr core::SendEvent kReadEntirely[] = {core::SendEvent::kFin, core::SendEvent::kGateOpen};
static_assert(walk(core::kSendTable, core::SendPhase::kOpening, kReadEntirely) ==
              Walk<core::SendPhase>{core::SendPhase::kIdle, core::kSendFinishOk | core::kSendComplete});
inline constexpr core::SendEvent kWrittenEntirely[] = {core::SendEvent::kAllDelivered,
                                                       core::SendEvent::kGateOpen};
static_assert(walk(core::kSendTable, core::SendPhase::kSending, kWrittenEntirely) ==
              Walk<core::SendPhase>{core::SendPhase::kIdle, core::kSendFinishOk | core::kSendComplete});

/// The ends of a receive in one go. Nobody asks for its bytes afterwards, so they are not counted.
inline constexpr core::RecvEvent kOneRead[] = {core::RecvEvent::kReadDone, core::RecvEvent::kCovered,
                                               core::RecvEvent::kGateOpen};
static_assert(walk(core::kRecvTable, core::RecvPhase::kReceiving, kOneRead) ==
              Walk<core::RecvPhase>{core::RecvPhase::kIdle,
                                    core::kRecvCountRead | core::kRecvFinishOk | core::kRecvComplete});
inline constexpr core::RecvEvent kOneGrant[] = {core::RecvEvent::kFin, core::RecvEvent::kCovered,
                                                core::RecvEvent::kGateOpen};
static_assert(walk(core::kRecvTable, core::RecvPhase::kReceiving, kOneGrant) ==
              Walk<core::RecvPhase>{core::RecvPhase::kIdle,
                                    core::kRecvUseGrant | core::kRecvFinishOk | core::kRecvComplete});

template <class P>
class Machine {
 public:
  using SendCounts = uint64_t[core::kSendPhases][core::kSendEvents];
  using RecvCounts = uint64_t[core::kRecvPhases][core::kRecvEvents];

  explicit Machine(const P& port) : port_(port) {}

  // ---- `x`: the SendState or RecvState of a request
  /// It is started, and is no rendezvous.
  static void rest(auto& x) { x.phase = {}; }
  /// It becomes a rendezvous.
  template <class State>
  requires requires(State& x) { x.phase = core::SendPhase::kOpening; }
  static void begin(State& x) { x.phase = core::SendPhase::kOpening; }
  template <class State>
  requires requires(State& x) { x.phase = core::RecvPhase::kReceiving; }
  static void begin(State& x) { x.phase = core::RecvPhase::kReceiving; }
  /// One step of its table. Returns the actions that it asks for, or kIgnored.
  static constexpr uint32_t kIgnored = UINT32_MAX;
  uint32_t step(auto& x, auto event) {
    const auto& cell = use(x.phase, event);
    if (cell.kind == core::CellKind::kIgnore) return kIgnored;
    BFO_CHECK(cell.kind == core::CellKind::kGo);
    x.phase = cell.next;
    return cell.actions;
  }
  /// The steps `Steps` at once: one of the four above.
  template <const auto& Steps>
  static void finish_directly(auto& x) {
    BFO_DCHECK(walk(table_of(x.phase), x.phase, Steps).go);
    x.pending = 0;
    x.phase = {};
  }

  const SendCounts& sends() const { return sends_; }
  const RecvCounts& recvs() const { return recvs_; }

 private:
  static constexpr const auto& table_of(core::SendPhase) { return core::kSendTable; }
  static constexpr const auto& table_of(core::RecvPhase) { return core::kRecvTable; }
  const core::SendCell& use(core::SendPhase p, core::SendEvent e) {
    ++sends_[static_cast<unsigned>(p)][static_cast<unsigned>(e)];
    return port_.send_cell(p, e);
  }
  const core::RecvCell& use(core::RecvPhase p, core::RecvEvent e) {
    ++recvs_[static_cast<unsigned>(p)][static_cast<unsigned>(e)];
    return port_.recv_cell(p, e);
  }

  const P& port_;
  SendCounts sends_ = {};
  RecvCounts recvs_ = {};
};

}  // namespace bfo::xfer
