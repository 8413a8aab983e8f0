// SPDX-License-Identifier: BSD-3-Clause
//
// layout.h: the messages of PROTOCOL.md as bytes, written down a second time: a liar shares no code with what
// reads them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace layout {

inline constexpr uint8_t kAllTypes[] = {0x41, 0x42, 0x43, 0x44, 0x46, 0x48, 0x49, 0x50,
                                        0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58};
inline constexpr uint8_t kFlagReply = 0x80;  // SEQSYNC
inline constexpr unsigned kMostKeys = 8;

#pragma pack(push, 1)
struct Match {
  uint8_t type, flags;
  uint16_t ctx;
  int32_t src, tag;
  uint16_t seq;
};
struct Rndv {
  Match match;
  uint64_t length, sender, receiver;
};
struct Key {
  uint64_t conn;
  uint32_t epoch;
  uint8_t handle_len, reserved[3], handle[16];
};
struct Rget {
  Rndv rndv;
  uint64_t address;
  uint8_t n_keys, reserved;
  Key keys[kMostKeys];
};
struct Ack {
  uint8_t type, flags;
  uint16_t reserved;
  uint64_t sender, receiver;
};
struct Frag {
  uint8_t type, flags;
  uint16_t reserved;
  uint64_t receiver, offset;
};
struct Put {
  uint8_t type, flags;
  uint16_t reserved;
  uint64_t sender, receiver, offset, length, address, total;
  uint32_t grant;
  Key key;
};
struct Fin {
  uint8_t type, flags;
  uint16_t reserved;
  uint64_t sender, receiver;
  uint32_t grant, to_send;
};
struct Restart {
  uint8_t type, flags;
  uint16_t ctx;
  int32_t src;
  uint16_t seq, n;
  uint32_t frags;
  uint64_t sender, receiver;
};
struct Rail {
  uint8_t type, flags;
  uint16_t reserved;
  uint64_t conn;
  uint32_t epoch;
  int32_t cause;
  uint64_t delivered;
};
struct SeqSync {
  uint8_t type, flags;
  uint16_t ctx;
  int32_t src;
  uint16_t seq, question;
};
#pragma pack(pop)

static_assert(sizeof(Match) == 14 && sizeof(Rndv) == 38 && sizeof(Key) == 32 && sizeof(Ack) == 20 &&
              sizeof(Frag) == 20 && sizeof(Put) == 88 && sizeof(Fin) == 28 && sizeof(Restart) == 32 &&
              sizeof(Rail) == 28 && sizeof(SeqSync) == 12);

/// An RGET of `n` keys.
constexpr size_t rget_size(unsigned n) {
  return offsetof(Rget, keys) + n * sizeof(Key);
}

}  // namespace layout
