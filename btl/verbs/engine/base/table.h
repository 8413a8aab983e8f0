// SPDX-License-Identifier: BSD-3-Clause
//
// table.h: an open-addressing hash table from a 64-bit key to a pointer. find() is on the receive path: one
// multiply, usually one probe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "btl/verbs/engine/base/memory.h"

namespace bfo::engine {

/// What a table keeps of one value. The key of nullptr is never asked for.
template <class T>
struct KeyedCell {
  uint64_t own_key;
  T* value;
  uint64_t key() const { return own_key; }
  static KeyedCell of(uint64_t key, T* value) { return {key, value}; }
};

/// Maps a key to a T*. Not thread-safe; the owner serialises. Keys are unique; nullptr is not a value.
template <class T, class Cell = KeyedCell<T>>
class Table {
 public:
  /// The value of `key`, or nullptr.
  T* find(uint64_t key) const {
    if (used_ == 0) return nullptr;
    for (size_t i = home(key);; i = (i + 1) & mask_) {
      const Cell& cell = cells_[i];
      if (cell.value == nullptr) return nullptr;
      if (cell.key() == key) return cell.value;
    }
  }

  /// Adds or replaces. False when memory is short.
  bool insert(uint64_t key, T* value) {
    if ((used_ + 1) * 2 > cells_.size() && !grow()) return false;
    place(key, value);
    return true;
  }

  /// Removes `key` when present. Later cells of the same run are moved up, so no tombstones accumulate.
  void erase(uint64_t key) {
    if (used_ == 0) return;
    size_t hole = home(key);
    for (;; hole = (hole + 1) & mask_) {
      if (cells_[hole].value == nullptr) return;
      if (cells_[hole].key() == key) break;
    }
    for (size_t next = (hole + 1) & mask_; cells_[next].value != nullptr; next = (next + 1) & mask_) {
      const size_t distance_home = (next - home(cells_[next].key())) & mask_;
      const size_t distance_hole = (next - hole) & mask_;
      if (distance_home < distance_hole) continue;
      cells_[hole] = cells_[next];
      hole = next;
    }
    cells_[hole] = Cell{};
    --used_;
  }

  size_t size() const { return used_; }

 private:
  size_t home(uint64_t key) const { return (key * 0x9e3779b97f4a7c15ull >> 32) & mask_; }

  void place(uint64_t key, T* value) {
    size_t i = home(key);
    for (; cells_[i].value != nullptr && cells_[i].key() != key; i = (i + 1) & mask_) {
    }
    if (cells_[i].value == nullptr) ++used_;
    cells_[i] = Cell::of(key, value);
  }

  bool grow() {
    Array<Cell> old;
    old.swap(cells_);
    const size_t count = old.size() == 0 ? 16 : old.size() * 2;
    if (!cells_.reset(count)) {
      old.swap(cells_);
      return false;
    }
    mask_ = count - 1;
    used_ = 0;
    for (size_t i = 0; i < old.size(); ++i) {
      if (old[i].value != nullptr) place(old[i].key(), old[i].value);
    }
    return true;
  }

  Array<Cell> cells_;
  size_t mask_ = 0;
  size_t used_ = 0;
};

}  // namespace bfo::engine
