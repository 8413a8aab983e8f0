// SPDX-License-Identifier: BSD-3-Clause
//
// cell_changes.h: every change of one cell of the state tables: a cell that is Go becomes Ignore and Bug, one
// that is Ignore becomes Bug and each Go that the same event has in another phase. Something must notice each
// of them: the rules below, the closure (closure_cells_test) or the simulator (test/stack/cells).
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "pml/bfo/core/recv_machine.h"
#include "pml/bfo/core/send_machine.h"

namespace bfo::cells {

struct Tables {
  core::SendTable send = core::kSendTable;
  core::RecvTable recv = core::kRecvTable;
};

struct Change {
  std::string name;  ///< "recv Quiesced Reopen -> Bug"
  bool recv = false;
  size_t phase = 0, event = 0;
  Tables tables;  ///< with the cell changed
};

std::vector<Change> all_changes();

/// Changes and what is said about them: lines "change: text", "#" begins a comment. False: `error` says which
/// line is wrong.
bool read_list(const std::string& file, std::map<std::string, std::string>& out, std::string& error);

}  // namespace bfo::cells
