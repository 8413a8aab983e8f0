// SPDX-License-Identifier: BSD-3-Clause
//
// The dice of the rules: what looks random and is the same in every run and every process.
#pragma once

#include <cstdint>

namespace bfo::softhca {

/// SplitMix64 finaliser: the same (seed, ordinal) gives the same random number.
inline uint64_t throw_dice(uint64_t seed, uint64_t ordinal) {
  uint64_t z = seed * 0x9e3779b97f4a7c15ull + ordinal * 0xd1342543de82ef95ull + 0x632be59bd9b4e019ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/// Which packets of one transmission of a message are lost.
struct LostPackets {
  uint32_t followed = 0;  ///< those behind which another packet of the message comes
  bool last = false;      ///< the last one
  bool any() const { return followed != 0 || last; }
};

/// Each of `packets` is lost with a probability of `fraction` in 2^64. `ordinal`: of the transmission.
inline LostPackets lose_packets(uint64_t fraction, uint64_t seed, uint64_t ordinal, uint32_t packets) {
  LostPackets lost;
  const uint64_t own = throw_dice(seed, ordinal);
  for (uint32_t i = 1; i < packets; ++i) lost.followed += throw_dice(own, i) < fraction ? 1 : 0;
  lost.last = throw_dice(own, 0) < fraction;
  return lost;
}

}  // namespace bfo::softhca
