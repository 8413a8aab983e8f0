// SPDX-License-Identifier: BSD-3-Clause
//
// counted_memory.h: what parts of the engine get their memory from when they are tested alone.
#pragma once

#include <cstddef>
#include <cstdlib>

namespace bfo::test {

/// Memory that can run out, and is counted.
struct CountedMemory {
  void* alloc(size_t n) {
    if (left-- <= 0) return nullptr;
    ++live;
    return std::malloc(n);
  }
  void free(void* p) {
    if (p) --live;
    std::free(p);
  }
  int left = 1000;
  int live = 0;
};

}  // namespace bfo::test
