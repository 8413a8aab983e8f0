// SPDX-License-Identifier: BSD-3-Clause
//
// The lexer: one physical line at a time.
#include "contrib/softhca/fault/lexer.h"

#include <cstdio>

namespace bfo::softhca {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}
bool is_printable(char c) {
  return c > ' ' && c < 0x7f;
}

struct LineEnd {
  bool continues = false;
  bool bad = false;
};

LineEnd split_line(std::string_view line, unsigned number, Statement& into, std::vector<Problem>& problems) {
  size_t i = 0;
  while (i < line.size()) {
    if (is_blank(line[i])) {
      ++i;
      continue;
    }
    if (line[i] == '#') return {};
    if (line[i] == '\\' && line.find_first_not_of(" \t\r", i + 1) == std::string_view::npos)
      return {true, false};
    const size_t begin = i;
    while (i < line.size() && is_printable(line[i]) && line[i] != '#') ++i;
    const unsigned column = static_cast<unsigned>(i) + 1;
    if (i < line.size() && !is_blank(line[i]) && line[i] != '#') {
      char text[64];
      snprintf(text, sizeof text, "unexpected byte 0x%02x; expected printable ASCII",
               static_cast<unsigned char>(line[i]));
      problems.push_back({number, column, text});
      return {false, true};
    }
    into.tokens.push_back({line.substr(begin, i - begin), number, static_cast<unsigned>(begin) + 1});
    into.end_line = number;
    into.end_column = column + 1;
  }
  return {};
}

}  // namespace

std::vector<Statement> split_statements(std::string_view text, std::vector<Problem>& problems) {
  std::vector<Statement> statements;
  Statement current;
  unsigned number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    const LineEnd how = split_line(line, number, current, problems);
    if (how.continues) continue;
    if (!how.bad && !current.tokens.empty()) statements.push_back(std::move(current));
    current = Statement{};
  }
  if (!current.tokens.empty()) statements.push_back(std::move(current));
  return statements;
}

}  // namespace bfo::softhca
