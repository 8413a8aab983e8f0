// SPDX-License-Identifier: BSD-3-Clause
//
// engine.h: Engine<Port>, the whole point-to-point protocol of one process: the entry points MPI calls, the
// callbacks rails call, and the state between them. The bodies are in one file per noun, included at the end;
// contrib/doc/architecture.md says what is in which folder.
//
// No globals: several engines live in one process (simulator, tests). All entry points may be called by any
// thread. The engine locks with Port::Lock, and releases it around everything that can run user code.
// Re-entrance: a port function that the engine calls may call back on_message() or on_done(). Such a callback
// is deferred, and handled before the outermost entry point returns.
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "pml/bfo/core/wire.h"
#include "pml/bfo/xfer/base/base.h"
#include "pml/bfo/xfer/failover/failover.h"
#include "pml/bfo/xfer/port.h"

namespace bfo::xfer {

template <class P>
class Engine {
 public:
  using SendRequest = typename P::SendRequest;
  using RecvRequest = typename P::RecvRequest;
  using InlineSource = typename P::InlineSource;
  using Frag = typename P::Frag;
  using PeerT = Peer<P>;
  using RailT = Rail<P>;
  using CommT = Comm<P>;
  using ProcT = Proc<P>;
  /// A matched probe's message: MPI_Message points to it.
  using Message = Unexpected<P>;

  /// `port` outlives the engine.
  explicit Engine(P& port, const Config& config = {});
  /// Frees everything. Requests that are still pending are forgotten, not completed.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // ---- communicators
  /// Begin to use a context id. Messages that arrived before are matched now. nullptr: the id is in use.
  CommT* comm_add(const CommDesc<P>& desc);
  /// Unexpected messages of the communicator are dropped. The caller has made sure that no request is pending
  /// on it.
  void comm_del(CommT* comm);
  /// Messages of the communicator that `refusal` names are received by nobody any more: revoked.h.
  void comm_revoke(CommT* comm, const Refusal& refusal);

  // ---- peers and rails
  /// `key` chooses the peer's preferred rail, see RailChoice::default_preferred(). It is the same on both
  /// sides. `own`: it is this process itself (oneself.h).
  PeerT* peer_add(const typename P::PeerHandle& handle, uint64_t key = 0, bool own = false);
  /// Add one rail; at most kMaxRails per peer (nullptr after that). It is idle until rail_begin(). The caller
  /// holds the engine's lock over both when its BTL reports to another thread.
  RailT* rail_add(PeerT* peer, const typename P::RailHandle& handle, const RailLimits& limits);
  /// The rail is used from now on. `state` kUp for rails whose BTL does not speak common/failover_btl.h.
  /// `name` zero when unknown.
  void rail_begin(RailT* rail, RailState state, RailName name = {});
  /// The runtime reports that the peer's process is gone: its requests end with kPeerLost. `finalized`: it
  /// has finalized in order (del_procs); receives from any source do not end for that.
  void peer_lost(PeerT* peer, bool finalized = false);
  /// For a runtime that keeps account of the processes that are gone: revoked.h.
  template <class Gone, class Lost>
  void compare_losses(Gone gone, Lost lost);
  /// Reports the losses of its rails now, whether or not their records are complete.
  void tell_losses(PeerT* peer);
  /// Is the record of a loss not complete yet?
  bool losses_open();
  /// Nothing can be said to this peer, which has no rail: it is declared failed when the engine is left.
  void peer_refuse(PeerT* peer);

