// SPDX-License-Identifier: BSD-3-Clause
//
// The parser of the fault language: statements into rules. It stops at the first problem of a statement and
// goes on with the next one.
#include "contrib/softhca/fault/statement_parser.h"

#include "contrib/softhca/fault/defaults.h"
#include "contrib/softhca/fault/numbers.h"

namespace bfo::softhca {

bool StatementParser::parse(Rule& rule) {
  rule.line = statement_.tokens.front().line;
  return parse_name(rule) && parse_matches(rule) && parse_action(rule);
}

bool StatementParser::parse_name(Rule& rule) {
  const Token& token = peek();
  if (token.text.back() != ':') return true;
  const std::string_view name = token.text.substr(0, token.text.size() - 1);
  if (!is_name(name)) {
    return fail(token.line, token.column,
                "bad rule name \"" + std::string(name) +
                    "\"; expected 1 to 31 letters, digits, '-', '_' or '.' before the ':'");
  }
  copy_name(rule.name, name);
  ++next_;
  return true;
}

bool StatementParser::parse_matches(Rule& rule) {
  if (at_end()) return fail_at_end("the rule ends here; expected \"when\" or \"do\"");
  if (peek().text == "do") return true;
  if (peek().text != "when") {
    return fail(peek().line, peek().column,
                "unexpected \"" + std::string(peek().text) + "\"; expected \"when\" or \"do\"");
  }
  ++next_;
  for (; !at_end() && peek().text != "do"; ++next_) {
    Pair pair;
    if (!split_pair(peek(), pair)) return false;
    const Word* word = find_word(key_words(), pair.key);
    if (word == nullptr) {
      return fail(pair.line, pair.key_column,
                  "unknown key \"" + std::string(pair.key) + "\"; expected " + one_of(key_words(), pair.key));
    }
    const Key key = static_cast<Key>(word->value);
    if (used(key) && key != Key::kSize) {
      return fail(pair.line, pair.key_column,
                  "\"" + std::string(pair.key) + "\" stands twice; expected it once");
    }
    if (pair.compare != Compare::kEqual && key != Key::kSize) {
      return fail(pair.line, pair.key_column + static_cast<unsigned>(pair.key.size()),
                  "only size takes >= or <=; expected \"" + std::string(pair.key) + "=\"");
    }
    keys_used_ |= 1u << static_cast<unsigned>(key);
    if (word->text == "call") says_call_ = true;
    if (!parse_key(rule, key, pair)) return false;
  }
  if (at_end()) return fail_at_end("the rule ends here; expected another key=value or \"do\" and an action");
  return true;
}

bool StatementParser::split_pair(const Token& token, Pair& pair) {
  const size_t equals = token.text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return fail(token.line, token.column,
                "unexpected \"" + std::string(token.text) + "\"; expected key=value or \"do\"");
  }
  size_t key_end = equals;
  if (token.text[equals - 1] == '>') pair.compare = Compare::kAtLeast;
  if (token.text[equals - 1] == '<') pair.compare = Compare::kAtMost;
  if (pair.compare != Compare::kEqual) --key_end;
  pair.key = token.text.substr(0, key_end);
  pair.value = token.text.substr(equals + 1);
  pair.line = token.line;
  pair.key_column = token.column;
  pair.value_column = token.column + static_cast<unsigned>(equals) + 1;
  if (!pair.value.empty()) return true;
  return fail(token.line, pair.value_column,
              "nothing after \"" + std::string(token.text) + "\"; expected a value");
}

namespace {

void check_names(const ParseResult& parsed, const std::vector<Statement>& statements,
                 const std::vector<std::string>& known, std::vector<Problem>& problems) {
  const auto place = [&](const Rule& rule) -> const Token& {
    const auto at = std::find_if(statements.begin(), statements.end(),
                                 [&](const Statement& s) { return s.tokens.front().line == rule.line; });
    return at->tokens.front();
  };
  for (size_t i = 0; i < parsed.rules.size(); ++i) {
    const Rule& rule = parsed.rules[i];
    const auto has_name = [](std::string_view name) {
      return [name](const Rule& r) { return name == r.name; };
    };
    const auto earlier = parsed.rules.begin() + static_cast<ptrdiff_t>(i);
    if (rule.name[0] != '\0' && std::any_of(parsed.rules.begin(), earlier, has_name(rule.name))) {
      const Token& token = place(rule);
      problems.push_back(
          {token.line, token.column,
           std::string("rule name \"") + rule.name + "\" stands twice; expected another name"});
      continue;
    }
    if (rule.after_name[0] == '\0') continue;
    if (std::any_of(parsed.rules.begin(), parsed.rules.end(), has_name(rule.after_name))) continue;
    if (std::find(known.begin(), known.end(), rule.after_name) != known.end()) continue;
    const Token& token = place(rule);
    problems.push_back({token.line, token.column,
                        std::string("no rule is called \"") + rule.after_name +
                            "\"; expected after= to name a rule of this text or of the running fabric"});
  }
}

}  // namespace

ParseResult parse_rules(std::string_view text, const std::vector<std::string>& known_names) {
  ParseResult result;
  if (text.size() > kMaxFaultText) {
    result.problems.push_back({1, 1, "the text is longer than 1 MiB; expected a list of rules"});
    return result;
  }
  const std::vector<Statement> statements = split_statements(text, result.problems);
  for (const Statement& statement : statements) {
    Rule rule{};
    if (!StatementParser(statement, result.problems).parse(rule)) continue;
    if (result.rules.size() == kMaxRules) {
      result.problems.push_back(
          {rule.line, 1, "too many rules; expected at most " + std::to_string(kMaxRules)});
      break;
    }
    result.rules.push_back(rule);
  }
  if (result.problems.empty()) check_names(result, statements, known_names, result.problems);
  std::stable_sort(result.problems.begin(), result.problems.end(),
                   [](const Problem& a, const Problem& b) { return a.line < b.line; });
  return result;
}

std::string format_problem(std::string_view source, const Problem& problem) {
  return std::string(source) + ":" + std::to_string(problem.line) + ":" + std::to_string(problem.column) +
         ": " + problem.message;
}

}  // namespace bfo::softhca
