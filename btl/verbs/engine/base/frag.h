// SPDX-License-Identifier: BSD-3-Clause
//
// frag.h: one piece of work as the engine sees it. The glue embeds it in its descriptor; the engine links,
// posts and ends it, never allocates it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/failover_btl.h"

namespace bfo::engine {

/// What a piece of work is; the index of its row in bfo_accounting_t.
enum class Kind : uint8_t {
  kSend = BFO_KIND_SEND,
  kSendi = BFO_KIND_SENDI,
  kPut = BFO_KIND_PUT,
  kGet = BFO_KIND_GET,
  kControl = BFO_KIND_CONTROL,
};

/// Work given to send(), put() or get(). From an accepting call until frag_done() the engine owns it and its
/// local memory must stay as it is.
struct Frag {
  Frag* next = nullptr;  ///< in a FragFifo
  void* data = nullptr;  ///< local memory, registered under lkey
  uint32_t length = 0;   ///< bytes
  uint32_t lkey = 0;
  uint64_t remote_address = 0;  ///< put, get
  uint32_t rkey = 0;            ///< put, get
  Kind kind = Kind::kSend;
  uint8_t tag = 0;        ///< send: active message tag
  bool signaled = false;  ///< its end must be reported as soon as it is known, not with the next completion
                          ///< that retires it
};

/// An intrusive first-in first-out list of fragments, a ring: every known peer has one.
class FragFifo {
 public:
  bool empty() const { return last_ == nullptr; }
  Frag* front() const { return last_->next; }
  void push(Frag* frag) {
    frag->next = last_ == nullptr ? frag : last_->next;
    if (last_ != nullptr) last_->next = frag;
    last_ = frag;
    ++size_;
  }
  Frag* pop() {
    Frag* const frag = last_->next;
    last_->next = frag->next;
    if (frag == last_) last_ = nullptr;
    frag->next = nullptr;
    --size_;
    return frag;
  }
  size_t size() const { return size_; }

 private:
  Frag* last_ = nullptr;
  uint32_t size_ = 0;
};

}  // namespace bfo::engine
