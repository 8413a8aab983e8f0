// SPDX-License-Identifier: BSD-3-Clause
//
// matching.h: Matching, the MPI matching of one process: communicators and ranks, the order of arrival,
// posted receives and messages that no receive has matched, probes. It says what comes of a message and calls
// nobody about it: its caller begins the rendezvous, unpacks the payload, or answers the sender. Used under
// the engine's lock. The bodies are in comm.h, match.h and posted.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pml/bfo/xfer/base/base.h"
#include "pml/bfo/xfer/calls.h"
#include "pml/bfo/xfer/matching/comm_table.h"
#include "pml/bfo/xfer/matching/pushed_out.h"
#include "pml/bfo/xfer/matching/unknown_messages.h"
#include "pml/bfo/xfer/state.h"

namespace bfo::xfer {

/// What came of a message.
enum class Came : uint8_t {
  kNothing,    ///< it is kept, or dropped and counted
  kEager,      ///< a receive takes it: its payload is to be unpacked, then the receive is complete
  kOpened,     ///< a receive takes it: a rendezvous begins
  kDuplicate,  ///< an RNDV or RGET that came before: its name decides what it is
  kOver        ///< an RNDV or RGET whose message has been received: its sender has to hear that
};

template <class P>
struct Matched {
  Came what = Came::kNothing;
  typename P::RecvRequest* receive = nullptr;  ///< kEager, kOpened
};

template <class P>
class Matching {
 public:
  using RecvRequest = typename P::RecvRequest;
  using PeerT = Peer<P>;
  using RailT = Rail<P>;
  using CommT = Comm<P>;
  using ProcT = Proc<P>;
  using Message = Unexpected<P>;
  using Arrival = xfer::Arrival<P>;
  using Opened = core::Opened;
  using Bytes = core::Bytes;

  /// `base` outlives it.
  explicit Matching(Base<P>& base) : base_(base) {}
  Matching(const Matching&) = delete;
  Matching& operator=(const Matching&) = delete;
  /// Frees all communicators and messages.
  void free_all();

  /// The memory of its queues' indices.
  void* alloc(size_t size) { return base_.port.alloc(size); }
  void free(void* memory) { base_.port.free(memory); }

  // ---- communicators and ranks
  CommT* comm_add(const CommDesc<P>& desc);
  void comm_del(CommT* comm);
  CommT* find(uint16_t ctx) const { return comms_.find(ctx); }
  const CommTable<P>& comms() const { return comms_; }
  /// nullptr: the communicator has no such rank, or there is no memory for it.
  ProcT* proc_at(CommT& c, int32_t rank) {
    if (static_cast<uint32_t>(rank) >= static_cast<uint32_t>(c.size)) [[unlikely]]
      return nullptr;
    ProcT* const p = c.procs[rank];
    return p ? p : make_proc(c, rank);
  }
  /// nullptr: there is no memory for its record.
  PeerT* peer_of(ProcT& p) { return p.peer ? p.peer : meet(p); }

  // ---- messages that come
  ProcT* in_sequence(const core::MatchHdr& h, const RailT* rail) const;
  RecvRequest* take_next(ProcT& p, const core::MatchHdr& h, uint64_t length);
  void keep_next(ProcT& p, RailT* rail, uint32_t epoch, int32_t tag, Bytes in);
  ProcT* sender(const Arrival& a, const Opened& o, bool& over);
  Matched<P> accept(ProcT& p, const Opened& o, const Arrival& a);
  /// Do messages of `p` wait for earlier ones? Then take_following() after the next one.
  bool has_gap(const ProcT& p) const { return !p.out_of_sequence.empty(); }
  Message* take_following(ProcT& p, RecvRequest*& receive);
  bool renew(ProcT& p, const Opened& o, const Arrival& a);
  /// A message of `c` that its refusal names, removed; nullptr: there is none.
  Message* take_refused(CommT& c);
  /// The oldest message that came before communicator `ctx` was made, removed; nullptr: there is none.
  Message* take_unknown(uint16_t ctx) { return unknown_.take(*this, ctx); }
  void end_pushed_out(CommT& c);

  // ---- receives and probes
  Message* post(RecvRequest& r, const RecvArgs<P>& args);
  void post_for(Message& m, RecvRequest& r, uint64_t capacity);
  bool cancel(RecvRequest& r);
  Message* probe(CommT& c, int32_t src, int32_t tag, ProbeResult& result);
  void hold(Message& m);
  RecvRequest* take_posted(ProcT& p, int32_t tag);
  void set_matched(RecvRequest& r, ProcT& p, const core::MatchHdr& h, uint64_t length);
  void unpack(RecvRequest& r, Bytes payload);
  void add_unexpected(ProcT& p, Message* m);
  void free_message(Message* m);
  void fail_posted(PeerT& p, Outcome outcome);
  /// Receives that only `p` can match.
  static bool any_posted(const PeerT& p);
  static uint64_t posted(const PeerT& p);
  void fail_wildcards(CommT& c);

  /// For tools: it walks the queues.
  QueueLengths queue_lengths(const CommT& c, int32_t rank) const;

 private:
  void comm_free(CommT* c);
  ProcT* make_proc(CommT& c, int32_t rank);
  PeerT* meet(ProcT& p);
  void remember(ProcT& p);
  bool is_from(ProcT& p, const RailT* rail, const Opened& o);
  Matched<P> accept_out_of_order(ProcT& p, const Opened& o, const Arrival& a);
  Matched<P> deliver(ProcT& p, const Opened& o, const Arrival& a);
  Message* keep(ProcT* p, const Opened& o, const Arrival& a);
  Message* keep_here(ProcT* p, const Opened& o, const Arrival& a);
  bool replace(Message& m, const Opened& o, const Arrival& a);
  Message* kept_open(ProcT& p, Name sender);
  void enter_name(Message& m);
  void leave_name(Message& m);
  bool keep_unknown(const Opened& o, const Arrival& a);
  void unknown_too_many(const Arrival& a);
  bool make_room(const Opened& o);
  void push_out(const core::MatchHdr& h);
  static bool sends_anonymously(const PeerT& p);
  void end_for_pushed_out(CommT& c, int32_t rank);
  Message* find_unexpected(CommT& c, int32_t src, int32_t tag);
  Message* take_unexpected(CommT& c, int32_t src, int32_t tag);
  void remove_unexpected(Message& m);
  Outcome probe_missed(CommT& c, int32_t src);
  void fail_recv(RecvRequest& r, Outcome outcome);
  void fail_wildcard(RecvRequest& r);

  Base<P>& base_;
  CommTable<P> comms_;
  UnknownMessages<P> unknown_;
  PushedOut pushed_out_;
};

}  // namespace bfo::xfer

#include "pml/bfo/xfer/matching/comm.h"
#include "pml/bfo/xfer/matching/early.h"
#include "pml/bfo/xfer/matching/match.h"
#include "pml/bfo/xfer/matching/posted.h"
