// SPDX-License-Identifier: BSD-3-Clause
//
// unknown_messages.h: messages for communicators that this process has not made yet, and the bytes that each
// sender has here. Owns no memory but the indexes of its queues, which is that of the `memory` each function
// is called with; the messages belong to the engine (match.h). Used under the engine's lock.
#pragma once

#include <cstdint>

#include "pml/bfo/core/wire.h"
#include "pml/bfo/xfer/args.h"
#include "pml/bfo/xfer/rails/rail_state.h"
#include "pml/bfo/xfer/matching/unexpected.h"

namespace bfo::xfer {

template <class P>
class UnknownMessages {
 public:
  using Message = Unexpected<P>;

  /// The message with the header `h` that came over `rail` or another one of the same peer.
  template <class Memory>
  Message* find(Memory& memory, const core::MatchHdr& h, const Rail<P>* rail) {
    const auto* const sender = MessageKey::sender_of(rail);
    Message* const m = all_.find(memory, MessageKey::of(h, sender));
    const bool same = m && m->match.ctx == h.ctx && m->match.seq == h.seq && m->match.src == h.src &&
                      MessageKey::sender_of(m->rail) == sender;
    return same ? m : nullptr;
  }
  /// May a message of `size` bytes that came over `rail` be added, when a sender may have `limit` bytes here?
  bool fits(const Rail<P>* rail, size_t size, uint64_t limit) {
    return held(rail) + sizeof(Message) + size <= limit;
  }
  /// The same when its `size` bytes take the place of those of `m`.
  bool fits_instead(const Message& m, size_t size, uint64_t limit) {
    return held(m.rail) - cost(m) + cost(m.room, size) <= limit;
  }
  template <class Memory>
  void add(Memory& memory, Message* m) {
    count(*m);
    all_.push_back(memory, m);
    by_comm_.push_back(memory, m);
  }
  /// The oldest message of context `ctx`, removed; nullptr: there is none.
  template <class Memory>
  Message* take(Memory& memory, uint16_t ctx) {
    Message* const m = by_comm_.find(memory, ctx);
    if (!m) return nullptr;
    by_comm_.remove(memory, m);
    all_.remove(memory, m);
    uncount(*m);
    return m;
  }
  /// Any message, removed, when the engine ends: what is held is not counted any more.
  template <class Memory>
  Message* pop(Memory& memory) {
    Message* const m = all_.pop_front(memory);
    if (m) by_comm_.remove(memory, m);
    return m;
  }
  /// Around a change of the message's bytes or rail.
  void uncount(const Message& m) { held(m.rail) -= cost(m); }
  void count(const Message& m) { held(m.rail) += cost(m); }

 private:
  /// What counts against the sender's allowance: all that is allocated for a message.
  static uint64_t cost(const Message& m) { return cost(m.room, m.separate() ? m.size : 0); }
  /// Of a message with `room` bytes of its own, when the newest ones are `size`.
  static uint64_t cost(size_t room, size_t size) { return sizeof(Message) + room + (size > room ? size : 0); }
  /// The sum it is counted in: the sender's, or a common one for messages of BTLs that do not name senders.
  uint64_t& held(const Rail<P>* rail) { return rail ? rail->peer->unknown_held : anonymous_held_; }

  MessageQueue<P, MessageKey> all_;
  CommQueue<P, ContextKey> by_comm_;  ///< the same, by communicator
  uint64_t anonymous_held_ = 0;
};

}  // namespace bfo::xfer
