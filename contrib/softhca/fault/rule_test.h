// SPDX-License-Identifier: BSD-3-Clause
//
// rule_test.h: what the tests of rules share: a table of rules, and messages to show to it. Time is a number
// here; nothing sleeps.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "contrib/softhca/fault/language.h"
#include "contrib/softhca/fault/rule.h"

namespace bfo::softhca {

inline constexpr uint64_t kStart = 1'000'000'000;
inline constexpr uint64_t kMs = 1'000'000;

class RuleTable : public ::testing::Test {
 protected:
  RuleTable() { start(*table_, kStart); }

  void load(std::string_view text, bool from_file = true, uint64_t now_ns = kStart) {
    const ParseResult parsed = parse_rules(text, names_);
    for (const Problem& problem : parsed.problems) ADD_FAILURE() << format_problem("text", problem);
    for (const Rule& rule : parsed.rules) names_.push_back(rule.name);
    std::string error;
    ASSERT_TRUE(install(*table_, parsed.rules.data(), parsed.rules.size(), from_file, now_ns, error))
        << error;
  }

  MessageRecord message(uint32_t length = 64, Opcode opcode = Opcode::kSend) {
    MessageRecord r{};
    r.time_ns = kStart + 5 * kMs;
    r.message_ordinal = next_message_++;
    r.length = length;
    r.opcode = opcode;
    r.node = 0;
    r.device = 1;
    r.port = 1;
    r.peer_node = 1;
    r.peer_device = 1;
    r.peer_port = 1;
    r.src_qpn = 0x11;
    r.dst_qpn = 0x22;
    r.direction = Direction::kTx;
    return r;
  }

  Decision send(uint32_t length = 64, Opcode opcode = Opcode::kSend) {
    return decide(*table_, message(length, opcode));
  }
  const RuleCounters& counters(const char* name) { return table_->slots[find_rule(*table_, name)].counters; }

  std::unique_ptr<FaultTable> table_{new FaultTable()};
  uint64_t next_message_ = 0;
  std::vector<std::string> names_;
};

}  // namespace bfo::softhca
