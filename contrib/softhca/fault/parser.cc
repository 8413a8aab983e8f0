// SPDX-License-Identifier: BSD-3-Clause
//
// The parser of the fault language: the words of one statement into one rule. It stops at the first problem
// of a statement and goes on with the next one.
#include <algorithm>
#include <cstring>

#include "contrib/softhca/fault/defaults.h"
#include "contrib/softhca/fault/language.h"
#include "contrib/softhca/fault/lexer.h"
#include "contrib/softhca/fault/numbers.h"
#include "contrib/softhca/fault/words.h"

namespace bfo::softhca {
namespace {

enum class Compare : uint8_t { Equal, AtLeast, AtMost };

/// "key=value" taken apart, with the column of the value.
struct Pair {
  std::string_view key;
  Compare compare = Compare::Equal;
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
  bool check_and_finish(Rule& rule, Verb verb, const Token& verb_token);
  bool read_uint(const Pair& p, uint64_t limit, uint64_t& into);
  bool read_mask(const Pair& p, std::span<const Word> words, uint32_t& mask);
  bool used(Key key) const { return (keys_used_ >> static_cast<unsigned>(key) & 1) != 0; }
  bool uses_message_key() const;

  const Statement& statement_;
  std::vector<Problem>& problems_;
  size_t next_ = 0;
  uint32_t keys_used_ = 0;
  bool every_is_time_ = false;
  uint64_t flap_down_ns_ = 0;
  uint64_t flap_up_ns_ = 0;
};

bool is_name(std::string_view text) {
  if (text.empty() || text.size() >= kRuleNameBytes) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

void copy_name(char* into, std::string_view name) {
  memcpy(into, name.data(), name.size());
  into[name.size()] = '\0';
}

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
                  "unknown key \"" + std::string(pair.key) + "\"; " + expected_one_of(key_words(), pair.key));
    }
    const Key key = static_cast<Key>(word->value);
    if (used(key) && key != Key::Size) {
      return fail(pair.line, pair.key_column,
                  "\"" + std::string(pair.key) + "\" stands twice; expected it once");
    }
    if (pair.compare != Compare::Equal && key != Key::Size) {
      return fail(pair.line, pair.key_column + static_cast<unsigned>(pair.key.size()),
                  "only size takes >= or <=; expected \"" + std::string(pair.key) + "=\"");
    }
    keys_used_ |= 1u << static_cast<unsigned>(key);
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
  if (token.text[equals - 1] == '>') pair.compare = Compare::AtLeast;
  if (token.text[equals - 1] == '<') pair.compare = Compare::AtMost;
  if (pair.compare != Compare::Equal) --key_end;
  pair.key = token.text.substr(0, key_end);
  pair.value = token.text.substr(equals + 1);
  pair.line = token.line;
  pair.key_column = token.column;
  pair.value_column = token.column + static_cast<unsigned>(equals) + 1;
  if (!pair.value.empty()) return true;
  return fail(token.line, pair.value_column,
              "nothing after \"" + std::string(token.text) + "\"; expected a value");
}

bool StatementParser::read_uint(const Pair& p, uint64_t limit, uint64_t& into) {
  const auto number = read_number(p.value);
  if (!number || *number > limit) return fail_value(p, "a number from 0 to " + std::to_string(limit));
  into = *number;
  return true;
}

bool StatementParser::read_mask(const Pair& p, std::span<const Word> words, uint32_t& mask) {
  mask = 0;
  std::string_view rest = p.value;
  unsigned column = p.value_column;
  for (;;) {
    const size_t bar = rest.find('|');
    const std::string_view text = rest.substr(0, bar);
    const Word* word = find_word(words, text);
    if (word == nullptr) {
      return fail(p.line, column,
                  "unknown " + std::string(p.key) + " \"" + std::string(text) + "\"; " +
                      expected_one_of(words, text));
    }
    mask |= word->value;
    if (bar == std::string_view::npos) return true;
    rest.remove_prefix(bar + 1);
    column += static_cast<unsigned>(bar) + 1;
  }
}

