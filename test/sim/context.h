// SPDX-License-Identifier: BSD-3-Clause
//
// context.h: what every part of one simulated world shares: the time of what is traced, the trace, and the
// first promise that was broken.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <string>

#include "test/sim/prng.h"

namespace bfo::sim {

struct Context {
  uint64_t now = 0;
  uint64_t trace_hash = 0;
  bool tracing = false;
  bool failed = false;
  std::string violation;

  /// Something happened that the run's identity includes.
  void note(uint64_t what, uint64_t a, uint64_t b) { trace_hash = mix(trace_hash ^ now, what << 48 ^ a, b); }
  [[gnu::cold, gnu::format(printf, 2, 3)]] void fail(const char* format, ...) {
    if (failed) return;
    char text[400];
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    failed = true;
    violation = text;
  }
  [[gnu::cold, gnu::format(printf, 2, 3)]] void trace(const char* format, ...) {
    std::printf("%12.3f us  ", static_cast<double>(now) / 1000.0);
    va_list args;
    va_start(args, format);
    std::vprintf(format, args);
    va_end(args);
    std::putchar('\n');
  }
};

}  // namespace bfo::sim

/// One line of the trace; its arguments are not evaluated unless --trace was given.
#define SIM_TRACE(ctx, ...) ((ctx).tracing ? (ctx).trace(__VA_ARGS__) : (void)0)
