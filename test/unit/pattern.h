// SPDX-License-Identifier: BSD-3-Clause
//
// pattern.h: what the messages of the tests hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bfo::test {

/// `n` bytes that tell messages of different seeds apart, and parts of one message: no period of 256 bytes.
inline std::vector<uint8_t> pattern(size_t n, unsigned seed) {
  std::vector<uint8_t> d(n);
  for (size_t i = 0; i < n; ++i) d[i] = static_cast<uint8_t>(i * 31 + seed * 7 + (i >> 8));
  return d;
}

}  // namespace bfo::test
