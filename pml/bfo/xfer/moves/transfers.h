// SPDX-License-Identifier: BSD-3-Clause
//
// transfers.h: Transfers, all messages of one process that are under way: names of requests, their phases and
// the actions of the state tables, the transfer protocols, the send window of each rank, and the messages of
// a restart. It is what the files of this folder share; others see class Moves (moves.h). Handlers of
// messages return the peer for which something may be posted now; nullptr: nobody. Who posts what waits calls
// serve(). Used under the engine's lock. The bodies are in one file per noun, included at the end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pml/bfo/core/wire.h"
#include "pml/bfo/xfer/base/base.h"
#include "pml/bfo/xfer/base/pool.h"
#include "pml/bfo/xfer/calls.h"
#include "pml/bfo/xfer/matching/matching.h"
#include "pml/bfo/xfer/moves/ledger.h"
#include "pml/bfo/xfer/moves/machine.h"
#include "pml/bfo/xfer/moves/names.h"
#include "pml/bfo/xfer/moves/pace.h"
#include "pml/bfo/xfer/rails/rails.h"
#include "pml/bfo/xfer/state.h"

namespace bfo::xfer {

/// What became of a send that begins.
struct Begun {
  bool done = false;   ///< it is complete; else it ends later, or has ended with an error
  bool posts = false;  ///< what waits for its peer is to be posted
};

/// What became of a message without a request.
enum class Inline : uint8_t { kNo, kSent, kOwn };

template <class P>
struct Transfers {
  using SendRequest = typename P::SendRequest;
  using RecvRequest = typename P::RecvRequest;
  using InlineSource = typename P::InlineSource;
  using Frag = typename P::Frag;
  using PeerT = Peer<P>;
  using RailT = Rail<P>;
  using CommT = Comm<P>;
  using ProcT = Proc<P>;
  using SendPhase = core::SendPhase;
  using SendEvent = core::SendEvent;
  using RecvPhase = core::RecvPhase;
  using RecvEvent = core::RecvEvent;
  using Bytes = core::Bytes;
  using MsgType = core::MsgType;
  using Opened = core::Opened;
  using LedgerT = LedgerEntry<P>;
  using Arrival = xfer::Arrival<P>;
  using SendInput = xfer::SendInput<P>;
  using RecvInput = xfer::RecvInput<P>;
  using Inline = xfer::Inline;

  /// What it is given outlives it.
  Transfers(Base<P>& base, Rails<P>& rails, Matching<P>& matching);
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  /// Forgets the requests of `p`.
  void forget(PeerT& p);
  /// Frees everything. All peers are forgotten.
  void free_all();

  // ---- sends: eager.h
  /// Without a request. kOwn: it is to this process itself.
  Inline try_inline(const SendArgs<P>& args, InlineSource& source);
  /// Numbers a send to another process, whose window is open, and begins it.
  Begun start(SendRequest& r, ProcT& p);
  Begun begin_send(SendRequest& r);
  /// A message without a record came back from its rail.
  void brief_lost(PeerT& p, MsgType type, Bytes message);

  // ---- the send window: window.h
  bool window_open(ProcT& p, size_t length);
  void ask_window(ProcT& p);
  void owe_sync(ProcT& p);
  bool post_syncs(PeerT& p);  // false: something still waits
  void sync_lost(PeerT& peer, const Frag& f);
  void drop_syncs(PeerT& p);
  /// `opened`: set when sends of that rank may go on, see release_one().
  PeerT* on_seq_sync(const Arrival& a, Bytes in, ProcT*& opened);
  /// Is the next number of `p` free for `r`? False: it waits, see release_one(). `asked`: what waits for its
  /// peer is to be posted.
  bool admit(ProcT& p, SendRequest& r, bool& asked);
  struct Released {
    bool more = false;
    bool posts = false;  ///< what waits for its peer is to be posted
  };
  /// The oldest send of `p` that waits for the window goes on. `more`: call again, after posting.
  Released release_one(ProcT& p);
  void leave_window(ProcT& p);

  // ---- what waits for a rail: serve.h
  /// `r` has something to post.
  template <class Request>
  void ready(Request& r) {
    PeerT& p = *r.xfer.proc->peer;
    if (!r.xfer.linked) p.backlog.add_ready(r);
    base_.activate(p);
  }
  /// Post what the state of `r` requires. It waits when no rail takes it now, or when others wait already.
  /// `r` may be complete afterwards.
  template <class Request>
  void serve_now(Request& r) {
    const PeerT& p = *r.xfer.proc->peer;
    if (p.active || p.choice.empty() || !serve(r)) ready(r);
  }
  bool serve(SendRequest& r);
  bool serve(RecvRequest& r);
  bool post_requests(PeerT& p);  // false: something still waits

