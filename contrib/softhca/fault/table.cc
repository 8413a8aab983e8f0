// SPDX-License-Identifier: BSD-3-Clause
//
// The rule table: adding, clearing and reporting rules. Writers are rare (fabric creation and softhcactl) and
// exclude each other by pid, so that a writer that was killed does not lock the table for ever.
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "contrib/softhca/fault/language.h"
#include "contrib/softhca/fault/rule.h"

namespace bfo::softhca {
namespace {

/// A slot is used again only after no evaluation that began before it was retired can still be running.
constexpr uint64_t kGraceNs = 1'000'000'000;

/// Waits of 100 us for another writer before it counts as stopped (a writer works for microseconds).
constexpr unsigned kPatienceTries = 50'000;

class WriterLock {
 public:
  explicit WriterLock(FaultTable& table) : table_(table) {
    for (unsigned tries = 0;; ++tries) {
      int32_t holder = 0;
      if (table_.writer_pid.compare_exchange_strong(holder, getpid())) return;
      const bool gone = tries > kPatienceTries || (kill(holder, 0) != 0 && errno == ESRCH);
      if (gone && table_.writer_pid.compare_exchange_strong(holder, getpid())) return;
      usleep(100);
    }
  }
  ~WriterLock() { table_.writer_pid.store(0); }
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  FaultTable& table_;
};

bool is_free(const RuleSlot& slot, uint64_t now_ns) {
  const RuleState state = slot.counters.state.load(std::memory_order_acquire);
  if (state == RuleState::kEmpty) return true;
  if (state == RuleState::kArmed) return false;
  return now_ns > slot.counters.retired_ns.load(std::memory_order_relaxed) + kGraceNs;
}

void reset(RuleCounters& c) {
  c.matched = 0;
  c.fired = 0;
  c.overridden = 0;
  c.bytes = 0;
  c.first_fired_ns = 0;
  c.due_ns = kNever;
  c.retired_ns = 0;
  c.target_device_port = 0xffffffffu;
  c.target_node = kAnyId;
  c.sticky_next = 0;
  for (auto& entry : c.sticky) entry = 0;
}

/// Slots never used come first, so that the counters of a rule that has fired stay readable as long as
/// possible.
int take_slot(const FaultTable& table, const bool* taken, uint64_t now_ns) {
  const unsigned used = table.used.load(std::memory_order_acquire);
  for (unsigned i = used; i < kMaxRules; ++i) {
    if (!taken[i]) return static_cast<int>(i);
  }
  for (unsigned i = 0; i < used; ++i) {
    if (!taken[i] && is_free(table.slots[i], now_ns)) return static_cast<int>(i);
  }
  return -1;
}

/// Index of the rule called `name`: among the new ones first, then in the table.
int resolve(const FaultTable& table, const Rule* rules, const int* places, size_t count,
            std::string_view name) {
  for (size_t i = 0; i < count; ++i) {
    if (name == rules[i].name) return places[i];
  }
  return find_rule(table, name);
}

void shift_times(RuleTrigger& t, uint64_t shift_ns) {
  if (t.after_rule >= 0) return;
  if (t.at_ns != kNever) t.at_ns += shift_ns;
  if (t.from_ns != 0) t.from_ns += shift_ns;
  if (t.until_ns != kNever) t.until_ns += shift_ns;
}

uint64_t first_due_ns(const FaultTable& table, const RuleTrigger& t) {
  if (!t.timed) return kNever;
  if (t.after_rule < 0) return table.start_ns.load() + t.at_ns;
  const uint64_t fired = table.slots[t.after_rule].counters.first_fired_ns.load();
  return fired == 0 ? kNever : fired + t.after_delay_ns;
}

void arm(FaultTable& table, unsigned at, const Rule& rule) {
  RuleSlot& slot = table.slots[at];
  slot.counters.state.store(RuleState::kOff, std::memory_order_release);
  slot.rule = rule;
  reset(slot.counters);
  slot.counters.due_ns.store(first_due_ns(table, rule.trigger), std::memory_order_relaxed);
  slot.counters.state.store(RuleState::kArmed, std::memory_order_release);
  if (at >= table.used.load()) table.used.store(at + 1, std::memory_order_release);
  if (auto* count = watchers(table, rule)) count->fetch_add(1, std::memory_order_release);
  if (rule.trigger.timed || rule.trigger.period_ns != 0) table.timed_rules.fetch_add(1);
}

}  // namespace

void start(FaultTable& table, uint64_t now_ns) {
  table.message_rules = 0;
  table.verb_rules = 0;
  table.timed_rules = 0;
  table.used = 0;
  table.writer_pid = 0;
  table.start_ns = now_ns;
  table.generation = 1;
  for (auto& slot : table.slots) slot.counters.state = RuleState::kEmpty;
}

int find_rule(const FaultTable& table, std::string_view name) {
  for (int i = static_cast<int>(table.used.load(std::memory_order_acquire)) - 1; i >= 0; --i) {
    const RuleSlot& slot = table.slots[i];
    if (slot.counters.state.load(std::memory_order_acquire) == RuleState::kEmpty) continue;
    if (name == slot.rule.name) return i;
  }
  return -1;
}

bool install(FaultTable& table, const Rule* rules, size_t count, bool from_file, uint64_t now_ns,
             std::string& error) {
  const WriterLock lock(table);
  int places[kMaxRules];
  bool taken[kMaxRules] = {};
  if (count > kMaxRules) {
    error = "too many rules: a fabric holds " + std::to_string(kMaxRules);
    return false;
  }
  for (size_t i = 0; i < count; ++i) {
    places[i] = take_slot(table, taken, now_ns);
    if (places[i] < 0) {
      error = "the rule table is full (" + std::to_string(kMaxRules) +
              " rules): clear rules, wait a second and inject again";
      return false;
    }
    taken[places[i]] = true;
  }
  const uint64_t start_ns = table.start_ns.load();
  Rule ready[kMaxRules];
  for (size_t i = 0; i < count; ++i) {
    Rule rule = rules[i];
    if (rule.after_name[0] != '\0') {
      const int other = resolve(table, rules, places, count, rule.after_name);
      if (other < 0) {
        error = std::string("rule \"") + rule.name + "\" waits for \"" + rule.after_name +
                "\", and no rule has that name";
        return false;
      }
      rule.trigger.after_rule = static_cast<int16_t>(other);
    }
    if (rule.name[0] == '\0') snprintf(rule.name, sizeof rule.name, "rule%d", places[i] + 1);
    if (!from_file && now_ns > start_ns) shift_times(rule.trigger, now_ns - start_ns);
    ready[i] = rule;
  }
  for (size_t i = 0; i < count; ++i) arm(table, static_cast<unsigned>(places[i]), ready[i]);
  table.generation.fetch_add(1);
  return true;
}

unsigned clear(FaultTable& table, uint64_t now_ns) {
  const WriterLock lock(table);
  unsigned cleared = 0;
  const unsigned used = table.used.load();
  for (unsigned i = 0; i < used; ++i) {
    RuleSlot& slot = table.slots[i];
    RuleState expected = RuleState::kArmed;
    if (!slot.counters.state.compare_exchange_strong(expected, RuleState::kOff)) continue;
    slot.counters.retired_ns.store(now_ns);
    slot.counters.due_ns.store(kNever);
    if (auto* count = watchers(table, slot.rule)) count->fetch_sub(1);
    if (slot.rule.trigger.timed || slot.rule.trigger.period_ns != 0) table.timed_rules.fetch_sub(1);
    ++cleared;
  }
  table.generation.fetch_add(1);
  return cleared;
}

std::string report_unfired(const FaultTable& table) {
  std::string report;
  const unsigned used = table.used.load(std::memory_order_acquire);
  for (unsigned i = 0; i < used; ++i) {
    const RuleSlot& slot = table.slots[i];
    if (slot.counters.state.load(std::memory_order_acquire) != RuleState::kArmed) continue;
    if (slot.counters.fired.load() != 0) continue;
    report += std::string("softhca: rule \"") + slot.rule.name + "\"";
    if (slot.rule.line != 0) report += " (line " + std::to_string(slot.rule.line) + ")";
    report += " never fired: ";
    if (slot.rule.trigger.timed) {
      report += "its time did not come";
    } else {
      report += std::to_string(slot.counters.matched.load()) +
                (slot.rule.match.verb_mask != 0 ? " calls matched" : " messages matched");
    }
    report += "; it says: " + describe(slot.rule) + "\n";
  }
  return report;
}

}  // namespace bfo::softhca
