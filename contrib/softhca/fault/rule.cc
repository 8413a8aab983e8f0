// SPDX-License-Identifier: BSD-3-Clause
//
// Evaluation of the rules: whether a message matches, whether it is the one that the rule waits for, and the
// action. It runs in the process that executes the message. All shared state is atomic, and nothing blocks.
#include "contrib/softhca/fault/rule.h"

#include <arpa/inet.h>

#include <algorithm>

#include "contrib/softhca/fault/dice.h"

namespace bfo::softhca {
namespace {

/// Names a message by its source port and its ordinal there; attempts of one message share it. Never 0.
uint64_t message_identity(const MessageRecord& r) {
  const bool tx = r.direction == Direction::kTx;
  const uint64_t node = tx ? r.node : r.peer_node;
  const uint64_t device = tx ? r.device : r.peer_device;
  const uint64_t port = tx ? r.port : r.peer_port;
  return (node << 52 ^ device << 46 ^ port << 43 ^ r.message_ordinal) | uint64_t{1} << 63;
}

bool carries(const MessageRecord& r, uint32_t imm) {
  return (r.opcode == Opcode::kSendImm || r.opcode == Opcode::kWriteImm) && ntohl(r.imm) == imm;
}

bool selects_packet(const RuleMatch& m, const MessageRecord& r) {
  if ((m.opcode_mask >> static_cast<unsigned>(r.opcode) & 1) == 0) return false;
  if ((m.direction_mask >> static_cast<unsigned>(r.direction) & 1) == 0) return false;
  if ((m.service_mask >> static_cast<unsigned>(r.service) & 1) == 0) return false;
  if (r.length < m.size_min || r.length > m.size_max) return false;
  if (m.has_imm && !carries(r, m.imm)) return false;
  const bool tx = r.direction == Direction::kTx;
  if (m.qpn != 0 && m.qpn != (tx ? r.src_qpn : r.dst_qpn)) return false;
  return m.peer_qpn == 0 || m.peer_qpn == (tx ? r.dst_qpn : r.src_qpn);
}

bool selects_place(const RuleMatch& m, const MessageRecord& r) {
  if (m.node != kAnyId && m.node != r.node) return false;
  if (m.device != kAnyId && m.device != r.device) return false;
  if (m.port != kAnyId && m.port != r.port) return false;
  if (m.path != kAnyPath && m.path != r.path) return false;
  return m.peer_node == kAnyId || m.peer_node == r.peer_node;
}

/// A property that the call does not have matches only a rule that does not ask for it.
bool selects_call(const RuleMatch& m, const VerbCall& call) {
  if ((m.verb_mask & bit_of(call.verb)) == 0) return false;
  if (m.node != kAnyId && m.node != call.node) return false;
  if (m.device != kAnyId && m.device != call.device) return false;
  if (m.port != kAnyId && m.port != call.port) return false;
  if (m.peer_node != kAnyId && m.peer_node != call.peer_node) return false;
  if (m.qpn != 0 && m.qpn != call.qpn) return false;
  if (m.service_mask != RuleMatch{}.service_mask && (m.service_mask & call.service_mask) == 0) return false;
  if (m.reach != Reach::kAny && m.reach != call.reach) return false;
  if (m.qp_states != 0 && (m.qp_states & call.state_mask) == 0) return false;
  return call.size >= m.size_min && (m.size_max == ~0u || call.size <= m.size_max);
}

bool in_window(const FaultTable& table, const RuleTrigger& t, uint64_t now_ns) {
  uint64_t origin = table.start_ns.load(std::memory_order_relaxed);
  if (t.after_rule >= 0) {
    origin = table.slots[t.after_rule].counters.first_fired_ns.load(std::memory_order_acquire);
    if (origin == 0) return false;
    origin += t.after_delay_ns;
    if (now_ns < origin) return false;
  }
  const uint64_t age = now_ns > origin ? now_ns - origin : 0;
  return age >= t.from_ns && age < t.until_ns;
}

bool remembers(const RuleCounters& c, uint64_t identity) {
  for (const auto& entry : c.sticky) {
    if (entry.load(std::memory_order_relaxed) == identity) return true;
  }
  return false;
}

void remember(RuleCounters& c, uint64_t identity) {
  const uint32_t at = c.sticky_next.fetch_add(1, std::memory_order_relaxed) % kStickyMessages;
  c.sticky[at].store(identity, std::memory_order_relaxed);
}

/// A rule without ordinal, probability, byte position or limit fires for each message that it selects. It has
/// no state.
bool is_plain_filter(const Rule& rule) {
  const RuleMatch& m = rule.match;
  return m.message_first == 0 && m.every == 0 && m.byte == kNever && m.probability == kAlways &&
         rule.trigger.count == 0;
}

/// The first transmission of a message decides about all of them.
bool shares_fate(const Rule& rule) {
  return rule.match.attempt_mode == AttemptMode::kAll && !is_plain_filter(rule) &&
         rule.action.kind != ActionKind::kLose;
}

/// Takes one of the allowed firings. False when they are used up.
bool claim_firing(const Rule& rule, RuleCounters& c) {
  uint64_t fired = c.fired.load(std::memory_order_relaxed);
  do {
    if (rule.trigger.count != 0 && fired >= rule.trigger.count) return false;
  } while (!c.fired.compare_exchange_weak(fired, fired + 1, std::memory_order_acq_rel));
  return true;
}

/// The first firing of a periodic rule is triggered by a message, all later ones by the clock.
bool runs_by_clock(const Rule& rule, const RuleCounters& c) {
  return rule.trigger.period_ns != 0 && c.fired.load(std::memory_order_relaxed) != 0;
}

bool is_last_firing(const Rule& rule, const RuleCounters& c) {
  return rule.trigger.count != 0 && c.fired.load(std::memory_order_relaxed) >= rule.trigger.count;
}

bool is_timed(const Rule& rule) {
  return rule.trigger.timed || rule.trigger.period_ns != 0;
}

/// Takes the rule out of the counts of armed rules, which send messages through decide(). Once per rule.
void retire(FaultTable& table, RuleSlot& slot, RuleState to, uint64_t now_ns) {
  RuleState expected = RuleState::kArmed;
  if (!slot.counters.state.compare_exchange_strong(expected, to)) return;
  slot.counters.retired_ns.store(now_ns, std::memory_order_relaxed);
  slot.counters.due_ns.store(kNever, std::memory_order_relaxed);
  if (auto* count = watchers(table, slot.rule)) count->fetch_sub(1, std::memory_order_relaxed);
  if (is_timed(slot.rule)) table.timed_rules.fetch_sub(1, std::memory_order_relaxed);
}

/// A rule that treats all transmissions of a message alike stays armed for the retransmissions.
void retire_when_spent(FaultTable& table, RuleSlot& slot, uint64_t now_ns) {
  if (!is_last_firing(slot.rule, slot.counters)) return;
  if (!slot.rule.trigger.timed && slot.rule.match.verb_mask == 0 &&
      slot.rule.match.attempt_mode == AttemptMode::kAll)
    return;
  if (slot.counters.due_ns.load(std::memory_order_relaxed) != kNever) return;
  retire(table, slot, RuleState::kSpent, now_ns);
}

/// Counts a firing. Starts the rules that wait for this one, and sets the time of the next periodic firing.
void note_firing(FaultTable& table, unsigned index, uint64_t now_ns) {
  RuleSlot& slot = table.slots[index];
  uint64_t never_fired = 0;
  if (slot.counters.first_fired_ns.compare_exchange_strong(never_fired, now_ns != 0 ? now_ns : 1)) {
    const uint32_t used = table.used.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < used; ++i) {
      RuleSlot& waiting = table.slots[i];
      if (waiting.counters.state.load(std::memory_order_acquire) != RuleState::kArmed) continue;
      const RuleTrigger& t = waiting.rule.trigger;
      if (!t.timed || t.after_rule != static_cast<int>(index)) continue;
      waiting.counters.due_ns.store(now_ns + t.after_delay_ns, std::memory_order_release);
    }
  }
  if (slot.rule.trigger.period_ns != 0 && !is_last_firing(slot.rule, slot.counters)) {
    slot.counters.due_ns.store(now_ns + slot.rule.trigger.period_ns, std::memory_order_release);
  }
}

uint64_t effect_offset(const RuleAction& a, uint64_t length) {
  if (!a.has_offset) return 0;
  const uint64_t bytes = a.offset_is_percent ? length * a.offset / 100 : a.offset;
  return bytes < length ? bytes : length;
}

Decision common_decision(const Rule& rule, unsigned index) {
  const RuleAction& a = rule.action;
  Decision d;
  d.kind = a.kind;
  d.rule = static_cast<uint8_t>(index);
  d.value = a.value;
  d.value64 = a.value64;
  d.delay_ns = a.delay_ns;
  d.duration_ns = a.duration_ns;
  return d;
}

/// What a rule has found of a message.
struct Firing {
  bool fires = false;
  uint64_t cut = 0;  ///< offset inside the message at which the effect starts
  LostPackets lost = {};
};

Decision message_decision(const Rule& rule, unsigned index, const MessageRecord& r, const Firing& firing) {
  Decision d = common_decision(rule, index);
  d.cut_bytes = firing.cut;
  d.offset = static_cast<uint32_t>(firing.cut);
  if (d.kind == ActionKind::kLose) {
    d.value = firing.lost.followed;
    d.value64 = firing.lost.last ? 1 : 0;
  }
  if (!is_message_action(d.kind)) {
    d.node = rule.action.on_peer ? r.peer_node : r.node;
    d.device = rule.action.on_peer ? r.peer_device : r.device;
    d.port = rule.action.on_peer ? r.peer_port : r.port;
    const bool tx = r.direction == Direction::kTx;
    d.qpn = tx != rule.action.on_peer ? r.src_qpn : r.dst_qpn;
  }
  // The first transmission is the one that is delayed. Until it is released the requester gets no answer.
  if (d.kind == ActionKind::kLateWrite && r.attempt > 0) d.kind = ActionKind::kDrop;
  return d;
}

/// The ordinal is one of those the rule names.
bool is_in_turn(const RuleMatch& m, uint64_t ordinal) {
  if (m.message_first != 0 && (ordinal < m.message_first || ordinal > m.message_last)) return false;
  return m.every == 0 || ordinal % m.every == 0;
}

bool is_lucky(const RuleMatch& m, uint64_t ordinal) {
  return m.probability == kAlways || throw_dice(m.seed, ordinal) < m.probability;
}

/// Counts the message. True when it is one that the rule waits for.
Firing evaluate(const Rule& rule, RuleCounters& c, const MessageRecord& r) {
  const RuleMatch& m = rule.match;
  const bool request = r.opcode != Opcode::kAck;
  if (request && m.attempt_mode == AttemptMode::kExact && r.attempt != m.attempt) return {};
  if (request && m.attempt_mode == AttemptMode::kFirst && r.attempt != 0) return {};
  if (request && r.attempt != 0 && shares_fate(rule)) {
    return {remembers(c, message_identity(r)), effect_offset(rule.action, r.length)};
  }
  const uint64_t ordinal = c.matched.fetch_add(1, std::memory_order_relaxed) + 1;
  const uint64_t before = c.bytes.fetch_add(r.length, std::memory_order_relaxed);
  uint64_t cut = effect_offset(rule.action, r.length);
  if (!is_in_turn(m, ordinal)) return {};
  if (m.byte != kNever) {
    if (m.byte < before || m.byte - before >= r.length) return {};
    if (!rule.action.has_offset) cut = m.byte - before;
  }
  if (!is_lucky(m, ordinal)) return {};
  if (rule.action.kind != ActionKind::kLose) return {true, cut};
  const LostPackets lost = lose_packets(rule.action.value64, m.seed, ordinal, std::max(r.packets, 1u));
  return {lost.any(), cut, lost};
}

/// A periodic firing applies to the port of the message that triggered the first one.
void keep_target(RuleCounters& c, const Decision& d) {
  c.target_node.store(d.node, std::memory_order_relaxed);
  c.target_device_port.store(uint32_t{d.device} << 16 | d.port, std::memory_order_release);
}

/// The first rule that fires decides. An action on ports, devices or processes goes before one that `yields`.
void choose(FaultTable& table, Decision& chosen, const Decision& next, bool (*yields)(ActionKind)) {
  const bool replaced = chosen.kind != ActionKind::kNone && yields(chosen.kind) && !yields(next.kind);
  if (chosen.kind != ActionKind::kNone) {
    const uint8_t loser = replaced ? chosen.rule : next.rule;
    table.slots[loser].counters.overridden.fetch_add(1, std::memory_order_relaxed);
  }
  if (chosen.kind == ActionKind::kNone || replaced) chosen = next;
}

}  // namespace

