// SPDX-License-Identifier: BSD-3-Clause
//
// past_sequences.h: the numbering of communicators that were freed, per peer. The next communicator with the
// same context id continues it, so that a late copy of an old message is recognised as a duplicate (H6). Owns
// its memory, which is the port's: free_all() gives it back. Used under the engine's lock.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>
#include <cstring>

#include "common/seq.h"

namespace bfo::xfer {

struct PastSequence {
  uint16_t ctx;
  Seq16 next_seq;
  Seq16 window_seq;
  Seq16 confirmed;
  Seq16 acked;
  Seq16 expected;
  Seq16 resent_from;
  uint16_t question;
  bool resent;
};

class PastSequences {
 public:
  /// The numbering of context `ctx`; nullptr: none was kept.
  PastSequence* find(uint16_t ctx) const {
    for (uint32_t i = 0; i < n_; ++i)
      if (at_[i].ctx == ctx) return &at_[i];
    return nullptr;
  }

  /// Keeps `now`, instead of an older one of the same context. Returns 0, or the number of bytes for which
  /// there was no memory; then nothing has changed.
  template <class Port>
  size_t keep(Port& port, const PastSequence& now) {
    if (PastSequence* const old = find(now.ctx)) {
      *old = now;
      return 0;
    }
    if (n_ == capacity_) {
      const uint32_t more = capacity_ ? capacity_ * 2 : 8;
      auto* const grown = static_cast<PastSequence*>(port.alloc(more * sizeof(PastSequence)));
      if (!grown) return more * sizeof(PastSequence);
      if (n_) std::memcpy(grown, at_, n_ * sizeof(PastSequence));
      if (at_) port.free(at_);
      at_ = grown;
      capacity_ = more;
    }
    at_[n_++] = now;
    return 0;
  }

  template <class Port>
  void free_all(Port& port) {
    if (at_) port.free(at_);
    at_ = nullptr;
    n_ = capacity_ = 0;
  }

 private:
  PastSequence* at_ = nullptr;
  uint32_t n_ = 0;
  uint32_t capacity_ = 0;
};

}  // namespace bfo::xfer