  // ---- the rendezvous: rendezvous.h, rndv_copy.h, messages.h, fragments.h
  /// Make the request a rendezvous. False: no name is free now.
  bool begin_rendezvous(SendRequest& r);
  bool nameless(SendRequest& r, SendRndv<P>* rndv);
  bool open(SendRequest& r);
  bool waits_for_rails(PeerT& p);
  bool open_rndv(SendRequest& r);
  /// `r` was matched with an RNDV or RGET of `p`. True: what waits for the peer is to be posted.
  bool begin_recv(RecvRequest& r, ProcT& p, const Arrival& a, const Opened& o);
  void choose_protocol(RecvRequest& r, const Arrival& a, const Opened& o);
  PeerT* on_ack(const Arrival& a, Bytes in);
  PeerT* on_frag(const Arrival& a, Bytes in);
  PeerT* on_put(const Arrival& a, Bytes in);
  PeerT* on_fin(const Arrival& a, Bytes in);
  /// Any other that continues a transfer. `opened`: set when sends of that rank may go on.
  PeerT* on_message(MsgType type, const Arrival& a, Bytes in, ProcT*& opened);
  void store_frag(RecvRequest& r, uint64_t offset, Bytes payload);
  /// A READ has ended: the usual case first.
  void read_over(Frag& f);
  /// Any fragment but a stored message has ended.
  void frag_over(Frag& f);
  void control_lost(const Frag& f);
  void frag_done(const Frag& f);

  // ---- steps of the tables and their actions: restart.h
  /// An RNDV or RGET that names a receive of this process: a new round.
  bool reopen(ProcT& p, const Opened& o, const Arrival& a);
  /// The same RNDV or RGET again. False: no receive is under way for it.
  bool open_again(ProcT& p, const Opened& o, const Arrival& a);
  RecvRequest* live_from(PeerT& p, Name sender);
  void enter_by_sender(PeerT& p, RecvRequest& r);
  void leave_by_sender(PeerT& p, RecvRequest& r);
  void send_event(SendRequest& r, SendEvent e, const SendInput& in = {});
  void recv_event(RecvRequest& r, RecvEvent e, const RecvInput& in = {});
  void send_act(SendRequest& r, uint32_t actions, const SendInput& in);
  void recv_act(RecvRequest& r, uint32_t actions, const RecvInput& in);
  void send_check(SendRequest& r);
  void recv_check(RecvRequest& r);
  void send_over(SendRequest& r);
  void recv_over(RecvRequest& r);
  template <class X>
  bool gate_clear(const X& x) const;
  bool gate_removed() const;
  void arrived(RecvRequest& r, uint64_t begin, uint64_t end, bool by_read);

  // ---- losses.h
  /// Epoch `epoch` of `rail` is over.
  void rail_left(RailT& rail, uint32_t epoch, bool fenced);
  void fail_unfenceable(RailT& rail);
  /// `p` was declared failed: its requests end.
  void give_up(PeerT& p);
  /// Requests of `p`: any, such that wait for it, and how many wait.
  static bool any(const PeerT& p);
  static bool awaits(const PeerT& p);
  static uint64_t waiting(const PeerT& p);

  // ---- owed.h
  static void count_restart(const auto& x, auto before);
  /// What they have yet to send again, for a record. `all`: also while some are in a restart.
  static Owed owed(const PeerT& p, bool all);

  // ---- answers: restart_messages.h, failed.h
  void stored_restart(PeerT& p, MsgType type, uint8_t flags, const core::MatchHdr& id, Name sender,
                      Name receiver);
  void note_failed(PeerT& p, Name sender);
  /// The sender of a message that has been received has to hear that.
  void answer_over(PeerT& p, const core::MatchHdr& h, Name sender);

  Base<P>& base_;
  Rails<P>& rails_;
  Matching<P>& matching_;
  uint64_t eager_out_ = 0;  ///< eager sends with a request that have not ended
  Names<P, SendRequest> sends_;
  Names<P, RecvRequest> recvs_;
  Pool<SendRndv<P>, &SendRndv<P>::next_free> send_rndv_pool_;
  Pool<RecvRndv<P>, &RecvRndv<P>::next_free> recv_rndv_pool_;
  GrantPool<P> grant_pool_;
  Pace<P> pace_{base_};
  Ledgers<P> ledgers_{base_.port, base_.counters, base_.agenda};
  Machine<P> machine_{base_.port};
};

}  // namespace bfo::xfer

#include "pml/bfo/xfer/moves/eager.h"
#include "pml/bfo/xfer/moves/oneself.h"
#include "pml/bfo/xfer/moves/window.h"
#include "pml/bfo/xfer/moves/serve.h"
#include "pml/bfo/xfer/moves/rndv_copy.h"
#include "pml/bfo/xfer/moves/offer.h"
#include "pml/bfo/xfer/moves/rget.h"
#include "pml/bfo/xfer/moves/exposure.h"
#include "pml/bfo/xfer/moves/writes.h"
#include "pml/bfo/xfer/moves/rput.h"
#include "pml/bfo/xfer/moves/rendezvous.h"
#include "pml/bfo/xfer/moves/messages.h"
#include "pml/bfo/xfer/moves/fragments.h"
#include "pml/bfo/xfer/moves/losses.h"
#include "pml/bfo/xfer/moves/owed.h"
#include "pml/bfo/xfer/moves/restart.h"
#include "pml/bfo/xfer/moves/restart_messages.h"
#include "pml/bfo/xfer/moves/failed.h"
