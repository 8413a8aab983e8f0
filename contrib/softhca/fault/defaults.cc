// SPDX-License-Identifier: BSD-3-Clause
//
// The table of actions and the defaults that depend on them.
#include "contrib/softhca/fault/defaults.h"

#include "contrib/softhca/fault/link_speed.h"

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

constexpr Positional kCount{Positional::kLimit, true, kMaxObjects, "a number of objects per device, or any"};

constexpr VerbEntry kVerbEntries[] = {
    {Verb::kDrop, ActionKind::kDrop, {}, ""},
    {Verb::kOneWay, ActionKind::kDrop, {}, ""},
    {Verb::kDropAck, ActionKind::kDropAck, {}, ""},
    {Verb::kDelay, ActionKind::kDelay, {Positional::kTime, true, 0, "a time with its unit such as 5ms"}, ""},
    {Verb::kDuplicate, ActionKind::kDuplicate, {}, ""},
    {Verb::kReorder,
     ActionKind::kReorder,
     {Positional::kTime, false, 0, "a time with its unit such as 1ms"},
     ""},
    {Verb::kCorrupt, ActionKind::kCorrupt, {}, "xor=MASK or the end of the rule"},
    {Verb::kComplete,
     ActionKind::kStatus,
     {Positional::kStatus, true, 0, "a completion status such as LOC_PROT_ERR"},
     ""},
    {Verb::kLateWrite,
     ActionKind::kLateWrite,
     {Positional::kTime, false, 0, "a time with its unit such as 50ms"},
     ""},
    {Verb::kLose,
     ActionKind::kLose,
     {Positional::kFraction, true, 0, "the part of the packets that is lost such as 1% or 0.01"},
     ""},
    {Verb::kRelease, ActionKind::kReleaseLate, {}, kOnPeer},
    {Verb::kPortDown, ActionKind::kPortDown, {}, kLasts},
    {Verb::kPortUp, ActionKind::kPortUp, {}, kOnPeer},
    {Verb::kPortFlap, ActionKind::kPortDown, {}, "down=TIME, up=TIME, on=peer or the end of the rule"},
    {Verb::kRate,
     ActionKind::kSetRate,
     {Positional::kNumber, true, kMaxRate, "10^6 bytes per second, 0 for no limit"},
     kOnPeer},
    {Verb::kLatency,
     ActionKind::kSetLatency,
     {Positional::kTime, true, 0, "a time with its unit such as 5us"},
     kOnPeer},
    {Verb::kSpeed, ActionKind::kSetSpeed, {Positional::kSpeed, true, 0, kLinkSpeedWords}, kOnPeer},
    {Verb::kDeviceFatal, ActionKind::kDeviceFatal, {}, kOnPeer},
    {Verb::kLid,
     ActionKind::kLidChange,
     {Positional::kNumber, true, 0xbfff, "a LID from 0 to 0xbfff"},
     kOnPeer},
    {Verb::kGid,
     ActionKind::kGidChange,
     {Positional::kNumber, true, ~uint64_t{0}, "the low 64 bits of the GID"},
     kOnPeer},
    {Verb::kGids,
     ActionKind::kGidTable,
     {Positional::kGids, true, 0, "a GID table of RoCE such as v1,v2,v2-ipv4,v2-ipv4@5"},
     kOnPeer},
    {Verb::kPkey,
     ActionKind::kPkeyChange,
     {Positional::kNumber, true, 0xffff, "a P_Key from 0 to 0xffff"},
     kOnPeer},
    {Verb::kSmChange, ActionKind::kSmChange, {}, kOnPeer},
    {Verb::kClientReregister, ActionKind::kClientReregister, {}, kOnPeer},
    {Verb::kCqOverrun, ActionKind::kCqOverrun, {}, kOnPeer},
    {Verb::kEvent,
     ActionKind::kRaiseEvent,
     {Positional::kEvent, true, 0, "an event such as PATH_MIG"},
     kOnPeer},
    {Verb::kKill, ActionKind::kKill, {}, kOnPeer},
    {Verb::kStop, ActionKind::kStop, {}, kLasts},
    {Verb::kBlock,
     ActionKind::kVerbFault,
     {Positional::kTime, true, 0, "a time with its unit such as 1s"},
     "fail=ERRNO or the end of the rule"},
    {Verb::kMaxQp, ActionKind::kSetLimit, kCount, kOnPeer},
    {Verb::kMaxCq, ActionKind::kSetLimit, kCount, kOnPeer},
    {Verb::kMaxMr, ActionKind::kSetLimit, kCount, kOnPeer},
    {Verb::kMaxSrq, ActionKind::kSetLimit, kCount, kOnPeer},
    {Verb::kMaxAh, ActionKind::kSetLimit, kCount, kOnPeer},
    {Verb::kMaxPd, ActionKind::kSetLimit, kCount, kOnPeer},
    {Verb::kMemlock,
     ActionKind::kSetMemlock,
     {Positional::kBytes, true, kMaxMemlock, "bytes a process may register such as 8M, or any"},
     kOnPeer},
    {Verb::kSegment,
     ActionKind::kSetSegment,
     {Positional::kNumber, true, kMostSegment, "a segment from 0"},
     kOnPeer},
    {Verb::kIsolate, ActionKind::kSetSegment, {}, kOnPeer},
    {Verb::kFail, ActionKind::kVerbFault, {Positional::kError, true, 0, "an error such as ENOMEM"}, ""},
};

