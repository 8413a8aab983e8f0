// SPDX-License-Identifier: BSD-3-Clause
//
// The describer: a rule back into the language, for reports, softhcactl and the round-trip test.
#include "contrib/softhca/fault/defaults.h"
#include "contrib/softhca/fault/gid_list.h"
#include "contrib/softhca/fault/language.h"
#include "contrib/softhca/fault/link_speed.h"
#include "contrib/softhca/fault/numbers.h"
#include "contrib/softhca/fault/words.h"

namespace bfo::softhca {
namespace {

std::string mask_text(std::span<const Word> words, uint32_t mask) {
  if (const std::string_view whole = word_for(words, mask); !whole.empty()) return std::string(whole);
  std::string text;
  for (const Word& word : words) {
    if ((word.value & ~mask) != 0) continue;
    mask &= ~word.value;
    text += (text.empty() ? "" : "|") + std::string(word.text);
    if (mask == 0) break;
  }
  return text;
}

class Describer {
 public:
  explicit Describer(const Rule& rule) : rule_(rule) {}
  std::string text();

 private:
  void key(std::string_view name, const std::string& value) { out_ += " " + std::string(name) + "=" + value; }
  void number(std::string_view name, uint64_t value, uint64_t any) {
    if (value != any) key(name, std::to_string(value));
  }
  void places();
  void kinds();
  void ranges();
  void times();
  void action();

  const Rule& rule_;
  std::string out_;
};

void Describer::places() {
  const RuleMatch& m = rule_.match;
  number("node", m.node, kAnyId);
  if (m.device != kAnyId) key("device", "softhca" + std::to_string(m.device));
  number("port", m.port, kAnyId);
  number("qpn", m.qpn, 0);
  number("peer", m.peer_node, kAnyId);
  number("peer-qpn", m.peer_qpn, 0);
  number("path", m.path, kAnyPath);
}

void Describer::kinds() {
  const RuleMatch& m = rule_.match;
  const RuleMatch any;
  if (rule_.trigger.timed) return;
  if (m.verb_mask != 0) {
    key("verb", mask_text(control_verb_words(), m.verb_mask));
    if (m.reach != Reach::kAny) key("reach", m.reach == Reach::kYes ? "yes" : "no");
    if (m.qp_states != 0) key("state", mask_text(qp_state_words(), m.qp_states));
    if (m.service_mask != any.service_mask) key("service", mask_text(service_words(), m.service_mask));
    return;
  }
  key("opcode", mask_text(opcode_words(), m.opcode_mask));
  if (m.has_imm) key("imm", std::to_string(m.imm));
  if (m.service_mask != any.service_mask) key("service", mask_text(service_words(), m.service_mask));
  if (m.direction_mask != any.direction_mask)
    key("direction", mask_text(direction_words(), m.direction_mask));
  if (m.attempt_mode == AttemptMode::kExact) {
    key("attempt", std::to_string(m.attempt));
  } else {
    key("attempt", m.attempt_mode == AttemptMode::kAll ? "all" : "first");
  }
}

void Describer::ranges() {
  const RuleMatch& m = rule_.match;
  if (m.size_min == m.size_max) {
    key("size", write_size(m.size_min));
  } else {
    if (m.size_min != 0) out_ += " size>=" + write_size(m.size_min);
    if (m.size_max != ~0u) out_ += " size<=" + write_size(m.size_max);
  }
  if (m.message_first != 0) {
    std::string range = std::to_string(m.message_first);
    if (m.message_last != m.message_first) range += "..";
    if (m.message_last != m.message_first && m.message_last != kNever)
      range += std::to_string(m.message_last);
    key(m.verb_mask != 0 ? "call" : "message", range);
  }
  number("every", m.every, 0);
  if (m.byte != kNever) key("byte", write_size(m.byte));
  const RuleAction& a = rule_.action;
  if (a.has_offset)
    key("offset", a.offset_is_percent ? std::to_string(a.offset) + "%" : write_size(a.offset));
  if (m.probability != kAlways) key("probability", write_fraction(m.probability));
  number("seed", m.seed, RuleMatch{}.seed);
}

void Describer::times() {
  const RuleTrigger& t = rule_.trigger;
  if (rule_.after_name[0] != '\0') {
    key("after",
        std::string(rule_.after_name) + (t.after_delay_ns != 0 ? "+" + write_time(t.after_delay_ns) : ""));
  }
  if (t.timed && t.at_ns != kNever) key("at", write_time(t.at_ns));
  if (t.from_ns != 0) key("from", write_time(t.from_ns));
  if (t.until_ns != kNever) key("until", write_time(t.until_ns));
  if (t.period_ns != 0 && verb_of(rule_) != Verb::kPortFlap) key("every", write_time(t.period_ns));
  key("count", t.count == 0 ? "any" : std::to_string(t.count));
}

void Describer::action() {
  const RuleAction& a = rule_.action;
  const Verb verb = verb_of(rule_);
  out_ += " do " + std::string(word_for(verb_words(), static_cast<uint32_t>(verb)));
  switch (positional_of(verb).what) {
    case Positional::kNothing:
      break;
    case Positional::kNumber:
      out_ += " " + std::to_string(verb == Verb::kRate  ? a.value64 / 1'000'000
                                   : verb == Verb::kGid ? a.value64
                                                        : a.value);
      break;
    case Positional::kTime:
      if (verb == Verb::kLatency) out_ += " " + write_time(a.value64);
      if (verb != Verb::kLatency && a.delay_ns != 0) out_ += " " + write_time(a.delay_ns);
      break;
    case Positional::kStatus:
      out_ += " " + std::string(word_for(status_words(), a.value));
      break;
    case Positional::kLimit:
    case Positional::kBytes:
      if (a.value64 == 0) {
        out_ += " any";
      } else {
        out_ += " " + (verb == Verb::kMemlock ? write_size(a.value64 - 1) : std::to_string(a.value64 - 1));
      }
      break;
    case Positional::kGids:
      out_ += " " + write_gid_list(unpack(a.value64));
      break;
    case Positional::kSpeed:
      out_ += " " + write_link_speed(unpack_link_speed(a.value64));
      break;
    case Positional::kFraction:
      out_ += " " + write_fraction(a.value64);
      break;
    case Positional::kError:
      out_ += " " + std::string(word_for(errno_words(), a.value));
      break;
    case Positional::kEvent:
      out_ += " " + std::string(word_for(event_words(), a.value));
      break;
  }
  if (verb == Verb::kPortFlap) {
    key("down", write_time(a.duration_ns));
    key("up", write_time(rule_.trigger.period_ns - a.duration_ns));
  } else if (a.duration_ns != 0) {
    key("for", write_time(a.duration_ns));
  }
  if (verb == Verb::kBlock && a.value != 0) {
    key("fail", std::string(word_for(errno_words(), a.value)));
  }
  if (verb == Verb::kCorrupt) key("xor", std::to_string(a.value));
  if (a.on_peer) key("on", "peer");
}

std::string Describer::text() {
  if (rule_.name[0] != '\0') out_ = std::string(rule_.name) + ": ";
  out_ += "when";
  places();
  kinds();
  ranges();
  times();
  action();
  return std::move(out_);
}

}  // namespace

std::string describe(const Rule& rule) {
  return Describer(rule).text();
}

}  // namespace bfo::softhca
