// SPDX-License-Identifier: BSD-3-Clause
//
// wire.h: the headers of every message of pml/bfo. decode.h reads them.
//
// The type of a message is both its BTL active-message tag and its first byte; one in which they differ is
// dropped. Both sides must be of one kind: little-endian, 64 bit (x86-64, arm64); the modex refuses anything
// else. Headers are packed, and nothing in them is an address that the reader dereferences: requests are
// named (ids.h), rails are named by the connection. The only addresses are those of RDMA operations, which
// the HCA checks against the registration handle that travels with them.
//
//   MATCH   0x41 | type flags ctx src tag seq |                                           14 bytes, + payload
//   RNDV    0x42 | match | length | sender | receiver |                                   38 bytes, + payload
//   RGET    0x43 | match | length | sender | receiver | address | n | n rail keys |       <= 48 + 32 n bytes
//   ACK     0x44 | sender | receiver |                                                    20 bytes
//   FRAG    0x46 | receiver | offset |                                                    20 bytes, + payload
//   PUT     0x48 | sender | receiver | offset | length | address | total | grant | key |  88 bytes
//   FIN     0x49 | sender | receiver | grant | kind |                                     28 bytes
//   restart 0x50-0x53, 0x56 | ctx src seq | sender | receiver | n | n ranges or rails |   32 + 16 n bytes
//   rail    0x54-0x55, 0x58 | conn | epoch | cause | delivered |                                28 bytes
//   SEQSYNC 0x57 | ctx src seq | question |                                               12 bytes
//
// MATCH has the layout and size of ob1's: no failover byte on eager messages (P7).
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "common/ids.h"

