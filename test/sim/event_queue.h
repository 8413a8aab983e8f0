// SPDX-License-Identifier: BSD-3-Clause
//
// event_queue.h: what happens next in virtual time. A heap of small records; events of one instant come out
// in the order they went in, so that a run depends on nothing but its seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/check.h"

namespace bfo::sim {

enum class EventKind : uint8_t {
  kStep,       ///< a = process: its program and its progress function run
  kFabric,     ///< a = half: packets it sent may have arrived
  kAck,        ///< a = half, b = epoch: acknowledgements reach the sender
  kRetryOut,   ///< a = half, b = epoch: the sender's retries are used up
  kReconnect,  ///< a = half: handshake attempt
  kFault,      ///< a = index: begins
  kFaultEnd,   ///< a = index: heals
  kPortEvent,  ///< a = process, b = rail: the driver reports the port's state
  kDeathNews   ///< a = process that died: the runtime tells the others
};

struct Event {
  uint64_t time;
  uint32_t b;
  uint16_t a;
  EventKind kind;
};

/// A heap with four children per node, which are neighbours in memory. Time and order of arrival share one
/// word, so that comparing two events is comparing two numbers.
class EventQueue {
 public:
  /// The end of time: no run lasts that long, and what should happen then or later never does.
  static constexpr uint64_t kEnd = (uint64_t{1} << 36) - 1;

  void clear() {
    heap_.clear();
    order_ = 0;
  }
  bool empty() const { return heap_.empty(); }

  void push(uint64_t time, EventKind kind, uint32_t a, uint32_t b = 0) {
    BFO_CHECK(order_ < uint32_t{1} << kOrderBits);
    const Entry e{(time < kEnd ? time : kEnd) << kOrderBits | order_++, b, static_cast<uint16_t>(a), kind};
    size_t i = heap_.size();
    heap_.push_back(e);
    Entry* const heap = heap_.data();
    while (i != 0) {
      const size_t up = (i - 1) / 4;
      if (heap[up].key < e.key) break;
      heap[i] = heap[up];
      i = up;
    }
    heap[i] = e;
  }

  Event pop() {
    const Entry out = heap_.front();
    const Entry last = heap_.back();
    heap_.pop_back();
    Entry* const heap = heap_.data();
    const size_t n = heap_.size();
    size_t i = 0;
    for (;;) {
      const size_t first = 4 * i + 1;
      if (first >= n) break;
      const size_t best = first + 4 <= n ? least_of_four(heap, first) : least(heap, first, n);
      if (heap[best].key > last.key) break;
      heap[i] = heap[best];
      i = best;
    }
    if (n != 0) heap[i] = last;
    return Event{out.key >> kOrderBits, out.b, out.a, out.kind};
  }

 private:
  static constexpr unsigned kOrderBits = 28;
  struct Entry {
    uint64_t key;
    uint32_t b;
    uint16_t a;
    EventKind kind;
  };
  /// Without jumps: which child is the least is a coin toss that no processor predicts.
  static size_t least_of_four(const Entry* heap, size_t first) {
    const Entry* const c = heap + first;
    const size_t left = c[1].key < c[0].key;
    const size_t right = 2 + size_t{c[3].key < c[2].key};
    const size_t which = c[right].key < c[left].key;
    return first + left + which * (right - left);
  }
  static size_t least(const Entry* heap, size_t first, size_t end) {
    size_t best = first;
    for (size_t c = first + 1; c < end; ++c)
      if (heap[c].key < heap[best].key) best = c;
    return best;
  }

  std::vector<Entry> heap_;
  uint32_t order_ = 0;
};

}  // namespace bfo::sim
