// SPDX-License-Identifier: BSD-3-Clause
//
// environment.h: what the engine asks of the system. Tests have clocks and dice of their own.
#pragma once

#include <cstdint>

namespace bfo::engine {

/// Time and randomness.
struct Environment {
  uint64_t (*now_ns)();  ///< CLOCK_MONOTONIC
  uint64_t (*random)();  ///< for delays and first packet numbers; always succeeds
  /// 64 bits that nobody can guess. False with errno when there are none.
  bool (*secret)(uint64_t* bits);
  /// How long this process has waited for a processor so far; UINT64_MAX where nobody knows. A system call.
  uint64_t (*starved_ns)();
};

/// CLOCK_MONOTONIC in ns, and getrandom(2).
const Environment& system_environment();

}  // namespace bfo::engine