  // ---- MPI calls
  /// Start a send. complete_send() is called exactly once, possibly before this returns. A persistent request
  /// calls isend() for each start: new sequence number, new name.
  void isend(SendRequest* req, const SendArgs<P>& args);
  /// Blocking send without a request. True: the payload is taken, and nothing will be reported about it.
  /// False: too long, not standard or ready mode, or no rail takes it now; use isend().
  bool send_inline(const SendArgs<P>& args, InlineSource& source);
  /// Post a receive. complete_recv() is called exactly once, possibly before this returns.
  void irecv(RecvRequest* req, const RecvArgs<P>& args);
  /// True: the receive was not matched and is removed. The caller completes it as cancelled.
  bool cancel(RecvRequest* req);
  /// True: a matching message is here; it stays. False: `result.outcome` tells whether one can still come.
  bool iprobe(CommT* comm, int32_t src, int32_t tag, ProbeResult& result);
  /// The matching message, removed from matching; nullptr when there is none, as with iprobe().
  Message* improbe(CommT* comm, int32_t src, int32_t tag, ProbeResult& result);
  /// Receive a message that improbe() returned.
  void imrecv(Message* message, RecvRequest* req, uint64_t capacity);

  /// Receives and messages of one rank of a communicator. For kAnySource: receives posted with
  /// MPI_ANY_SOURCE, and all messages. For tools: it walks the queues.
  using QueueLengths = xfer::QueueLengths;
  QueueLengths queue_lengths(CommT* comm, int32_t rank);
  /// For tools: it walks the queues.
  using PeerLoad = xfer::PeerLoad;
  PeerLoad peer_load(const PeerT& peer);

  // ---- from the rails
  /// A message came in. `rail` is nullptr and `epoch` is 0 when the port cannot tell. `data` is valid during
  /// the call only.
  void on_message(RailT* rail, uint32_t epoch, uint8_t tag, const void* data, size_t size);
  /// A fragment ended. The engine owns `frag` again.
  void on_done(Frag* frag, Fate fate);
  /// A message of `size` bytes came for which the port had no memory.
  void on_message_unstored(RailT* rail, size_t size);
  /// A payload taken by sendi() failed: header and payload in one piece.
  void on_sendi_failed(RailT* rail, uint8_t tag, const void* data, size_t size, Fate fate);
  void on_rail_up(RailT* rail, const RailEvent& event);
  void on_rail_suspect(RailT* rail, const RailEvent& event);
  /// The epoch `event.name` is dead; its fragments come back after this call.
  void on_rail_down(RailT* rail, const RailEvent& event);
  /// The epoch is over: no access and no message of it is possible any more (kFenced), or that cannot be
  /// proven. `delivered`: messages of it handed to on_message().
  void on_rail_closed(RailT* rail, const RailEvent& event, FenceResult result, uint64_t delivered);
  /// A BTL without the failover contract reports that its connection is broken for good. `may_have_lost`:
  /// messages that it had reported as sent may be lost. Its fragments came back before. Not to be called from
  /// inside a port function.
  void on_rail_broken(RailT* rail, const RailEvent& event, bool may_have_lost);
  /// `rail` is not up. `alive` true: the peer's process is alive and reached by it, so it is only busy
  /// (H15). False: that is not so any more.
  void on_peer_alive(RailT* rail, bool alive);
  /// A port has another rate: see Rails::reweigh().
  template <class Over>
  unsigned on_port_speed(Over over, uint32_t weight) {
    Entry entry(*this);
    return rails_.reweigh(over, weight);
  }
  /// Rails for whose handle `over` is true: of how many it is known what they move, and how many move too
  /// little. For tools and for the port's words.
  template <class Over>
  JudgedRails judged_rails(Over over) {
    Entry entry(*this);
    return xfer::judged_rails(base_, over);
  }
  /// Mbit/s that port `port` (RailLimits::port) was measured to move; 0: it was not. For tools.
  uint64_t port_rate(unsigned port) const { return rails_.weighing().ports.rate(port); }
  /// The peer acknowledged `lost` messages of a dead epoch that it never received and that cannot be resent.
  void on_gap_lost(RailT* rail, RailName name, uint64_t lost);

  // ---- time
  /// Retry what waits for resources, and check park times. Cheap when nothing waits. Returns how much was
  /// done.
  int progress(uint64_t now_ns);
  /// To be called now and then, when all rails have been read since the last call: a READ that has not ended
  /// by the second call after it was posted is late (pace.h). progress() calls it. Any thread.
  void turn() { moves_.turn(); }
  /// To be called about once a second, also while progress() is not needed: sends one message to each peer
  /// that this process waits for, so that the death of its process is noticed (failover rails only).
  void keep_alive();
  /// Number of fragments, control messages and rendezvous requests that are not finished. Finalize waits
  /// until it is 0.
  uint64_t unfinished() const;
  /// Do long messages wait for rails that are being connected? Then progress lets them go. Any thread.
  bool waits_for_rails() const { return rails_.patience().any(); }
  /// True while progress() has something to do that no callback will trigger.
  bool needs_progress() const { return !base_.agenda.empty(); }

