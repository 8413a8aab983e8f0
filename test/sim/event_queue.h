// SPDX-License-Identifier: BSD-3-Clause
//
// event_queue.h: what happens next in virtual time. A heap of small records; events of one instant come out
// in the order they went in, so that a run depends on nothing but its seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bfo::sim {

enum class EventKind : std::uint8_t {
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
  std::uint64_t time;
  std::uint32_t order;
  std::uint32_t b;
  std::uint16_t a;
  EventKind kind;
};

class EventQueue {
 public:
  void clear() {
    heap_.clear();
    order_ = 0;
  }
  bool empty() const { return heap_.empty(); }
  const Event& top() const { return heap_.front(); }
  std::size_t size() const { return heap_.size(); }

  void push(std::uint64_t time, EventKind kind, std::uint32_t a, std::uint32_t b = 0) {
    const Event e{time, order_++, b, static_cast<std::uint16_t>(a), kind};
    std::size_t i = heap_.size();
    heap_.push_back(e);
    while (i != 0) {
      const std::size_t up = (i - 1) / 4;
      if (!before(e, heap_[up])) break;
      heap_[i] = heap_[up];
      i = up;
    }
    heap_[i] = e;
  }

  Event pop() {
    const Event out = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    const std::size_t n = heap_.size();
    std::size_t i = 0;
    while (n != 0) {
      std::size_t best = 4 * i + 1;
      if (best >= n) break;
      const std::size_t end = best + 4 < n ? best + 4 : n;
      for (std::size_t c = best + 1; c < end; ++c)
        if (before(heap_[c], heap_[best])) best = c;
      if (!before(heap_[best], last)) break;
      heap_[i] = heap_[best];
      i = best;
    }
    if (n != 0) heap_[i] = last;
    return out;
  }

 private:
  static bool before(const Event& x, const Event& y) {
    return x.time != y.time ? x.time < y.time : x.order < y.order;
  }
  std::vector<Event> heap_;
  std::uint32_t order_ = 0;
};

}  // namespace bfo::sim
