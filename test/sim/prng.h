// SPDX-License-Identifier: BSD-3-Clause
//
// prng.h: the simulator's only source of chance. A stream is named by numbers (seed, process, rail, ...), so
// that taking one message or fault out of a scenario leaves the dice of everything else alone.
#pragma once

#include <cstdint>

namespace bfo::sim {

/// One round of a good 64-bit mixer (splitmix64's finalizer).
constexpr uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
constexpr uint64_t mix(uint64_t a, uint64_t b) {
  return mix(a ^ mix(b));
}
constexpr uint64_t mix(uint64_t a, uint64_t b, uint64_t c) {
  return mix(mix(a, b), c);
}

class Prng {
 public:
  constexpr Prng() = default;
  constexpr explicit Prng(uint64_t seed) : state_(mix(seed)) {}

  constexpr uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ull;
    uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  }
  /// 0 .. n-1; 0 when n is 0.
  constexpr uint64_t below(uint64_t n) {
    return n == 0 ? 0 : static_cast<uint64_t>((static_cast<Wide>(next()) * n) >> 64);
  }
  /// lo .. hi, both included.
  constexpr uint64_t range(uint64_t lo, uint64_t hi) { return lo + below(hi - lo + 1); }
  constexpr bool chance(unsigned percent) { return below(100) < percent; }

 private:
  __extension__ using Wide = unsigned __int128;
  uint64_t state_ = 0;
};

}  // namespace bfo::sim
