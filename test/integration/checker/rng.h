// SPDX-License-Identifier: BSD-3-Clause
//
// Mixing and random numbers of the checker: an invertible 64-bit permutation (so that a stray word found in a
// buffer can be traced back to the message it came from) and a small generator on top of it.
#pragma once

#include <cstdint>

namespace bfo::checker {

/// The splitmix64 finaliser: a bijection on 64-bit words.
constexpr uint64_t permute(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/// Inverse of permute(): unpermute(permute(x)) == x.
constexpr uint64_t unpermute(uint64_t z) {
  z = (z ^ (z >> 31) ^ (z >> 62)) * 0x319642b2d24d8ec3ull;
  z = (z ^ (z >> 27) ^ (z >> 54)) * 0x96de1b173f119089ull;
  return z ^ (z >> 30) ^ (z >> 60);
}
static_assert(unpermute(permute(0x0123456789abcdefull)) == 0x0123456789abcdefull);

/// Deterministic generator; two ranks that construct it from the same seed draw the same numbers.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(permute(seed ^ 0x9e3779b97f4a7c15ull)) {}
  uint64_t next() { return permute(state_ += 0x9e3779b97f4a7c15ull); }
  /// Uniform in [0, bound); bound must not be 0.
  uint64_t below(uint64_t bound) { return next() % bound; }
  bool one_in(uint64_t n) { return below(n) == 0; }

 private:
  uint64_t state_;
};

}  // namespace bfo::checker
