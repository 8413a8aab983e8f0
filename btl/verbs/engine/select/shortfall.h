// SPDX-License-Identifier: BSD-3-Clause
//
// shortfall.h: how many rails a host could have, and in words why it has fewer. A pure function over what
// selection (selection.h) has decided.
#pragma once

#include <cstddef>

#include "btl/verbs/engine/select/selection.h"

namespace bfo::engine {

/// Zero-initialised it says that nothing is known.
struct Shortfall {
  unsigned expected;  ///< ports that are used, or would be if they were up
  char missing[224];  ///< the end of a sentence about the host
  char remedy[224];   ///< a sentence
};

/// For `count` ports that were found.
Shortfall shortfall_of(const PortFacts* ports, size_t count, const PortVerdict* verdicts);
/// No port was looked for, and a message has said why.
Shortfall not_used();

}  // namespace bfo::engine
