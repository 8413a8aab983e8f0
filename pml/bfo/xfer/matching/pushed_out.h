// SPDX-License-Identifier: BSD-3-Clause
//
// pushed_out.h: messages for communicators that this process has not made yet which had to go, because others
// came and their BTLs do not say who sends. Whom that concerns is known when the communicator is made: the
// process of the rank that the header named. Owns its records, whose memory is the port's: free_all() gives
// it back. Used under the engine's lock.
#pragma once

#include <cstdint>
#include <cstring>
#include <new>

#include "pml/bfo/xfer/base/by_key.h"

namespace bfo::xfer {

class PushedOut {
 public:
  /// So many ranks are known one by one; of the contexts of further ones only that it may be any rank.
  static constexpr size_t kMost = 16384;

  /// A message of rank `rank` in context `ctx`. False: no memory, and nothing is noted.
  template <class Port>
  bool note(Port& port, uint16_t ctx, int32_t rank) {
    const uint64_t key = Place::key(ctx, rank);
    if (all_.find(key)) return true;
    if (all_.size() == kMost) return note_any(port, ctx);
    void* const memory = port.alloc(sizeof(Record));
    if (!memory) return false;
    auto* const r = ::new (memory) Record{key};
    if (all_.add(port, r)) return true;
    port.free(r);
    return false;
  }

  /// Context `ctx` has a communicator of `size` ranks now: calls lost(rank) for each that had a message here.
  /// True: it may have been any rank.
  template <class Port, class Lost>
  [[gnu::cold]] bool take(Port& port, uint16_t ctx, int32_t size, Lost lost) {
    // What follows a record that is removed may move into its place.
    for (uint32_t next = 0; Record* const r = all_.each(next);) {
      if (r->key >> 32 != ctx) continue;
      --next;
      const auto rank = static_cast<int32_t>(static_cast<uint32_t>(r->key));
      all_.remove(r);
      port.free(r);
      if (rank >= 0 && rank < size) lost(rank);
    }
    if (!any_ || (any_[ctx / 64] >> (ctx % 64) & 1) == 0) return false;
    any_[ctx / 64] &= ~(uint64_t{1} << (ctx % 64));
    return true;
  }
  bool empty() const { return all_.empty() && !any_; }

  template <class Port>
  void free_all(Port& port) {
    uint32_t next = 0;
    while (Record* const r = all_.each(next)) port.free(r);
    all_.drop(port);
    port.free(any_);
    any_ = nullptr;
  }

 private:
  struct Record {
    uint64_t key;
  };
  struct Place {
    static uint64_t key(uint16_t ctx, int32_t rank) {
      return uint64_t{ctx} << 32 | static_cast<uint32_t>(rank);
    }
    static uint64_t of(const Record* r) { return r->key; }
  };
  static constexpr size_t kContexts = 65536;

  template <class Port>
  [[gnu::cold]] bool note_any(Port& port, uint16_t ctx) {
    if (!any_) {
      any_ = static_cast<uint64_t*>(port.alloc(kContexts / 8));
      if (!any_) return false;
      std::memset(any_, 0, kContexts / 8);
    }
    any_[ctx / 64] |= uint64_t{1} << (ctx % 64);
    return true;
  }

  ByKey<Record, Place> all_;
  uint64_t* any_ = nullptr;  ///< a bit for each context
};

}  // namespace bfo::xfer