Decision decide(FaultTable& table, const MessageRecord& record) {
  Decision result;
  const uint32_t used = table.used.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used; ++i) {
    RuleSlot& slot = table.slots[i];
    RuleCounters& c = slot.counters;
    if (c.state.load(std::memory_order_acquire) != RuleState::kArmed || slot.rule.trigger.timed) continue;
    if (slot.rule.match.verb_mask != 0) continue;
    if (!selects_packet(slot.rule.match, record) || !selects_place(slot.rule.match, record)) continue;
    if (!in_window(table, slot.rule.trigger, record.time_ns) || runs_by_clock(slot.rule, c)) continue;
    const Firing firing = evaluate(slot.rule, c, record);
    if (!firing.fires) continue;
    const bool repeated = record.attempt != 0 && record.opcode != Opcode::kAck && shares_fate(slot.rule);
    if (!repeated && !claim_firing(slot.rule, c)) continue;
    const Decision d = message_decision(slot.rule, i, record, firing);
    if (!repeated && slot.rule.match.attempt_mode == AttemptMode::kAll) remember(c, message_identity(record));
    if (!is_message_action(d.kind)) keep_target(c, d);
    if (!repeated) note_firing(table, i, record.time_ns);
    choose(table, result, d, is_message_action);
    retire_when_spent(table, slot, record.time_ns);
  }
  return result;
}

