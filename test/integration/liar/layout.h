// SPDX-License-Identifier: BSD-3-Clause
//
// layout.h: the messages of PROTOCOL.md as bytes, written down a second time: a liar shares no code with what
// reads them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace layout {

inline constexpr std::uint8_t kAllTypes[] = {0x41, 0x42, 0x43, 0x44, 0x46, 0x48, 0x49, 0x50,
                                             0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58};
inline constexpr std::uint8_t kFlagReply = 0x80;  // SEQSYNC
inline constexpr unsigned kMostKeys = 8;

#pragma pack(push, 1)
struct Match {
  std::uint8_t type, flags;
  std::uint16_t ctx;
  std::int32_t src, tag;
  std::uint16_t seq;
};
struct Rndv {
  Match match;
  std::uint64_t length, sender, receiver;
};
struct Key {
  std::uint64_t conn;
  std::uint32_t epoch;
  std::uint8_t handle_len, reserved[3], handle[16];
};
struct Rget {
  Rndv rndv;
  std::uint64_t address;
  std::uint8_t n_keys, reserved;
  Key keys[kMostKeys];
};
struct Ack {
  std::uint8_t type, flags;
  std::uint16_t reserved;
  std::uint64_t sender, receiver;
};
struct Frag {
  std::uint8_t type, flags;
  std::uint16_t reserved;
  std::uint64_t receiver, offset;
};
struct Put {
  std::uint8_t type, flags;
  std::uint16_t reserved;
  std::uint64_t sender, receiver, offset, length, address, total;
  std::uint32_t grant;
  Key key;
};
struct Fin {
  std::uint8_t type, flags;
  std::uint16_t reserved;
  std::uint64_t sender, receiver;
  std::uint32_t grant, to_send;
};
struct Restart {
  std::uint8_t type, flags;
  std::uint16_t ctx;
  std::int32_t src;
  std::uint16_t seq, n;
  std::uint32_t frags;
  std::uint64_t sender, receiver;
};
struct Rail {
  std::uint8_t type, flags;
  std::uint16_t reserved;
  std::uint64_t conn;
  std::uint32_t epoch;
  std::int32_t cause;
  std::uint64_t delivered;
};
struct SeqSync {
  std::uint8_t type, flags;
  std::uint16_t ctx;
  std::int32_t src;
  std::uint16_t seq, question;
};
#pragma pack(pop)

static_assert(sizeof(Match) == 14 && sizeof(Rndv) == 38 && sizeof(Key) == 32 && sizeof(Ack) == 20 &&
              sizeof(Frag) == 20 && sizeof(Put) == 88 && sizeof(Fin) == 28 && sizeof(Restart) == 32 &&
              sizeof(Rail) == 28 && sizeof(SeqSync) == 12);

/// An RGET of `n` keys.
constexpr std::size_t rget_size(unsigned n) {
  return offsetof(Rget, keys) + n * sizeof(Key);
}

}  // namespace layout