namespace bfo::core {

static_assert(std::endian::native == std::endian::little, "pml/bfo speaks little-endian only");
static_assert(sizeof(void*) == 8, "pml/bfo speaks 64 bit only");

enum class MsgType : uint8_t {
  kMatch = 0x41,
  kRndv = 0x42,
  kRget = 0x43,
  kAck = 0x44,
  kFrag = 0x46,
  kPut = 0x48,
  kFin = 0x49,
  kRestartNotify =
      0x50,            ///< S->R RNDVRESTARTNOTIFY: "round r+1 begins; my rails of this request are clean: .."
  kRestartAck = 0x51,  ///< R->S RNDVRESTARTACK: "quiesced; I have these ranges"
  kRestartNack = 0x52,  ///< R->S RNDVRESTARTNACK: "finished; finish yours"
  kRecvErr = 0x53,      ///< R->S RECVERRNOTIFY: "I saw an error in round r"
  kRailDown = 0x54,     ///< both ways: "this connection is dead for me"
  kEpochClosed = 0x55,  ///< both ways: "closed; I was handed this many messages of it"
  kSendDone = 0x56,     ///< S->R: answer to RECVERR for a request S has finished
  kSeqSync = 0x57,      ///< both ways: sequence window, once in kSeqWindow / 2 messages (H5)
  kPeerLost = 0x58      ///< both ways: "I gave you up: messages are lost" (H4)
};
inline constexpr uint8_t kAllTypes[] = {0x41, 0x42, 0x43, 0x44, 0x46, 0x48, 0x49, 0x50,
                                        0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58};

/// Raised by every change of a message, or of what one means, that an older reader would misread; the other
/// one is the oldest whose messages are still understood (common/wire_versions.h).
inline constexpr uint16_t kWireVersion = 7;
inline constexpr uint16_t kWireOldest = 7;

/// Header flags. Values below 0x20 as in ob1 where the meaning is the same.
enum : uint8_t {
  kFlagAck = 0x01,      ///< MATCH never; RNDV: sender is synchronous
  kFlagKeepsUp = 0x01,  ///< FIN of an RGET: the rail of that ends READs as fast as they are posted
  kFlagUneven = 0x02,   ///< FIN of an RGET: rails differ, and the one that brings this is a fast one
  kFlagAtLeast = 0x02,  ///< FIN of a grant: the rail was not measured, it moves `rate` or more
  kFlagContig = 0x08,   ///< RNDV: sender's buffer is one piece and registered: PUT is possible
  kFlagNoRdma = 0x10,   ///< RNDV, ACK, RESTARTACK: copy protocol only
  kFlagRestart = 0x20,  ///< RNDV, RGET: continues a request that the receiver names
  kFlagFail = 0x40,     ///< FIN: no byte of the grant was posted; NACK, SENDDONE: ended with an error
  kFlagReply = 0x80,    ///< SEQSYNC: the receiver's answer
  kFlagKnown = 0x80     ///< RNDV, RGET: said to be here already; its name counts, not its number
};

/// A rate in Mbit/s in 16 bits, within one part in 1024: 11 bits, and by how many bits they are shifted. 0:
/// unknown.
constexpr uint16_t rate_code(uint64_t mbits) {
  unsigned shift = 0;
  while (mbits >> shift >= 2048 && shift < 31) ++shift;
  return static_cast<uint16_t>((mbits >> shift & 2047) | shift << 11);
}
constexpr uint64_t rate_of_code(uint16_t code) {
  return uint64_t{code & 2047u} << (code >> 11);
}
static_assert(rate_of_code(rate_code(800)) == 800 && rate_of_code(rate_code(400'000)) == 399'872);

/// Longest registration handle a rail may have (mca_btl_base: btl_registration_handle_size), and the most
/// rails one message names.
inline constexpr size_t kMaxHandle = 16;
inline constexpr size_t kMaxWireRails = 8;
/// Most ranges a RESTARTACK lists: of a longer list the longest go, which under-reports (H14).
inline constexpr size_t kMaxWireRanges = 64;

#pragma pack(push, 1)
struct MatchHdr {
  uint8_t type;
  uint8_t flags;
  uint16_t ctx;  ///< context id of the communicator
  int32_t src;   ///< sender's rank in it
  int32_t tag;
  uint16_t seq;
};
struct RndvHdr {
  MatchHdr match;
  uint64_t length;    ///< bytes of the whole message
  uint64_t sender;    ///< Name, with the round
  uint64_t receiver;  ///< Name, 0 unless kFlagRestart
};
/// Registration handle of one rail: which connection it is for, and its bytes.
struct RailKey {
  uint64_t conn;
  uint32_t epoch;
  uint8_t handle_len;
  uint8_t reserved[3];
  uint8_t handle[kMaxHandle];
};
struct RgetHdr {
  RndvHdr rndv;
  uint64_t address;  ///< of the sender's buffer, used by the receiver's HCA only
  uint8_t n_keys;
  uint8_t reserved;
  RailKey keys[kMaxWireRails];  ///< only n_keys of them travel, the last one without what it does not use
};
struct AckHdr {
  uint8_t type;
  uint8_t flags;
  uint16_t reserved;
  uint64_t sender;
  uint64_t receiver;
};
struct FragHdr {
  uint8_t type;
  uint8_t flags;
  uint16_t reserved;
  uint64_t receiver;
  uint64_t offset;  ///< of the payload in the message, bytes
};
struct PutHdr {
  uint8_t type;
  uint8_t flags;
  uint16_t reserved;
  uint64_t sender;
  uint64_t receiver;
  uint64_t offset;
  uint64_t length;
  uint64_t address;  ///< where byte `offset` goes, used by the sender's HCA only
  uint64_t total;    ///< bytes the receiver grants in this round altogether
  uint32_t grant;    ///< number of this grant in the receiver's ledger, from 1 in each round
  RailKey key;
};
struct FinHdr {
  uint8_t type;
  uint8_t flags;
  uint16_t rate;  ///< PUT: what the granted rail moves, see rate_code(); RGET: 0
  uint64_t sender;
  uint64_t receiver;
  uint32_t grant;    ///< PUT: the grant that is used up; RGET: 0
  uint32_t to_send;  ///< 1: names a send request (end of RGET), 0: a receive request (end of PUT)
};
/// NOTIFY (rails: those clean at the sender), RESTARTACK (ranges received), NACK, RECVERR, SENDDONE (no
/// list).
struct RestartHdr {
  uint8_t type;
  uint8_t flags;
  uint16_t ctx;
  int32_t src;  ///< rank of the *sender of the message*, in all four
  uint16_t seq;
  uint16_t n;      ///< entries that follow
  uint32_t frags;  ///< NOTIFY: FRAGs of the round that ends which were delivered; otherwise 0
  uint64_t sender;
  uint64_t receiver;
};
struct WireRange {
  uint64_t begin;
  uint64_t end;
};
struct WireRail {
  uint64_t conn;
  uint32_t epoch;
  uint32_t written;  ///< 1: a write of the round was acknowledged on it; over it comes NOTIFY, too
};
inline constexpr int32_t kCauseNoMemory = 1;  ///< PEERLOST
struct RailHdr {
  uint8_t type;
  uint8_t flags;
  uint16_t reserved;
  uint64_t conn;
  uint32_t epoch;
  int32_t cause;
  uint64_t delivered;  ///< EPOCHCLOSED: SENDs of the epoch handed to the PML; PEERLOST: bytes without room
};
struct SeqSyncHdr {
  uint8_t type;
  uint8_t flags;
  uint16_t ctx;
  int32_t src;        ///< rank of the message's sender (asking) or receiver (kFlagReply)
  uint16_t seq;       ///< asking: newest number sent; reply: everything before this one was received
  uint16_t question;  ///< asking: its number (seq_question); reply: of the question it answers
};
#pragma pack(pop)

/// The header of a MATCH. Its fields are put together in registers and stored as two words: a BTL copies the
/// header at once, and a load of several fields waits until the stores of single fields are in the cache.
struct alignas(16) MatchWords {
  MatchHdr header;
  uint16_t unused;
};
inline MatchWords match_words(uint16_t ctx, int32_t src, int32_t tag, uint16_t seq) {
  static_assert(sizeof(MatchWords) == 16 && std::endian::native == std::endian::little);
  uint64_t first = uint64_t{static_cast<uint8_t>(MsgType::kMatch)} | uint64_t{ctx} << 16 |
                   uint64_t{static_cast<uint32_t>(src)} << 32;
  uint64_t second = uint64_t{static_cast<uint32_t>(tag)} | uint64_t{seq} << 32;
  MatchWords words;
  std::memcpy(&words, &first, 8);
  std::memcpy(reinterpret_cast<char*>(&words) + 8, &second, 8);
  return words;
}

static_assert(sizeof(MatchHdr) == 14);
static_assert(sizeof(RndvHdr) == 38);
static_assert(sizeof(RailKey) == 32);
static_assert(offsetof(RgetHdr, keys) == 48);
static_assert(sizeof(AckHdr) == 20);
static_assert(sizeof(FragHdr) == 20);
static_assert(sizeof(PutHdr) == 88);
static_assert(sizeof(FinHdr) == 28);
static_assert(sizeof(RestartHdr) == 32);
static_assert(sizeof(WireRange) == 16);
static_assert(sizeof(WireRail) == 16);
static_assert(sizeof(RailHdr) == 28);
static_assert(sizeof(SeqSyncHdr) == 12);

/// Longest header without list.
inline constexpr size_t kMaxFixedHdr = sizeof(PutHdr);

/// A received message: bytes that are only valid during the callback.
struct Bytes {
  const uint8_t* data = nullptr;
  size_t size = 0;

  constexpr Bytes from(size_t offset) const { return {data + offset, size - offset}; }
};

/// Bytes of an RGET with so many keys; the offset of the key with that index.
constexpr size_t rget_size(size_t keys) {
  return offsetof(RgetHdr, keys) + keys * sizeof(RailKey);
}
/// Bytes of an RGET.
constexpr size_t rget_size(const RgetHdr& h) {
  return rget_size(size_t{h.n_keys});
}
}  // namespace bfo::core
