// SPDX-License-Identifier: BSD-3-Clause
//
// The stamp: what every message of the checker contains, and the judgement on a buffer that should contain
// it.
//
// A payload of 64 bytes or more starts with a header (magic, communicator/source/destination/tag, sequence,
// size, hash of the body, hash of the header); every following 8-byte word is a permutation of (communicator,
// source, destination, tag, sequence, word index), so each single word says which message and which offset it
// belongs to. Shorter payloads carry the words only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace bfo::checker {

/// Fill a buffer before it is given to a receive, and after a send is complete. One repeated byte each, so
/// that the poison looks the same at every alignment.
inline constexpr uint64_t kRecvPoison = 0xb5b5b5b5b5b5b5b5ull;
inline constexpr uint64_t kSendPoison = 0x5e5e5e5e5e5e5e5eull;

/// One ordered flow of messages. Ranks are stamp ranks (see Lane), all fields are taken modulo their field
/// width: communicator, source, destination 32; tag 128.
struct Stream {
  uint8_t comm = 0;
  uint8_t source = 0;
  uint8_t dest = 0;
  uint8_t tag = 0;
  bool operator==(const Stream&) const = default;
};

struct Message {
  Stream stream;
  uint32_t seq = 0;
  uint64_t bytes = 0;
};

enum class Kind {
  kOk,
  kCorrupt,       ///< bytes that belong to no message
  kTorn,          ///< bytes never written: the buffer still has its poison
  kStale,         ///< bytes of an earlier message of the same stream
  kEarly,         ///< bytes of a later message of the same stream
  kDoubled,       ///< a whole message that was delivered before
  kReordered,     ///< a whole message that is not due yet
  kMisdelivered,  ///< a whole message, or bytes, of another stream
  kShifted,       ///< bytes of the right message at the wrong offset
  kLateRead,      ///< the sender's poison: read after the send was complete
  kLateWrite,     ///< the buffer changed after the receive was complete
  kOverrun,       ///< bytes outside of the message were written
  kStatus,        ///< MPI_Status disagrees with the message
  kMpi,           ///< an MPI call returned an unexpected error or flag
  kCount
};
const char* name_of(Kind kind);

/// Result of looking at a buffer: kind kOk, or the first and last wrong byte and one sentence.
struct Finding {
  Kind kind = Kind::kOk;
  uint64_t first = 0;
  uint64_t last = 0;
  std::string text;
  bool ok() const { return kind == Kind::kOk; }
};

std::string describe(const Message& message);

/// Fills and verifies payloads of one run; stateless apart from the seed, any thread may call.
class Stamp {
 public:
  explicit Stamp(uint64_t seed) : seed_(seed) {}
  /// Writes message.bytes bytes to `to` (any alignment).
  void fill(void* to, const Message& message) const;
  /// Compares message.bytes bytes with what the message must be; says what is there instead.
  Finding verify(const void* from, const Message& expected) const;
  /// True when the buffer of `bytes` bytes starts with a whole, self-consistent message; says which.
  bool identify(const void* from, uint64_t bytes, Message* found) const {
    return whole_message_at(static_cast<const uint8_t*>(from), bytes, found);
  }

 private:
  uint64_t word(const Message& message, uint64_t index) const;
  /// Which message a word belongs to; false when it is the word of none.
  bool trace(uint64_t value, Message* message, uint64_t* index) const;
  uint64_t expected_word(const Message& message, uint64_t index, uint64_t body_hash) const;
  uint64_t body_hash(const Message& message) const;
  Finding diagnose(const uint8_t* from, const Message& expected) const;
  bool whole_message_at(const uint8_t* from, uint64_t bytes, Message* found) const;
  Finding judge_tiny(const uint8_t* from, const Message& expected) const;
  uint64_t seed_;
};

/// Writes `bytes` bytes of one of the poison words.
void poison(void* to, size_t bytes, uint64_t word);
/// Index of the first byte that is not poison; `bytes` when all of it is.
size_t first_unpoisoned(const void* from, size_t bytes, uint64_t word);

}  // namespace bfo::checker
