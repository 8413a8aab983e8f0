// SPDX-License-Identifier: BSD-3-Clause
//
// The trace: a ring of message records in the fabric's shared memory. Writers are all processes of the
// fabric; readers are softhcactl, the counters dump and the tests. Plain data; all-zero memory is a valid
// ring, off.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "contrib/softhca/fault/packet.h"

namespace bfo::softhca {

inline constexpr size_t kTraceRecords = 1 << 14;

struct TraceRing {
  std::atomic<uint32_t> on;
  alignas(64) std::atomic<uint64_t> next;  ///< records ever appended
  MessageRecord records[kTraceRecords];    ///< record n is at n % kTraceRecords; its seq is a SlotWord
};

/// The first word of a slot: n + 1 of the newest record stored there, and two flags.
struct SlotWord {
  static constexpr uint64_t kClaimed = uint64_t{1} << 63;  ///< a writer uses the slot, no other one may
  static constexpr uint64_t kMissing = uint64_t{1} << 62;  ///< record n is lost: its slot was claimed
  static constexpr uint64_t kNumber = kMissing - 1;
};

/// True while records are wanted. One relaxed load.
inline bool enabled(const TraceRing& ring) {
  return ring.on.load(std::memory_order_relaxed) != 0;
}

/// Adds a copy of the record and gives it its sequence number. Any thread of any process, never blocks: when
/// another writer was stopped in the slot until the ring wrapped, the record is lost.
void append(TraceRing& ring, const MessageRecord& record);

/// The steps of append(). A writer may be stopped between any two of them, for ever: then its slot is lost.
class TraceWriter {
 public:
  /// Takes the next number, and its slot when no other writer is in there.
  explicit TraceWriter(TraceRing& ring);
  /// Stores 64-bit words [first, last) of the record; word 0 is the sequence number and stays.
  void store(const MessageRecord& record, size_t first, size_t last);
  /// Shows the record to readers. To be called once, also when the slot was not taken.
  void finish();

 private:
  uint64_t* slot_;
  uint64_t number_;  ///< n + 1
  bool taken_ = false;
};
inline constexpr size_t kTraceWords = sizeof(MessageRecord) / sizeof(uint64_t);

/// Forgets all records and switches recording on or off.
void restart(TraceRing& ring, bool on);

/// Follows a ring from a position on. Holds no resources.
class TraceReader {
 public:
  /// Starts at the oldest record that is still there.
  explicit TraceReader(const TraceRing& ring);

  /// Next record; false when there is none yet. Records overwritten before they were read are counted in
  /// lost().
  bool next(MessageRecord& record);
  uint64_t lost() const { return lost_; }

 private:
  const TraceRing& ring_;
  uint64_t position_ = 0;
  uint64_t lost_ = 0;
};

/// Everything the ring still holds, oldest first.
std::vector<MessageRecord> read_all(const TraceRing& ring);

std::string_view opcode_name(Opcode opcode);
std::string_view verdict_name(Verdict verdict);
std::string_view service_name(Service service);

/// One line for people, without the line end; times relative to `start_ns`.
std::string trace_text(const MessageRecord& record, uint64_t start_ns);

/// One JSON object, without the line end; documented in contrib/softhca/README.md.
std::string trace_json(const MessageRecord& record, uint64_t start_ns);

}  // namespace bfo::softhca