  const Counters& counters() const { return base_.counters; }
  /// How often each cell of the state tables was used.
  const Machine<P>& machine() const { return moves_.machine(); }
  P& port() { return base_.port; }

 private:
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
  using KeptResult = xfer::KeptResult<P>;

  /// entry.h: lock, re-entrance, completion lists
  class Entry;
  void leave_slow();
  void do_deferred();

  void defer(RailT* rail, uint32_t epoch, uint8_t tag, const void* data, size_t size, bool failed = false);
  void take_eager(RecvRequest& r, Bytes in);
  RecvRequest* dispatch(RailT* rail, uint32_t epoch, uint8_t tag, Bytes in);
  RecvRequest* dispatch_longer(const Arrival& a, MsgType type, Bytes in);
  void handle_done(Frag& f);
  void stored_done(Frag& f);

  /// dispatch.h
  RecvRequest* on_match(RailT* rail, uint32_t epoch, Bytes in);
  RecvRequest* match_otherwise(RailT* rail, uint32_t epoch, core::MatchWords h, Bytes in);
  RecvRequest* on_open(const Arrival& a, MsgType type, Bytes in);
  RecvRequest* take(const Arrival& a, const Opened& o);
  void begin_recv(RecvRequest& r, ProcT& p, const Arrival& a, const Opened& o);
  void answer_over(PeerT& p, const Opened& o);
  void came(ProcT& p, const Matched<P>& m, const Opened& o, const Arrival& a);
  void take_following(ProcT& p);
  void again(ProcT& p, const Opened& o, const Arrival& a);
  void take_up(const Arrival& a, const Opened& o);
  KeptResult match_kept(RecvRequest& r, Message& m);
  KeptResult take_kept(RecvRequest& r, Message* m, bool nested);
  KeptResult give_kept(RecvRequest& r, Message* m, bool nested);
  void end_kept(RecvRequest& r, KeptResult kept);
  KeptResult post_recv(RecvRequest& r, const RecvArgs<P>& args);

  /// revoked.h
  void refuse(CommT& c);
  void refuse_any(ProcT& p) {
    if (p.comm->refusal.any()) [[unlikely]]
      refuse(*p.comm);
  }

  /// sends.h
  bool send_own(SendArgs<P> args, InlineSource source);

  /// events.h
  static void raise(std::atomic<size_t>& longest, size_t limit);

  /// pump.h
  void flush(PeerT& p);
  void flush_for(PeerT* p) {
    if (p) flush(*p);
  }
  bool post_waiting(PeerT& p);
  void release_stalled(ProcT& p);
  void check_timers(uint64_t now_ns);

  Base<P> base_;
  Rails<P> rails_{base_};
  Matching<P> matching_{base_};
  Moves<P> moves_{base_, rails_, matching_};
  Failover<P> failover_{base_, rails_, matching_, moves_};
  typename P::Lock lock_;
  unsigned depth_ = 0;
  bool refusals_wait_ = false;  ///< of communicators that were revoked inside a port function
  static constexpr size_t kNoRail = SIZE_MAX;
  std::atomic<size_t> longest_eager_{kNoRail};     ///< of all rails; read without the lock
  std::atomic<size_t> longest_blocking_{kNoRail};  ///< the same, of blocking sends
};

}  // namespace bfo::xfer

#include "pml/bfo/xfer/entry.h"
#include "pml/bfo/xfer/sends.h"
#include "pml/bfo/xfer/dispatch.h"
#include "pml/bfo/xfer/pump.h"
#include "pml/bfo/xfer/events.h"
#include "pml/bfo/xfer/revoked.h"
