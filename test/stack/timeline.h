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
    heap_.push_back(Entry{t < now_ ? now_ : t, ++number_, action, self, a, p});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  void in(uint64_t ns, Action action, void* self, uint64_t a = 0, void* p = nullptr) {
    at(now_ + ns, action, self, a, p);
  }
  void step() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Entry e = heap_.back();
    heap_.pop_back();
    now_ = e.t;
    ++events_;
    e.action(e.self, e.a, e.p);
  }

 private:
  struct Entry {
    uint64_t t;
    uint64_t number;
    Action action;
    void* self;
    uint64_t a;
    void* p;
  };
  static bool later(const Entry& a, const Entry& b) { return a.t != b.t ? a.t > b.t : a.number > b.number; }

  std::vector<Entry> heap_;
  uint64_t now_ = 1'000'000'000;  // a clock that has run for a while
  uint64_t number_ = 0;
  uint64_t events_ = 0;
};

}  // namespace bfo::stack