bool StatementParser::parse_key(Rule& rule, Key key, const Pair& p) {
  switch (key) {
    case Key::Node:
    case Key::Device:
    case Key::Port:
    case Key::Peer:
    case Key::Qpn:
    case Key::PeerQpn:
    case Key::Imm:
      return parse_place(rule, key, p);
    case Key::Opcode:
    case Key::Service:
    case Key::Direction:
    case Key::Attempt:
      return parse_kind(rule, key, p);
    case Key::Size:
    case Key::Message:
    case Key::Byte:
    case Key::Offset:
    case Key::Probability:
    case Key::Seed:
      return parse_range(rule, key, p);
    case Key::Every:
    case Key::Count:
    case Key::At:
    case Key::After:
    case Key::From:
    case Key::Until:
      return parse_when(rule, key, p);
  }
  return false;
}

bool StatementParser::parse_place(Rule& rule, Key key, const Pair& p) {
  RuleMatch& m = rule.match;
  if (key == Key::Imm) {
    uint64_t imm = 0;
    if (!read_uint(p, 0xffffffff, imm)) return false;
    m.imm = static_cast<uint32_t>(imm);
    return m.has_imm = true;
  }
  if (key == Key::Qpn || key == Key::PeerQpn) {
    uint64_t qpn = 0;
    if (!read_uint(p, 0xffffff, qpn)) return false;
    if (qpn == 0) return fail_value(p, "a queue pair number from 1 to 0xffffff");
    (key == Key::Qpn ? m.qpn : m.peer_qpn) = static_cast<uint32_t>(qpn);
    return true;
  }
  uint16_t& place = key == Key::Node     ? m.node
                    : key == Key::Device ? m.device
                    : key == Key::Port   ? m.port
                                         : m.peer_node;
  if (p.value == "any") return true;
  Pair number = p;
  if (key == Key::Device && p.value.starts_with("softhca")) number.value.remove_prefix(7);
  const auto value = read_number(number.value);
  const uint64_t lowest = key == Key::Port ? 1 : 0;
  if (!value || *value < lowest || *value >= kAnyId) {
    return fail_value(p, key == Key::Device ? "softhca0, softhca1, ..., the number alone, or any"
                         : key == Key::Port ? "a port number from 1, or any"
                                            : "a node number from 0, or any");
  }
  place = static_cast<uint16_t>(*value);
  return true;
}

bool StatementParser::parse_kind(Rule& rule, Key key, const Pair& p) {
  uint32_t mask = 0;
  if (key == Key::Opcode) return read_mask(p, opcode_words(), rule.match.opcode_mask);
  if (key == Key::Service) {
    if (!read_mask(p, service_words(), mask)) return false;
    rule.match.service_mask = static_cast<uint8_t>(mask);
    return true;
  }
  if (key == Key::Direction) {
    if (!read_mask(p, direction_words(), mask)) return false;
    rule.match.direction_mask = static_cast<uint8_t>(mask);
    return true;
  }
  if (p.value == "first" || p.value == "all") {
    rule.match.attempt_mode = p.value == "all" ? AttemptMode::All : AttemptMode::First;
    return true;
  }
  const auto attempt = read_number(p.value);
  if (!attempt || *attempt > 255) return fail_value(p, "first, all or a retransmission number from 0 to 255");
  rule.match.attempt_mode = *attempt == 0 ? AttemptMode::First : AttemptMode::Exact;
  rule.match.attempt = static_cast<uint8_t>(*attempt);
  return true;
}

/// "A", "A..B" or "A.."; the reader decides what a number is.
template <class Reader>
bool read_bounds(std::string_view text, Reader reader, uint64_t open_end, uint64_t& low, uint64_t& high) {
  const size_t dots = text.find("..");
  const auto first = reader(text.substr(0, dots));
  if (!first) return false;
  low = high = *first;
  if (dots == std::string_view::npos) return true;
  const std::string_view rest = text.substr(dots + 2);
  if (rest.empty()) {
    high = open_end;
    return true;
  }
  const auto last = reader(rest);
  if (!last || *last < low) return false;
  high = *last;
  return true;
}