Decision decide(FaultTable& table, const VerbCall& call) {
  Decision result;
  const uint32_t used = table.used.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used; ++i) {
    RuleSlot& slot = table.slots[i];
    RuleCounters& c = slot.counters;
    if (c.state.load(std::memory_order_acquire) != RuleState::kArmed || slot.rule.trigger.timed) continue;
    if (!selects_call(slot.rule.match, call)) continue;
    if (!in_window(table, slot.rule.trigger, call.time_ns) || runs_by_clock(slot.rule, c)) continue;
    const uint64_t ordinal = c.matched.fetch_add(1, std::memory_order_relaxed) + 1;
    if (!is_in_turn(slot.rule.match, ordinal) || !is_lucky(slot.rule.match, ordinal)) continue;
    if (!claim_firing(slot.rule, c)) continue;
    Decision d = common_decision(slot.rule, i);
    if (!is_verb_action(d.kind)) {
      d.node = call.node;
      d.device = call.device;
      d.port = call.port;
      d.qpn = call.qpn;
      keep_target(c, d);
    }
    note_firing(table, i, call.time_ns);
    choose(table, result, d, is_verb_action);
    retire_when_spent(table, slot, call.time_ns);
  }
  return result;
}

uint64_t next_due_ns(const FaultTable& table) {
  if (table.timed_rules.load(std::memory_order_relaxed) == 0) return kNever;
  uint64_t earliest = kNever;
  const uint32_t used = table.used.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used; ++i) {
    const RuleCounters& c = table.slots[i].counters;
    if (c.state.load(std::memory_order_acquire) != RuleState::kArmed) continue;
    const uint64_t due = c.due_ns.load(std::memory_order_relaxed);
    if (due < earliest) earliest = due;
  }
  return earliest;
}

