// SPDX-License-Identifier: BSD-3-Clause
//
// protocol_doc_test.cc: the tables in pml/bfo/PROTOCOL.md are generated from the constexpr arrays the
// component uses. The test fails when they differ; run it with BFO_UPDATE=1 to write them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "pml/bfo/core/recv_machine.h"
#include "pml/bfo/core/send_machine.h"
#include "pml/bfo/core/wire.h"

namespace bfo::core {
namespace {

template <class Cell>
std::string cell_text(const Cell& c, const char* const* phases, size_t own, const char* const* actions) {
  switch (c.kind) {
    case CellKind::kEmpty:
      return "EMPTY";
    case CellKind::kIgnore:
      return "ignore";
    case CellKind::kBug:
      return "bug";
    case CellKind::kGo:
      break;
  }
  std::string s;
  if (static_cast<size_t>(c.next) != own) s = std::string("**") + phases[static_cast<size_t>(c.next)] + "**";
  for (unsigned b = 0; b < 32; ++b)
    if (c.actions & (1u << b)) s += (s.empty() ? "" : " ") + std::string(actions[b]);
  return s.empty() ? "stay" : s;
}

template <class T>
void print(std::ostream& out, const T& table, const char* const* phases, size_t n_phases,
           const char* const* events, size_t n_events, const char* const* actions) {
  out << "| event |";
  for (size_t p = 1; p < n_phases; ++p) out << ' ' << phases[p] << " |";
  out << "\n|---|";
  for (size_t p = 1; p < n_phases; ++p) out << "---|";
  out << '\n';
  for (size_t e = 0; e < n_events; ++e) {
    out << "| " << events[e] << " |";
    for (size_t p = 1; p < n_phases; ++p) out << ' ' << cell_text(table[p][e], phases, p, actions) << " |";
    out << '\n';
  }
  out << "\nWhy nothing is right, and what cannot happen:\n\n";
  for (size_t p = 1; p < n_phases; ++p)
    for (size_t e = 0; e < n_events; ++e) {
      const auto& c = table[p][e];
      if (c.kind == CellKind::kGo) continue;
      out << "- " << phases[p] << ", " << events[e] << (c.kind == CellKind::kBug ? " (bug): " : ": ")
          << c.reason << '\n';
    }
}

std::string generated() {
  std::ostringstream out;
  out << "### Sender\n\n";
  print(out, kSendTable, kSendPhaseNames, kSendPhases, kSendEventNames, kSendEvents, kSendActionNames);
  out << "\n### Receiver\n\n";
  print(out, kRecvTable, kRecvPhaseNames, kRecvPhases, kRecvEventNames, kRecvEvents, kRecvActionNames);
  return out.str();
}

TEST(ProtocolDocument, TablesAreCurrent) {
  const char* const root = std::getenv("BFO_SRCDIR");
  const std::string path = std::string(root ? root : ".") + "/pml/bfo/PROTOCOL.md";
  std::ifstream in(path);
  ASSERT_TRUE(in) << path << " is missing";
  std::stringstream all;
  all << in.rdbuf();
  const std::string text = all.str();
  const std::string begin = "<!-- generated: test/unit/protocol_doc_test -->\n";
  const std::string end = "<!-- end of generated part -->";
  const size_t b = text.find(begin);
  const size_t e = text.find(end);
  ASSERT_NE(b, std::string::npos);
  ASSERT_NE(e, std::string::npos);
  const std::string want = generated();
  const std::string have = text.substr(b + begin.size(), e - b - begin.size());
  if (have != want && std::getenv("BFO_UPDATE")) {
    std::ofstream o(path);
    o << text.substr(0, b + begin.size()) << want << text.substr(e);
    return;
  }
  EXPECT_EQ(have, want) << "run test/unit/protocol_doc_test with BFO_UPDATE=1 and commit " << path;
}

}  // namespace
}  // namespace bfo::core
