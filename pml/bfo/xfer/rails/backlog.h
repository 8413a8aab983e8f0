// SPDX-License-Identifier: BSD-3-Clause
//
// backlog.h: what waits for the rails of a peer, in the order in which it is posted. Only lists: requests and
// fragment records belong to the port, those without a fragment record are memory of the port. Who puts
// something in activates the peer (Engine::activate). Used under the engine's lock. Needs no memory but for
// the index of a long queue, cannot fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pml/bfo/core/wire.h"
#include "pml/bfo/xfer/rails/completions.h"
#include "pml/bfo/xfer/base/list.h"
#include "pml/bfo/xfer/base/queue.h"
#include "pml/bfo/xfer/rails/rail_state.h"

namespace bfo::xfer {

/// Application bytes of a stored eager message.
inline uint64_t stored_payload(size_t size) {
  return size > sizeof(core::MatchHdr) ? size - sizeof(core::MatchHdr) : 0;
}

/// Is a stored message anything but one of the user, which a rail has handed back?
inline bool is_answer(const void* bytes) {
  return *static_cast<const uint8_t*>(bytes) != static_cast<uint8_t>(core::MsgType::kMatch);
}

/// FragState::grant of a stored message that only shows whether its peer lives, and whether a rail to it does
/// (keepalive.h): this plus the rail's index. 0 in all others.
inline constexpr uint32_t kPing = 1;

/// What an answer is about, if a newer one takes its place: RESTARTNACK and SENDDONE of one message. 0: it is
/// none of these.
inline int64_t answer_key(const void* bytes) {
  const uint8_t type = *static_cast<const uint8_t*>(bytes);
  if (type != static_cast<uint8_t>(core::MsgType::kRestartNack) &&
      type != static_cast<uint8_t>(core::MsgType::kSendDone))
    return 0;
  core::RestartHdr h;
  std::memcpy(&h, bytes, sizeof h);
  return static_cast<int64_t>(Name(h.sender).at(type).value);  // instead of the round
}

/// A stored message without a fragment record. Its bytes follow.
template <class P>
struct Unrecorded {
  Unrecorded* next;
  Unrecorded* prev;
  Unrecorded* chain_next;
  Unrecorded* chain_prev;
  Rail<P>* rail;  ///< it may be sent over this rail only
  int64_t key;
  uint32_t epoch;
  uint32_t size;
  void* bytes() { return this + 1; }
  const void* bytes() const { return this + 1; }
};
struct UnrecordedLink {
  static auto& next(auto* s) { return s->next; }
  static auto& prev(auto* s) { return s->prev; }
  static auto& chain_next(auto* s) { return s->chain_next; }
  static auto& chain_prev(auto* s) { return s->chain_prev; }
  static void mark(auto*, bool) {}
};
struct UnrecordedKey {
  static int64_t of(const auto* s) { return s->key; }
};

/// The bytes of a stored message.
template <class Frag>
const void* stored_bytes(const Frag& f) {
  return f.xfer.buffer ? f.xfer.buffer : f.xfer.stored;
}

/// What was sent once, has to be sent again, and was not yet.
struct SentBefore {
  uint64_t bytes = 0;
  uint64_t messages = 0;
  bool none() const { return bytes == 0 && messages == 0; }
  void add(uint64_t n) {
    bytes += n;
    ++messages;
  }
  void remove(uint64_t n) {
    bytes -= n;
    --messages;
  }
};

/// Ranks that have to send SEQSYNC to the peer.
struct SyncLink {
  template <class T>
  static T*& next(T* p) {
    return p->next_sync;
  }
  template <class T>
  static T*& prev(T* p) {
    return p->prev_sync;
  }
  template <class T>
  static bool& linked(T* p) {
    return p->syncs;
  }
};

template <class P>
class Backlog {
 public:
  using Frag = typename P::Frag;
  /// Stored messages that get a fragment record while they wait. The others need less memory.
  static constexpr unsigned kRecords = 16;

