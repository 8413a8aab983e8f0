// SPDX-License-Identifier: BSD-3-Clause
//
// The process-shared lock: one word in shared memory that names its owner, so that the death of the owner at
// any instruction can be noticed and the lock taken over.
//
// LOCK ORDER (a thread may only take a lock that stands further down than all it holds):
//   1 process-local lists (engine/process.h)
//   2 QpEntry::sq_lock of an own QP
//   3 QpEntry::resp_lock of one QP, the own one or the peer's, never two at a time
//   4 SrqEntry::take_lock
//   5 CqEntry::push_lock
//   6 FabricHeader::{registry,heap,atomic,late_write}_lock, ContextEntry::ring_lock: leaves, one at a time
// CqEntry::poll_lock, QpEntry::post_lock and SrqEntry::post_lock belong to threads of the owning process
// only; they come before 5 and are never held together with 2 or 3 taken later.
#pragma once

#include <atomic>
#include <cstdint>

namespace bfo::softhca {

/// Names a thread of a process of the fabric: generation of the process slot, slot, lease of the thread.
using OwnerTag = uint32_t;
inline constexpr uint32_t kOwnerGenerationMask = 0x7fff;
inline constexpr uint32_t kOwnerCommitted = 0x40000000u;

constexpr OwnerTag make_owner(uint32_t slot, uint32_t generation, uint32_t lease) {
  return 0x80000000u | ((generation & kOwnerGenerationMask) << 15) | ((slot & 0x1ff) << 6) | (lease & 0x3f);
}
constexpr uint32_t owner_slot(OwnerTag tag) {
  return (tag >> 6) & 0x1ff;
}
constexpr uint32_t owner_generation(OwnerTag tag) {
  return (tag >> 15) & kOwnerGenerationMask;
}
constexpr uint32_t owner_lease(OwnerTag tag) {
  return tag & 0x3f;
}

/// Answers whether an owner is dead, and revokes the copy it may be in (see fabric/copy.h).
class OwnerOracle {
 public:
  /// True when the lock may be taken over: the owner is dead, or is stopped inside a copy that was revoked.
  virtual bool may_take_over(OwnerTag owner) = 0;

 protected:
  ~OwnerOracle() = default;
};

struct Lock {
  std::atomic<uint32_t> word{0};

  bool try_acquire(OwnerTag self) {
    uint32_t expected = 0;
    return word.compare_exchange_strong(expected, self, std::memory_order_acquire, std::memory_order_relaxed);
  }
  /// Blocks; takes over from a dead owner. Threads of any process.
  void acquire(OwnerTag self, OwnerOracle& oracle) {
    if (!try_acquire(self)) [[unlikely]]
      acquire_slow(self, oracle);
  }
  void release() { word.store(0, std::memory_order_release); }
  /// At the end of a section in which the lock could be taken over: that is not possible any more. False when
  /// another thread has taken it over; then this one must not release it.
  bool commit(OwnerTag self) {
    uint32_t expected = self;
    return word.compare_exchange_strong(expected, self | kOwnerCommitted, std::memory_order_acq_rel) ||
           expected == (self | kOwnerCommitted);
  }

 private:
  void acquire_slow(OwnerTag self, OwnerOracle& oracle);
};

/// Holds a Lock for a scope.
class Guard {
 public:
  Guard(Lock& lock, OwnerTag self, OwnerOracle& oracle) : lock_(&lock) { lock.acquire(self, oracle); }
  ~Guard() {
    if (lock_ != nullptr) lock_->release();
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  void unlock() {
    lock_->release();
    lock_ = nullptr;
  }
  /// Does not release the lock at the end of the scope: another thread has taken it over.
  void abandon() { lock_ = nullptr; }

 private:
  Lock* lock_;
};

}  // namespace bfo::softhca
