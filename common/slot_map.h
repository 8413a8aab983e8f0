// SPDX-License-Identifier: BSD-3-Clause
//
// slot_map.h: the table behind wire names (ids.h): slot and generation to object.
//
// Slots are reused first-in first-out, so that a generation comes round as late as possible (H17). A name
// that was released is told apart from one that was never issued: "finished" is a proof, "unknown" is not
// (H7). The first generation is the owner's choice: tables that begin apart have no name in common for long.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>
#include <cstdlib>

#include "common/check.h"
#include "common/ids.h"

namespace bfo {

enum class NameState : uint8_t {
  kLive,      ///< in use
  kFinished,  ///< was in use and ended well
  kFailed,    ///< was in use and ended with an error
  kNever      ///< never issued: forged, or from another life
};

/// The generation of a slot.
class Generation {
 public:
  /// From 1 to Name::kGenMask.
  explicit Generation(uint32_t first) : now_(first) {}
  uint32_t now() const { return now_; }
  /// The next one. `first`: the one that it began with.
  void next(uint32_t first) {
    now_ = (now_ + 1) & Name::kGenMask;
    if (now_ == 0) now_ = 1;
    if (now_ == first) [[unlikely]]
      round_ = true;
  }
  /// Was `g` issued before the present one?
  bool issued_before(uint32_t g, uint32_t first) const {
    const uint32_t age = (now_ - g) & Name::kGenMask;
    if (age == 0 || age >= 1u << (Name::kGenBits - 1)) return false;
    return round_ || age <= ((now_ - first) & Name::kGenMask);
  }

 private:
  uint32_t now_;
  bool round_ = false;  ///< all were issued
};

template <class T>
class SlotMap {
 public:
  /// `max`: names in use at once, at most all there are. `first`: the first generation of each slot, from 1
  /// to Name::kGenMask.
  explicit SlotMap(uint32_t max = Name::kSlotMask + 1, uint32_t first = 1) : max_(max), first_(first) {}
  SlotMap(const SlotMap&) = delete;
  SlotMap& operator=(const SlotMap&) = delete;
  ~SlotMap() { std::free(slots_); }

  /// A fresh name for `object` in round kFirstRound; a zero name when all are taken, or there is no
  /// memory for more.
  Name insert(T* object) {
    if (free_count_ < kMinFree && size_ <= Name::kSlotMask) grow();
    if (free_head_ == kNil || live_ >= max_) return Name();
    const uint32_t i = free_head_;
    Slot& s = slots_[i];
    free_head_ = s.next;
    if (free_head_ == kNil) free_tail_ = kNil;
    --free_count_;
    s.object = object;
    ++live_;
    return Name(i, s.gen.now(), kFirstRound);
  }

  /// Release a live name. `failed`: the slot is never used again and remembers the bad end, so that the
  /// peer's question is answered with the truth.
  void erase(Name name, bool failed = false) {
    Slot& s = slots_[name.slot()];
    BFO_CHECK(s.object != nullptr && s.gen.now() == name.gen());
    s.object = nullptr;
    --live_;
    if (failed) {
      s.failed = true;
      return;
    }
    s.gen.next(first_);
    push_free(name.slot());
  }

  /// The object, or nullptr with the reason in `state`.
  T* find(Name name, NameState& state) const {
    state = NameState::kNever;
    if (name.slot() >= size_ || name.gen() == 0) return nullptr;
    const Slot& s = slots_[name.slot()];
    if (s.gen.now() == name.gen()) {
      if (s.object != nullptr) {
        state = NameState::kLive;
        return s.object;
      }
      if (s.failed) state = NameState::kFailed;
      return nullptr;  // free: this generation has not been issued yet
    }
    if (s.gen.issued_before(name.gen(), first_)) state = NameState::kFinished;
    return nullptr;
  }
  T* find(Name name) const {
    NameState ignored;
    return find(name, ignored);
  }

  uint32_t live() const { return live_; }

 private:
  static constexpr uint32_t kNil = 0xffffffffu;
  static constexpr uint32_t kMinFree = 64;  ///< keep a reserve: no slot is reused at once
  struct Slot {
    T* object;
    uint32_t next;
    Generation gen;
    bool failed;
  };

  void push_free(uint32_t i) {
    slots_[i].next = kNil;
    if (free_tail_ == kNil)
      free_head_ = i;
    else
      slots_[free_tail_].next = i;
    free_tail_ = i;
    ++free_count_;
  }

  [[gnu::cold]] void grow() {
    uint32_t want = size_ == 0 ? 256 : size_ * 2;
    if (want > Name::kSlotMask + 1) want = Name::kSlotMask + 1;
    auto* p = static_cast<Slot*>(std::realloc(slots_, want * sizeof(Slot)));
    if (p == nullptr) return;  // what is left of the reserve is used up first
    slots_ = p;
    for (uint32_t i = size_; i < want; ++i) {
      slots_[i] = Slot{nullptr, kNil, Generation(first_), false};
      push_free(i);
    }
    size_ = want;
  }

  const uint32_t max_;
  const uint32_t first_;
  Slot* slots_ = nullptr;
  uint32_t size_ = 0;
  uint32_t live_ = 0;
  uint32_t free_head_ = kNil;
  uint32_t free_tail_ = kNil;
  uint32_t free_count_ = 0;
};

}  // namespace bfo
