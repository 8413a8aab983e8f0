// SPDX-License-Identifier: BSD-3-Clause
//
// order.h: messages that end a send of the peer: FIN of a get, the ACK of a receive that needs no more, and
// RESTARTNACK. The user there may see that his send is over: room in his buffer for MPI_Bsend. So what the
// user here sends afterwards must not be read there before them: while such messages are under way they, and
// all that the user sends to that peer, take one rail; while one of them waits for a rail, what the user
// sends waits behind it. Fragments, reads and writes still take all rails.
//
// A rail that is not among the preferred ones any more (suspect, down) holds nothing up: what it carries goes
// again when it comes back, and the order begins anew with that.
#pragma once

#include "pml/bfo/xfer/engine.h"

namespace bfo::xfer {

/// Raw messages only: others that may end a send do not exist.
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

/// Is a message waiting that the user's must not overtake? Something waits.
template <class P>
[[gnu::noinline]] bool Engine<P>::end_among_waiting(const PeerT& p) {
  for (Frag* f = p.raw.front(); f; f = p.raw.next(f))
    if (ends_send(raw_bytes(*f))) return true;
  for (StarvedT* s = p.starved.front(); s; s = p.starved.next(s))
    if (ends_send(s + 1)) return true;
  return false;
}

/// Where short messages of the user go now: nowhere while they have to wait.
template <class P>
void Engine<P>::settle_home(PeerT& p) {
  if (end_waits(p))
    p.home = nullptr;
  else if (p.ends_out != 0)
    p.home = p.order;
  else
    p.home = p.away == 0 ? home_rail(p) : nullptr;
}

/// `rail` took a message that ends a send of the peer.
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

/// Send a message that ends a send of the peer. With one rail everything is read in the order it was sent, so
/// the rail may keep it, and hand it back when it fails, without a record here.
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

/// How many times next_for_user() is worth asking: not at all while the user's messages have to wait.
template <class P>
unsigned Engine<P>::rails_for_user(const PeerT& p) {
  if (end_waits(p)) return 0;
  return p.ends_out != 0 ? 1 : p.n_eager;
}

}  // namespace bfo::xfer
