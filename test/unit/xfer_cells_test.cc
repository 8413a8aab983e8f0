// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_cells_test.cc: the cells of the state tables, and how often they were used.
#include "pml/bfo/xfer/restart/cells.h"

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
  core::SendCell send{};
  core::RecvCell recv{};
};

TEST(Cells, AreThoseOfTheTablesAndCounted) {
  const Plain port;
  Cells<Plain> cells(port);
  EXPECT_EQ(&cells.use(SendPhase::kOpening, SendEvent::kAck),
            &core::step(SendPhase::kOpening, SendEvent::kAck));
  cells.use(SendPhase::kOpening, SendEvent::kAck);
  EXPECT_EQ(&cells.use(RecvPhase::kReceiving, RecvEvent::kCovered),
            &core::step(RecvPhase::kReceiving, RecvEvent::kCovered));
  std::uint64_t sends = 0;
  std::uint64_t recvs = 0;
  for (const auto& phase : cells.sends())
    for (const std::uint64_t n : phase) sends += n;
  for (const auto& phase : cells.recvs())
    for (const std::uint64_t n : phase) recvs += n;
  EXPECT_EQ(sends, 2u);
  EXPECT_EQ(recvs, 1u);
  EXPECT_EQ(cells.sends()[static_cast<int>(SendPhase::kOpening)][static_cast<int>(SendEvent::kAck)], 2u);
  EXPECT_EQ(cells.recvs()[static_cast<int>(RecvPhase::kReceiving)][static_cast<int>(RecvEvent::kCovered)],
            1u);
}

TEST(Cells, OfAPortWithTablesOfItsOwn) {
  const Changed port;
  Cells<Changed> cells(port);
  EXPECT_EQ(&cells.use(SendPhase::kOpening, SendEvent::kAck), &port.send);
  EXPECT_EQ(&cells.use(RecvPhase::kReceiving, RecvEvent::kCovered), &port.recv);
}

}  // namespace
}  // namespace bfo::xfer