bool StatementParser::parse_range(Rule& rule, Key key, const Pair& p) {
  RuleMatch& m = rule.match;
  if (key == Key::Size) {
    uint64_t low = 0;
    uint64_t high = 0;
    if (!read_bounds(p.value, read_size, ~0u, low, high) || high > ~0u ||
        (p.compare != Compare::Equal && low != high)) {
      return fail_value(p, "bytes below 4G such as 16K, or a range such as 1K..64K");
    }
    if (p.compare != Compare::AtMost) m.size_min = static_cast<uint32_t>(low);
    if (p.compare != Compare::AtLeast) m.size_max = static_cast<uint32_t>(high);
    if (m.size_min > m.size_max) return fail_value(p, "a least size that is not above the greatest");
    return true;
  }
  if (key == Key::Message) {
    if (!read_bounds(p.value, read_number, kNever, m.message_first, m.message_last) || m.message_first == 0) {
      return fail_value(p, "an ordinal from 1 such as 5, or a range such as 5..9 or 5..");
    }
    return true;
  }
  if (key == Key::Byte) {
    const auto byte = read_size(p.value);
    if (!byte || *byte == kNever) return fail_value(p, "a number of bytes such as 1M");
    m.byte = *byte;
    return true;
  }
  if (key == Key::Offset) {
    rule.action.has_offset = true;
    rule.action.offset_is_percent = p.value.ends_with('%');
    const auto offset = rule.action.offset_is_percent ? read_number(p.value.substr(0, p.value.size() - 1))
                                                      : read_size(p.value);
    if (!offset || *offset > (rule.action.offset_is_percent ? 100 : ~0u)) {
      return fail_value(p, "bytes from the start of the message such as 4K, or a percentage such as 50%");
    }
    rule.action.offset = *offset;
    return true;
  }
  if (key == Key::Seed) return read_uint(p, ~uint64_t{0}, m.seed);
  const auto fraction = read_fraction(p.value);
  if (!fraction) return fail_value(p, "a probability such as 0.01 or 1%");
  m.probability = *fraction;
  return true;
}

bool StatementParser::parse_after(Rule& rule, const Pair& p) {
  const size_t plus = p.value.find('+');
  const std::string_view name = p.value.substr(0, plus);
  if (!is_name(name)) return fail_value(p, "the name of a rule, with a delay if wanted: after=NAME+10ms");
  copy_name(rule.after_name, name);
  if (plus == std::string_view::npos) return true;
  const auto delay = read_time_ns(p.value.substr(plus + 1));
  if (!delay) return fail_value(p, "a time with its unit after the '+', such as NAME+10ms");
  rule.trigger.after_delay_ns = *delay;
  return true;
}

bool StatementParser::parse_when(Rule& rule, Key key, const Pair& p) {
  RuleTrigger& t = rule.trigger;
  if (key == Key::After) return parse_after(rule, p);
  if (key == Key::Count) {
    const auto count = read_number(p.value);
    if (p.value != "any" && (!count || *count == 0)) return fail_value(p, "a number from 1, or any");
    t.count = count.value_or(0);
    return true;
  }
  const auto time = read_time_ns(p.value);
  if (key == Key::Every) {
    const auto number = read_number(p.value);
    if (number && *number != 0) {
      rule.match.every = *number;
      return true;
    }
    if (!time || *time == 0) return fail_value(p, "each how many messages (10) or after how long (100ms)");
    every_is_time_ = true;
    t.period_ns = *time;
    return true;
  }
  if (!time) return fail_value(p, "a time with its unit: 500us, 200ms or 3s");
  (key == Key::At ? t.at_ns : key == Key::From ? t.from_ns : t.until_ns) = *time;
  return true;
}

