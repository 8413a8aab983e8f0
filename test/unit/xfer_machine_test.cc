// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_machine_test.cc: the phases of requests: steps of the tables, those of a port, and ends in one go.
#include "pml/bfo/xfer/moves/machine.h"

#include <gtest/gtest.h>

#include "pml/bfo/xfer/hooks.h"

namespace bfo::xfer {
namespace {

using core::RecvEvent;
using core::RecvPhase;
using core::SendEvent;
using core::SendPhase;

struct Plain : NoHooks {};

/// A port with tables of its own.
struct Changed {
  const core::SendCell& send_cell(SendPhase, SendEvent) const { return send; }
  const core::RecvCell& recv_cell(RecvPhase, RecvEvent) const { return recv; }
  core::SendCell send = core::go(SendPhase::kNotified, 3u);
  core::RecvCell recv = core::ignore<RecvPhase>("not today");
};

struct Send {
  SendPhase phase = SendPhase::kIdle;
  uint8_t pending = 1;
};
struct Recv {
  RecvPhase phase = RecvPhase::kIdle;
  uint8_t pending = 1;
};

TEST(Machine, StepsThroughTheTablesAndCounts) {
  const Plain port;
  Machine<Plain> machine(port);
  Send s;
  Machine<Plain>::begin(s);
  EXPECT_EQ(s.phase, SendPhase::kOpening);
  EXPECT_EQ(machine.step(s, SendEvent::kAck), core::kSendStart);
  EXPECT_EQ(s.phase, SendPhase::kSending);
  EXPECT_EQ(machine.step(s, SendEvent::kAck), Machine<Plain>::kIgnored);
  EXPECT_EQ(s.phase, SendPhase::kSending);
  Recv r;
  Machine<Plain>::begin(r);
  EXPECT_EQ(machine.step(r, RecvEvent::kCovered), core::kRecvFinishOk);
  EXPECT_EQ(r.phase, RecvPhase::kClosing);
  uint64_t sends = 0;
  uint64_t recvs = 0;
  for (const auto& phase : machine.sends())
    for (const uint64_t n : phase) sends += n;
  for (const auto& phase : machine.recvs())
    for (const uint64_t n : phase) recvs += n;
  EXPECT_EQ(sends, 2u);
  EXPECT_EQ(recvs, 1u);
  EXPECT_EQ(machine.sends()[static_cast<int>(SendPhase::kSending)][static_cast<int>(SendEvent::kAck)], 1u);
  EXPECT_EQ(machine.recvs()[static_cast<int>(RecvPhase::kReceiving)][static_cast<int>(RecvEvent::kCovered)],
            1u);
  Machine<Plain>::rest(s);
  EXPECT_EQ(s.phase, SendPhase::kIdle);
}

TEST(Machine, OfAPortWithTablesOfItsOwn) {
  const Changed port;
  Machine<Changed> machine(port);
  Send s;
  EXPECT_EQ(machine.step(s, SendEvent::kGiveUp), 3u);
  EXPECT_EQ(s.phase, SendPhase::kNotified);
  Recv r;
  EXPECT_EQ(machine.step(r, RecvEvent::kGiveUp), Machine<Changed>::kIgnored);
  EXPECT_EQ(r.phase, RecvPhase::kIdle);
}

template <const auto& Steps, class State, class Phase>
void expect_end(State x, Phase from) {
  x.phase = from;
  Machine<Plain>::finish_directly<Steps>(x);
  EXPECT_EQ(x.phase, Phase::kIdle);
  EXPECT_EQ(x.pending, 0);
}

TEST(Machine, EndsInOneGo) {
  expect_end<kReadEntirely>(Send{}, SendPhase::kOpening);
  expect_end<kWrittenEntirely>(Send{}, SendPhase::kSending);
  expect_end<kOneRead>(Recv{}, RecvPhase::kReceiving);
  expect_end<kOneGrant>(Recv{}, RecvPhase::kReceiving);
}

/// The walk that binds an end in one go to its table sees each way in which they could differ.
TEST(Machine, WalkOfAnotherTableDiffers) {
  core::RecvTable table = core::kRecvTable;
  const auto cell = [&table](RecvPhase p, RecvEvent e) -> core::RecvCell& {
    return table[static_cast<size_t>(p)][static_cast<size_t>(e)];
  };
  const auto want = walk(core::kRecvTable, RecvPhase::kReceiving, kOneRead);
  EXPECT_EQ(walk(table, RecvPhase::kReceiving, kOneRead), want);
  cell(RecvPhase::kReceiving, RecvEvent::kCovered) = core::go(RecvPhase::kClosing);  // an action less
  EXPECT_NE(walk(table, RecvPhase::kReceiving, kOneRead), want);
  table = core::kRecvTable;
  cell(RecvPhase::kClosing, RecvEvent::kGateOpen).next = RecvPhase::kClosing;  // another phase
  EXPECT_NE(walk(table, RecvPhase::kReceiving, kOneRead), want);
  table = core::kRecvTable;
  cell(RecvPhase::kReceiving, RecvEvent::kReadDone).kind = core::CellKind::kIgnore;
  EXPECT_NE(walk(table, RecvPhase::kReceiving, kOneRead), want);
}

}  // namespace
}  // namespace bfo::xfer
