// SPDX-License-Identifier: BSD-3-Clause
//
// hooks.h: what the port of a test may change in the engine. A port that changes nothing derives from
// NoHooks; one that changes something hides the function. The concept Port (port.h) asks for each of them.
// None of them calls back into the engine.
#pragma once

#include <cstdint>

#include "common/seq.h"
#include "pml/bfo/core/recv_machine.h"
#include "pml/bfo/core/send_machine.h"

namespace bfo::xfer {

struct NoHooks {
  /// The distance of successive sequence numbers. In larger steps (a power of two, at most kSeqWindow / 2)
  /// few messages fill the window, and numbers wrap often.
  static constexpr Seq16 seq_step() { return 1; }
  /// `reads` that have to end in time until a rail counts as one that keeps up: fewer where messages are few.
  static constexpr uint8_t reads_in_time(uint8_t reads) { return reads; }
  /// True: requests complete whatever their ledger says.
  static constexpr bool gate_removed() { return false; }
  /// The tables that requests walk.
  static const core::SendCell& send_cell(core::SendPhase p, core::SendEvent e) { return core::step(p, e); }
  static const core::RecvCell& recv_cell(core::RecvPhase p, core::RecvEvent e) { return core::step(p, e); }
  /// The send `r` is no rendezvous any more; its state is still there.
  static void rndv_over(const auto& r) { static_cast<void>(r); }
};

}  // namespace bfo::xfer
