// SPDX-License-Identifier: BSD-3-Clause
//
// timeline.h: virtual time. What happens later is an entry of one queue, ordered by time and, at the same
// time, by the order in which it was put there: a run depends on nothing but its seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace bfo::stack {

class Timeline {
 public:
  using Action = void (*)(void* self, uint64_t a, void* p);

  uint64_t now() const { return now_; }
  uint64_t events() const { return events_; }
  bool empty() const { return heap_.empty(); }
  uint64_t next() const { return heap_.front().t; }

  /// Calls `action(self, a, p)` at time `t`, or now if that is past.
  void at(uint64_t t, Action action, void* self, uint64_t a = 0, void* p = nullptr) {
    const Entry e{t < now_ ? now_ : t, ++number_, action, self, a, p};
    size_t i = heap_.size();
    heap_.push_back(e);
    for (; i > 0 && before(e, heap_[(i - 1) / kWays]); i = (i - 1) / kWays) heap_[i] = heap_[(i - 1) / kWays];
    heap_[i] = e;
  }
  void in(uint64_t ns, Action action, void* self, uint64_t a = 0, void* p = nullptr) {
    at(now_ + ns, action, self, a, p);
  }
  void step() {
    const Entry e = heap_.front();
    const Entry last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(last);
    now_ = e.t;
    ++events_;
    e.action(e.self, e.a, e.p);
  }

 private:
  static constexpr size_t kWays = 4;  // children of an entry: half as many levels as with two
  struct Entry {
    uint64_t t;
    uint64_t number;
    Action action;
    void* self;
    uint64_t a;
    void* p;
  };
  static bool before(const Entry& a, const Entry& b) { return a.t != b.t ? a.t < b.t : a.number < b.number; }

  /// The first place is free: `e` takes it, or one below.
  void sink(const Entry& e) {
    const size_t n = heap_.size();
    size_t i = 0;
    for (size_t child = 1; child < n; child = kWays * i + 1) {
      size_t first = child;
      for (size_t c = child + 1; c < std::min(child + kWays, n); ++c)
        if (before(heap_[c], heap_[first])) first = c;
      if (before(e, heap_[first])) break;
      heap_[i] = heap_[first];
      i = first;
    }
    heap_[i] = e;
  }

  std::vector<Entry> heap_;
  uint64_t now_ = 1'000'000'000;  // a clock that has run for a while
  uint64_t number_ = 0;
  uint64_t events_ = 0;
};

}  // namespace bfo::stack
