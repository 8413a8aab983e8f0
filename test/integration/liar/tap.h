// SPDX-License-Identifier: BSD-3-Clause
//
// tap.h: what the PML of this process sends and receives, at the BTL interface. A liar hears real names,
// keys and numbers there, and keeps the answers of its victim from its own PML, which has not asked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

/// A message as it was heard: its tag, and its first bytes.
struct Heard {
  uint8_t tag;
  bool from_peer;
  uint32_t length;  ///< of the message
  uint8_t bytes[160];
};

inline constexpr unsigned kTagsOfPml = 32;

class Tap {
 public:
  static Tap& one();

  /// After MPI_Init: BTLs that deliver by active message, and what is sent by them. Over verbs the contract
  /// object of this program, which the PML finds first, stands between the two from the start.
  void open();
  /// From now on the PML of this process gets no message of a peer, but reports about rails.
  void swallow(bool yes) { swallow_ = yes; }

  const std::vector<Heard>& heard() const { return heard_; }
  void note(bool from_peer, uint8_t tag, const void* data, size_t length, const void* more = nullptr,
            size_t more_length = 0);
  /// True: it is not for the PML.
  bool keeps(uint8_t tag) const { return swallow_ && tag != 0x54 && tag != 0x55 && tag != 0x58; }
  bool listening = false;
  /// Number of messages that were heard altogether, the forgotten ones included.
  uint64_t count = 0;

 private:
  static constexpr size_t kMost = 512;
  std::vector<Heard> heard_;
  size_t next_ = 0;
  bool swallow_ = false;
};
