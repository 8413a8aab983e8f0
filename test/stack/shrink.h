// SPDX-License-Identifier: BSD-3-Clause
//
// shrink.h: makes a failing run small. A cut names what is left of a generated run; with the configuration
// and the seed it replays it: bfo-stack --config storm --seed 6 --processes 0,2 --messages 3,17 --faults 4.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "test/stack/scenario.h"

namespace bfo::stack {

/// What is left, by index in the generated run, in ascending order. An empty list of processes: all.
struct Cut {
  std::vector<uint32_t> processes;
  std::vector<uint32_t> messages;
  std::vector<uint32_t> faults;
};

/// Everything that `s` has.
Cut whole(const Scenario& s);
/// `s` without what `c` leaves out. Messages and faults of a process that is left out go with it; processes
/// are numbered anew.
Scenario cut(const Scenario& s, const Cut& c);
/// The options that replay it, with a space before each.
std::string print(const Cut& c);
/// "0,3-5" or "none". False: something else, or not in ascending order.
bool parse_list(const std::string& text, std::vector<uint32_t>& out);
/// Takes one of the options of print() and its value into `c`. False: another option, or no list.
bool parse_option(const std::string& option, const std::string& value, Cut& c);

/// How a run fails: the word before the colon of its violation, "signal N", "does not end", or "" for one
/// that does not. The run is made in a process of its own, which may die.
std::string failure_of(const Scenario& s);
/// Leaves out processes, faults and messages as long as the run fails in the same way; at most `runs` runs.
/// `s` must fail.
Cut shrink(const Scenario& s, uint32_t runs = 2000);

}  // namespace bfo::stack
