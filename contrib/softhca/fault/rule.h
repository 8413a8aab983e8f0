// SPDX-License-Identifier: BSD-3-Clause
//
// The rule: one line of the fault language as plain data. Rules live in a table inside the fabric's shared
// memory, so they hold no pointers, every process sees the same counters, and an ordinal ("the 5th matching
// message") is exact whoever sends that message. All-zero memory is a valid empty table.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "contrib/softhca/fault/packet.h"
#include "contrib/softhca/fault/control_verb.h"

namespace bfo::softhca {

inline constexpr size_t kRuleNameBytes = 32;     ///< with the terminating zero
inline constexpr unsigned kMaxRules = 254;       ///< MessageRecord::rule is 8 bits, 0xff means none
inline constexpr unsigned kStickyMessages = 32;  ///< messages whose retransmissions a rule remembers
inline constexpr unsigned kOpcodeCount = 9;      ///< wire opcodes: Send .. Ack
inline constexpr uint32_t kRequestOpcodes = (1u << 8) - 1;  ///< every opcode but Ack
inline constexpr uint32_t kAckOpcode = 1u << static_cast<unsigned>(Opcode::kAck);
inline constexpr uint8_t kAnyPath = 0xff;
inline constexpr uint64_t kAlways = ~uint64_t{0};

/// Which transmissions of a message a rule looks at.
enum class AttemptMode : uint8_t {
  kFirst = 0,  ///< first transmission only, so a dropped message arrives with its retry
  kAll = 1,    ///< the first one decides, every retransmission of that message is treated like it; of an
               ///< action that throws dice for each packet: each for itself
  kExact = 2,  ///< only retransmission number `attempt`
};

/// What a message must look like. Zero-initialised fields do not all mean "any": use default values.
struct RuleMatch {
  uint16_t node = kAnyId;
  uint16_t device = kAnyId;
  uint16_t port = kAnyId;
  uint16_t peer_node = kAnyId;
  uint32_t qpn = 0;       ///< 0 = any; the QP at the port the hook belongs to
  uint32_t peer_qpn = 0;  ///< 0 = any
  uint32_t imm = 0;       ///< immediate data, host byte order
  uint32_t opcode_mask = kRequestOpcodes;
  uint8_t service_mask = 7;
  uint8_t direction_mask = 1;  ///< bit 0 tx, bit 1 rx
  AttemptMode attempt_mode = AttemptMode::kFirst;
  uint8_t attempt = 0;
  bool has_imm = false;       ///< only messages that carry `imm`
  uint8_t qp_states = 0;      ///< verb rules: bits of ibv_qp_state modify_qp must ask for; 0 = any
  Reach reach = Reach::kAny;  ///< verb rules: the destination can or cannot be reached
  uint8_t path = kAnyPath;    ///< of the destination's LIDs, counted from 0, the one it goes to
  uint32_t verb_mask = 0;     ///< bits of ControlVerb; 0 = the rule looks at messages
  uint32_t reserved2 = 0;
  uint32_t size_min = 0;
  uint32_t size_max = ~0u;
  uint64_t message_first = 0;      ///< 1-based ordinal among the matching messages; 0 = any
  uint64_t message_last = 0;       ///< inclusive; kNever = open range
  uint64_t every = 0;              ///< each Nth matching message; 0 = each
  uint64_t byte = kNever;          ///< fires in the message that carries this byte of the matching stream
  uint64_t probability = kAlways;  ///< fraction of 2^64; kAlways = certain
  uint64_t seed = 1;
};

/// When a rule may fire. Times are ns since the table was started, or since `after_delay_ns` after the first
/// firing of `after_rule` when there is one.
struct RuleTrigger {
  uint64_t at_ns = kNever;  ///< timed rule: first firing
  uint64_t from_ns = 0;     ///< message rule: has no effect before
  uint64_t until_ns = kNever;
  uint64_t after_delay_ns = 0;
  uint64_t period_ns = 0;   ///< fires again this long after each firing, until `count` is used up
  uint64_t count = 0;       ///< firings allowed; 0 = no limit
  int16_t after_rule = -1;  ///< index in the table; waits for that rule's first firing
  bool timed = false;       ///< fires by the clock, not by a message or a call
  uint8_t reserved[5] = {};
};

struct RuleAction {
  ActionKind kind = ActionKind::kNone;
  bool on_peer = false;  ///< topology actions: target is the other end of the message
  bool offset_is_percent = false;
  bool has_offset = false;
  uint32_t value = 0;
  uint64_t offset = 0;  ///< bytes, or percent of the message
  uint64_t value64 = 0;
  uint64_t delay_ns = 0;
  uint64_t duration_ns = 0;
};

enum class RuleState : uint8_t { kEmpty = 0, kArmed = 1, kSpent = 2, kOff = 3 };

/// The part that changes while a job runs.
struct RuleCounters {
  std::atomic<RuleState> state{RuleState::kEmpty};
  std::atomic<uint64_t> matched{0};
  std::atomic<uint64_t> fired{0};
  std::atomic<uint64_t> overridden{0};      ///< would have fired, but an earlier rule decided the message
  std::atomic<uint64_t> bytes{0};           ///< payload of the matching messages
  std::atomic<uint64_t> first_fired_ns{0};  ///< absolute; 0 = not yet
  std::atomic<uint64_t> due_ns{kNever};     ///< absolute time of the next firing by the clock
  std::atomic<uint64_t> retired_ns{0};      ///< absolute; the slot is used again some time after it
  std::atomic<uint32_t> target_device_port{
      0xffffffffu};  ///< of a message-triggered rule that repeats by time
  std::atomic<uint16_t> target_node{kAnyId};
  std::atomic<uint32_t> sticky_next{0};
  std::atomic<uint64_t> sticky[kStickyMessages];  ///< identities of messages that fired, 0 = none
};

struct Rule {
  char name[kRuleNameBytes] = {};
  char after_name[kRuleNameBytes] = {};  ///< rule named by after=; empty = none
  uint32_t line = 0;                     ///< in the file it came from, 0 = injected
  uint32_t reserved = 0;
  RuleMatch match;
  RuleTrigger trigger;
  RuleAction action;
};
static_assert(std::is_trivially_copyable_v<Rule>);

struct RuleSlot {
  Rule rule;
  RuleCounters counters;
};

/// Lives in shared memory. Readers never lock; writers (install, clear) take `writer_pid`.
struct FaultTable {
  std::atomic<uint32_t> message_rules;  ///< armed rules that look at messages: the fast path reads only this
  std::atomic<uint32_t> verb_rules;     ///< armed rules that look at control verbs
  std::atomic<uint32_t> timed_rules;    ///< armed rules that may fire by the clock
  std::atomic<uint32_t> used;           ///< slots ever used
  std::atomic<int32_t> writer_pid;
  std::atomic<uint64_t> start_ns;    ///< CLOCK_MONOTONIC of the fabric's creation
  std::atomic<uint64_t> generation;  ///< counts installs and clears
  RuleSlot slots[kMaxRules];
};

/// True when some rule has to see messages. One relaxed load, for the fast path. Any thread.
inline bool armed(const FaultTable& table) {
  return table.message_rules.load(std::memory_order_relaxed) != 0;
}

/// What the rules want done with this attempt. Counts it in every rule it matches; the first rule that fires
/// decides, except that a topology action goes before a message action. Never blocks. Any thread of any
/// process that maps the table.
Decision decide(FaultTable& table, const MessageRecord& record);

/// True when some rule has to see control verbs. Any thread.
inline bool verbs_armed(const FaultTable& table) {
  return table.verb_rules.load(std::memory_order_relaxed) != 0;
}

/// The same for one call of a control verb; rules of messages do not see it, nor these rules messages.
Decision decide(FaultTable& table, const VerbCall& call);

/// The count of armed rules to which this one belongs; while it is 0, decide() is not called. nullptr for a
/// timed rule.
inline std::atomic<uint32_t>* watchers(FaultTable& table, const Rule& rule) {
  if (rule.trigger.timed) return nullptr;
  return rule.match.verb_mask != 0 ? &table.verb_rules : &table.message_rules;
}

/// Earliest time (CLOCK_MONOTONIC ns) at which tick() has something to do; kNever when no timed rule is
/// armed. An inject or a message can make it earlier at any time: who sleeps until then wakes every few
/// milliseconds while `timed_rules` is not 0.
uint64_t next_due_ns(const FaultTable& table);

/// One timed trigger that is due at `now_ns`; call until the kind is None. Each firing is handed to exactly
/// one caller.
Decision tick(FaultTable& table, uint64_t now_ns);

/// Sets the origin of all times and empties the table. Call once, before any other process maps it.
void start(FaultTable& table, uint64_t now_ns);

/// Adds rules (as parsed), in order. On failure nothing is added and `error` says why in one sentence.
/// Times count from the start of the table for from_file, from `now_ns` otherwise.
bool install(FaultTable& table, const Rule* rules, size_t count, bool from_file, uint64_t now_ns,
             std::string& error);

/// Switches every rule off; returns how many were armed. Decisions made before are carried out.
unsigned clear(FaultTable& table, uint64_t now_ns);

/// Index of the rule of that name, newest first; -1 when there is none.
int find_rule(const FaultTable& table, std::string_view name);

/// One line per armed rule that never fired, saying what it waited for; empty when all fired.
std::string report_unfired(const FaultTable& table);

}  // namespace bfo::softhca
