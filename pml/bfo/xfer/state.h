// SPDX-License-Identifier: BSD-3-Clause
//
// state.h: what the engine keeps per request, fragment, rail and peer; rndv_state.h, unexpected.h and
// comm_state.h have the rest. The port embeds SendState, RecvState and FragState in its own records as a
// member named `xfer`; the rest is the engine's.
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
#include "pml/bfo/xfer/list.h"
#include "pml/bfo/xfer/port.h"
#include "pml/bfo/xfer/rndv_state.h"
#include "pml/bfo/xfer/unexpected.h"

namespace bfo::xfer {

template <class P>
struct SendState {
  using Request = typename P::SendRequest;
  // list links (ready list of the peer; completion list)
  Request* next = nullptr;
  Request* prev = nullptr;
  bool linked = false;

  // hot
  Proc<P>* proc = nullptr;
  std::uint64_t length = 0;
  std::int32_t tag = 0;
  Seq16 seq = 0;
  SendMode mode = SendMode::kStandard;
  Protocol protocol = Protocol::kEager;
  std::uint8_t pending = 0;
  Outcome outcome = Outcome::kOk;
  /// eager, and a rail has accepted it before; now it waits for another rail, or for a name
  bool sent_before = false;

  core::SendPhase phase = core::SendPhase::kIdle;
  SendRndv<P>* rndv = nullptr;  ///< from the moment it has a name until its gate opens, else nullptr
};

template <class P>
struct RecvState {
  using Request = typename P::RecvRequest;
  Request* next = nullptr;  ///< posted queue, then the peer's ready list, then completion list
  Request* prev = nullptr;
  Request* chain_next = nullptr;  ///< posted queue: receives with the same tag, while there is an index
  Request* chain_prev = nullptr;
  std::uint8_t linked = 0;  ///< kPosted: in a queue of posted receives; 1: in another list

  // hot
  Comm<P>* comm = nullptr;
  std::int32_t src = kAnySource;  ///< the rank asked for
  std::int32_t tag = kAnyTag;
  std::uint64_t capacity = 0;
  std::uint64_t post_order = 0;
  RecvStatus status;
  bool keeps_waiting = false;  ///< see RecvArgs

