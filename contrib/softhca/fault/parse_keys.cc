// SPDX-License-Identifier: BSD-3-Clause
//
// The keys of a statement: what a message or call must look like, and when the rule fires.
#include "contrib/softhca/fault/statement_parser.h"

#include "contrib/softhca/fault/defaults.h"
#include "contrib/softhca/fault/numbers.h"

namespace bfo::softhca {
namespace {

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

}  // namespace

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
                  "unknown " + std::string(p.key) + " \"" + std::string(text) + "\"; expected " +
                      one_of(words, text));
    }
    mask |= word->value;
    if (bar == std::string_view::npos) return true;
    rest.remove_prefix(bar + 1);
    column += static_cast<unsigned>(bar) + 1;
  }
}

bool StatementParser::parse_key(Rule& rule, Key key, const Pair& p) {
  switch (key) {
    case Key::kNode:
    case Key::kDevice:
    case Key::kPort:
    case Key::kPeer:
    case Key::kQpn:
    case Key::kPeerQpn:
    case Key::kPath:
    case Key::kImm:
      return parse_place(rule, key, p);
    case Key::kOpcode:
    case Key::kService:
    case Key::kDirection:
    case Key::kAttempt:
    case Key::kVerb:
    case Key::kState:
    case Key::kReach:
      return parse_kind(rule, key, p);
    case Key::kSize:
    case Key::kMessage:
    case Key::kByte:
    case Key::kOffset:
    case Key::kProbability:
    case Key::kSeed:
      return parse_range(rule, key, p);
    case Key::kEvery:
    case Key::kCount:
    case Key::kAt:
    case Key::kAfter:
    case Key::kFrom:
    case Key::kUntil:
      return parse_when(rule, key, p);
  }
  return false;
}

bool StatementParser::parse_place(Rule& rule, Key key, const Pair& p) {
  RuleMatch& m = rule.match;
  if (key == Key::kImm) {
    uint64_t imm = 0;
    if (!read_uint(p, 0xffffffff, imm)) return false;
    m.imm = static_cast<uint32_t>(imm);
    return m.has_imm = true;
  }
  if (key == Key::kPath) {
    uint64_t path = 0;
    if (!read_uint(p, 127, path)) return false;
    m.path = static_cast<uint8_t>(path);
    return true;
  }
  if (key == Key::kQpn || key == Key::kPeerQpn) {
    uint64_t qpn = 0;
    if (!read_uint(p, 0xffffff, qpn)) return false;
    if (qpn == 0) return fail_value(p, "a queue pair number from 1 to 0xffffff");
    (key == Key::kQpn ? m.qpn : m.peer_qpn) = static_cast<uint32_t>(qpn);
    return true;
  }
  uint16_t& place = key == Key::kNode     ? m.node
                    : key == Key::kDevice ? m.device
                    : key == Key::kPort   ? m.port
                                          : m.peer_node;
  if (p.value == "any") return true;
  Pair number = p;
  if (key == Key::kDevice && p.value.starts_with("softhca")) number.value.remove_prefix(7);
  const auto value = read_number(number.value);
  const uint64_t lowest = key == Key::kPort ? 1 : 0;
  if (!value || *value < lowest || *value >= kAnyId) {
    return fail_value(p, key == Key::kDevice ? "softhca0, softhca1, ..., the number alone, or any"
                         : key == Key::kPort ? "a port number from 1, or any"
                                             : "a node number from 0, or any");
  }
  place = static_cast<uint16_t>(*value);
  return true;
}

bool StatementParser::parse_kind(Rule& rule, Key key, const Pair& p) {
  uint32_t mask = 0;
  if (key == Key::kOpcode) return read_mask(p, opcode_words(), rule.match.opcode_mask);
  if (key == Key::kVerb) return read_mask(p, control_verb_words(), rule.match.verb_mask);
  if (key == Key::kReach) {
    if (p.value != "yes" && p.value != "no") return fail_value(p, "yes or no");
    rule.match.reach = p.value == "yes" ? Reach::kYes : Reach::kNo;
    return true;
  }
  if (key == Key::kState) {
    if (!read_mask(p, qp_state_words(), mask)) return false;
    rule.match.qp_states = static_cast<uint8_t>(mask);
    return true;
  }
  if (key == Key::kService) {
    if (!read_mask(p, service_words(), mask)) return false;
    rule.match.service_mask = static_cast<uint8_t>(mask);
    return true;
  }
  if (key == Key::kDirection) {
    if (!read_mask(p, direction_words(), mask)) return false;
    rule.match.direction_mask = static_cast<uint8_t>(mask);
    return true;
  }
  if (p.value == "first" || p.value == "all") {
    rule.match.attempt_mode = p.value == "all" ? AttemptMode::kAll : AttemptMode::kFirst;
    return true;
  }
  const auto attempt = read_number(p.value);
  if (!attempt || *attempt > 255) return fail_value(p, "first, all or a retransmission number from 0 to 255");
  rule.match.attempt_mode = *attempt == 0 ? AttemptMode::kFirst : AttemptMode::kExact;
  rule.match.attempt = static_cast<uint8_t>(*attempt);
  return true;
}

bool StatementParser::parse_range(Rule& rule, Key key, const Pair& p) {
  RuleMatch& m = rule.match;
  if (key == Key::kSize) {
    uint64_t low = 0;
    uint64_t high = 0;
    if (!read_bounds(p.value, read_size, ~0u, low, high) || high > ~0u ||
        (p.compare != Compare::kEqual && low != high)) {
      return fail_value(p, "bytes below 4G such as 16K, or a range such as 1K..64K");
    }
    if (p.compare != Compare::kAtMost) m.size_min = static_cast<uint32_t>(low);
    if (p.compare != Compare::kAtLeast) m.size_max = static_cast<uint32_t>(high);
    if (m.size_min > m.size_max) return fail_value(p, "a least size that is not above the greatest");
    return true;
  }
  if (key == Key::kMessage) {
    if (!read_bounds(p.value, read_number, kNever, m.message_first, m.message_last) || m.message_first == 0) {
      return fail_value(p, "an ordinal from 1 such as 5, or a range such as 5..9 or 5..");
    }
    return true;
  }
  if (key == Key::kByte) {
    const auto byte = read_size(p.value);
    if (!byte || *byte == kNever) return fail_value(p, "a number of bytes such as 1M");
    m.byte = *byte;
    return true;
  }
  if (key == Key::kOffset) {
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
  if (key == Key::kSeed) return read_uint(p, ~uint64_t{0}, m.seed);
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
  if (key == Key::kAfter) return parse_after(rule, p);
  if (key == Key::kCount) {
    const auto count = read_number(p.value);
    if (p.value != "any" && (!count || *count == 0)) return fail_value(p, "a number from 1, or any");
    t.count = count.value_or(0);
    return true;
  }
  const auto time = read_time_ns(p.value);
  if (key == Key::kEvery) {
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
  (key == Key::kAt ? t.at_ns : key == Key::kFrom ? t.from_ns : t.until_ns) = *time;
  return true;
}

}  // namespace bfo::softhca
