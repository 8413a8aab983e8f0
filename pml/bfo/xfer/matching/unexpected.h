// SPDX-License-Identifier: BSD-3-Clause
//
// unexpected.h: messages that arrived before their receive, and the queues of those and of posted receives.
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>

#include "common/ids.h"
#include "pml/bfo/core/opened.h"
#include "pml/bfo/xfer/args.h"
#include "pml/bfo/xfer/base/by_key.h"
#include "pml/bfo/xfer/base/queue.h"

namespace bfo::xfer {

/// A message that arrived before its receive was posted. MPI_Message points to one.
template <class P>
struct Unexpected {
  /// Links of two queues: that of its sender (or of unknown communicators), and that of its communicator.
  struct Place {
    Unexpected* next;
    Unexpected* prev;
    Unexpected* chain_next;
    Unexpected* chain_prev;
  };
  Place mine;
  Place among_all;
  Proc<P>* proc = nullptr;
  Rail<P>* rail = nullptr;  ///< over which it arrived; nullptr when unknown
  uint32_t epoch = 0;
  uint32_t size = 0;     ///< bytes of `what`, where it is stored
  uint32_t room = 0;     ///< bytes right behind this struct
  core::MatchHdr match;  ///< as in the first header that came: the queues sort by it
  core::Opened what;     ///< stored right behind this struct, unless separate()
  /// A message to oneself whose bytes are still in the buffer of this request (oneself.h); `what` has none.
  typename P::SendRequest* own = nullptr;

  /// Stores `o` behind itself, where stored_size() bytes are.
  explicit Unexpected(const core::Opened& o) : match(o.match()), what(o.stored_at(this + 1, &match)) {}
  /// A message to oneself, whose header is here only.
  Unexpected(const core::MatchHdr& h, core::Bytes payload)
      : match(h), what(core::Opened::match(&match, payload)) {}
  /// Is it a rendezvous, which its sender may open again?
  bool is_open() const { return !what.is_match(); }
  /// Memory of its own that `what` lies in, because a newer header has replaced the first one (H21).
  void* separate() const {
    return is_open() && what.header() != this + 1 ? const_cast<void*>(what.header()) : nullptr;
  }
  /// Application bytes of the message.
  uint64_t length() const { return own ? own->xfer.length : what.length(); }
};

/// RecvState::linked of a receive that no message has matched.
inline constexpr uint8_t kPosted = 2;

/// Posted receives, by the tag asked for.
struct PostedLink {
  static auto& next(auto* r) { return r->xfer.next; }
  static auto& prev(auto* r) { return r->xfer.prev; }
  static auto& chain_next(auto* r) { return r->xfer.chain_next; }
  static auto& chain_prev(auto* r) { return r->xfer.chain_prev; }
  static void mark(auto* r, bool in) { r->xfer.linked = in ? kPosted : 0; }
};
struct PostedKey {
  static int64_t of(const auto* r) { return r->xfer.tag; }
  static bool older(const auto* a, const auto* b) { return a->xfer.post_order < b->xfer.post_order; }
};
template <class P>
using PostedQueue = Queue<typename P::RecvRequest, PostedLink, PostedKey>;

/// Messages by tag, by sequence number, by communicator id, or by all three.
template <auto Place>
struct MessageLink {
  static auto& next(auto* m) { return (m->*Place).next; }
  static auto& prev(auto* m) { return (m->*Place).prev; }
  static auto& chain_next(auto* m) { return (m->*Place).chain_next; }
  static auto& chain_prev(auto* m) { return (m->*Place).chain_prev; }
  static void mark(auto*, bool) {}
};
struct TagKey {
  static int64_t of(const auto* m) { return m->match.tag; }
};
struct SeqKey {
  static int64_t of(const auto* m) { return m->match.seq; }
};
struct ContextKey {
  static int64_t of(const auto* m) { return m->match.ctx; }
};
/// The same message again comes from the same process: anybody may put any rank into a header.
struct MessageKey {
  static int64_t of(const core::MatchHdr& h, const void* sender) {
    return static_cast<int64_t>(
        (uint64_t{h.ctx} << 48 | uint64_t{h.seq} << 32 | static_cast<uint32_t>(h.src)) ^
        reinterpret_cast<uintptr_t>(sender));
  }
  static int64_t of(const auto* m) { return of(m->match, sender_of(m->rail)); }
  /// nullptr: its BTL does not name senders.
  static auto* sender_of(const auto* rail) { return rail ? rail->peer : nullptr; }
};
/// Rendezvous by the name that their sender has given them.
struct OpenName {
  static uint64_t of(const auto* m) { return Name(m->what.rndv().sender).request(); }
};
template <class P>
using OpenNames = ByKey<Unexpected<P>, OpenName>;
template <class P, class Key>
using MessageQueue = Queue<Unexpected<P>, MessageLink<&Unexpected<P>::mine>, Key>;
template <class P, class Key>
using CommQueue = Queue<Unexpected<P>, MessageLink<&Unexpected<P>::among_all>, Key>;

}  // namespace bfo::xfer
