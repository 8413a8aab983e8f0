// SPDX-License-Identifier: BSD-3-Clause
//
// siphash.h: SipHash-2-4 (Aumasson and Bernstein, 2012), a keyed sum of short inputs: without the key nobody
// can make the sum of bytes, nor of bytes that resemble others whose sum he has seen. No allocation, about
// one and a half cycles a byte.
//
// Not taken from a library: libsodium's crypto_shorthash would be a dependency of the components, and its
// initialisation a step that can fail, for forty lines whose answers are published (common_test).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bfo {

struct SipKey {
  uint64_t low = 0;
  uint64_t high = 0;
};

namespace siphash_detail {

struct State {
  uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1;
    v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32);
    v2 += v1;
    v0 += v3;
    v1 = std::rotl(v1, 17) ^ v2;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 = std::rotl(v2, 32);
  }
  void absorb(uint64_t word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  }
};

/// The next `count` bytes, at most eight, as a little-endian number.
inline uint64_t word_at(const unsigned char* bytes, size_t count) {
  uint64_t word = 0;
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(&word, bytes, count);
  } else {
    for (size_t i = 0; i < count; ++i) word |= uint64_t{bytes[i]} << 8 * i;
  }
  return word;
}

}  // namespace siphash_detail

/// The 64-bit sum of `length` bytes at `data` under `key`.
inline uint64_t siphash(const SipKey& key, const void* data, size_t length) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  siphash_detail::State state{key.low ^ 0x736f6d6570736575ull, key.high ^ 0x646f72616e646f6dull,
                              key.low ^ 0x6c7967656e657261ull, key.high ^ 0x7465646279746573ull};
  size_t at = 0;
  for (; at + 8 <= length; at += 8) state.absorb(siphash_detail::word_at(bytes + at, 8));
  state.absorb(siphash_detail::word_at(bytes + at, length - at) | uint64_t{length & 0xff} << 56);
  state.v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) state.round();
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

}  // namespace bfo
