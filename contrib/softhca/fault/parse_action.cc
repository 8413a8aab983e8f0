// SPDX-License-Identifier: BSD-3-Clause
//
// The action of a statement with its options, and the checks that need the whole rule.
#include "contrib/softhca/fault/statement_parser.h"

#include "contrib/softhca/fault/defaults.h"
#include "contrib/softhca/fault/gid_list.h"
#include "contrib/softhca/fault/link_speed.h"
#include "contrib/softhca/fault/numbers.h"

namespace bfo::softhca {

bool StatementParser::parse_action(Rule& rule) {
  ++next_;  // "do"
  if (at_end()) return fail_at_end("no action after \"do\"; expected " + one_of(verb_words(), ""));
  const Token token = peek();
  const Word* word = find_word(verb_words(), token.text);
  if (word == nullptr) {
    return fail(
        token.line, token.column,
        "unknown action \"" + std::string(token.text) + "\"; expected " + one_of(verb_words(), token.text));
  }
  ++next_;
  const Verb verb = static_cast<Verb>(word->value);
  rule.action.kind = kind_of(verb);
  rule.action.value = initial_value_of(verb);
  return parse_positional(rule, verb, token) && parse_options(rule, verb) &&
         check_and_finish(rule, verb, token);
}

/// The one value an action may take without a key.
bool StatementParser::parse_positional(Rule& rule, Verb verb, const Token& verb_token) {
  const Positional want = positional_of(verb);
  if (want.what == Positional::kNothing) return true;
  const bool present = !at_end() && peek().text.find('=') == std::string_view::npos;
  if (!present) {
    if (!want.required) return true;
    return fail_at_end("nothing after \"" + std::string(verb_token.text) + "\"; expected " +
                       std::string(want.expected));
  }
  const Token token = peek();
  ++next_;
  Pair p{verb_token.text, Compare::kEqual, token.text, token.line, token.column, token.column};
  RuleAction& a = rule.action;
  if (want.what == Positional::kTime) {
    const auto time = read_time_ns(token.text);
    if (!time || *time == 0) return fail_value(p, want.expected);
    (verb == Verb::kLatency ? a.value64 : a.delay_ns) = *time;
    return true;
  }
  if (want.what == Positional::kGids) {
    GidList gids;
    if (!read_gid_list(token.text, gids) || gids.kind[0] == GidKind::kIb) return fail_value(p, want.expected);
    a.value64 = pack(gids);
    return true;
  }
  if (want.what == Positional::kSpeed) {
    LinkSpeed speed;
    if (!read_link_speed(token.text, speed)) return fail_value(p, want.expected);
    a.value64 = pack(speed);
    return true;
  }
  if (want.what == Positional::kFraction) {
    const auto fraction = read_fraction(token.text);
    if (!fraction || *fraction == 0) return fail_value(p, want.expected);
    a.value64 = *fraction;
    return true;
  }
  if (want.what == Positional::kError) return read_errno(p, a.value);
  if (want.what == Positional::kLimit || want.what == Positional::kBytes) {
    const auto limit = want.what == Positional::kLimit ? read_number(token.text) : read_size(token.text);
    if (token.text != "any" && (!limit || *limit > want.limit)) return fail_value(p, want.expected);
    a.value64 = limit ? *limit + 1 : 0;
    return true;
  }
  if (want.what == Positional::kStatus || want.what == Positional::kEvent) {
    const bool is_status = want.what == Positional::kStatus;
    const std::span<const Word> words = is_status ? status_words() : event_words();
    const std::string_view prefix = is_status ? "IBV_WC_" : "IBV_EVENT_";
    const std::string_view text =
        token.text.starts_with(prefix) ? token.text.substr(prefix.size()) : token.text;
    const Word* word = find_word(words, text);
    if (word == nullptr) return fail_value(p, one_of(words, text));
    a.value = word->value;
    return true;
  }
  const auto number = read_number(token.text);
  if (!number || *number > want.limit) return fail_value(p, want.expected);
  if (verb == Verb::kRate) {
    a.value64 = *number * 1'000'000;
  } else if (verb == Verb::kGid) {
    a.value64 = *number;
  } else {
    a.value = static_cast<uint32_t>(*number);
  }
  return true;
}

/// ENOMEM, ETIMEDOUT, ...
bool StatementParser::read_errno(const Pair& p, uint32_t& into) {
  const Word* word = find_word(errno_words(), p.value);
  if (word == nullptr) return fail_value(p, one_of(errno_words(), p.value));
  into = word->value;
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
  const bool lasts = verb == Verb::kPortDown || verb == Verb::kStop;
  if (p.compare == Compare::kEqual && p.key == "for" && lasts) {
    if (!positive_time) return fail_value(p, "a time with its unit such as 100ms");
    a.duration_ns = *time;
    return true;
  }
  if (p.compare == Compare::kEqual && verb == Verb::kPortFlap && (p.key == "down" || p.key == "up")) {
    if (!positive_time) return fail_value(p, "a time with its unit such as 100ms");
    (p.key == "down" ? flap_down_ns_ : flap_up_ns_) = *time;
    return true;
  }
  if (p.compare == Compare::kEqual && verb == Verb::kCorrupt && p.key == "xor") {
    uint64_t mask = 0;
    if (!read_uint(p, 255, mask)) return false;
    if (mask == 0) return fail_value(p, "a mask from 1 to 255");
    a.value = static_cast<uint32_t>(mask);
    return true;
  }
  if (p.compare == Compare::kEqual && verb == Verb::kBlock && p.key == "fail") return read_errno(p, a.value);
  if (p.compare == Compare::kEqual && p.key == "on" && !is_message_action(a.kind) &&
      !is_verb_action(a.kind)) {
    if (p.value != "peer" && p.value != "self") return fail_value(p, "self or peer");
    a.on_peer = p.value == "peer";
    return true;
  }
  return fail(p.line, p.key_column,
              "unknown option \"" + std::string(p.key) + "\"; expected " + std::string(options_of(verb)));
}

bool StatementParser::uses_message_key() const {
  for (const Key key : {Key::kPeer, Key::kPeerQpn, Key::kPath, Key::kImm, Key::kOpcode, Key::kService,
                        Key::kDirection, Key::kSize, Key::kMessage, Key::kByte, Key::kOffset, Key::kAttempt,
                        Key::kProbability, Key::kSeed, Key::kVerb, Key::kState, Key::kReach}) {
    if (used(key)) return true;
  }
  return used(Key::kEvery) && !every_is_time_;
}

/// The error in the keys of a rule about control verbs, or of one with an action on them; empty when there is
/// none.
std::string StatementParser::check_verb_rule(const Rule& rule, const std::string& action) const {
  if (!used(Key::kVerb)) {
    if (is_verb_action(rule.action.kind))
      return "\"" + action + "\" acts on control verbs; expected a key such as verb=create_qp";
    if (says_call_) return "call= counts calls of control verbs; expected verb= with it, or message=";
    if (used(Key::kReach)) return "reach= is about a destination; expected verb=create_ah with it";
    if (used(Key::kState)) return "state= is what modify_qp asks for; expected verb=modify_qp with it";
    return {};
  }
  if (is_message_action(rule.action.kind))
    return "\"" + action + "\" acts on messages; expected block, fail or an action on the world after verb=";
  if (rule.action.on_peer) return "on=peer needs a message; expected no verb= or no on=";
  if (used(Key::kMessage) && !says_call_)
    return "message= counts messages; expected call= in a rule with verb=";
  for (const Key key : {Key::kPeerQpn, Key::kPath, Key::kImm, Key::kOpcode, Key::kDirection, Key::kByte,
                        Key::kOffset, Key::kAttempt}) {
    if (used(key)) {
      return std::string(word_for(key_words(), static_cast<uint32_t>(key))) +
             "= is about messages; expected no such key in a rule with verb=";
    }
  }
  if (used(Key::kState) && (rule.match.verb_mask & bit_of(ControlVerb::kModifyQp)) == 0)
    return "state= is what modify_qp asks for; expected verb=modify_qp";
  if (used(Key::kReach) &&
      (rule.match.verb_mask & (bit_of(ControlVerb::kCreateAh) | bit_of(ControlVerb::kModifyQp))) == 0)
    return "reach= is about a destination; expected verb=create_ah or verb=modify_qp";
  return {};
}

/// Checks combinations of keys, then fills the defaults that depend on the action.
bool StatementParser::check_and_finish(Rule& rule, Verb verb, const Token& verb_token) {
  const auto refuse = [&](std::string why) {
    return fail(verb_token.line, verb_token.column, std::move(why));
  };
  const std::string name(verb_token.text);
  RuleTrigger& t = rule.trigger;
  RuleMatch& m = rule.match;
  const bool message_action = is_message_action(rule.action.kind) || is_verb_action(rule.action.kind);
  if (std::string why = check_verb_rule(rule, name); !why.empty()) return refuse(std::move(why));
  const bool window = used(Key::kFrom) || used(Key::kUntil);
  t.timed = !message_action && !uses_message_key() && !window;
  if (!t.timed && used(Key::kAt)) {
    return refuse("\"" + name +
                  "\" waits for a message or a call here, so at= has no meaning; expected from= or after=");
  }
  if (used(Key::kAt) && used(Key::kAfter))
    return refuse("at= and after= exclude each other; expected one of them");
  if (message_action && every_is_time_) {
    const std::string what = used(Key::kVerb) ? "calls" : "messages";
    return refuse("\"" + name + "\" acts on " + what + "; expected every= with a number of " + what);
  }
  if (t.timed && rule.action.on_peer)
    return refuse("on=peer needs a message; expected a key such as opcode= or message=");
  if (t.from_ns >= t.until_ns) return refuse("the rule ends before it starts; expected from= below until=");
  if (used(Key::kByte) && used(Key::kMessage))
    return refuse("byte= and message= exclude each other; expected one of them");
  if (verb == Verb::kLateWrite) {
    const uint32_t writes = find_word(opcode_words(), "WRITE")->value;
    if (used(Key::kOpcode) && (m.opcode_mask & ~writes) != 0) {
      return refuse("\"late-write\" holds RDMA writes only; expected opcode=WRITE");
    }
  }
  if (verb == Verb::kDropAck && (m.opcode_mask & kAckOpcode) != 0) {
    return refuse(
        "\"drop-ack\" names the request whose answer is lost; expected \"opcode=ACK do drop\" to name "
        "answers");
  }
  if (verb == Verb::kLose) {
    if ((m.direction_mask & 2) != 0)
      return refuse("\"lose\" acts on packets that leave a port; expected direction=tx");
    if (used(Key::kOffset) || used(Key::kByte))
      return refuse("\"lose\" chooses the packets itself; expected no offset= or byte=");
  }
  if (verb == Verb::kPortFlap) {
    if (flap_down_ns_ == 0 || flap_up_ns_ == 0)
      return refuse("\"port-flap\" needs two times; expected down=TIME up=TIME");
    if (every_is_time_) return refuse("\"port-flap\" has its own period; expected no every=TIME");
    rule.action.duration_ns = flap_down_ns_;
    t.period_ns = flap_down_ns_ + flap_up_ns_;
  }
  if (t.timed && t.at_ns == kNever && rule.after_name[0] == '\0') t.at_ns = 0;
  const Given given{used(Key::kOpcode), used(Key::kAttempt), used(Key::kCount), used(Key::kDirection)};
  apply_defaults(rule, verb, given);
  return true;
}

}  // namespace bfo::softhca
