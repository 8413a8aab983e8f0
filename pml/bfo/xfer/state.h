// SPDX-License-Identifier: BSD-3-Clause
//
// state.h: what the engine keeps per request, fragment and peer; rail_state.h, rndv_state.h, unexpected.h,
// comm_state.h and the parts of a peer have the rest. The port embeds SendState, RecvState and FragState in
// its own records as a member named `xfer`; the rest is the engine's.
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/ids.h"
#include "common/seq.h"
#include "common/status.h"
#include "pml/bfo/core/recv_machine.h"
#include "pml/bfo/core/send_machine.h"
#include "pml/bfo/xfer/args.h"
#include "pml/bfo/xfer/comm_state.h"
#include "pml/bfo/xfer/base/list.h"
#include "pml/bfo/xfer/base/peer_links.h"
#include "pml/bfo/xfer/matching/peer_ranks.h"
#include "pml/bfo/xfer/moves/peer_moves.h"
#include "pml/bfo/xfer/port.h"
#include "pml/bfo/xfer/rails/peer_rails.h"
#include "pml/bfo/xfer/moves/rndv_state.h"
#include "pml/bfo/xfer/base/standing.h"
#include "pml/bfo/xfer/matching/unexpected.h"
#include "pml/bfo/xfer/failover/watch.h"

namespace bfo::xfer {

template <class P>
struct SendState {
  using Request = typename P::SendRequest;
  /// list links (ready list of the peer; completion list)
  Request* next = nullptr;
  Request* prev = nullptr;
  bool linked = false;

  /// hot
  Proc<P>* proc = nullptr;
  uint64_t length = 0;
  int32_t tag = 0;
  Seq16 seq = 0;
  SendMode mode = SendMode::kStandard;
  Protocol protocol = Protocol::kEager;
  uint8_t pending = 0;
  Outcome outcome = Outcome::kOk;
  /// eager, and a rail has accepted it before; now it waits for another rail, or for a name
  bool sent_before = false;

  core::SendPhase phase = core::SendPhase::kIdle;
  SendRndv<P>* rndv = nullptr;  ///< from the moment it has a name until its gate opens, else nullptr

  /// What identifies the message in a header, without type and flags.
  core::MatchHdr identity() const { return {0, 0, proc->comm->ctx, proc->comm->my_rank, tag, seq}; }
};

/// What each receive uses comes first.
template <class P>
struct RecvState {
  using Request = typename P::RecvRequest;
  Request* next = nullptr;  ///< posted queue, then the peer's ready list, then completion list
  Request* prev = nullptr;
  Comm<P>* comm = nullptr;
  int32_t src = kAnySource;  ///< the rank asked for
  int32_t tag = kAnyTag;
  uint64_t capacity = 0;
  uint64_t post_order = 0;
  RecvStatus status;
  uint8_t linked = 0;          ///< kPosted: in a queue of posted receives; 1: in another list
  bool keeps_waiting = false;  ///< see RecvArgs

  /// rendezvous only
  core::RecvPhase phase = core::RecvPhase::kIdle;
  Protocol protocol = Protocol::kEager;
  uint8_t pending = 0;
  Seq16 seq = 0;
  Proc<P>* proc = nullptr;
  uint64_t length = 0;          ///< of the message
  RecvRndv<P>* rndv = nullptr;  ///< as in SendState

  Request* chain_next = nullptr;  ///< posted queue: receives with the same tag, while there is an index
  Request* chain_prev = nullptr;

  /// The same as its sender's, for a receive that is matched.
  core::MatchHdr identity() const { return {0, 0, comm->ctx, proc->rank, status.tag, seq}; }
  /// Did it end with an error? A message that was cut arrived well.
  bool failed() const { return status.outcome != Outcome::kOk && status.outcome != Outcome::kTruncated; }
};

/// What a fragment carries. Decides what its end means.
enum class FragKind : uint8_t {
  kMatch,    ///< eager message of `send`
  kOpen,     ///< RNDV or RGET of `send`
  kFrag,     ///< FRAG of `send`
  kWrite,    ///< RDMA write of `send`
  kRead,     ///< RDMA read of `recv`
  kControl,  ///< a control message of the request named by `name`, derived from its state
  kSync,     ///< SEQSYNC of a rank, derived from its state: see sync_of()
  kStored    ///< a stored message: its bytes are in `stored` or `buffer` and are sent again unchanged
};

template <class P>
struct FragState {
  using Record = typename P::Frag;
  Record* next = nullptr;  ///< deferred completions, or stored messages that wait for a rail
  Record* prev = nullptr;
  bool linked = false;
  FragKind kind = FragKind::kStored;
  uint8_t type = 0;  ///< wire type of what was sent
  Fate fate = Fate::kDelivered;
  bool pinned = false;     ///< kStored: sent over `rail` only, as long as its epoch lives (FIN, H9)
  bool to_sender = false;  ///< kControl: `name` names a receive of ours (R->S message)
  bool counted = false;    ///< one of its rail's control_out
  Rail<P>* rail = nullptr;
  uint32_t epoch = 0;
  Name name;  ///< our request, with the round in which this was posted; looked up again at the end (H17)
  typename P::SendRequest* send = nullptr;  ///< kMatch: the request, which cannot end before the fragment
  Peer<P>* peer = nullptr;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint32_t grant = 0;  ///< of a PUT or a write; kOpen: the number of the header
  uint32_t stored_len = 0;
  /// kStored: what Completions::begin() returned for it; 0: it completes no send
  uint32_t completing_turn = 0;
  uint32_t turn = 0;       ///< kRead over several rails: when it was posted, by the turns of Pace
  uint64_t posted_ns = 0;  ///< and by its clock
  void* buffer = nullptr;  ///< kStored longer than `stored`: from Port::alloc
  uint8_t stored[96];
};

/// A peer is the sum of what each owner keeps of it. What needs more than one of them, or the port, is a
/// function of an owner.
template <class P>
struct Peer : PeerLinks<P>, PeerRails<P>, PeerRanks<P>, PeerMoves<P> {
  Standing standing;  ///< of base
  Watch watch;        ///< of failover
};

}  // namespace bfo::xfer
