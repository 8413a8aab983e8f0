// SPDX-License-Identifier: BSD-3-Clause
//
// table.h: what a cell of a state machine's table is, and the checks that hold for every table.
//
// A machine is a constexpr array phases x events. Each cell says Go (next phase, actions), Ignore (with the
// reason why nothing is right), or Bug (this program broke its own rules; a peer cannot cause it). No cell is
// empty: that is a static_assert. The same arrays are used by the component, the unit tests, the closure test
// and the generated part of PROTOCOL.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace bfo::core {

enum class CellKind : uint8_t { kEmpty, kGo, kIgnore, kBug };

template <class Phase>
struct Cell {
  CellKind kind = CellKind::kEmpty;
  Phase next{};
  uint32_t actions = 0;
  const char* reason = "";
};

template <class Phase>
constexpr Cell<Phase> go(Phase next, uint32_t actions = 0) {
  return {CellKind::kGo, next, actions, ""};
}
template <class Phase>
constexpr Cell<Phase> ignore(const char* reason) {
  return {CellKind::kIgnore, Phase{}, 0, reason};
}
template <class Phase>
constexpr Cell<Phase> bug(const char* reason) {
  return {CellKind::kBug, Phase{}, 0, reason};
}

template <class Phase, size_t P, size_t E>
using Table = std::array<std::array<Cell<Phase>, E>, P>;

template <class Phase, size_t P, size_t E>
constexpr bool complete(const Table<Phase, P, E>& t) {
  for (const auto& row : t)
    for (const auto& cell : row) {
      if (cell.kind == CellKind::kEmpty) return false;
      if (cell.kind != CellKind::kGo && cell.reason[0] == '\0') return false;
    }
  return true;
}

}  // namespace bfo::core