  // rendezvous only
  core::RecvPhase phase = core::RecvPhase::kIdle;
  Protocol protocol = Protocol::kEager;
  std::uint8_t pending = 0;
  Seq16 seq = 0;
  Proc<P>* proc = nullptr;
  std::uint64_t length = 0;     ///< of the message
  RecvRndv<P>* rndv = nullptr;  ///< as in SendState
};

/// What a fragment carries. Decides what its end means.
enum class FragKind : std::uint8_t {
  kMatch,    ///< eager message of `send`
  kOpen,     ///< RNDV or RGET of `send`
  kFrag,     ///< FRAG of `send`
  kWrite,    ///< RDMA write of `send`
  kRead,     ///< RDMA read of `recv`
  kControl,  ///< a control message of the request named by `name`, derived from its state
  kStored    ///< a stored message: its bytes are in `stored` or `buffer` and are sent again unchanged
};

template <class P>
struct FragState {
  using Record = typename P::Frag;
  Record* next = nullptr;  ///< deferred completions, or stored messages that wait for a rail
  Record* prev = nullptr;
  bool linked = false;
  FragKind kind = FragKind::kStored;
  std::uint8_t type = 0;  ///< wire type of what was sent
  Fate fate = Fate::kDelivered;
  bool pinned = false;     ///< kStored: sent over `rail` only, as long as its epoch lives (FIN, H9)
  bool to_sender = false;  ///< kControl: `name` names a receive of ours (R->S message)
  Rail<P>* rail = nullptr;
  std::uint32_t epoch = 0;
  Name name;  ///< our request, with the round in which this was posted; looked up again at the end (H17)
  typename P::SendRequest* send = nullptr;  ///< kMatch: the request, which cannot end before the fragment
  Peer<P>* peer = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint32_t grant = 0;
  std::uint32_t stored_len = 0;
  /// kStored: the value of the peer's completing_turn under which it is counted in completing_out; 0: not
  /// counted
  std::uint32_t completing_turn = 0;
  std::uint32_t turn = 0;       ///< kRead over several rails: when it was posted, by Engine::turns_
  std::uint64_t posted_ns = 0;  ///< and by the clock
  void* buffer = nullptr;       ///< kStored longer than `stored`: from Port::alloc
  std::uint8_t stored[96];
};

/// READs that have to end in time until a rail counts as one that keeps up: of a new one, and after a late
/// one.
inline constexpr std::uint8_t kUnsure = 8;
inline constexpr std::uint8_t kLate = 16;

template <class P>
struct Rail {
  typename P::RailHandle handle{};
  RailLimits limits;
  Peer<P>* peer = nullptr;
  RailState state = RailState::kIdle;
  std::uint8_t index = 0;
  /// 0: its last READs had ended when it was looked at next, so it moves data as fast as READs are posted
  std::uint8_t late = kUnsure;
  bool down_pending = false;       ///< RAILDOWN to the peer
  bool closed_pending = false;     ///< EPOCHCLOSED to the peer
  RailName name;                   ///< current (or last) connection
  RailName dead;                   ///< the connection that RAILDOWN and EPOCHCLOSED are about
  std::uint32_t closed_epoch = 0;  ///< every epoch <= this is fenced
  std::uint32_t up_epoch = 0;      ///< the newest epoch that was up at this side
  bool unfenceable = false;
  bool peer_alive = false;  ///< not up, but the BTL reports that the peer's process is alive and only busy
  std::uint64_t unfenceable_ns = 0;     ///< when the device was found to be unfenceable
  std::uint32_t peer_closed_epoch = 0;  ///< every epoch <= this is closed at the peer
  std::int32_t dead_cause = 0;
  std::uint64_t dead_delivered = 0;
  /// bytes of long messages posted and not ended, which the scheduler balances
  std::uint64_t inflight_bytes = 0;
  FailoverEvent* event = nullptr;  ///< of its last loss; nullptr until the first one
  bool event_open = false;
  bool event_pending = false;  ///< it is complete except for what has to be sent again
};

/// PEERLOST of a peer that has no record here yet. It takes effect when the record is made.
struct EarlyLoss {
  EarlyLoss* next = nullptr;
  std::uint64_t conn = 0;
  PeerLoss loss;
};
inline constexpr std::size_t kMaxEarlyLosses = 4096;

/// The numbering of a freed communicator. The next communicator with the same context id continues it, so
/// that a late copy of an old message is recognised as a duplicate (H6).
struct PastSequence {
  std::uint16_t ctx;
  Seq16 next_seq;
  Seq16 stop_seq;
  Seq16 confirmed;
  Seq16 acked;
  Seq16 expected;
  Seq16 resent_from;
  std::uint16_t question;
  bool resent;
};

/// A message whose receive ended with an error (failed.h).
struct FailedReceive {
  FailedReceive* next = nullptr;
  Name sender;
};

/// A stored message for which there was no fragment record. Its bytes follow.
template <class P>
struct Unrecorded {
  Unrecorded* next = nullptr;
  Unrecorded* prev = nullptr;
  bool linked = false;
  Rail<P>* rail = nullptr;  ///< it may be sent over this rail only
  std::uint32_t epoch = 0;
  std::size_t size = 0;
};

/// The rails of a peer. Each has its own allocation, because others point to it.
template <class P>
struct RailSet {
  Rail<P>* at[kMaxRails] = {};
  Rail<P>& operator[](unsigned i) { return *at[i]; }
  const Rail<P>& operator[](unsigned i) const { return *at[i]; }
};

template <class P>
struct Peer {
  typename P::PeerHandle handle{};
  Peer* next = nullptr;
  Peer* active_next = nullptr;  ///< list of peers for which something waits: progress() serves them
  Peer* active_prev = nullptr;
  Peer* next_timed = nullptr;  ///< list of peers that progress() looks at every millisecond
  bool active = false;
  bool timed = false;
  RailSet<P> rails;
  std::uint8_t n_rails = 0;
  std::uint8_t n_eager = 0;  ///< rails in `eager`
  std::uint8_t rr = 0;       ///< index into `eager`: rail of the next eager message when they are spread
  std::uint8_t turn = 0;     ///< index into `eager`: first rail to be considered for a long message
  bool unreachable = false;
  bool absence_credited = false;  ///< the park time began anew once, because this process was outside MPI
  bool failed = false;            ///< declared failed
  bool finalized = false;         ///< its process has finalized in order: nothing is sent to it any more
  bool probed = false;  ///< a probe found nothing, since the last keep_alive() or since no rail is up
  bool own = false;     ///< this process itself: no message to it uses a rail
  bool completing_brief = false;  ///< one of `completing_out` stands for those without a record of a fragment
  std::uint8_t completing_asked = 0;  ///< how often their end was of interest since the last one
  Rail<P>* preferred = nullptr;       ///< preferred rail of short messages; nullptr: none, or it refused one
  std::uint64_t preferred_key = 0;
  std::uint32_t preferred_backoff = 0;  ///< messages that are spread before `preferred` is used again
  std::uint32_t ahead = 0;  ///< bytes of longer eager messages since it sent a message (schedule.h)
  /// the rail with `completing_out` messages under way that end sends of the peer (order.h)
  Rail<P>* completing_rail = nullptr;
  std::uint32_t completing_out = 0;   ///< number of these messages; the user's messages use the same rail
  std::uint32_t completing_turn = 0;  ///< number of different values that `completing_rail` has had
  /// work that `completing_rail` must have ended until those of `completing_brief` have; 0: not asked yet
  std::uint64_t completing_checkpoint = 0;
  /// bytes stored of its messages for communicators that do not exist here yet
  std::uint32_t unknown_held = 0;
  PeerLoss loss;                 ///< how its requests end when it is declared failed
  bool failing = false;          ///< `loss` is set; it is declared failed when the engine is left
  bool peer_declared = false;    ///< it declared this process failed first: PEERLOST is not needed
  bool lost_pending = false;     ///< declared failed here, and PEERLOST not sent yet
  bool watch_next = false;       ///< the next keep_alive() sends to it, because a wildcard waits for it
  bool watched = false;          ///< a wildcard waits for it, or did when watch_wildcards() last looked
  bool pinging = false;          ///< a message of keep_alive() is under way
  std::size_t eager_limit = 0;   ///< largest of its rails
  PastSequence* past = nullptr;  ///< of communicators that were freed
  std::uint32_t n_past = 0;
  std::uint32_t past_capacity = 0;
  FailedReceive* failed_receives = nullptr;  ///< messages of it whose receive ended with an error
  Rail<P>* eager[kMaxRails] = {};            ///< rails that are usable now; of these, the preferred ones
  std::uint64_t unreachable_since_ns = 0;
  List<Proc<P>> procs;                                  ///< of it, on all communicators
  List<typename P::SendRequest, XferLink> ready_sends;  ///< requests with something to send
  List<typename P::RecvRequest, XferLink> ready_recvs;
  List<typename P::SendRequest, XferLink> unnamed;  ///< sends that wait for a free name, to become rendezvous
  List<typename P::Frag, XferLink> stored;          ///< stored messages that wait for a rail
  List<Unrecorded<P>> unrecorded;                   ///< the same, without a fragment record
  List<typename P::SendRequest, LiveLink> live_sends;  ///< named requests
  List<typename P::RecvRequest, LiveLink> live_recvs;
};

}  // namespace bfo::xfer
