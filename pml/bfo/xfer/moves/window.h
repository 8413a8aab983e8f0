// SPDX-License-Identifier: BSD-3-Clause
//
// window.h: the sequence window (H5). Sequence numbers have 16 bits and wrap. A copy of a message must not
// arrive when its number means another message. Three bounds keep the sender within kSeqWindow messages:
//
//   confirmed  the receiver has every message before it (SEQSYNC)
//   resent_from   from here on messages were sent twice, and a dead epoch is not closed at both ends
//   acked      the rails have reported the end of every message before it, so none of them is sent again
//
// They are evaluated twice per window, when next_seq reaches window_seq. An eager message therefore carries,
// counts and records nothing for them. For `acked`, `checkpoint` notes how much work each rail
// has accepted. When all of that has ended, every message numbered before the checkpoint has ended. A message
// that fails meanwhile and is sent again is not in those counts, so the checkpoint is then taken anew. A rail
// whose BTL has no failover contract is left out: messages that it loses end the pair with an error
// (on_rail_broken).
//
// An answer about `confirmed` may be retransmitted after its number has wrapped. So it repeats the number of
// its question, and counts only while that question is open: its number is then less than one window behind
// `confirmed`. A question may be late or doubled without harm: the answer to it is newer than the question's
// number says, and is dropped.
//
// None of the bounds waits for an unanswered rendezvous, because its receive may be posted after any number
// of other messages. Once the receiver has confirmed its sequence number, its header is identified by the
// sender's name instead (kFlagKnown).
//
// H1..H23: contrib/doc/hazards.md
#pragma once

#include <utility>

#include "pml/bfo/core/seq_window.h"
#include "pml/bfo/xfer/moves/transfers.h"