bool StatementParser::parse_action(Rule& rule) {
  ++next_;  // "do"
  if (at_end()) return fail_at_end("no action after \"do\"; " + expected_one_of(verb_words(), ""));
  const Token token = peek();
  const Word* word = find_word(verb_words(), token.text);
  if (word == nullptr) {
    return fail(
        token.line, token.column,
        "unknown action \"" + std::string(token.text) + "\"; " + expected_one_of(verb_words(), token.text));
  }
  ++next_;
  const Verb verb = static_cast<Verb>(word->value);
  rule.action.kind = kind_of(verb);
  return parse_positional(rule, verb, token) && parse_options(rule, verb) &&
         check_and_finish(rule, verb, token);
}

/// The one value an action may take without a key.
bool StatementParser::parse_positional(Rule& rule, Verb verb, const Token& verb_token) {
  const Positional want = positional_of(verb);
  if (want.what == Positional::Nothing) return true;
  const bool present = !at_end() && peek().text.find('=') == std::string_view::npos;
  if (!present) {
    if (!want.required) return true;
    return fail_at_end("nothing after \"" + std::string(verb_token.text) + "\"; expected " +
                       std::string(want.expected));
  }
  const Token token = peek();
  ++next_;
  Pair p{verb_token.text, Compare::Equal, token.text, token.line, token.column, token.column};
  RuleAction& a = rule.action;
  if (want.what == Positional::Time) {
    const auto time = read_time_ns(token.text);
    if (!time || *time == 0) return fail_value(p, want.expected);
    (verb == Verb::Latency ? a.value64 : a.delay_ns) = *time;
    return true;
  }
  if (want.what == Positional::Status || want.what == Positional::Event) {
    const bool is_status = want.what == Positional::Status;
    const std::span<const Word> words = is_status ? status_words() : event_words();
    const std::string_view prefix = is_status ? "IBV_WC_" : "IBV_EVENT_";
    const std::string_view text =
        token.text.starts_with(prefix) ? token.text.substr(prefix.size()) : token.text;
    const Word* word = find_word(words, text);
    if (word == nullptr) return fail_value(p, std::string_view(expected_one_of(words, text)).substr(9));
    a.value = word->value;
    return true;
  }
  const auto number = read_number(token.text);
  if (!number || *number > want.limit) return fail_value(p, want.expected);
  if (verb == Verb::Rate) {
    a.value64 = *number * 1'000'000;
  } else if (verb == Verb::Gid) {
    a.value64 = *number;
  } else {
    a.value = static_cast<uint32_t>(*number);
  }
  return true;
}

bool StatementParser::parse_options(Rule& rule, Verb verb) {
  for (; !at_end(); ++next_) {
    const Token& token = peek();
    if (options_of(verb).empty()) {
      return fail(token.line, token.column,
                  "unexpected \"" + std::string(token.text) + "\"; expected the end of the rule");
    }
    Pair pair;
    if (token.text.find('=') == std::string_view::npos) {
      return fail(
          token.line, token.column,
          "unexpected \"" + std::string(token.text) + "\"; expected " + std::string(options_of(verb)));
    }
    if (!split_pair(token, pair) || !parse_option(rule, verb, pair)) return false;
  }
  return true;
}

