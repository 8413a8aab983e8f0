// SPDX-License-Identifier: BSD-3-Clause
//
// backlog.h: what waits for the rails of a peer, in the order in which it is posted. Only lists: requests and
// fragment records belong to the port, those without a fragment record are memory of the port. Who puts
// something in activates the peer (Engine::activate). Used under the engine's lock. Needs no memory, cannot
// fail.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pml/bfo/core/wire.h"
#include "pml/bfo/xfer/order/completions.h"
#include "pml/bfo/xfer/base/list.h"
#include "pml/bfo/xfer/rails/rail_state.h"

namespace bfo::xfer {

/// Application bytes in a stored message: only an eager message has any.
inline std::uint64_t stored_payload(std::uint8_t type, std::size_t size) {
  const bool eager =
      type == static_cast<std::uint8_t>(core::MsgType::kMatch) && size > sizeof(core::MatchHdr);
  return eager ? size - sizeof(core::MatchHdr) : 0;
}

/// FragState::grant of a stored message that only shows whether its peer lives (keepalive.h).
inline constexpr std::uint32_t kPing = 1;

/// A stored message for which there was no fragment record. Its bytes follow.
template <class P>
struct Unrecorded {
  Unrecorded* next = nullptr;
  Unrecorded* prev = nullptr;
  bool linked = false;
  Rail<P>* rail = nullptr;  ///< it may be sent over this rail only
  std::uint32_t epoch = 0;
  std::size_t size = 0;
  const void* bytes() const { return this + 1; }
};

/// The bytes of a stored message.
template <class Frag>
const void* stored_bytes(const Frag& f) {
  return f.xfer.buffer ? f.xfer.buffer : f.xfer.stored;
}

template <class P>
struct Backlog {
  List<typename P::SendRequest, XferLink> ready_sends;  ///< requests with something to send
  List<typename P::RecvRequest, XferLink> ready_recvs;
  List<typename P::SendRequest, XferLink> unnamed;  ///< sends that wait for a free name, to become rendezvous
  List<typename P::Frag, XferLink> stored;          ///< stored messages that wait for a rail
  List<Unrecorded<P>> unrecorded;                   ///< the same, without a fragment record

  void add_ready(typename P::SendRequest& r) { ready_sends.push_back(&r); }
  void add_ready(typename P::RecvRequest& r) { ready_recvs.push_back(&r); }
  void remove_ready(typename P::SendRequest& r) { ready_sends.remove(&r); }
  void remove_ready(typename P::RecvRequest& r) { ready_recvs.remove(&r); }

  bool nothing_stored() const { return stored.empty() && unrecorded.empty(); }
  /// Does a message wait that the user's must not overtake (order.h)?
  bool completion_waits() const { return !nothing_stored() && completion_among_stored(); }
  /// `use` gets the bytes of every stored message.
  template <class Use>
  void each_stored(Use use) const {
    for (typename P::Frag* f = stored.front(); f; f = stored.next(f))
      use(stored_bytes(*f), f->xfer.stored_len);
    for (Unrecorded<P>* s = unrecorded.front(); s; s = unrecorded.next(s)) use(s->bytes(), s->size);
  }

 private:
  [[gnu::noinline]] bool completion_among_stored() const {
    for (typename P::Frag* f = stored.front(); f; f = stored.next(f))
      if (completes_send(stored_bytes(*f))) return true;
    for (Unrecorded<P>* s = unrecorded.front(); s; s = unrecorded.next(s))
      if (completes_send(s->bytes())) return true;
    return false;
  }
};

}  // namespace bfo::xfer