Decision tick(FaultTable& table, uint64_t now_ns) {
  if (table.timed_rules.load(std::memory_order_relaxed) == 0) return {};
  const uint32_t used = table.used.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used; ++i) {
    RuleSlot& slot = table.slots[i];
    RuleCounters& c = slot.counters;
    if (c.state.load(std::memory_order_acquire) != RuleState::kArmed) continue;
    uint64_t due = c.due_ns.load(std::memory_order_acquire);
    if (due > now_ns) continue;
    if (!c.due_ns.compare_exchange_strong(due, kNever, std::memory_order_acq_rel)) continue;
    if (!claim_firing(slot.rule, c)) continue;
    Decision d = common_decision(slot.rule, i);
    if (slot.rule.trigger.timed) {
      d.node = slot.rule.match.node;
      d.device = slot.rule.match.device;
      d.port = slot.rule.match.port;
      d.qpn = slot.rule.match.qpn;
    } else {
      const uint32_t device_port = c.target_device_port.load(std::memory_order_acquire);
      d.node = c.target_node.load(std::memory_order_relaxed);
      d.device = static_cast<uint16_t>(device_port >> 16);
      d.port = static_cast<uint16_t>(device_port);
    }
    note_firing(table, i, now_ns);
    retire_when_spent(table, slot, now_ns);
    return d;
  }
  return {};
}

}  // namespace bfo::softhca
