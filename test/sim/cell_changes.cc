// SPDX-License-Identifier: BSD-3-Clause
//
// cell_changes.cc: see cell_changes.h.

#include "test/sim/cell_changes.h"

#include <fstream>

namespace bfo::cells {
namespace {

template <class T>
void changes_of(T Tables::*table, bool recv, const char* const* phases, const char* const* events,
                std::vector<Change>& out) {
  using core::CellKind;
  const Tables plain;
  const T& t = plain.*table;
  const auto add = [&](size_t p, size_t e, const auto& cell, const std::string& to) {
    Change c;
    c.recv = recv;
    c.phase = p;
    c.event = e;
    c.name = std::string(recv ? "recv " : "send ") + phases[p] + " " + events[e] + " -> " + to;
    (c.tables.*table)[p][e] = cell;
    out.push_back(c);
  };
  for (size_t p = 1; p < t.size(); ++p)
    for (size_t e = 0; e < t[p].size(); ++e) {
      auto cell = t[p][e];
      if (cell.kind == CellKind::kBug) continue;
      const bool was_go = cell.kind == CellKind::kGo;
      cell.kind = CellKind::kBug;
      add(p, e, cell, "Bug");
      if (was_go) {
        cell.kind = CellKind::kIgnore;
        add(p, e, cell, "Ignore");
        continue;
      }
      for (size_t q = 1; q < t.size(); ++q) {
        if (t[q][e].kind != CellKind::kGo) continue;
        bool before = false;  // two phases may have the same cell
        for (size_t k = 1; k < q; ++k)
          before = before || (t[k][e].kind == CellKind::kGo && t[k][e].next == t[q][e].next &&
                              t[k][e].actions == t[q][e].actions);
        if (!before) add(p, e, t[q][e], std::string("Go as in ") + phases[q]);
      }
    }
}

}  // namespace

std::vector<Change> all_changes() {
  std::vector<Change> all;
  changes_of(&Tables::send, false, core::kSendPhaseNames, core::kSendEventNames, all);
  changes_of(&Tables::recv, true, core::kRecvPhaseNames, core::kRecvEventNames, all);
  return all;
}

bool read_list(const std::string& file, std::map<std::string, std::string>& out, std::string& error) {
  std::ifstream in(file);
  if (!in) {
    error = "cannot read " + file;
    return false;
  }
  std::string line;
  while (std::getline(in, line)) {
    if (line.empty() || line[0] == '#') continue;
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) {
      error = "nothing said: " + line;
      return false;
    }
    if (!out.emplace(line.substr(0, colon), line.substr(colon + 2)).second) {
      error = "twice: " + line;
      return false;
    }
  }
  return true;
}

}  // namespace bfo::cells
