// SPDX-License-Identifier: BSD-3-Clause
//
// order.h: keeps what the user sends behind messages that end a send of the peer. These are FIN of an RGET,
// the ACK of a receive that needs no more data, and RESTARTNACK. They complete a request at the peer, and its
// user can see that: MPI_Bsend has room again. So a message that the local user sends afterwards must not be
// read there before them. While such messages are under way, they and all MATCH, RNDV and RGET to that peer
// take one rail. While one of them waits for a rail, MATCH, RNDV and RGET wait behind it. Fragments, reads
// and writes use all rails in any case. A FIN has no fragment record: its rail is asked whether it has ended.
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
  for (Frag* f = p.stored.front(); f; f = p.stored.next(f))
    if (ends_send(stored_bytes(*f))) return true;
  for (UnrecordedT* s = p.unrecorded.front(); s; s = p.unrecorded.next(s))
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

/// Send a message that ends a send of the peer. A rail with the contract keeps the bytes, hands them back
/// when it fails, and counts what it has ended, so no fragment record is needed. Nor is one where there is
/// one rail only, because then everything is read in the order of sending.
template <class P>
void Engine<P>::send_end(PeerT& p, const void* bytes, std::size_t len) {
  if (p.n_eager != 0 && p.stored.empty() && p.unrecorded.empty() && !p.finalized) [[likely]] {
    RailT& rail = *(p.ends_out != 0 ? p.order : p.home ? p.home : home_rail(p));
    if (p.n_rails == 1 || rail.limits.failover) {
      InlineSource none{};
      if (post_brief(rail, bytes, len, none)) {
        if (p.n_rails != 1) brief_begins(p, rail);
        return;
      }
    }
  }
  send_stored(p, bytes, len);
}

/// `rail` keeps a message that ends a send of the peer.
template <class P>
void Engine<P>::brief_begins(PeerT& p, RailT& rail) {
  if (!p.end_brief) {
    p.end_brief = true;
    if (p.ends_out++ == 0 && ++p.order_turn == 0) p.order_turn = 1;
    p.order = &rail;
  }
  p.end_mark = 0;
  p.end_looks = 0;
  if (p.home != &rail) settle_home(p);
}

/// A message of the user could take another rail: have all that end a send of the peer ended? The rail is
/// asked at the first such message, and then now and then. Ends without a record have ended when the rail
/// has ended all work that it had when it was asked first.
template <class P>
[[gnu::noinline]] bool Engine<P>::brief_ended(PeerT& p) {
  if (!p.end_brief || p.end_looks++ % kLookEvery != 0) return false;
  const WorkCount work = port_.work(p.order->handle);
  if (p.end_mark == 0) p.end_mark = work.taken;
  if (work.ended < p.end_mark) return false;
  p.end_brief = false;
  if (--p.ends_out != 0) return false;
  p.order = nullptr;
  settle_home(p);
  return true;
}

/// The preferred rails have changed.
template <class P>
void Engine<P>::reorder(PeerT& p) {
  bool there = false;
  for (unsigned i = 0; i < p.n_eager; ++i) there = there || p.eager[i] == p.order;
  if (!there) {
    p.order = nullptr;
    p.ends_out = 0;
    p.end_brief = false;
  }
  settle_home(p);
}

/// How many rails next_for_user() can offer: none while the user's messages have to wait.
template <class P>
unsigned Engine<P>::rails_for_user(PeerT& p) {
  if (end_waits(p)) return 0;
  return p.ends_out != 0 && !brief_ended(p) ? 1 : p.n_eager;
}

}  // namespace bfo::xfer
