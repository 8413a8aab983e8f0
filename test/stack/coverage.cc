// SPDX-License-Identifier: BSD-3-Clause
//
// coverage.cc: see coverage.h. The file of reasons has lines "send Closing Put: why", "#" begins a comment; a
// reason beginning with "rare:" allows the cell to be used or not.

#include "test/stack/coverage.h"

#include <cstdio>
#include <fstream>
#include <map>
#include <vector>

namespace bfo::stack {
namespace {

struct CellUse {
  std::string name;
  core::CellKind kind;
  uint64_t used;
};

std::vector<CellUse> cells(const Coverage& c) {
  std::vector<CellUse> out;
  for (size_t i = 0; i < core::kSendPhases; ++i)
    for (size_t j = 0; j < core::kSendEvents; ++j)
      out.push_back({std::string("send ") + core::kSendPhaseNames[i] + " " + core::kSendEventNames[j],
                     core::kSendTable[i][j].kind, c.send[i][j]});
  for (size_t i = 0; i < core::kRecvPhases; ++i)
    for (size_t j = 0; j < core::kRecvEvents; ++j)
      out.push_back({std::string("recv ") + core::kRecvPhaseNames[i] + " " + core::kRecvEventNames[j],
                     core::kRecvTable[i][j].kind, c.recv[i][j]});
  return out;
}

}  // namespace

void Coverage::add(const Engine& pml) {
  for (size_t i = 0; i < core::kSendPhases; ++i)
    for (size_t j = 0; j < core::kSendEvents; ++j) send[i][j] += pml.machine().sends()[i][j];
  for (size_t i = 0; i < core::kRecvPhases; ++i)
    for (size_t j = 0; j < core::kRecvEvents; ++j) recv[i][j] += pml.machine().recvs()[i][j];
}

void print_unreached(const Coverage& c) {
  size_t reached = 0;
  size_t all = 0;
  for (const CellUse& u : cells(c)) {
    if (u.kind == core::CellKind::kBug) continue;
    ++all;
    if (u.used != 0)
      ++reached;
    else
      std::printf("unreached: %s\n", u.name.c_str());
  }
  std::printf("table cells: %zu of %zu reached\n", reached, all);
}

bool check_coverage(const Coverage& c, const std::string& file) {
  std::ifstream in(file);
  if (!in) {
    std::fprintf(stderr, "bfo-stack: cannot read %s\n", file.c_str());
    return false;
  }
  std::map<std::string, std::string> reasons;
  std::string line;
  while (std::getline(in, line)) {
    const size_t colon = line.find(':');
    if (line.empty() || line[0] == '#' || colon == std::string::npos) continue;
    reasons[line.substr(0, colon)] = line.substr(colon + 1);
  }
  bool ok = true;
  size_t reached = 0;
  size_t all = 0;
  for (const CellUse& u : cells(c)) {
    const auto reason = reasons.find(u.name);
    const bool listed = reason != reasons.end();
    if (u.kind == core::CellKind::kBug) continue;
    ++all;
    if (u.used != 0) ++reached;
    if (u.used == 0 && !listed) {
      std::printf("table cell never reached and without a reason in %s: %s\n", file.c_str(), u.name.c_str());
      ok = false;
    }
    if (u.used != 0 && listed && reason->second.find("rare:") == std::string::npos) {
      std::printf("table cell reached though %s says it cannot be: %s\n", file.c_str(), u.name.c_str());
      ok = false;
    }
  }
  std::printf("table cells: %zu of %zu reached, %zu with a reason why not\n", reached, all, reasons.size());
  return ok;
}

}  // namespace bfo::stack
