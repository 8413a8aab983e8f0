// SPDX-License-Identifier: BSD-3-Clause
//
// completions.h: the messages under way that complete a send of the peer, and the rail that carries them. Why
// they matter: order.h. Most of them have no record of a fragment ("brief"): all of those count as one, which
// has ended when the rail has ended the work that it had when it was asked first. Only a pointer: the rail
// belongs to the peer. Used under the engine's lock. Needs no memory, cannot fail.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/check.h"
#include "pml/bfo/core/wire.h"
#include "pml/bfo/xfer/rails/rail_state.h"

namespace bfo::xfer {

/// Is `bytes` a message that completes a send of the peer? Of a stored message: no other one does.
inline bool completes_send(const void* bytes) {
  switch (*static_cast<const core::MsgType*>(bytes)) {
    case core::MsgType::kAck:
    case core::MsgType::kRestartNack:
      return true;
    case core::MsgType::kFin: {
      core::FinHdr h;
      std::memcpy(&h, bytes, sizeof h);
      return h.to_send != 0;
    }
    default:
      return false;
  }
}

template <class P>
class Completions {
 public:
  using RailT = Rail<P>;

  /// Is one under way?
  bool any() const { return out_ != 0; }
  /// The rail that carries them, and the user's messages meanwhile; nullptr: none is under way.
  RailT* rail() const { return rail_; }

  /// `rail` accepted one that has a record. Returns the turn, for end(). A turn is never 0.
  uint32_t begin(RailT& rail) {
    add_one();
    rail_ = &rail;
    return turn_;
  }
  /// One of `turn` has ended, or came back. True: it was the last one.
  bool end(uint32_t turn) {
    if (turn == 0 || turn != turn_ || out_ == 0) return false;
    return remove_one();
  }

  /// `rail` keeps one without a record.
  void begin_brief(RailT& rail) {
    if (!brief_) {
      brief_ = true;
      add_one();
      rail_ = &rail;
    }
    checkpoint_ = 0;
    asked_ = 0;
  }
  /// Their end is of interest now: is the rail to be asked for its work? The first time, and then now and
  /// then: asking a rail may make it work.
  bool asks() { return brief_ && asked_++ % kAskEvery == 0; }
  /// The answer. True: those without a record have ended, and no other one is under way.
  bool end_brief(const WorkCount& work) {
    if (checkpoint_ == 0) checkpoint_ = work.taken;
    if (work.ended < checkpoint_) return false;
    brief_ = false;
    return remove_one();
  }

  /// What its rail carried is sent again, or never: the order begins anew.
  void clear() {
    rail_ = nullptr;
    out_ = 0;
    brief_ = false;
  }

 private:
  static constexpr uint8_t kAskEvery = 16;
  void add_one() {
    if (out_++ == 0 && ++turn_ == 0) turn_ = 1;
  }
  bool remove_one() {
    BFO_DCHECK(out_ != 0);
    if (--out_ != 0) return false;
    rail_ = nullptr;
    return true;
  }

  RailT* rail_ = nullptr;
  uint32_t out_ = 0;         ///< messages under way; those without a record count as one
  uint32_t turn_ = 0;        ///< number of different values that `rail_` has had
  uint64_t checkpoint_ = 0;  ///< work that `rail_` must have ended; 0: not asked yet
  bool brief_ = false;       ///< one of `out_` stands for those without a record
  uint8_t asked_ = 0;        ///< how often their end was of interest since the last one
};

}  // namespace bfo::xfer