/// The kind of object each limit is about.
constexpr struct {
  Verb verb;
  ObjectKind kind;
} kLimits[] = {{Verb::kMaxQp, ObjectKind::kQp}, {Verb::kMaxCq, ObjectKind::kCq},
               {Verb::kMaxMr, ObjectKind::kMr}, {Verb::kMaxSrq, ObjectKind::kSrq},
               {Verb::kMaxAh, ObjectKind::kAh}, {Verb::kMaxPd, ObjectKind::kPd}};

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
  return verb == Verb::kIsolate ? kOwnSegment : 0;
}
Positional positional_of(Verb verb) {
  return entry_of(verb).positional;
}
std::string_view options_of(Verb verb) {
  return entry_of(verb).options;
}

Verb verb_of(const Rule& rule) {
  if (rule.action.kind == ActionKind::kPortDown && rule.trigger.period_ns > rule.action.duration_ns &&
      rule.action.duration_ns != 0) {
    return Verb::kPortFlap;
  }
  if (is_verb_action(rule.action.kind)) return rule.action.delay_ns != 0 ? Verb::kBlock : Verb::kFail;
  for (const auto& limit : kLimits) {
    if (rule.action.kind == ActionKind::kSetLimit && rule.action.value == static_cast<uint32_t>(limit.kind))
      return limit.verb;
  }
  if (rule.action.kind == ActionKind::kSetSegment)
    return rule.action.value == kOwnSegment ? Verb::kIsolate : Verb::kSegment;
  for (const VerbEntry& entry : kVerbEntries) {
    if (entry.kind == rule.action.kind) return entry.verb;
  }
  return Verb::kDrop;
}

void apply_defaults(Rule& rule, Verb verb, const Given& given) {
  RuleMatch& m = rule.match;
  RuleAction& a = rule.action;
  if (!given.opcode && (verb == Verb::kOneWay || verb == Verb::kLose))
    m.opcode_mask = kRequestOpcodes | kAckOpcode;
  if (!given.opcode && verb == Verb::kLateWrite) m.opcode_mask = find_word(opcode_words(), "WRITE")->value;
  if (!given.attempt &&
      (verb == Verb::kOneWay || verb == Verb::kDropAck || verb == Verb::kLateWrite || verb == Verb::kLose)) {
    m.attempt_mode = AttemptMode::kAll;
  }
  if (!given.count) rule.trigger.count = default_count(rule);
  if (a.kind == ActionKind::kCorrupt && a.value == 0) a.value = kDefaultFlip;
  if (a.kind == ActionKind::kReorder && a.delay_ns == 0) a.delay_ns = kDefaultReorderNs;
}

}  // namespace bfo::softhca