namespace bfo::xfer {

/// The oldest numbered message to `p` that no rail has accepted; the next number if there is none.
template <class P>
Seq16 oldest_waiting(const Proc<P>& p) {
  const Peer<P>& peer = *p.peer;
  Seq16 oldest = p.next_seq;
  const auto waits = [&](Seq16 seq) {
    if (seq_before(seq, oldest)) oldest = seq;
  };
  const auto bytes_wait = [&](const void* data, size_t size) {
    core::MatchHdr h;
    const auto* const bytes = static_cast<const uint8_t*>(data);
    const bool numbered = core::decode(core::MsgType::kMatch, core::Bytes{bytes, size}, h);
    if (numbered && h.ctx == p.comm->ctx) waits(h.seq);
  };
  for (auto* r = peer.backlog.ready_sends.front(); r; r = peer.backlog.ready_sends.next(r)) {
    const auto& x = r->xfer;
    const bool header = x.phase == core::SendPhase::kOpening && x.rndv->restarts == 0 && !x.rndv->known;
    if (x.proc == &p && (x.protocol == Protocol::kEager || header)) waits(x.seq);
  }
  for (auto* r = peer.backlog.unnamed.front(); r; r = peer.backlog.unnamed.next(r))
    if (r->xfer.proc == &p) waits(r->xfer.seq);
  peer.backlog.each_stored(bytes_wait);
  return oldest;
}

/// Move `acked` to the checkpoint when every rail is past it, and take the next one. A message that still
/// waits for a rail moves that one back.
template <class P>
void note_ended(P& port, Proc<P>& p) {
  if (!p.checkpoint.holds()) p.checkpoint.take(port, *p.peer, oldest_waiting(p));
  if (!p.checkpoint.passed(port, *p.peer)) return;
  if (seq_before(p.acked, p.checkpoint.seq())) p.acked = p.checkpoint.seq();
  p.checkpoint.take(port, *p.peer, oldest_waiting(p));
}

/// Is there a dead epoch that the peer has not closed yet? A message of it may still be delivered there (H5).
/// An epoch that was never up here carried none, so its closing is not waited for.
template <class P>
bool unclosed(const Peer<P>& p) {
  for (unsigned i = 0; i < p.n_rails; ++i) {
    const Rail<P>& r = p.rails[i];
    if (r.dead.conn != 0 && r.dead.epoch == r.name.epoch && r.up_epoch > r.peer_closed_epoch) return true;
  }
  return false;
}

/// The receiver has the headers of these sends, and may match them after their sequence numbers have wrapped.
/// From now on every retransmission of such a header carries kFlagKnown.
template <class P>
void note_known(const Proc<P>& p) {
  for (auto* r = p.peer->live_sends.front(); r; r = p.peer->live_sends.next(r))
    if (r->xfer.proc == &p && seq_before(r->xfer.seq, p.confirmed)) r->xfer.rndv->known = true;
}

/// A copy of the header of `x` is sent. A header older than the window is known to the receiver, so its
/// copies cannot be mistaken for another message.
template <class P>
[[gnu::cold]] void note_resent_header(const SendState<P>& x) {
  if (seq_place(x.proc->next_seq, x.seq) == SeqPlace::kPast) Eager<P>::note_resent_seq(*x.proc, x.seq);
}

/// The next number that needs a look, if not for the window, then for a short message that is to be timed.
template <class P>
Seq16 next_look(P& port, const Proc<P>& p, bool is_short) {
  const uint32_t until_window = static_cast<Seq16>(p.window_seq - p.next_seq);
  const uint32_t until_sample =
      p.peer->n_rails < 2 ? 0 : p.peer->choice.short_every(is_short) * port.seq_step();
  const bool samples = until_sample != 0 && until_sample < until_window;
  return samples ? static_cast<Seq16>(p.next_seq + until_sample) : p.window_seq;
}

/// next_seq has reached stop_seq: may this number be used for a message of `length` bytes?
template <class P>
[[gnu::cold, gnu::noinline]] bool Transfers<P>::window_open(ProcT& p, size_t length) {
  if (p.peer->standing.failed()) return true;  // whatever is sent ends with the error of that peer
  const bool is_short = length < base_.config.short_limit;
  if (p.next_seq != p.window_seq) {
    const auto numbers = static_cast<Seq16>(p.next_seq - std::exchange(p.looked_seq, p.next_seq));
    if (is_short) p.peer->choice.sample_short(numbers / base_.port.seq_step(), base_.port.now_ns());
    p.stop_seq = next_look(base_.port, p, is_short);
    return true;
  }
  if (p.resent && !unclosed(*p.peer)) p.resent = false;
  note_ended(base_.port, p);
  const int32_t used = core::window_used(p.bounds());
  ask_window(p);
  if (!core::window_allows(used)) return false;
  p.window_seq = core::window_stop(p.next_seq, used);
  p.stop_seq = next_look(base_.port, p, is_short);
  return true;
}

template <class P>
void Transfers<P>::ask_window(ProcT& p) {
  p.asks = true;
  owe_sync(p);
}

/// `p` asks or answers. What it has to say is taken from its state when a rail takes it, so any number of
/// questions waits as one, and the newest one is answered with what is true then.
template <class P>
void Transfers<P>::owe_sync(ProcT& p) {
  PeerT& peer = *p.peer;
  if (peer.standing.ended()) return;
  if (!p.syncs) peer.backlog.syncs.push_back(&p);
  base_.activate(peer);
}

/// What a SEQSYNC that is under way was, in the name of its fragment: its rank may be gone when it ends.
inline Name sync_of(const core::SeqSyncHdr& h, int32_t rank) {
  return Name(uint64_t{h.ctx} << 48 | uint64_t{h.question} << 32 | static_cast<uint32_t>(rank));
}

/// False: no rail takes what a rank has to say.
template <class P>
bool Transfers<P>::post_syncs(PeerT& p) {
  const auto post = [this, &p](const ProcT& q, const core::SeqSyncHdr& h) {
    const bool answer = (h.flags & core::kFlagReply) != 0;
    return rails_.post_control(p, &h, sizeof h, FragKind::kSync, sync_of(h, q.rank), answer);
  };
  while (ProcT* const q = p.backlog.syncs.front()) {
    if (q->answers && !post(*q, q->window_answer())) return false;
    q->answers = false;
    if (q->asks && !post(*q, q->window_question())) return false;
    q->asks = false;
    p.backlog.syncs.remove(q);
  }
  return true;
}

/// A rail handed a SEQSYNC back: it is sent again, with what is true by then.
template <class P>
[[gnu::cold]] void Transfers<P>::sync_lost(PeerT& peer, const Frag& f) {
  const uint64_t word = f.xfer.name.value;
  CommT* const c = matching_.find(static_cast<uint16_t>(word >> 48));
  const auto rank = static_cast<int32_t>(word);
  ProcT* const p = c && c->has(rank) ? c->procs[rank] : nullptr;
  if (!p || p->peer != &peer) return;  // its communicator was freed
  if (f.xfer.to_sender)
    p->owe_answer(static_cast<uint16_t>(word >> 32));
  else
    p->asks = true;
  base_.records.note_resumed(peer);
  owe_sync(*p);
}

/// Nothing is said to `p` any more.
template <class P>
[[gnu::cold]] void Transfers<P>::drop_syncs(PeerT& p) {
  while (ProcT* const q = p.backlog.syncs.pop_front()) q->asks = q->answers = false;
}

/// The communicator of `p` is freed: nothing of it waits any more.
template <class P>
void Transfers<P>::leave_window(ProcT& p) {
  if (p.syncs) p.peer->backlog.syncs.remove(&p);
  base_.agenda.remove_stalled(p);
}

template <class P>
Peer<P>* Transfers<P>::on_seq_sync(const Arrival& a, Bytes in, ProcT*& opened) {
  core::SeqSyncHdr h;
  CommT* c = nullptr;
  ProcT* p = nullptr;
  if (core::decode(MsgType::kSeqSync, in, h)) c = matching_.find(h.ctx);
  if (c) p = matching_.proc_at(*c, h.src);
  if (!p || !matching_.peer_of(*p) || !from_peer(a.rail, matching_.peer_of(*p))) {
    ++base_.counters.malformed;
    return nullptr;
  }
  if (!(h.flags & core::kFlagReply)) {
    p->owe_answer(h.question);
    owe_sync(*p);
    return p->peer;
  }
  if (!core::answers_open_question(p->question, h.question)) {
    ++base_.counters.stale;  // its number may have wrapped
    return nullptr;
  }
  // Move forward only, and not beyond what was sent.
  if (!core::answer_confirms(p->bounds(), h.seq)) return nullptr;
  p->question = seq_question(p->question, p->confirmed, h.seq);
  p->confirmed = h.seq;
  note_known(*p);
  opened = p;
  return nullptr;
}

/// The next number of `p` needs a look at the window. False: `r` has to wait.
template <class P>
[[gnu::cold]] bool Transfers<P>::admit(ProcT& p, SendRequest& r, bool& asked) {
  asked = p.stalled.empty();
  if (asked && window_open(p, r.xfer.length)) return true;
  p.stalled.push_back(&r);
  base_.agenda.add_stalled(p);
  return false;
}

/// The oldest send of `p` that waits for the window goes on, or the window is asked for. `more`: call again,
/// after what waits for the peer was posted.
template <class P>
typename Transfers<P>::Released Transfers<P>::release_one(ProcT& p) {
  SendRequest* const r = p.stalled.front();
  if (!r) return {};
  if (p.next_seq == p.stop_seq) {
    if (!window_open(p, r->xfer.length)) return {false, true};
    if (p.next_seq != p.stop_seq) return {true, true};  // else its peer has failed: the send ends with that
  }
  p.stalled.remove(r);
  const Begun begun = start(*r, p);
  if (begun.done) base_.finish_send(*r, Outcome::kOk);
  return {true, begun.posts};
}

}  // namespace bfo::xfer
