// SPDX-License-Identifier: BSD-3-Clause
//
// The fault language: text to rules and back. One rule per line, the same for files and for softhcactl
// inject; the grammar is in contrib/softhca/README.md. Parsing allocates and is not for the data path.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "contrib/softhca/fault/rule.h"

namespace bfo::softhca {

/// Largest text parse_rules accepts, in bytes.
inline constexpr size_t kMaxFaultText = 1 << 20;

/// One thing wrong with the text. Line and column count from 1.
struct Problem {
  unsigned line = 1;
  unsigned column = 1;
  std::string message;  ///< one sentence, names the word and what was expected
};

struct ParseResult {
  std::vector<Rule> rules;        ///< in file order; only meaningful when there is no problem
  std::vector<Problem> problems;  ///< in file order, one per line at most
  bool ok() const { return problems.empty(); }
};

/// Reads rules. `known_names` are rules already in the table, so that after=NAME may name them. Any thread.
ParseResult parse_rules(std::string_view text, const std::vector<std::string>& known_names = {});

/// "source:line:column: message".
std::string format_problem(std::string_view source, const Problem& problem);

/// The rule in the language, canonical: parsing it again gives the same rule (without its name).
std::string describe(const Rule& rule);

}  // namespace bfo::softhca
