// SPDX-License-Identifier: BSD-3-Clause
//
// check.h: assertions. BFO_CHECK guards an invariant whose violation means that memory or message order can
// no longer be trusted: it prints one line and aborts, in every build. BFO_DCHECK is the same in debug builds
// (configure --enable-debug) and costs nothing otherwise. Neither is for bad input, lost messages or dead
// rails: those are ordinary events (P5, P6).
//
// P1..P8: contrib/doc/design.md
#pragma once

#include <cstdio>
#include <cstdlib>

#ifndef BFO_DEBUG
#define BFO_DEBUG 0
#endif

namespace bfo {

[[noreturn, gnu::cold, gnu::noinline]] inline void check_failed(const char* expression, const char* file,
                                                                int line) {
  std::fprintf(stderr, "openmpi-bfo: broken invariant: %s (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace bfo

#define BFO_CHECK(expr) (static_cast<bool>(expr) ? (void)0 : ::bfo::check_failed(#expr, __FILE__, __LINE__))
#if BFO_DEBUG
#define BFO_DCHECK(expr) BFO_CHECK(expr)
#else
#define BFO_DCHECK(expr) ((void)sizeof(static_cast<bool>(expr)))
#endif
