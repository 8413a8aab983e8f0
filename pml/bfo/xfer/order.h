// SPDX-License-Identifier: BSD-3-Clause
//
// order.h: keeps what the user sends behind messages that end a send of the peer. These are FIN of an RGET,
// the ACK of a receive that needs no more data, and RESTARTNACK. They complete a request at the peer, and its
// user can see that: MPI_Bsend has room again. So a message that the local user sends afterwards must not be
// read there before them. While such messages are under way, they and all MATCH, RNDV and RGET to that peer
// take one rail. While one of them waits for a rail, MATCH, RNDV and RGET wait behind it. Fragments, reads
// and writes use all rails in any case.
//
// A rail that is not usable any more (suspect, down) delays nothing: what it carries is sent again when it
// comes back, and the order begins anew with that.
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

/// Stored messages only: no other message ends a send.
template <class P>
bool Engine<P>::ends_send(const void* bytes) {
  switch (*static_cast<const MsgType*>(bytes)) {
    case MsgType::kAck:
    case MsgType::kRestartNack:
      return true;
    case MsgType::kFin: {
      core::FinHdr h;
      std::memcpy(&h, bytes, sizeof h);
      return h.to_send != 0;
    }
    default:
      return false;
  }
}

/// Does a message wait that the user's must not overtake? Called when something waits.
template <class P>
[[gnu::noinline]] bool Engine<P>::end_among_waiting(const PeerT& p) {
  for (Frag* f = p.raw.front(); f; f = p.raw.next(f))
    if (ends_send(raw_bytes(*f))) return true;
  for (StarvedT* s = p.starved.front(); s; s = p.starved.next(s))
    if (ends_send(s + 1)) return true;
  return false;
}

/// Chooses the rail of the user's short messages: none while they have to wait.
template <class P>
void Engine<P>::settle_home(PeerT& p) {
  if (end_waits(p))
    p.home = nullptr;
  else if (p.ends_out != 0)
    p.home = p.order;
  else
    p.home = p.away == 0 ? home_rail(p) : nullptr;
}

/// `rail` accepted a message that ends a send of the peer.
template <class P>
void Engine<P>::order_begins(Frag& f, RailT& rail) {
  PeerT& p = *rail.peer;
  if (p.ends_out++ == 0 && ++p.order_turn == 0) p.order_turn = 1;
  p.order = &rail;
  f.xfer.order_turn = p.order_turn;
  settle_home(p);
}

/// Such a message has ended, or came back.
template <class P>
void Engine<P>::order_ends(PeerT& p, Frag& f) {
  const std::uint32_t turn = std::exchange(f.xfer.order_turn, 0);
  if (turn == 0 || turn != p.order_turn || p.ends_out == 0 || --p.ends_out != 0) return;
  p.order = nullptr;
  settle_home(p);
}

/// Send a message that ends a send of the peer. With one rail everything is read in the order of sending.
/// Then the rail may keep the bytes, and hand them back when it fails: no fragment record is needed.
template <class P>
void Engine<P>::send_end(PeerT& p, const void* bytes, std::size_t len) {
  if (p.n_rails == 1 && p.n_eager == 1 && p.raw.empty() && p.starved.empty() && !p.left) {
    InlineSource none{};
    if (post_brief(*p.eager[0], bytes, len, none)) return;
  }
  send_raw(p, bytes, len);
}

/// The preferred rails have changed.
template <class P>
void Engine<P>::reorder(PeerT& p) {
  bool there = false;
  for (unsigned i = 0; i < p.n_eager; ++i) there = there || p.eager[i] == p.order;
  if (!there) {
    p.order = nullptr;
    p.ends_out = 0;
  }
  settle_home(p);
}

/// How many rails next_for_user() can offer: none while the user's messages have to wait.
template <class P>
unsigned Engine<P>::rails_for_user(const PeerT& p) {
  if (end_waits(p)) return 0;
  return p.ends_out != 0 ? 1 : p.n_eager;
}

}  // namespace bfo::xfer
