// SPDX-License-Identifier: BSD-3-Clause
//
// moves.h: Moves, what others may ask of the messages under way (transfers.h), and nothing else of them.
// Handlers of messages return the peer for which something may be posted now; nullptr: nobody. Used under
// the engine's lock, except where a function says otherwise.
#pragma once

#include <cstdint>

#include "pml/bfo/xfer/moves/transfers.h"

namespace bfo::xfer {

template <class P>
class Moves {
 public:
  using SendRequest = typename P::SendRequest;
  using RecvRequest = typename P::RecvRequest;
  using InlineSource = typename P::InlineSource;
  using Frag = typename P::Frag;
  using PeerT = Peer<P>;
  using RailT = Rail<P>;
  using ProcT = Proc<P>;
  using Arrival = xfer::Arrival<P>;
  using Bytes = core::Bytes;
  using MsgType = core::MsgType;
  using Opened = core::Opened;
  using Released = typename Transfers<P>::Released;

  /// What it is given outlives it.
  Moves(Base<P>& base, Rails<P>& rails, Matching<P>& matching) : all_(base, rails, matching) {}
  /// Forgets the requests of `p`.
  void forget(PeerT& p) { all_.forget(p); }
  /// Frees everything. All peers are forgotten.
  void free_all() { all_.free_all(); }

  // ---- sends
  /// Without a request. kOwn: it is to this process itself.
  Inline try_inline(const SendArgs<P>& args, InlineSource& source) { return all_.try_inline(args, source); }
  /// Is the next number of `p` free for `r`? False: it waits, see release_one(). `asked`: what waits for its
  /// peer is to be posted.
  bool admit(ProcT& p, SendRequest& r, bool& asked) { return all_.admit(p, r, asked); }
  /// Numbers a send to another process, whose window is open, and begins it.
  Begun start(SendRequest& r, ProcT& p) { return all_.start(r, p); }
  /// The oldest send of `p` that waits for the window goes on. `more`: call again, after posting.
  Released release_one(ProcT& p) { return all_.release_one(p); }

  // ---- messages to oneself
  OwnStart<P> begin_own(ProcT& p, const SendArgs<P>& args, SendRequest& r) {
    return Oneself<P>::begin(all_, p, args, r);
  }
  OwnStart<P> begin_own(const SendArgs<P>& args, InlineSource& source) {
    return Oneself<P>::begin_inline(all_, args, source);
  }
  /// Nobody waits for the message of `r` yet. False: there is no memory.
  bool keep_own(ProcT& p, SendRequest& r) { return Oneself<P>::keep_request(all_, p, r); }
  /// `source` was matched with `r`, which ends. Not under the lock.
  template <class Source>
  void fill_own(RecvRequest& r, Source& source) {
    Oneself<P>::fill(all_, r, source);
  }
  /// `own` was matched with `r`: both end. Not under the lock.
  void finish_own(RecvRequest& r, SendRequest& own) { Oneself<P>::finish(all_, r, own); }

  // ---- receives
  /// `r` was matched with an RNDV or RGET of `p`. True: what waits for the peer is to be posted.
  bool begin_recv(RecvRequest& r, ProcT& p, const Arrival& a, const Opened& o) {
    return all_.begin_recv(r, p, a, o);
  }
  /// An RNDV or RGET that names a receive of this process: a new round.
  bool reopen(ProcT& p, const Opened& o, const Arrival& a) { return all_.reopen(p, o, a); }
  /// The same RNDV or RGET again. False: no receive is under way for it.
  bool open_again(ProcT& p, const Opened& o, const Arrival& a) { return all_.open_again(p, o, a); }
  /// The sender of a message that has been received has to hear that.
  void answer_over(PeerT& p, const core::MatchHdr& h, Name sender) { all_.answer_over(p, h, sender); }

  // ---- messages about requests
  PeerT* on_fin(const Arrival& a, Bytes in) { return all_.on_fin(a, in); }
  /// Any other that continues a transfer. `opened`: set when sends of that rank may go on.
  PeerT* on_message(MsgType type, const Arrival& a, Bytes in, ProcT*& opened) {
    return all_.on_message(type, a, in, opened);
  }
  /// A message without a record came back from its rail.
  void brief_lost(PeerT& p, MsgType type, Bytes message) { all_.brief_lost(p, type, message); }
  /// A stored message is sent again: it may be one that holds the sequence window.
  void stored_again(PeerT& p, Bytes message) { note_resent_message(p, message); }

  // ---- fragments
  /// A READ has ended: the usual case first.
  void read_over(Frag& f) { Rget<P>::read_over(all_, f); }
  /// Any fragment but a stored message has ended.
  void frag_over(Frag& f) { all_.frag_over(f); }

  // ---- what waits for a rail. False: something still waits.
  bool post_syncs(PeerT& p) { return all_.post_syncs(p); }
  bool post_requests(PeerT& p) { return all_.post_requests(p); }
  void leave_window(ProcT& p) { all_.leave_window(p); }

  // ---- rails and peers
  /// Epoch `epoch` of `rail` is over.
  void rail_left(RailT& rail, uint32_t epoch, bool fenced) { all_.rail_left(rail, epoch, fenced); }
  /// The peer's half of `rail` is closed: READs that failed on it are over.
  void reads_over(RailT& rail) { Exposure<P>::reads_over(all_, rail); }
  void fail_unfenceable(RailT& rail) { all_.fail_unfenceable(rail); }
  /// `p` was declared failed: its requests end.
  void give_up(PeerT& p) { all_.give_up(p); }
  void drop_syncs(PeerT& p) { all_.drop_syncs(p); }
  /// Restarts that wait for FRAGs in the queues of rails. True: what waits for `p` is to be posted.
  bool poll_for_frags(PeerT& p) { return RestartMessages<P>::poll_for_frags(all_, p); }
  /// Requests of `p`: any, such that wait for it, and how many wait.
  static bool any(const PeerT& p) { return Transfers<P>::any(p); }
  static bool awaits(const PeerT& p) { return Transfers<P>::awaits(p); }
  static uint64_t waiting(const PeerT& p) { return Transfers<P>::waiting(p); }

  // ---- for the engine's own account
  /// All rails have been read since the last call. Any thread.
  void turn() { all_.pace_.turn(); }
  /// Requests and eager sends that are not over.
  uint64_t unfinished() const { return all_.eager_out_ + all_.sends_.live() + all_.recvs_.live(); }
  /// How often each cell of the state tables was used.
  const Machine<P>& machine() const { return all_.machine_; }

 private:
  Transfers<P> all_;
};

}  // namespace bfo::xfer
