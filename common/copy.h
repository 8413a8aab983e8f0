// SPDX-License-Identifier: BSD-3-Clause
//
// copy.h: copies of a few bytes that were stored just before. A processor hands the bytes of a store to a
// later load while they are still in its store buffer, but only if one store has written all of them
// (store-to-load forwarding). Otherwise the load waits until the store is in the cache, 4 to 5 ns on current
// x86-64. memcpy() loads up to 64 bytes at once, and the two halves of a short copy overlap, so a message
// that is passed on in several short copies waits in each of them. copy_short() loads what copy_short() has
// stored with the same steps, from the same offset: then nothing waits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bfo {

/// Longer ones are left to memcpy().
inline constexpr size_t kShortCopy = 64;

template <class Word>
[[gnu::always_inline]] inline void copy_step(char*& to, const char*& from) {
  Word word;
  std::memcpy(&word, from, sizeof word);
  asm("" : "+r"(word));  // not merged into wider loads, nor recognized as a memcpy()
  std::memcpy(to, &word, sizeof word);
  to += sizeof word;
  from += sizeof word;
}

/// memcpy() for bytes that were just written.
inline void copy_short(void* destination, const void* source, size_t size) {
  if (size > kShortCopy) {
    std::memcpy(destination, source, size);
    return;
  }
  char* to = static_cast<char*>(destination);
  const char* from = static_cast<const char*>(source);
  for (size_t words = size / 8; words != 0; --words) copy_step<uint64_t>(to, from);
  if ((size & 4) != 0) copy_step<uint32_t>(to, from);
  if ((size & 2) != 0) copy_step<uint16_t>(to, from);
  if ((size & 1) != 0) copy_step<uint8_t>(to, from);
}

/// Header and payload one behind the other, for a copy_short() of both. The headers of MPI messages are 14
/// bytes long or that and a multiple of 8: the word that holds the end of the header and the first bytes of
/// the payload is stored at once.
inline void copy_joined(char* to, const void* header, size_t header_size, const void* payload, size_t size) {
  const char* head = static_cast<const char*>(header);
  const char* body = static_cast<const char*>(payload);
  if (std::endian::native == std::endian::little && header_size % 8 == 6 && size >= 2) {
    copy_short(to, head, header_size - 6);
    uint32_t first;
    uint16_t second, third;
    std::memcpy(&first, head + header_size - 6, sizeof first);
    std::memcpy(&second, head + header_size - 2, sizeof second);
    std::memcpy(&third, body, sizeof third);
    const uint64_t word = first | uint64_t{second} << 32 | uint64_t{third} << 48;
    std::memcpy(to + header_size - 6, &word, sizeof word);
    return copy_short(to + header_size + 2, body + 2, size - 2);
  }
  copy_short(to, head, header_size);
  if (size != 0) copy_short(to + header_size, body, size);
}

}  // namespace bfo
