// SPDX-License-Identifier: BSD-3-Clause
//
// rail_map.h: finds the engine's rail for the BTL endpoint that a callback names. A hash table with open
// addressing that grows and never shrinks; a one-entry cache in front of it serves repeated callbacks of one
// rail. Any thread may use it. No other lock is taken while the lock of its slots is held.
//
// The state of a rail is read from its BTL before the rail is in the map, and the BTL reports every change
// once. A change that another thread receives in between must not be lost. So whoever adds a rail holds
// Adding from before it reads the state until the rail is in the map. find() does not report a rail as
// unknown while somebody holds Adding. If a rail is unknown after that, its state will be read after the
// change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pml/bfo/glue/btl_port.h"
#include "pml/bfo/glue/lock.h"

namespace bfo::glue {

class RailMap {
  class Held {
   public:
    explicit Held(Lock& lock) : lock_(lock) { lock_.lock(); }
    ~Held() { lock_.unlock(); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    Lock& lock_;
  };

 public:
  // Rails are being added. Taken under the engine's lock; inside, nothing waits for another thread's
  // callbacks.
  class Adding {
   public:
    explicit Adding(RailMap& map) : held_(map.adding_) {}

   private:
    Held held_;
  };

  void insert(const void* endpoint, Rail* rail) {
    const Held held(lock_);
    if ((used_ + 1) * 2 > slots_.size()) grow();
    place(endpoint, rail);
    ++used_;
    last_ = {endpoint, rail};
  }
  // nullptr: not known, and what happened to it before this call will be seen by whoever adds it.
  Rail* find(const void* endpoint) {
    if (Rail* rail = look(endpoint); OPAL_LIKELY(rail != nullptr)) return rail;
    const Held nobody_adds(adding_);
    return look(endpoint);
  }
  // The endpoint is not named by any callback from now on.
  void forget(const void* endpoint) {
    const Held held(lock_);
    last_ = {};
    if (slots_.empty()) return;
    for (size_t i = hash(endpoint);; ++i) {
      Slot& slot = slots_[i & (slots_.size() - 1)];
      if (slot.endpoint == nullptr) return;
      if (slot.endpoint != endpoint) continue;
      slot.rail = nullptr;  // the slot stays taken: others may lie behind it
      return;
    }
  }

 private:
  struct Slot {
    const void* endpoint = nullptr;
    Rail* rail = nullptr;
  };
  Rail* look(const void* endpoint) {
    const Held held(lock_);
    if (last_.endpoint == endpoint) return last_.rail;
    if (slots_.empty()) return nullptr;
    for (size_t i = hash(endpoint);; ++i) {
      const Slot& slot = slots_[i & (slots_.size() - 1)];
      if (slot.endpoint == nullptr) return nullptr;
      if (slot.endpoint == endpoint) {
        last_ = slot;
        return slot.rail;
      }
    }
  }
  static size_t hash(const void* p) {
    return static_cast<size_t>((reinterpret_cast<uintptr_t>(p) >> 4) * 0x9e3779b97f4a7c15ull >> 20);
  }
  void place(const void* endpoint, Rail* rail) {
    for (size_t i = hash(endpoint);; ++i) {
      Slot& slot = slots_[i & (slots_.size() - 1)];
      if (slot.endpoint != nullptr && slot.endpoint != endpoint) continue;
      slot = {endpoint, rail};
      return;
    }
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.endpoint != nullptr) place(slot.endpoint, slot.rail);
    }
  }

  Lock adding_;
  Lock lock_;
  std::vector<Slot> slots_;
  size_t used_ = 0;
  Slot last_;
};

}  // namespace bfo::glue
