// SPDX-License-Identifier: BSD-3-Clause
//
// moves.h: Moves, what others may ask of the messages under way (transfers.h), and nothing else of them: what
// is named here of Transfers, and what needs no more than that. Handlers of messages return the peer for
// which something may be posted now; nullptr: nobody. Used under the engine's lock, except where a function
// says otherwise.
#pragma once

#include <cstdint>

#include "pml/bfo/xfer/moves/transfers.h"

namespace bfo::xfer {

template <class P>
class Moves : private Transfers<P> {
  using All = Transfers<P>;

 public:
  using SendRequest = typename P::SendRequest;
  using RecvRequest = typename P::RecvRequest;
  using InlineSource = typename P::InlineSource;
  using Frag = typename P::Frag;
  using PeerT = Peer<P>;
  using RailT = Rail<P>;
  using ProcT = Proc<P>;
  using Bytes = core::Bytes;

  using All::All;
  using All::forget;
  using All::free_all;

  // ---- sends
  using All::admit;
  using All::release_one;
  using All::start;
  using All::try_inline;

  // ---- messages to oneself
  OwnStart<P> begin_own(ProcT& p, const SendArgs<P>& args, SendRequest& r) {
    return Oneself<P>::begin(*this, p, args, r);
  }
  OwnStart<P> begin_own(const SendArgs<P>& args, InlineSource& source) {
    return Oneself<P>::begin_inline(*this, args, source);
  }
  /// Nobody waits for the message of `r` yet. False: there is no memory.
  bool keep_own(ProcT& p, SendRequest& r) { return Oneself<P>::keep_request(*this, p, r); }
  /// `source` was matched with `r`, which ends. Not under the lock.
  template <class Source>
  void fill_own(RecvRequest& r, Source& source) {
    Oneself<P>::fill(*this, r, source);
  }
  /// `own` was matched with `r`: both end. Not under the lock.
  void finish_own(RecvRequest& r, SendRequest& own) { Oneself<P>::finish(*this, r, own); }

  // ---- receives
  using All::answer_over;
  using All::begin_recv;
  using All::open_again;
  using All::reopen;
  /// The sender of a message that nobody receives has to hear that.
  void refuse(PeerT& p, const core::MatchHdr& h, Name sender) {
    All::note_failed(p, sender);
    answer_over(p, h, sender);
  }

  // ---- messages about requests
  using All::brief_lost;
  using All::on_fin;
  using All::on_message;
  /// A stored message is sent again: it may be one that holds the sequence window.
  void stored_again(PeerT& p, Bytes message) { note_resent_message(p, message); }

  // ---- fragments
  using All::frag_over;
  using All::read_over;

  // ---- what waits for a rail
  using All::leave_window;
  using All::post_requests;
  using All::post_syncs;

  // ---- rails and peers
  using All::any;
  using All::awaits;
  using All::drop_syncs;
  using All::fail_unfenceable;
  using All::give_up;
  using All::owed;
  using All::rail_left;
  using All::waiting;
  /// The peer's half of `rail` is closed: READs that failed on it are over.
  void reads_over(RailT& rail) { Exposure<P>::reads_over(*this, rail); }
  /// Restarts that wait for FRAGs in the queues of rails. True: what waits for `p` is to be posted.
  bool poll_for_frags(PeerT& p) { return RestartMessages<P>::poll_for_frags(*this, p); }

  // ---- for the engine's own account
  /// All rails have been read since the last call. Any thread.
  void turn() { this->pace_.turn(); }
  /// Requests and eager sends that are not over.
  uint64_t unfinished() const { return this->eager_out_ + this->sends_.live() + this->recvs_.live(); }
  /// How often each cell of the state tables was used.
  const Machine<P>& machine() const { return this->machine_; }
};

}  // namespace bfo::xfer
