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
  MessageRecord
      records[kTraceRecords];  ///< record n is at n % kTraceRecords with seq = n + 1, 0 = being written
};

/// True while records are wanted. One relaxed load.
inline bool enabled(const TraceRing& ring) {
  return ring.on.load(std::memory_order_relaxed) != 0;
}

/// Adds a copy of the record and gives it its sequence number. Any thread of any process, never blocks.
void append(TraceRing& ring, const MessageRecord& record);

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
