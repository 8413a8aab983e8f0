// SPDX-License-Identifier: BSD-3-Clause
//
// ranges.h: a set of byte ranges of one message: what was received, what is still to be sent (H14: received
// is the union of ranges, never a sum of lengths).
//
// Sorted, disjoint, non-adjacent half-open intervals. A message that arrives in order over one rail is one
// interval; over several rails a handful. A few have room given at construction; more go to the heap, which
// happens only when rails run far apart or after a failure. There is a limit to their number: no honest peer
// comes near it, and one that sends every second byte does not fill the memory of this process.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace bfo {

struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
  constexpr uint64_t size() const { return end - begin; }
  constexpr bool empty() const { return begin >= end; }
  constexpr bool operator==(const Range&) const = default;
};

/// Where a set has its first few intervals.
struct RangeRoom {
  alignas(Range) unsigned char bytes[3 * sizeof(Range)];
  Range* ranges() { return reinterpret_cast<Range*>(bytes); }
};

/// A record with several sets has their rooms elsewhere: sets that stay empty then share a cache line.
class RangeSet {
 public:
  /// `room` lasts as long as the set.
  explicit RangeSet(RangeRoom& room) : data_(room.ranges()) {}
  RangeSet(const RangeSet&) = delete;
  RangeSet& operator=(const RangeSet&) = delete;
  ~RangeSet() {
    if (on_heap_) std::free(data_);
  }

  bool empty() const { return n_ == 0; }
  uint32_t count() const { return n_; }
  const Range& operator[](uint32_t i) const { return data_[i]; }
  Range front() const { return n_ ? data_[0] : Range{}; }

  /// Forget everything; keeps the memory.
  void clear() {
    n_ = 0;
    incomplete_ = false;
  }

  /// True when an interval found no room since the last clear(), and was left out: there was no memory, or
  /// there are kMaxCount already. What is in the set is right.
  bool incomplete() const { return incomplete_; }
  static constexpr uint32_t kMaxCount = 3 << 14;

  /// Add [begin, end). Returns how many of its bytes were not there before.
  uint64_t add(uint64_t begin, uint64_t end) {
    if (begin >= end) return 0;
    Range* d = data_;
    // Fast: the only interval, or it grows or follows the last one.
    if (n_ == 0) {
      d[0] = Range{begin, end};
      n_ = 1;
      return end - begin;
    }
    if (begin == d[n_ - 1].end) {
      d[n_ - 1].end = end;
      return end - begin;
    }
    uint32_t i = lower(begin);  // first interval whose end >= begin
    uint32_t j = i;
    uint64_t b = begin;
    uint64_t e = end;
    uint64_t known = 0;
    for (; j < n_ && d[j].begin <= end; ++j) {
      const uint64_t lo = d[j].begin > begin ? d[j].begin : begin;
      const uint64_t hi = d[j].end < end ? d[j].end : end;
      if (hi > lo) known += hi - lo;
      if (d[j].begin < b) b = d[j].begin;
      if (d[j].end > e) e = d[j].end;
    }
    replace(i, j, b, e);
    return end - begin - known;
  }

  /// Remove [begin, end).
  void remove(uint64_t begin, uint64_t end) {
    if (begin >= end) return;
    for (uint32_t i = 0; i < n_;) {
      Range r = data_[i];
      if (r.end <= begin) {
        ++i;
        continue;
      }
      if (r.begin >= end) return;
      const bool left = r.begin < begin;
      const bool right = r.end > end;
      if (left && right) {
        data_[i].end = begin;
        insert(i + 1, Range{end, r.end});
        return;
      }
      if (left) {
        data_[i].end = begin;
        ++i;
      } else if (right) {
        data_[i].begin = end;
        return;
      } else {
        erase(i, i + 1);
      }
    }
  }

  /// Cut up to `max` bytes off the front; empty range when the set is empty.
  Range take_front(uint64_t max) {
    if (n_ == 0) return {};
    Range& f = data_[0];
    Range r{f.begin, f.size() > max ? f.begin + max : f.end};
    f.begin = r.end;
    if (f.empty()) erase(0, 1);
    return r;
  }

  bool covers(uint64_t begin, uint64_t end) const {
    if (begin >= end) return true;
    const uint32_t i = lower(begin);
    return i < n_ && data_[i].begin <= begin && data_[i].end >= end;
  }

  uint64_t bytes() const {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n_; ++i) sum += data_[i].size();
    return sum;
  }

  /// Bytes of [0, end) that are in the set.
  uint64_t bytes_below(uint64_t end) const {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n_ && data_[i].begin < end; ++i)
      sum += (data_[i].end < end ? data_[i].end : end) - data_[i].begin;
    return sum;
  }

  /// Bytes of [begin, end), or of `other`, that are in the set.
  uint64_t bytes_in(uint64_t begin, uint64_t end) const {
    return begin < end ? bytes_below(end) - bytes_below(begin) : 0;
  }
  uint64_t bytes_in(const RangeSet& other) const {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < other.n_; ++i) sum += bytes_in(other[i].begin, other[i].end);
    return sum;
  }

  /// *this = [0, length) minus `other`.
  void assign_complement(const RangeSet& other, uint64_t length) {
    clear();
    add(0, length);
    for (uint32_t i = 0; i < other.n_; ++i) remove(other[i].begin, other[i].end);
  }

 private:
  /// Index of the first interval with end >= pos.
  uint32_t lower(uint64_t pos) const {
    const Range* d = data_;
    if (n_ == 0 || d[n_ - 1].end < pos) return n_;
    uint32_t lo = 0;
    uint32_t hi = n_ - 1;
    while (lo < hi) {
      const uint32_t mid = (lo + hi) / 2;
      if (d[mid].end >= pos)
        hi = mid;
      else
        lo = mid + 1;
    }
    return lo;
  }

  void replace(uint32_t i, uint32_t j, uint64_t b, uint64_t e) {
    if (i == j) {
      insert(i, Range{b, e});
      return;
    }
    data_[i] = Range{b, e};
    erase(i + 1, j);
  }

  void insert(uint32_t i, Range r) {
    if (n_ == capacity_ && !grow()) [[unlikely]] {
      incomplete_ = true;
      return;
    }
    Range* d = data_;
    std::memmove(d + i + 1, d + i, (n_ - i) * sizeof(Range));
    d[i] = r;
    ++n_;
  }

  void erase(uint32_t i, uint32_t j) {
    Range* d = data_;
    std::memmove(d + i, d + j, (n_ - j) * sizeof(Range));
    n_ -= j - i;
  }

  [[gnu::cold]] bool grow() {
    const uint32_t cap = capacity_ * 2;
    if (cap > kMaxCount) return false;
    auto* p = static_cast<Range*>(std::malloc(cap * sizeof(Range)));
    if (p == nullptr) return false;
    std::memcpy(p, data_, n_ * sizeof(Range));
    if (on_heap_) std::free(data_);
    data_ = p;
    on_heap_ = true;
    capacity_ = static_cast<uint16_t>(cap);
    return true;
  }

  uint32_t n_ = 0;
  uint16_t capacity_ = sizeof(RangeRoom) / sizeof(Range);
  bool incomplete_ = false;
  bool on_heap_ = false;
  Range* data_;
};
static_assert(sizeof(RangeSet) == 16);

/// One that stands alone.
class RangeSetWithRoom : public RangeSet {
 public:
  RangeSetWithRoom() : RangeSet(room_) {}

 private:
  RangeRoom room_;
};

}  // namespace bfo
