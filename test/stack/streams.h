// SPDX-License-Identifier: BSD-3-Clause
//
// streams.h: programs that only move bytes: a stream keeps a window of messages under way from one process to
// another, until its time is over. What has landed is counted as it lands, piece by piece, so that a rate can
// be measured over any interval, however long its messages are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <vector>

#include "test/stack/port.h"
#include "test/stack/scenario.h"

namespace bfo::stack {

class World;

/// How far the streams of a run are, seen by both ends.
struct StreamCounts {
  uint64_t sent = 0;         // sends begun
  uint64_t posted = 0;       // receives begun
  uint64_t received = 0;     // receives done
  uint64_t in_order = 0;     // .. of the first so many messages all are
  std::set<uint64_t> early;  // .. and these
};

/// The streams of one process.
class Streams {
 public:
  /// Requests of streams have numbers from here on in place of a message of the program.
  static constexpr uint32_t kFirst = 1u << 31;
  static bool has(const Buffer& b) { return b.pair >= kFirst; }

  Streams(World& world, uint32_t process);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  /// Posts what there is room for.
  void run(Engine& engine, EngineComm* comm);
  /// Their time is over, and all messages are.
  bool over() const;
  void finish(SendRequest& r, Outcome outcome);
  void finish(RecvRequest& r, const xfer::RecvStatus& status);
  /// RDMA wrote `n` bytes to `address`, or a fragment did.
  void landed(uint64_t address, uint64_t n);
  /// Bytes of messages to this process that are where they belong; what lands twice counts once.
  uint64_t bytes() const { return bytes_; }

 private:
  struct Slot {
    SendRequest send;
    RecvRequest recv;
    uint32_t stream = 0;
    bool receives = false;
    uint64_t number = 0;  // of the message
    uint32_t length = 0;
    uint64_t landed = 0;
  };

  bool closed() const;
  bool wanted(const Slot& s) const;
  void post(Slot& s, Engine& engine, EngineComm* comm);
  void count(Slot& s, uint64_t n);
  Slot& slot_of(const Buffer& b);
  void done(Slot& s, Buffer& b, Outcome outcome);

  World& world_;
  uint32_t process_;
  std::deque<Slot> slots_;
  std::vector<Slot*> idle_;
  uint8_t* memory_ = nullptr;  // one stride for each slot; only fragments touch it
  size_t stride_ = 1;
  size_t size_ = 0;
  uint32_t open_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace bfo::stack
