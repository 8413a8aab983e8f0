// SPDX-License-Identifier: BSD-3-Clause
//
// What each action of the fault language takes and what it means when a key is left out. Parser and describer
// share it, so that a rule read, written and read again stays the same rule.
#pragma once

#include <cstdint>
#include <string_view>

#include "contrib/softhca/fault/rule.h"
#include "contrib/softhca/fault/words.h"

namespace bfo::softhca {

ActionKind kind_of(Verb verb);

/// RuleAction::value before the words after the action are read: what tells apart words of one ActionKind.
uint32_t initial_value_of(Verb verb);

/// The word that stands for the action of a complete rule.
Verb verb_of(const Rule& rule);

/// The value after the action word.
struct Positional {
  enum What : uint8_t {
    kNothing,
    kNumber,
    kTime,
    kStatus,
    kEvent,
    kError,
    kLimit,
    kBytes,
    kGids,
    kSpeed,
    kFraction
  };
  What what = kNothing;
  bool required = false;
  uint64_t limit = 0;  ///< greatest kNumber, kLimit or kBytes
  std::string_view expected;
};
Positional positional_of(Verb verb);

/// Options of the action as an error message lists them; empty when it has none.
std::string_view options_of(Verb verb);

/// Which keys the writer of the rule gave.
struct Given {
  bool opcode = false;
  bool attempt = false;
  bool count = false;
  bool direction = false;
};

/// Fills what was not given.
void apply_defaults(Rule& rule, Verb verb, const Given& given);

}  // namespace bfo::softhca
