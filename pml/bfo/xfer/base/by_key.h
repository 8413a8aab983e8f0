// SPDX-License-Identifier: BSD-3-Clause
//
// by_key.h: elements by a key that no two of them share. A hash table of pointers with open addressing, at
// most half full: adding, finding and removing take the same time for any number of elements. An empty one
// has no memory. Used under the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

namespace bfo::xfer {

/// `Key::of(e)` must not change while `e` is in the table. Its memory is that of the port that the functions
/// are called with: drop() gives it back. The elements are their owner's. For at most 2^31 elements.
template <class T, class Key>
class ByKey {
 public:
  /// Is there a table? It may be empty.
  bool made() const { return table_ != nullptr; }
  size_t size() const { return table_ ? table_->used : 0; }
  bool empty() const { return size() == 0; }

  /// Makes an empty table. False: no memory.
  template <class Port>
  bool make(Port& port) {
    return grow(port, kFirst);
  }

  /// The element with `key`, or nullptr.
  T* find(uint64_t key) const { return table_ ? *place(*table_, key) : nullptr; }

  /// An element with the same key that is here already stays instead. False: no memory, and nothing has
  /// changed.
  template <class Port>
  bool add(Port& port, T* e) {
    if (!table_ && !make(port)) return false;
    if (2 * (table_->used + 1) > table_->mask && !grow(port, 2 * (table_->mask + 1))) return false;
    T** const at = place(*table_, Key::of(e));
    if (*at) return true;
    *at = e;
    ++table_->used;
    return true;
  }

  /// No-op when another element has its key.
  void remove(T* e) {
    if (!table_) return;
    T** const at = place(*table_, Key::of(e));
    if (*at != e) return;
    --table_->used;
    vacate(*table_, static_cast<uint32_t>(at - table_->slots()));
  }

  /// Any element, or nullptr, when all of them go: `next` is 0 at first.
  T* each(uint32_t& next) const {
    while (table_ && next <= table_->mask)
      if (T* const e = table_->slots()[next++]) return e;
    return nullptr;
  }

  /// Forgets the elements without touching them.
  template <class Port>
  void drop(Port& port) {
    port.free(table_);
    table_ = nullptr;
  }

 private:
  struct Table {
    uint32_t used;
    uint32_t mask;
    T** slots() { return reinterpret_cast<T**>(this + 1); }
  };
  static constexpr uint32_t kFirst = 32;  // slots

  static uint32_t home(const Table& t, uint64_t key) {
    key ^= key >> 32;
    return static_cast<uint32_t>(key * 0x9e3779b97f4a7c15u >> 32) & t.mask;
  }
  /// The slot of the element with `key`, or the empty one where it would be.
  static T** place(Table& t, uint64_t key) {
    T** const slots = t.slots();
    uint32_t i = home(t, key);
    while (slots[i] && Key::of(slots[i]) != key) i = (i + 1) & t.mask;
    return slots + i;
  }
  /// The slot at `hole` becomes empty: later elements that it would hide are moved.
  static void vacate(Table& t, uint32_t hole) {
    T** const slots = t.slots();
    slots[hole] = nullptr;
    for (uint32_t i = (hole + 1) & t.mask; slots[i]; i = (i + 1) & t.mask) {
      if (((i - home(t, Key::of(slots[i]))) & t.mask) < ((i - hole) & t.mask))
        continue;  // its own place is behind the hole
      slots[hole] = slots[i];
      slots[i] = nullptr;
      hole = i;
    }
  }
  template <class Port>
  bool grow(Port& port, uint32_t slots) {
    const size_t bytes = sizeof(Table) + slots * sizeof(T*);
    void* const memory = port.alloc(bytes);
    if (!memory) return false;
    std::memset(memory, 0, bytes);
    auto* const grown = ::new (memory) Table{0, slots - 1};
    uint32_t next = 0;
    while (T* const e = each(next)) *place(*grown, Key::of(e)) = e;
    grown->used = static_cast<uint32_t>(size());
    port.free(table_);
    table_ = grown;
    return true;
  }

  Table* table_ = nullptr;
};

}  // namespace bfo::xfer
