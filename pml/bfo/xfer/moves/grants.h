// SPDX-License-Identifier: BSD-3-Clause
//
// grants.h: PUT, at the sender: which grants of this round have arrived, and those that have to be written,
// in order of arrival. The receiver numbers the grants of a round from 1. Missing numbers are under way on
// other rails, so a number far ahead of the first missing one is forged. Records come from a pool and go back
// to it. Used under the engine's lock.
#pragma once

#include <cstdint>

#include "common/ranges.h"
#include "pml/bfo/xfer/args.h"
#include "pml/bfo/xfer/base/pool.h"
#include "pml/bfo/xfer/port.h"

namespace bfo::xfer {

/// A range that the receiver allows to be written over one rail.
template <class P>
struct Grant {
  Grant* next = nullptr;
  Rail<P>* rail = nullptr;
  uint32_t epoch = 0;
  uint32_t number = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t address = 0;
  HandleBytes handle;
};

template <class P>
using GrantPool = Pool<Grant<P>, &Grant<P>::next>;

template <class P>
class Grants {
 public:
  using GrantT = Grant<P>;
  enum class Arrival : uint8_t { kNew, kDuplicate, kForged };
  /// Grants of a message that may be open at once. An honest receiver has at most pipeline depth times rails.
  static constexpr uint32_t kMost = 1024 * kMaxRails;

  /// Has any to be written over `rail`?
  bool any_over(const Rail<P>& rail) const {
    const GrantT* g = first_;
    while (g && g->rail != &rail) g = g->next;
    return g != nullptr;
  }
  /// Nothing has to be written.
  bool empty() const { return first_ == nullptr; }

  /// Grant `number` has arrived.
  Arrival arrive(uint32_t number) {
    const Range seen = arrived_.front();
    const uint32_t unseen = seen.begin == 1 ? static_cast<uint32_t>(seen.end) : 1;
    if ((number > unseen && number - unseen >= kMost) || n_ >= kMost) return Arrival::kForged;
    return arrived_.add(number, uint64_t{number} + 1) == 0 ? Arrival::kDuplicate : Arrival::kNew;
  }
  /// There was no memory to note every arrival.
  bool incomplete() const { return arrived_.incomplete(); }
  /// A round begins that has no grant yet.
  void forget_arrivals() { arrived_.clear(); }

  /// `g` waits to be written.
  void push_back(GrantT* g) {
    ++n_;
    (last_ ? last_->next : first_) = g;
    last_ = g;
  }
  /// Calls `write` for each that waits, in order. True: it waits on. Else its record goes back to `pool`.
  template <class Write>
  void each(GrantPool<P>& pool, Write write) {
    GrantT* last = nullptr;
    for (GrantT** at = &first_; *at;) {
      GrantT* const g = *at;
      if (write(*g)) {
        last = g;
        at = &g->next;
        continue;
      }
      *at = g->next;
      pool.give(g);
      --n_;
    }
    last_ = last;
  }
  void clear(GrantPool<P>& pool) {
    while (GrantT* const g = first_) {
      first_ = g->next;
      pool.give(g);
    }
    last_ = nullptr;
    n_ = 0;
    arrived_.clear();
  }

 private:
  GrantT* first_ = nullptr;
  GrantT* last_ = nullptr;
  uint32_t n_ = 0;            ///< those that wait
  RangeSetWithRoom arrived_;  ///< their numbers, to recognise duplicates
};

}  // namespace bfo::xfer
