// SPDX-License-Identifier: BSD-3-Clause
//
// script.h: a run as text, to be kept, cut down by hand and read back: bfo-stack --script FILE.
#pragma once

#include <string>

#include "test/stack/scenario.h"

namespace bfo::stack {

/// Without the rates of its ports and its streams (rates.h, streams.h), if it has any.
std::string script_of(const Scenario& s);
/// False: `error` says which line and why.
bool parse_script(const std::string& text, Scenario& out, std::string& error);

}  // namespace bfo::stack
