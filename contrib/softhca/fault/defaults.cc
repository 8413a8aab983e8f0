// SPDX-License-Identifier: BSD-3-Clause
//
// The table of actions and the defaults that depend on them.
#include "contrib/softhca/fault/defaults.h"

namespace bfo::softhca {
namespace {

constexpr uint64_t kMaxRate = 1'000'000;  // 10^12 bytes per second
constexpr uint64_t kMaxObjects = 1u << 30;
constexpr uint64_t kMaxMemlock = uint64_t{1} << 60;
constexpr uint32_t kDefaultFlip = 1;
constexpr uint64_t kDefaultReorderNs = 1'000'000;

struct VerbEntry {
  Verb verb;
  ActionKind kind;
  Positional positional;
  std::string_view options;
};

constexpr std::string_view kOnPeer = "on=peer or the end of the rule";
constexpr std::string_view kLasts = "for=TIME, on=peer or the end of the rule";

constexpr Positional kCount{Positional::Limit, true, kMaxObjects, "a number of objects per device, or any"};

constexpr VerbEntry kVerbEntries[] = {
    {Verb::Drop, ActionKind::Drop, {}, ""},
    {Verb::OneWay, ActionKind::Drop, {}, ""},
    {Verb::DropAck, ActionKind::DropAck, {}, ""},
    {Verb::Delay, ActionKind::Delay, {Positional::Time, true, 0, "a time with its unit such as 5ms"}, ""},
    {Verb::Duplicate, ActionKind::Duplicate, {}, ""},
    {Verb::Reorder,
     ActionKind::Reorder,
     {Positional::Time, false, 0, "a time with its unit such as 1ms"},
     ""},
    {Verb::Corrupt, ActionKind::Corrupt, {}, "xor=MASK or the end of the rule"},
    {Verb::Complete,
     ActionKind::Status,
     {Positional::Status, true, 0, "a completion status such as LOC_PROT_ERR"},
     ""},
    {Verb::LateWrite,
     ActionKind::LateWrite,
     {Positional::Time, false, 0, "a time with its unit such as 50ms"},
     ""},
    {Verb::Release, ActionKind::ReleaseLate, {}, kOnPeer},
    {Verb::PortDown, ActionKind::PortDown, {}, kLasts},
    {Verb::PortUp, ActionKind::PortUp, {}, kOnPeer},
    {Verb::PortFlap, ActionKind::PortDown, {}, "down=TIME, up=TIME, on=peer or the end of the rule"},
    {Verb::Rate,
     ActionKind::SetRate,
     {Positional::Number, true, kMaxRate, "10^6 bytes per second, 0 for no limit"},
     kOnPeer},
    {Verb::Latency,
     ActionKind::SetLatency,
     {Positional::Time, true, 0, "a time with its unit such as 5us"},
     kOnPeer},
    {Verb::DeviceFatal, ActionKind::DeviceFatal, {}, kOnPeer},
    {Verb::Lid, ActionKind::LidChange, {Positional::Number, true, 0xbfff, "a LID from 0 to 0xbfff"}, kOnPeer},
    {Verb::Gid,
     ActionKind::GidChange,
     {Positional::Number, true, ~uint64_t{0}, "the low 64 bits of the GID"},
     kOnPeer},
    {Verb::Gids,
     ActionKind::GidTable,
     {Positional::Gids, true, 0, "a GID table of RoCE such as v1,v2,v2-ipv4,v2-ipv4@5"},
     kOnPeer},
    {Verb::Pkey,
     ActionKind::PkeyChange,
     {Positional::Number, true, 0xffff, "a P_Key from 0 to 0xffff"},
     kOnPeer},
    {Verb::SmChange, ActionKind::SmChange, {}, kOnPeer},
    {Verb::ClientReregister, ActionKind::ClientReregister, {}, kOnPeer},
    {Verb::CqOverrun, ActionKind::CqOverrun, {}, kOnPeer},
    {Verb::Event, ActionKind::RaiseEvent, {Positional::Event, true, 0, "an event such as PATH_MIG"}, kOnPeer},
    {Verb::Kill, ActionKind::Kill, {}, kOnPeer},
    {Verb::Stop, ActionKind::Stop, {}, kLasts},
    {Verb::Block,
     ActionKind::VerbFault,
     {Positional::Time, true, 0, "a time with its unit such as 1s"},
     "fail=ERRNO or the end of the rule"},
    {Verb::MaxQp, ActionKind::SetLimit, kCount, kOnPeer},
    {Verb::MaxCq, ActionKind::SetLimit, kCount, kOnPeer},
    {Verb::MaxMr, ActionKind::SetLimit, kCount, kOnPeer},
    {Verb::MaxSrq, ActionKind::SetLimit, kCount, kOnPeer},
    {Verb::MaxAh, ActionKind::SetLimit, kCount, kOnPeer},
    {Verb::MaxPd, ActionKind::SetLimit, kCount, kOnPeer},
    {Verb::Memlock,
     ActionKind::SetMemlock,
     {Positional::Bytes, true, kMaxMemlock, "bytes a process may register such as 8M, or any"},
     kOnPeer},
    {Verb::Segment,
     ActionKind::SetSegment,
     {Positional::Number, true, kMostSegment, "a segment from 0"},
     kOnPeer},
    {Verb::Isolate, ActionKind::SetSegment, {}, kOnPeer},
    {Verb::Fail, ActionKind::VerbFault, {Positional::Error, true, 0, "an error such as ENOMEM"}, ""},
};

/// The kind of object each limit is about.
constexpr struct {
  Verb verb;
  ObjectKind kind;
} kLimits[] = {{Verb::MaxQp, ObjectKind::Qp},   {Verb::MaxCq, ObjectKind::Cq}, {Verb::MaxMr, ObjectKind::Mr},
               {Verb::MaxSrq, ObjectKind::Srq}, {Verb::MaxAh, ObjectKind::Ah}, {Verb::MaxPd, ObjectKind::Pd}};

const VerbEntry& entry_of(Verb verb) {
  for (const VerbEntry& entry : kVerbEntries) {
    if (entry.verb == verb) return entry;
  }
  return kVerbEntries[0];
}

uint64_t default_count(const Rule& rule) {
  const RuleMatch& m = rule.match;
  if (m.message_first != 0 && m.message_last != kNever && m.every == 0 && m.probability == kAlways) {
    return m.message_last - m.message_first + 1;
  }
  if (m.byte != kNever) return 1;
  if (is_message_action(rule.action.kind) || is_verb_action(rule.action.kind)) return 0;
  return rule.trigger.period_ns != 0 || m.every != 0 || m.message_last == kNever ? 0 : 1;
}

}  // namespace

ActionKind kind_of(Verb verb) {
  return entry_of(verb).kind;
}
uint32_t initial_value_of(Verb verb) {
  for (const auto& limit : kLimits) {
    if (limit.verb == verb) return static_cast<uint32_t>(limit.kind);
  }
  return verb == Verb::Isolate ? kOwnSegment : 0;
}
Positional positional_of(Verb verb) {
  return entry_of(verb).positional;
}
std::string_view options_of(Verb verb) {
  return entry_of(verb).options;
}

Verb verb_of(const Rule& rule) {
  if (rule.action.kind == ActionKind::PortDown && rule.trigger.period_ns > rule.action.duration_ns &&
      rule.action.duration_ns != 0) {
    return Verb::PortFlap;
  }
  if (is_verb_action(rule.action.kind)) return rule.action.delay_ns != 0 ? Verb::Block : Verb::Fail;
  for (const auto& limit : kLimits) {
    if (rule.action.kind == ActionKind::SetLimit && rule.action.value == static_cast<uint32_t>(limit.kind))
      return limit.verb;
  }
  if (rule.action.kind == ActionKind::SetSegment)
    return rule.action.value == kOwnSegment ? Verb::Isolate : Verb::Segment;
  for (const VerbEntry& entry : kVerbEntries) {
    if (entry.kind == rule.action.kind) return entry.verb;
  }
  return Verb::Drop;
}

void apply_defaults(Rule& rule, Verb verb, const Given& given) {
  RuleMatch& m = rule.match;
  RuleAction& a = rule.action;
  if (!given.opcode && verb == Verb::OneWay) m.opcode_mask = kRequestOpcodes | kAckOpcode;
  if (!given.opcode && verb == Verb::LateWrite) m.opcode_mask = find_word(opcode_words(), "WRITE")->value;
  if (!given.attempt && (verb == Verb::OneWay || verb == Verb::DropAck || verb == Verb::LateWrite)) {
    m.attempt_mode = AttemptMode::All;
  }
  if (!given.count) rule.trigger.count = default_count(rule);
  if (a.kind == ActionKind::Corrupt && a.value == 0) a.value = kDefaultFlip;
  if (a.kind == ActionKind::Reorder && a.delay_ns == 0) a.delay_ns = kDefaultReorderNs;
}

}  // namespace bfo::softhca
