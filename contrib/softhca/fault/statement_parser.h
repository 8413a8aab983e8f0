// SPDX-License-Identifier: BSD-3-Clause
//
// The parser of one statement: its words into one rule. It stops at the first problem; parser.cc goes on with
// the next statement. Keys are read in parse_keys.cc, actions in parse_action.cc.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contrib/softhca/fault/language.h"
#include "contrib/softhca/fault/lexer.h"
#include "contrib/softhca/fault/words.h"

namespace bfo::softhca {

enum class Compare : uint8_t { kEqual, kAtLeast, kAtMost };

/// "key=value" taken apart, with the column of the value.
struct Pair {
  std::string_view key;
  Compare compare = Compare::kEqual;
  std::string_view value;
  unsigned line = 1;
  unsigned key_column = 1;
  unsigned value_column = 1;
};

class StatementParser {
 public:
  StatementParser(const Statement& statement, std::vector<Problem>& problems)
      : statement_(statement), problems_(problems) {}

  bool parse(Rule& rule);

 private:
  bool fail(unsigned line, unsigned column, std::string message) {
    problems_.push_back({line, column, std::move(message)});
    return false;
  }
  bool fail_value(const Pair& p, std::string_view expected) {
    return fail(p.line, p.value_column,
                "bad value \"" + std::string(p.value) + "\" for " + std::string(p.key) + "; expected " +
                    std::string(expected));
  }
  bool at_end() const { return next_ == statement_.tokens.size(); }
  const Token& peek() const { return statement_.tokens[next_]; }
  bool fail_at_end(std::string message) {
    return fail(statement_.end_line, statement_.end_column, std::move(message));
  }

  bool parse_name(Rule& rule);
  bool parse_matches(Rule& rule);
  bool parse_action(Rule& rule);
  bool split_pair(const Token& token, Pair& pair);
  bool parse_key(Rule& rule, Key key, const Pair& p);
  bool parse_place(Rule& rule, Key key, const Pair& p);
  bool parse_kind(Rule& rule, Key key, const Pair& p);
  bool parse_range(Rule& rule, Key key, const Pair& p);
  bool parse_when(Rule& rule, Key key, const Pair& p);
  bool parse_after(Rule& rule, const Pair& p);
  bool parse_positional(Rule& rule, Verb verb, const Token& verb_token);
  bool parse_options(Rule& rule, Verb verb);
  bool parse_option(Rule& rule, Verb verb, const Pair& p);
  std::string check_verb_rule(const Rule& rule, const std::string& action) const;
  bool check_and_finish(Rule& rule, Verb verb, const Token& verb_token);
  bool read_uint(const Pair& p, uint64_t limit, uint64_t& into);
  bool read_mask(const Pair& p, std::span<const Word> words, uint32_t& mask);
  bool used(Key key) const { return (keys_used_ >> static_cast<unsigned>(key) & 1) != 0; }
  bool read_errno(const Pair& p, uint32_t& into);
  bool uses_message_key() const;

  const Statement& statement_;
  std::vector<Problem>& problems_;
  size_t next_ = 0;
  uint32_t keys_used_ = 0;
  bool every_is_time_ = false;
  bool says_call_ = false;  ///< the ordinal was given as call=
  uint64_t flap_down_ns_ = 0;
  uint64_t flap_up_ns_ = 0;
};

inline bool is_name(std::string_view text) {
  if (text.empty() || text.size() >= kRuleNameBytes) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

inline void copy_name(char* into, std::string_view name) {
  memcpy(into, name.data(), name.size());
  into[name.size()] = '\0';
}

}  // namespace bfo::softhca
