// SPDX-License-Identifier: BSD-3-Clause
// Numbers that depend on a seed alone, the same on every rank and over every transport.
#pragma once

#include <cstddef>
#include <cstdint>

namespace player {

/// A well mixed 64-bit number for `x`.
inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// A sequence of random numbers.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(mix(seed)) {}
  uint64_t next() { return mix(++state_); }
  /// 0 .. n - 1; n > 0.
  size_t below(size_t n) { return static_cast<size_t>(next() % n); }
  bool chance(size_t one_in) { return below(one_in) == 0; }

 private:
  uint64_t state_;
};

}  // namespace player
