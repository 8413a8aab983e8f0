// SPDX-License-Identifier: BSD-3-Clause
//
// pool.h: records that are used again. Owns those that are not in use; the part that took one gives it back
// before free_all(). A record keeps what it holds (the memory of its range sets) while it is unused: who
// takes one that must be empty makes it so. Used under the engine's lock.
#pragma once

#include <new>

namespace bfo::xfer {

/// `Next` links the unused records.
template <class T, T* T::*Next>
class Pool {
 public:
  /// An unused record, as it was given back, or a new one. nullptr: no memory.
  template <class Port>
  [[gnu::always_inline]] T* take(Port& port) {
    T* const t = unused_;
    if (!t) [[unlikely]]
      return make(port);
    unused_ = t->*Next;
    return t;
  }
  [[gnu::always_inline]] void give(T* t) {
    t->*Next = unused_;
    unused_ = t;
  }
  template <class Port>
  void free_all(Port& port) {
    while (T* const t = unused_) {
      unused_ = t->*Next;
      t->~T();
      port.free(t);
    }
  }

 private:
  template <class Port>
  [[gnu::cold, gnu::noinline]] static T* make(Port& port) {
    void* const memory = port.alloc(sizeof(T));
    return memory ? ::new (memory) T : nullptr;
  }

  T* unused_ = nullptr;
};

}  // namespace bfo::xfer
