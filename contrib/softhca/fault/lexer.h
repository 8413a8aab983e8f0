// SPDX-License-Identifier: BSD-3-Clause
//
// The lexer of the fault language: text into statements (one rule each) of words with their positions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "contrib/softhca/fault/language.h"

namespace bfo::softhca {

/// A run of characters without blanks.
struct Token {
  std::string_view text;
  unsigned line = 1;
  unsigned column = 1;
};

/// The words of one rule. The end is the position behind the last word.
struct Statement {
  std::vector<Token> tokens;
  unsigned end_line = 1;
  unsigned end_column = 1;
};

/// Splits at line ends; "#" starts a comment, "\" as the last character of a line continues it. Bytes that
/// are neither printable ASCII nor blank are reported and end the statement they stand in.
std::vector<Statement> split_statements(std::string_view text, std::vector<Problem>& problems);

}  // namespace bfo::softhca
