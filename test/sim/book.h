// SPDX-License-Identifier: BSD-3-Clause
//
// book.h: what MPI says must happen, kept by an observer who sees all processes. It decides which message a
// receive must get, and so finds every message that is lost, doubled, overtaken or changed (P1).
//
// P1..P8: contrib/doc/design.md
#pragma once

#include <cstdint>
#include <vector>

#include "test/sim/context.h"
#include "test/sim/program.h"

namespace bfo::sim {

/// The bytes of message `pair`: any piece of any message is told from any other.
uint8_t pattern_byte(uint32_t pair, uint32_t offset);
void fill_pattern(uint8_t* to, uint32_t pair, uint32_t length);
/// Offset of the first wrong byte, or -1.
int64_t check_pattern(const uint8_t* from, uint32_t pair, uint32_t length);

class Book {
 public:
  explicit Book(Context& ctx) : ctx_(ctx) {}
  void reset(const Program& s);

  struct Posted {
    uint32_t pair;
    int32_t src;  ///< process asked for, -1 any
    int32_t tag;  ///< -1 any
    bool open;
  };

  /// Message `pair` was started. Calls come in the order of the sender's MPI calls.
  void sent(uint32_t pair);
  /// A receive was posted; returns its place in the order of this communicator and process.
  uint32_t posted(uint32_t pair, int32_t src, int32_t tag);
  void cancelled(uint32_t pair, uint32_t order);
  /// The message a receive or probe asking for (src, tag) is entitled to if it gets one of `got_src`,
  /// `got_tag`; -1 (and a violation) when there is none.
  int32_t entitled(uint32_t pair, int32_t src, int32_t tag, int32_t got_src, int32_t got_tag,
                   uint64_t got_length);
  /// Remove a message from the unmatched ones.
  void take(uint32_t message);
  /// Receive `order` of `pair`'s process was matched with `message`: it must be the first that accepts it.
  void matched(uint32_t pair, uint32_t order, uint32_t message);
  int32_t asked_source(uint32_t pair, uint32_t order) {
    return receiver(s_->pairs[pair].comm, s_->pairs[pair].dst).posted[order].src;
  }
  int32_t asked_tag(uint32_t pair, uint32_t order) {
    return receiver(s_->pairs[pair].comm, s_->pairs[pair].dst).posted[order].tag;
  }
  bool is_matched(uint32_t message) const { return taken_[message]; }
  /// Rank of a process in the communicator of a plan, and back.
  int32_t rank(uint32_t comm, uint32_t proc) const {
    return static_cast<int32_t>((proc + s_->comms[comm].shift) % s_->procs);
  }
  uint32_t proc(uint32_t comm, int32_t rank) const {
    const uint32_t n = s_->procs;
    return (static_cast<uint32_t>(rank) + n - s_->comms[comm].shift % n) % n;
  }

 private:
  struct Channel {  ///< messages of one communicator from one process to another, in order
    std::vector<uint32_t> sent;
    size_t first = 0;  ///< everything before it was taken
  };
  struct Receiver {
    std::vector<Posted> posted;
    size_t first = 0;
  };
  Channel& channel(uint32_t comm, uint32_t src, uint32_t dst) {
    const uint32_t n = s_->procs;
    return channels_[(comm * n + src) * n + dst];
  }
  Receiver& receiver(uint32_t comm, uint32_t dst) { return receivers_[comm * s_->procs + dst]; }

  Context& ctx_;
  const Program* s_ = nullptr;
  std::vector<Channel> channels_;
  std::vector<Receiver> receivers_;
  std::vector<uint8_t> taken_;
};

}  // namespace bfo::sim
