// SPDX-License-Identifier: BSD-3-Clause
//
// key_index.h: the elements of a queue by key. Each key has a chain of its elements, the oldest first. A hash
// table with open addressing, at most half full. A key that loses its last element leaves the table at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "common/check.h"

namespace bfo::xfer {

/// `Link` tells where an element keeps its chain_next and chain_prev. The index is one block of the port's
/// memory, owned by the queue. For at most 2^31 elements.
template <class T, class Link>
class KeyIndex {
 public:
  /// An empty index. nullptr: no memory.
  template <class Port>
  static KeyIndex* make(Port& port, unsigned log2_slots = kFirst) {
    const size_t bytes = (size_t{1} << log2_slots) * sizeof(Slot);
    void* const memory = port.alloc(sizeof(KeyIndex) + bytes);
    if (!memory) return nullptr;
    auto* const made = ::new (memory) KeyIndex(log2_slots);
    std::memset(static_cast<void*>(made->slots()), 0, bytes);
    return made;
  }

  /// Makes room for one more key, in a larger index if necessary, which replaces `index`. False: no memory.
  template <class Port>
  static bool reserve(Port& port, KeyIndex*& index) {
    if (index->keys_ * 2 < index->mask_) [[likely]]
      return true;
    KeyIndex* const grown = make(port, index->log2_ + 1);
    if (!grown) return false;
    for (uint32_t i = 0; i <= index->mask_; ++i) {
      const Slot& old = index->slots()[i];
      if (old.first) *grown->find(old.key) = old;
    }
    grown->keys_ = index->keys_;
    grown->size_ = index->size_;
    port.free(index);
    index = grown;
    return true;
  }

  uint32_t size() const { return size_; }

  /// The oldest element with `key`, or nullptr.
  T* first(int64_t key) { return find(key)->first; }

  /// `e` is the youngest element with `key`. Call reserve() before.
  void add(T* e, int64_t key) {
    Slot* const s = find(key);
    Link::chain_next(e) = nullptr;
    if (s->first) {
      Link::chain_prev(e) = s->last;
      Link::chain_next(s->last) = e;
    } else {
      Link::chain_prev(e) = nullptr;
      s->key = key;
      s->first = e;
      ++keys_;
    }
    s->last = e;
    ++size_;
  }

  void remove(T* e, int64_t key) {
    Slot* const s = find(key);
    BFO_DCHECK(s->first != nullptr);
    T* const n = Link::chain_next(e);
    T* const p = Link::chain_prev(e);
    (p ? Link::chain_next(p) : s->first) = n;
    (n ? Link::chain_prev(n) : s->last) = p;
    --size_;
    if (!s->first) vacate(static_cast<uint32_t>(s - slots()));
  }

 private:
  struct Slot {
    int64_t key;
    T* first;  ///< nullptr: no key is here
    T* last;
  };
  static constexpr unsigned kFirst = 6;

  explicit KeyIndex(unsigned log2_slots) : mask_((1u << log2_slots) - 1), log2_(log2_slots) {}

  Slot* slots() { return reinterpret_cast<Slot*>(this + 1); }
  uint32_t home(int64_t key) const {
    auto k = static_cast<uint64_t>(key);
    k ^= k >> 32;
    return static_cast<uint32_t>(k * 0x9e3779b97f4a7c15u >> (64 - log2_));
  }
  /// The slot of `key`, or the one where it would be put.
  Slot* find(int64_t key) {
    uint32_t i = home(key);
    while (slots()[i].first && slots()[i].key != key) i = (i + 1) & mask_;
    return slots() + i;
  }
  /// The slot at `hole` is empty now: later keys that it would hide are moved.
  void vacate(uint32_t hole) {
    --keys_;
    for (uint32_t i = (hole + 1) & mask_; slots()[i].first; i = (i + 1) & mask_) {
      if (((i - home(slots()[i].key)) & mask_) < ((i - hole) & mask_))
        continue;  // its own place is behind the hole
      slots()[hole] = slots()[i];
      slots()[i].first = nullptr;
      hole = i;
    }
  }

  uint32_t keys_ = 0;
  uint32_t size_ = 0;
  uint32_t mask_;
  uint32_t log2_;
};

}  // namespace bfo::xfer