bool StatementParser::parse_option(Rule& rule, Verb verb, const Pair& p) {
  RuleAction& a = rule.action;
  const auto time = read_time_ns(p.value);
  const bool positive_time = time && *time != 0;
  const bool lasts = verb == Verb::PortDown || verb == Verb::Stop;
  if (p.compare == Compare::Equal && p.key == "for" && lasts) {
    if (!positive_time) return fail_value(p, "a time with its unit such as 100ms");
    a.duration_ns = *time;
    return true;
  }
  if (p.compare == Compare::Equal && verb == Verb::PortFlap && (p.key == "down" || p.key == "up")) {
    if (!positive_time) return fail_value(p, "a time with its unit such as 100ms");
    (p.key == "down" ? flap_down_ns_ : flap_up_ns_) = *time;
    return true;
  }
  if (p.compare == Compare::Equal && verb == Verb::Corrupt && p.key == "xor") {
    uint64_t mask = 0;
    if (!read_uint(p, 255, mask)) return false;
    if (mask == 0) return fail_value(p, "a mask from 1 to 255");
    a.value = static_cast<uint32_t>(mask);
    return true;
  }
  if (p.compare == Compare::Equal && p.key == "on" && !is_message_action(a.kind)) {
    if (p.value != "peer" && p.value != "self") return fail_value(p, "self or peer");
    a.on_peer = p.value == "peer";
    return true;
  }
  return fail(p.line, p.key_column,
              "unknown option \"" + std::string(p.key) + "\"; expected " + std::string(options_of(verb)));
}

bool StatementParser::uses_message_key() const {
  for (const Key key :
       {Key::Peer, Key::PeerQpn, Key::Imm, Key::Opcode, Key::Service, Key::Direction, Key::Size, Key::Message,
        Key::Byte, Key::Offset, Key::Attempt, Key::Probability, Key::Seed}) {
    if (used(key)) return true;
  }
  return used(Key::Every) && !every_is_time_;
}

/// What no single word shows: combinations, then the defaults that depend on the action.
bool StatementParser::check_and_finish(Rule& rule, Verb verb, const Token& verb_token) {
  const auto refuse = [&](std::string why) {
    return fail(verb_token.line, verb_token.column, std::move(why));
  };
  const std::string name(verb_token.text);
  RuleTrigger& t = rule.trigger;
  RuleMatch& m = rule.match;
  const bool message_action = is_message_action(rule.action.kind);
  const bool window = used(Key::From) || used(Key::Until);
  t.timed = !message_action && !uses_message_key() && !window;
  if (!t.timed && used(Key::At)) {
    return refuse("\"" + name +
                  "\" waits for a message here, so at= has no meaning; expected from= or after=");
  }
  if (used(Key::At) && used(Key::After))
    return refuse("at= and after= exclude each other; expected one of them");
  if (message_action && every_is_time_) {
    return refuse("\"" + name + "\" acts on messages; expected every= with a number of messages");
  }
  if (t.timed && rule.action.on_peer)
    return refuse("on=peer needs a message; expected a key such as opcode= or message=");
  if (t.from_ns >= t.until_ns) return refuse("the rule ends before it starts; expected from= below until=");
  if (used(Key::Byte) && used(Key::Message))
    return refuse("byte= and message= exclude each other; expected one of them");
  if (verb == Verb::LateWrite) {
    const uint32_t writes = find_word(opcode_words(), "WRITE")->value;
    if (used(Key::Opcode) && (m.opcode_mask & ~writes) != 0) {
      return refuse("\"late-write\" holds RDMA writes only; expected opcode=WRITE");
    }
  }
  if (verb == Verb::DropAck && (m.opcode_mask & kAckOpcode) != 0) {
    return refuse(
        "\"drop-ack\" names the request whose answer is lost; expected \"opcode=ACK do drop\" to name "
        "answers");
  }
  if (verb == Verb::PortFlap) {
    if (flap_down_ns_ == 0 || flap_up_ns_ == 0)
      return refuse("\"port-flap\" needs two times; expected down=TIME up=TIME");
    if (every_is_time_) return refuse("\"port-flap\" has its own period; expected no every=TIME");
    rule.action.duration_ns = flap_down_ns_;
    t.period_ns = flap_down_ns_ + flap_up_ns_;
  }
  if (t.timed && t.at_ns == kNever && rule.after_name[0] == '\0') t.at_ns = 0;
  const Given given{used(Key::Opcode), used(Key::Attempt), used(Key::Count), used(Key::Direction)};
  apply_defaults(rule, verb, given);
  return true;
}

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
    const auto earlier = parsed.rules.begin() + static_cast<std::ptrdiff_t>(i);
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