  List<typename P::SendRequest, XferLink> ready_sends;  ///< requests with something to send
  List<typename P::RecvRequest, XferLink> ready_recvs;
  List<typename P::SendRequest, XferLink> unnamed;  ///< sends that wait for a free name, to become rendezvous
  List<Proc<P>, SyncLink> syncs;                    ///< ranks that have to ask or to answer about the window
  SentBefore again;  ///< eager messages among them that were sent before: sends and stored ones

  void add_ready(typename P::SendRequest& r) { ready_sends.push_back(&r); }
  void add_ready(typename P::RecvRequest& r) { ready_recvs.push_back(&r); }
  void remove_ready(typename P::SendRequest& r) { ready_sends.remove(&r); }
  void remove_ready(typename P::RecvRequest& r) { ready_recvs.remove(&r); }

  // ---- stored messages: first those with a record, then the others
  bool nothing_stored() const { return stored_.empty() && unrecorded_.empty(); }
  /// Answers among them, that is all but the user's messages.
  uint32_t answers() const { return answers_; }
  /// Does a message wait that the user's must not overtake (order.h)?
  bool completion_waits() const { return completing_ != 0; }

  /// A message that only shows whether the peer lives is stored, or under way, for the rail of that index.
  bool pinging(unsigned rail) const { return pinging_ >> rail & 1; }
  void ping_begins(unsigned rail) { pinging_ = static_cast<uint8_t>(pinging_ | 1u << rail); }
  void ping_ends(unsigned rail) { pinging_ = static_cast<uint8_t>(pinging_ & ~(1u << rail)); }

  void store(Frag* f) {
    stored_.push_back(f);
    ++records_;
    entered(stored_bytes(*f), f->xfer.stored_len);
  }
  void store_first(Frag* f) {
    stored_.push_front(f);
    ++records_;
    entered(stored_bytes(*f), f->xfer.stored_len);
  }
  /// The oldest one with a record, removed.
  Frag* take_stored() {
    Frag* const f = stored_.pop_front();
    if (!f) return nullptr;
    --records_;
    left(stored_bytes(*f), f->xfer.stored_len);
    return f;
  }
  bool any_recorded() const { return !stored_.empty(); }
  bool takes_record() const { return records_ < kRecords; }

  template <class Port>
  void store(Port& port, Unrecorded<P>* s) {
    s->key = answer_key(s->bytes());
    unrecorded_.push_back(port, s);
    entered(s->bytes(), s->size);
  }
  Unrecorded<P>* unrecorded() const { return unrecorded_.front(); }
  template <class Port>
  void remove(Port& port, Unrecorded<P>* s) {
    unrecorded_.remove(port, s);
    left(s->bytes(), s->size);
  }
  /// The one that `bytes` are to replace; nullptr: none waits without a record, or there is nothing to
  /// replace.
  template <class Port>
  Unrecorded<P>* older(Port& port, const void* bytes) {
    const int64_t key = answer_key(bytes);
    return key == 0 ? nullptr : unrecorded_.find(port, key);
  }

  /// `use` gets the bytes of every stored message.
  template <class Use>
  void each_stored(Use use) const {
    for (Frag* f = stored_.front(); f; f = stored_.next(f)) use(stored_bytes(*f), f->xfer.stored_len);
    for (const Unrecorded<P>* s = unrecorded_.front(); s; s = s->next) use(s->bytes(), s->size);
  }

 private:
  void entered(const void* bytes, size_t size) {
    if (!is_answer(bytes)) return again.add(stored_payload(size));
    ++answers_;
    completing_ += completes_send(bytes);
  }
  void left(const void* bytes, size_t size) {
    if (!is_answer(bytes)) return again.remove(stored_payload(size));
    --answers_;
    completing_ -= completes_send(bytes);
  }

  List<Frag, XferLink> stored_;
  Queue<Unrecorded<P>, UnrecordedLink, UnrecordedKey> unrecorded_;
  uint32_t records_ = 0;  ///< in `stored_`
  uint32_t answers_ = 0;  ///< of both
  uint32_t completing_ = 0;
  uint8_t pinging_ = 0;  ///< one bit for each rail
};

}  // namespace bfo::xfer
