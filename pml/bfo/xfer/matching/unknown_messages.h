// SPDX-License-Identifier: BSD-3-Clause
//
// unknown_messages.h: messages for communicators that this process has not made yet, and the bytes that each
// sender has here. Owns no memory but the indexes of its queues, which is that of the `memory` each function
// is called with; the messages belong to the engine (match.h). Used under the engine's lock.
#pragma once

#include <cstdint>

#include "pml/bfo/core/wire.h"
#include "pml/bfo/xfer/args.h"
#include "pml/bfo/xfer/calls.h"
#include "pml/bfo/xfer/rails/rail_state.h"
#include "pml/bfo/xfer/matching/unexpected.h"

namespace bfo::xfer {

template <class P>
class UnknownMessages {
 public:
  using Message = Unexpected<P>;

  /// Who may have how much here: each peer; together the senders over BTLs that name a sender with which this
  /// process has nothing yet; and together those over BTLs that name nobody.
  struct Sender {
    const Rail<P>* rail = nullptr;
    bool named = false;
    static Sender of(const Arrival<P>& a) { return {a.rail, a.rail || a.epoch != 0}; }
    static Sender of(const Message& m) { return {m.rail, m.rail || m.epoch != 0}; }
  };

  /// The message with the header `h` that came from `s`.
  template <class Memory>
  Message* find(Memory& memory, const core::MatchHdr& h, const Sender& s) {
    const auto* const sender = MessageKey::sender_of(s.rail);
    Message* const m = queue(s.named).find(memory, MessageKey::of(h, sender));
    const bool same = m && m->match.ctx == h.ctx && m->match.seq == h.seq && m->match.src == h.src &&
                      MessageKey::sender_of(m->rail) == sender;
    return same ? m : nullptr;
  }
  /// May a message of `size` bytes from `s` be added, when a sender may have `limit` bytes here?
  bool fits(const Sender& s, size_t size, uint64_t limit) {
    return held(s) + sizeof(Message) + size <= limit;
  }
  /// The same when its `size` bytes take the place of those of `m`.
  bool fits_instead(const Message& m, size_t size, uint64_t limit) {
    return held(Sender::of(m)) - cost(m) + cost(m.room, size) <= limit;
  }
  template <class Memory>
  void add(Memory& memory, Message* m) {
    count(*m);
    queue(Sender::of(*m).named).push_back(memory, m);
    by_comm_.push_back(memory, m);
  }
  /// The oldest message of context `ctx`, removed; nullptr: there is none.
  template <class Memory>
  Message* take(Memory& memory, uint16_t ctx) {
    Message* const m = by_comm_.find(memory, ctx);
    if (m) remove(memory, m);
    return m;
  }
  /// The oldest message of nobody's name, removed; nullptr: there is none.
  template <class Memory>
  Message* take_oldest_anonymous(Memory& memory) {
    Message* const m = anonymous_.front();
    if (m) remove(memory, m);
    return m;
  }
  template <class Memory>
  void remove(Memory& memory, Message* m) {
    by_comm_.remove(memory, m);
    queue(Sender::of(*m).named).remove(memory, m);
    uncount(*m);
  }
  /// Any message, removed, when the engine ends: what is held is not counted any more.
  template <class Memory>
  Message* pop(Memory& memory) {
    Message* m = named_.pop_front(memory);
    if (!m) m = anonymous_.pop_front(memory);
    if (m) by_comm_.remove(memory, m);
    return m;
  }
  /// Around a change of the message's bytes or rail.
  void uncount(const Message& m) { held(Sender::of(m)) -= cost(m); }
  void count(const Message& m) { held(Sender::of(m)) += cost(m); }

 private:
  /// What counts against the sender's allowance: all that is allocated for a message.
  static uint64_t cost(const Message& m) { return cost(m.room, m.separate() ? m.size : 0); }
  /// Of a message with `room` bytes of its own, when the newest ones are `size`.
  static uint64_t cost(size_t room, size_t size) { return sizeof(Message) + room + (size > room ? size : 0); }
  uint64_t& held(const Sender& s) {
    return s.rail ? s.rail->peer->unknown_held : s.named ? unmet_held_ : anonymous_held_;
  }
  MessageQueue<P, MessageKey>& queue(bool named) { return named ? named_ : anonymous_; }

  MessageQueue<P, MessageKey> named_;
  MessageQueue<P, MessageKey> anonymous_;
  CommQueue<P, ContextKey> by_comm_;  ///< all of them, by communicator
  uint64_t unmet_held_ = 0;
  uint64_t anonymous_held_ = 0;
};

}  // namespace bfo::xfer
