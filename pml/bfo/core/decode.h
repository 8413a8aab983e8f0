// SPDX-License-Identifier: BSD-3-Clause
//
// decode.h: reads the headers of wire.h out of received messages.
//
// The bytes of a message may change while they are read: over shared memory they lie in a segment that the
// sender has mapped, too. So a header is copied once, into memory of this process, and the copy is checked
// and used, never the bytes again. Its type must be the tag with which the message came, because the tag has
// chosen the reader. Only the payload stays where it is until it is copied to its buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "pml/bfo/core/wire.h"

namespace bfo::core {

/// `to` has been copied from the bytes of a message. From here on the compiler takes it for something else
/// than its source: otherwise it could read the source again instead of the copy.
template <size_t N>
[[gnu::always_inline]] inline void forget_source(void* to) {
  asm("" : "+m"(*static_cast<unsigned char(*)[N]>(to)));
}

/// The field of a header at `at`, read once.
template <class T>
[[gnu::always_inline]] inline T fetch(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  asm("" : "+r"(value));
  return value;
}

/// The header of a message that came with tag `type`. False: it is too short, or it says another type.
template <class Hdr>
[[nodiscard, gnu::always_inline]] inline bool decode(MsgType type, Bytes in, Hdr& out) {
  static_assert(std::is_trivially_copyable_v<Hdr>);
  if (in.size < sizeof(Hdr)) return false;
  std::memcpy(&out, in.data, sizeof(Hdr));
  forget_source<sizeof(Hdr)>(&out);
  return *reinterpret_cast<const uint8_t*>(&out) == static_cast<uint8_t>(type);
}

/// The same for a MATCH, field by field: it stays in registers. Its flags are not used.
[[nodiscard, gnu::always_inline]] inline bool decode_match(Bytes in, MatchHdr& out) {
  constexpr auto type = static_cast<uint8_t>(MsgType::kMatch);
  if (in.size < sizeof(MatchHdr) || fetch<uint8_t>(in.data) != type) return false;
  out.type = type;
  out.flags = 0;
  out.ctx = fetch<uint16_t>(in.data + offsetof(MatchHdr, ctx));
  out.src = fetch<int32_t>(in.data + offsetof(MatchHdr, src));
  out.tag = fetch<int32_t>(in.data + offsetof(MatchHdr, tag));
  out.seq = fetch<uint16_t>(in.data + offsetof(MatchHdr, seq));
  return true;
}

/// Bytes of the shortest RGET: one key.
inline constexpr size_t kLeastRget = rget_size(size_t{1});

/// The keys of an RGET beyond its first kLeastRget bytes, which `out` has.
[[nodiscard, gnu::noinline]] inline bool decode_keys(Bytes in, RgetHdr& out) {
  const unsigned n = out.n_keys;
  if (n == 0 || n > kMaxWireRails || in.size < rget_size(n)) return false;
  std::memcpy(reinterpret_cast<uint8_t*>(&out) + kLeastRget, in.data + kLeastRget, rget_size(n) - kLeastRget);
  forget_source<sizeof out>(&out);
  for (unsigned i = 0; i < n; ++i)
    if (out.keys[i].handle_len > kMaxHandle) return false;
  return true;
}

/// RGET: 1 to kMaxWireRails keys, all of them there, with sane handle lengths. Further ones are not written.
[[nodiscard, gnu::always_inline]] inline bool decode_rget(Bytes in, RgetHdr& out) {
  if (in.size < kLeastRget) return false;
  // In pieces that do not cut a field: a field that lies in two stores is read only when both are done.
  std::memcpy(&out.rndv.match, in.data, sizeof out.rndv.match);
  std::memcpy(&out.rndv.length, in.data + offsetof(RndvHdr, length),
              offsetof(RgetHdr, n_keys) - offsetof(RndvHdr, length));
  std::memcpy(&out.n_keys, in.data + offsetof(RgetHdr, n_keys), kLeastRget - offsetof(RgetHdr, n_keys));
  forget_source<kLeastRget>(&out);
  if (out.rndv.match.type != static_cast<uint8_t>(MsgType::kRget)) return false;
  if (out.n_keys != 1) [[unlikely]]
    return decode_keys(in, out);
  return out.keys[0].handle_len <= kMaxHandle;
}

/// PUT: fixed size, handle length checked, range not wrapping.
[[nodiscard]] inline bool decode_put(Bytes in, PutHdr& out) {
  if (!decode(MsgType::kPut, in, out)) return false;
  if (out.key.handle_len > kMaxHandle) return false;
  return out.offset + out.length >= out.offset;
}

/// A restart header and its list of `Entry` (WireRange or WireRail). False when the list is longer than
/// `max` or than the bytes received.
template <class Entry>
[[nodiscard]] bool decode_restart(MsgType type, Bytes in, RestartHdr& out, Entry* list, size_t max) {
  if (!decode(type, in, out)) return false;
  if (out.n > max) return false;
  if (in.size < sizeof(RestartHdr) + out.n * sizeof(Entry)) return false;
  std::memcpy(list, in.data + sizeof(RestartHdr), out.n * sizeof(Entry));
  asm("" : : "r"(list) : "memory");  // as forget_source(), of a length that is not constant
  return true;
}

}  // namespace bfo::core
