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

  template <class Memory>
  Message* find(Memory& memory, const core::MatchHdr& h) {
    return all_.find(memory, MessageKey::of(h));
  }
  /// May a message of `size` bytes that came over `rail` be added, when a sender may have `limit` bytes here?
  bool fits(const Rail<P>* rail, std::size_t size, std::uint64_t limit) {
    return held(rail) + std::uint64_t{cost(size)} <= limit;
  }
  template <class Memory>
  void add(Memory& memory, Message* m) {
    count(*m);
    all_.push_back(memory, m);
    by_comm_.push_back(memory, m);
  }
  /// The oldest message of context `ctx`, removed; nullptr: there is none.
  template <class Memory>
  Message* take(Memory& memory, std::uint16_t ctx) {
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
  /// Around a change of the message's size or rail.
  void uncount(const Message& m) { held(m.rail) -= cost(m.size); }
  void count(const Message& m) { held(m.rail) += cost(m.size); }

 private:
  /// What a message of `size` bytes counts against its sender's allowance.
  static std::uint32_t cost(std::size_t size) { return static_cast<std::uint32_t>(sizeof(Message) + size); }
  /// The sum it is counted in: the sender's, or a common one for messages of BTLs that do not name senders.
  std::uint32_t& held(const Rail<P>* rail) { return rail ? rail->peer->unknown_held : anonymous_held_; }

  MessageQueue<P, MessageKey> all_;
  CommQueue<P, ContextKey> by_comm_;  ///< the same, by communicator
  std::uint32_t anonymous_held_ = 0;
};

}  // namespace bfo::xfer
