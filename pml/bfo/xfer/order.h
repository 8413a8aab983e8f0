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
bool Engine<P>::completes_send(const void* bytes) {
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
[[gnu::noinline]] bool Engine<P>::completing_among_waiting(const PeerT& p) {
  for (Frag* f = p.stored.front(); f; f = p.stored.next(f))
    if (completes_send(stored_bytes(*f))) return true;
  for (UnrecordedT* s = p.unrecorded.front(); s; s = p.unrecorded.next(s))
    if (completes_send(s + 1)) return true;
  return false;
}

/// Chooses the rail of the user's short messages: none while they have to wait.
template <class P>
void Engine<P>::settle_preferred(PeerT& p) {
  if (completing_waits(p))
    p.preferred = nullptr;
  else if (p.completing_out != 0)
    p.preferred = p.completing_rail;
  else
    p.preferred = p.preferred_backoff == 0 ? preferred_rail(p) : nullptr;
}

/// `rail` accepted a message that ends a send of the peer.
template <class P>
void Engine<P>::completing_begins(Frag& f, RailT& rail) {
  PeerT& p = *rail.peer;
  if (p.completing_out++ == 0 && ++p.completing_turn == 0) p.completing_turn = 1;
  p.completing_rail = &rail;
  f.xfer.completing_turn = p.completing_turn;
  settle_preferred(p);
}

/// Such a message has ended, or came back.
template <class P>
void Engine<P>::completing_ends(PeerT& p, Frag& f) {
  const std::uint32_t turn = std::exchange(f.xfer.completing_turn, 0);
  if (turn == 0 || turn != p.completing_turn || p.completing_out == 0 || --p.completing_out != 0) return;
  p.completing_rail = nullptr;
  settle_preferred(p);
}

/// Send a message that ends a send of the peer. A rail with the contract keeps the bytes, hands them back
/// when it fails, and counts what it has ended, so no fragment record is needed. Nor is one where there is
/// one rail only, because then everything is read in the order of sending.
template <class P>
void Engine<P>::send_completing(PeerT& p, const void* bytes, std::size_t len) {
  if (p.n_eager != 0 && p.stored.empty() && p.unrecorded.empty() && !p.finalized) [[likely]] {
    RailT& rail = *(p.completing_out != 0 ? p.completing_rail
                    : p.preferred         ? p.preferred
                                          : preferred_rail(p));
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
  if (!p.completing_brief) {
    p.completing_brief = true;
    if (p.completing_out++ == 0 && ++p.completing_turn == 0) p.completing_turn = 1;
    p.completing_rail = &rail;
  }
  p.completing_checkpoint = 0;
  p.completing_asked = 0;
  if (p.preferred != &rail) settle_preferred(p);
}

/// A message of the user could take another rail: have all that end a send of the peer ended? The rail is
/// asked at the first such message, and then now and then. Ends without a record have ended when the rail
/// has ended all work that it had when it was asked first.
template <class P>
[[gnu::noinline]] bool Engine<P>::brief_ended(PeerT& p) {
  if (!p.completing_brief || p.completing_asked++ % kAskEvery != 0) return false;
  const WorkCount work = port_.work(p.completing_rail->handle);
  if (p.completing_checkpoint == 0) p.completing_checkpoint = work.taken;
  if (work.ended < p.completing_checkpoint) return false;
  p.completing_brief = false;
  if (--p.completing_out != 0) return false;
  p.completing_rail = nullptr;
  settle_preferred(p);
  return true;
}

/// The preferred rails have changed.
template <class P>
void Engine<P>::rails_changed(PeerT& p) {
  bool there = false;
  for (unsigned i = 0; i < p.n_eager; ++i) there = there || p.eager[i] == p.completing_rail;
  if (!there) {
    p.completing_rail = nullptr;
    p.completing_out = 0;
    p.completing_brief = false;
  }
  settle_preferred(p);
}

/// How many rails next_for_user() can offer: none while the user's messages have to wait.
template <class P>
unsigned Engine<P>::rails_for_user(PeerT& p) {
  if (completing_waits(p)) return 0;
  return p.completing_out != 0 && !brief_ended(p) ? 1 : p.n_eager;
}

}  // namespace bfo::xfer
