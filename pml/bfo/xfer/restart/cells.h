// SPDX-License-Identifier: BSD-3-Clause
//
// cells.h: the cells of the two state tables as an engine steps through them. Counts how often each was used,
// for the coverage reports of the simulators. Used under the engine's lock. Needs no memory, cannot fail.
#pragma once

#include <cstdint>

#include "pml/bfo/core/recv_machine.h"
#include "pml/bfo/core/send_machine.h"

namespace bfo::xfer {

template <class P>
class Cells {
 public:
  using SendCounts = std::uint64_t[core::kSendPhases][core::kSendEvents];
  using RecvCounts = std::uint64_t[core::kRecvPhases][core::kRecvEvents];

  explicit Cells(const P& port) : port_(port) {}

  /// The cell of event `e` in phase `p`; this use of it is counted. A test's port may bring tables of its
  /// own, to see that the checkers notice a change.
  const core::SendCell& use(core::SendPhase p, core::SendEvent e) {
    ++sends_[static_cast<unsigned>(p)][static_cast<unsigned>(e)];
    return port_.send_cell(p, e);
  }
  const core::RecvCell& use(core::RecvPhase p, core::RecvEvent e) {
    ++recvs_[static_cast<unsigned>(p)][static_cast<unsigned>(e)];
    return port_.recv_cell(p, e);
  }

  const SendCounts& sends() const { return sends_; }
  const RecvCounts& recvs() const { return recvs_; }

 private:
  const P& port_;
  SendCounts sends_ = {};
  RecvCounts recvs_ = {};
};

}  // namespace bfo::xfer
