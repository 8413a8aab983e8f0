// SPDX-License-Identifier: BSD-3-Clause
//
// state.h: what the engine keeps per request, fragment, rail, peer and communicator. The port embeds
// SendState, RecvState and FragState in its own records as a member named `xfer`; the rest is the engine's.
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/ids.h"
#include "common/ranges.h"
#include "common/seq.h"
#include "common/status.h"
#include "pml/bfo/core/recv_machine.h"
#include "pml/bfo/core/send_machine.h"
#include "pml/bfo/core/wire.h"
#include "pml/bfo/xfer/list.h"
#include "pml/bfo/xfer/port.h"
#include "pml/bfo/xfer/queue.h"

namespace bfo::xfer {

inline constexpr std::int32_t kAnySource = -1;
inline constexpr std::int32_t kAnyTag = -1;
inline constexpr unsigned kMaxRails = 8;
static_assert(kMaxRails <= core::kMaxWireRails);

enum class SendMode : std::uint8_t { kStandard, kSync, kReady };

template <class P>
struct Comm;
template <class P>
struct Proc;
template <class P>
struct Peer;
template <class P>
struct Rail;
template <class P>
struct SendRndv;
template <class P>
struct RecvRndv;
template <class P>
struct Eager;
template <class P>
struct RndvCopy;
template <class P>
struct Rget;
template <class P>
struct Rput;
template <class P>
struct Single;

/// What isend() is asked for. A buffered send is a standard send of the copy, which the port makes.
template <class P>
struct SendArgs {
  Comm<P>* comm = nullptr;
  std::int32_t dst = 0;
  std::int32_t tag = 0;
  std::uint64_t length = 0;  ///< packed bytes
  SendMode mode = SendMode::kStandard;
};

/// What irecv() is asked for.
template <class P>
struct RecvArgs {
  Comm<P>* comm = nullptr;
  std::int32_t src = kAnySource;
  std::int32_t tag = kAnyTag;
  std::uint64_t capacity = 0;  ///< bytes that fit
  /// a receive from any source that continues when a peer has failed (wildcard.h)
  bool keeps_waiting = false;
};

enum class Protocol : std::uint8_t { kEager, kCopy, kGet, kPut };

/// Control messages that the state of a request requires. They are derived from the state, never stored as
/// packets (H11).
enum Owed : std::uint8_t {
  kOweNothing = 0,
  kOweStart = 1,   ///< S: MATCH, RNDV or RGET.      R: ACK
  kOweData = 2,    ///< S: FRAGs or writes.          R: PUTs or READs
  kOweNotify = 4,  ///< S: RNDVRESTARTNOTIFY.        R: RECVERRNOTIFY
  kOweQuiet = 8    ///<                              R: RNDVRESTARTACK
};

/// One access to this process's memory that a rail may still execute (P2). `conn` and `epoch` name the
/// connection. The entry leaves by FIN, by its own completion, or by FENCED.
template <class P>
struct LedgerEntry {
  Rail<P>* rail = nullptr;
  std::uint64_t conn = 0;
  std::uint32_t epoch = 0;
  std::uint32_t grant = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  Round round = 0;
  bool loaded = false;  ///< counted in its rail's inflight_bytes
  bool owed = false;    ///< PUT: must be sent, for the first time or again
  bool sent = false;    ///< PUT: its rail accepted it at least once
  bool fin = false;     ///< its bytes are known to have arrived
  bool dead = false;    ///< not used any more, waits only for FENCED
  LedgerEntry* next = nullptr;
};

/// PUT, at the sender: a range the receiver allows it to write.
template <class P>
struct Grant {
  Grant* next = nullptr;
  Rail<P>* rail = nullptr;
  std::uint32_t epoch = 0;
  std::uint32_t number = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t address = 0;
  HandleBytes handle;
};

/// What a send needs while it is a rendezvous: from a free list, with the memory of its range sets.
template <class P>
struct SendRndv {
  using Request = typename P::SendRequest;
  SendRndv* next_free = nullptr;
  Request* live_next = nullptr;  ///< list of named requests of the peer
  Request* live_prev = nullptr;
  bool live_linked = false;
  bool known = false;  ///< the receiver has its header, answered or not
  /// its header was sent before; of an eager message that became a rendezvous, all of it
  bool opened = false;
  bool no_rdma = false;  ///< fell back to copy for the rest of the request
  bool registered = false;
  std::uint32_t in_flight = 0;    ///< fragments of this request that have not ended
  std::uint32_t frags = 0;        ///< FRAGs delivered in the last round in which any was sent
  Name name;                      ///< ours, with the current round
  Name peer_name;                 ///< the receiver's; 0 until it answers
  RangeSet todo;                  ///< ranges of this round that no rail has accepted yet
  std::uint64_t undelivered = 0;  ///< bytes of this round that are not known to be delivered
  std::uint32_t restarts = 0;
  std::uint16_t dirty_rails = 0;  ///< rails (by index) on which a write of this round failed
  std::uint16_t exposed = 0;      ///< RGET: rails (by index) whose keys the receiver has
  /// rails (by index) of failed writes for which there was no memory for a ledger entry
  std::uint16_t unfenced = 0;
  std::uint64_t open_len = 0;  ///< payload of the RNDV
  RangeSet gone;  ///< bytes that a rail accepted at least once: what is sent of them is sent again
  std::uint64_t received = 0;  ///< of those, bytes that the receiver reported as received
  std::uint64_t again = 0;     ///< of those, bytes of this round that have to be sent again and were not yet
  RangeSet granted;  ///< PUT: numbers of the grants of this round that have arrived, to recognise duplicates
  Grant<P>* grants = nullptr;        ///< PUT: grants to be written, in order of arrival
  Grant<P>* last_grant = nullptr;    ///< .. and the last of them
  std::uint32_t n_grants = 0;        ///< .. and their number
  LedgerEntry<P>* ledger = nullptr;  ///< exposures (RGET) and failed writes
  typename P::Registration reg{};
};

/// What a receive needs while it is a rendezvous.
template <class P>
struct RecvRndv {
  using Request = typename P::RecvRequest;
  RecvRndv* next_free = nullptr;
  Request* live_next = nullptr;
  Request* live_prev = nullptr;
  bool live_linked = false;
  /// the sender asked while READs were under way; it is answered when the gate opens
  bool nack_owed = false;
  bool sender_done = false;  ///< SENDDONE came: the sender will send nothing more
  bool no_rdma = false;
  bool registered = false;
  std::uint8_t looks = 0;     ///< kQuiescing: how many more times all rails are polled for missing FRAGs
  std::uint8_t refusals = 0;  ///< PUT: grants the sender could not use
  std::uint8_t n_keys = 0;
  std::uint64_t want = 0;       ///< min(length, capacity): bytes that must arrive
  Name name;                    ///< ours, with the current round
  Name peer_name;               ///< the sender's, with its round
  RangeSet have;                ///< bytes received: unpacked, or written and reported by FIN
  RangeSet todo;                ///< RDMA: ranges not yet granted or read
  RangeSet lost;                ///< read at least once, in vain: what arrives of them was transferred again
  std::uint32_t in_flight = 0;  ///< own READs that have not ended
  std::uint32_t frags = 0;      ///< FRAGs of this round that came
  std::uint32_t frags_due = 0;  ///< kQuiescing: FRAGs of this round that were delivered, says NOTIFY; missing
                                ///< ones are in a rail's queue
  std::uint32_t next_grant = 1;
  std::uint32_t refused = 0;  ///< PUT: rails (by index) the sender refused in this round
  std::uint64_t total = 0;    ///< PUT: bytes granted in this round altogether
  RangeSet doubtful;  ///< PUT: granted on a rail that is fenced now; counts as received when SENDDONE says
                      ///< that it was written
  Rail<P>* key_rail = nullptr;       ///< RGET: rail of the key that has no connection name
  LedgerEntry<P>* ledger = nullptr;  ///< grants (PUT) and READs
  std::uint64_t remote_address = 0;  ///< RGET
  core::RailKey keys[core::kMaxWireRails];
  typename P::Registration reg{};
};

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
  std::uint8_t owed = 0;
  Outcome outcome = Outcome::kOk;
  /// eager, and a rail has accepted it before; now it waits for another rail, or for a name
  bool went = false;

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
  std::uint8_t owed = 0;
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
  kRaw       ///< a stored message: its bytes are in `raw` or `buffer` and are sent again unchanged
};

template <class P>
struct FragState {
  using Record = typename P::Frag;
  Record* next = nullptr;  ///< deferred completions, or stored messages that wait for a rail
  Record* prev = nullptr;
  bool linked = false;
  FragKind kind = FragKind::kRaw;
  std::uint8_t type = 0;  ///< wire type of what was sent
  Fate fate = Fate::kDelivered;
  bool pinned = false;     ///< kRaw: sent over `rail` only, as long as its epoch lives (FIN, H9)
  bool to_sender = false;  ///< kControl: `name` names a receive of ours (R->S message)
  Rail<P>* rail = nullptr;
  std::uint32_t epoch = 0;
  Name name;  ///< our request, with the round in which this was posted; looked up again at the end (H17)
  typename P::SendRequest* send = nullptr;  ///< kMatch: the request, which cannot end before the fragment
  Peer<P>* peer = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint32_t grant = 0;
  std::uint32_t raw_len = 0;
  /// kRaw: the value of the peer's order_turn under which it is counted in ends_out; 0: not counted
  std::uint32_t order_turn = 0;
  void* buffer = nullptr;  ///< kRaw longer than `raw`: from Port::alloc
  std::uint8_t raw[96];
};

template <class P>
struct Rail {
  typename P::RailHandle handle{};
  RailLimits limits;
  Peer<P>* peer = nullptr;
  RailState state = RailState::kIdle;
  std::uint8_t index = 0;
  bool owe_down = false;           ///< RAILDOWN to the peer
  bool owe_closed = false;         ///< EPOCHCLOSED to the peer
  RailName name;                   ///< current (or last) connection
  RailName dead;                   ///< the connection that RAILDOWN and EPOCHCLOSED are about
  std::uint32_t closed_epoch = 0;  ///< every epoch <= this is fenced
  std::uint32_t up_epoch = 0;      ///< the newest epoch that was up at this side
  bool unfenceable = false;
  bool answers = false;  ///< not up, but the BTL reports that the peer's process is alive and only busy
  std::uint64_t unfenceable_ns = 0;     ///< when the device was found to be unfenceable
  std::uint32_t peer_closed_epoch = 0;  ///< every epoch <= this is closed at the peer
  std::int32_t dead_cause = 0;
  std::uint64_t dead_delivered = 0;
  /// bytes of long messages posted and not ended, which the scheduler balances
  std::uint64_t inflight_bytes = 0;
  FailoverEvent* event = nullptr;  ///< of its last loss; nullptr until the first one
  bool event_open = false;
  bool event_held = false;  ///< it is complete except for what has to be sent again
};

/// A message that arrived before its receive was posted. MPI_Message points to one.
template <class P>
struct Unexpected {
  /// Links of two queues: that of its sender (or of unknown communicators), and that of its communicator.
  struct Place {
    Unexpected* next;
    Unexpected* prev;
    Unexpected* chain_next;
    Unexpected* chain_prev;
  };
  Place mine;
  Place among_all;
  Proc<P>* proc = nullptr;
  Rail<P>* rail = nullptr;  ///< over which it arrived; nullptr when unknown
  std::uint32_t epoch = 0;
  core::MatchHdr match{};
  /// `data` is an allocation of its own, because a newer header has replaced the first one (H21)
  bool separate = false;
  std::uint8_t* data = nullptr;  ///< header and payload as received; normally right behind this struct.
                                 ///< kOwnRequest: the send request
  std::uint32_t size = 0;
  core::Bytes bytes() const { return {data, size}; }
};

/// Type of a stored message whose bytes are still in the buffer of its request, to which `data` points
/// (oneself.h). Never in a header.
inline constexpr std::uint8_t kOwnRequest = 0;

/// RecvState::linked of a receive that no message has matched.
inline constexpr std::uint8_t kPosted = 2;

/// Posted receives, by the tag asked for.
struct PostedLink {
  static auto& next(auto* r) { return r->xfer.next; }
  static auto& prev(auto* r) { return r->xfer.prev; }
  static auto& chain_next(auto* r) { return r->xfer.chain_next; }
  static auto& chain_prev(auto* r) { return r->xfer.chain_prev; }
  static void mark(auto* r, bool in) { r->xfer.linked = in ? kPosted : 0; }
};
struct PostedKey {
  static std::int64_t of(const auto* r) { return r->xfer.tag; }
  static bool older(const auto* a, const auto* b) { return a->xfer.post_order < b->xfer.post_order; }
};
template <class P>
using PostedQueue = Queue<typename P::RecvRequest, PostedLink, PostedKey>;

/// Messages by tag, by sequence number, by communicator id, or by all three.
template <auto Place>
struct MessageLink {
  static auto& next(auto* m) { return (m->*Place).next; }
  static auto& prev(auto* m) { return (m->*Place).prev; }
  static auto& chain_next(auto* m) { return (m->*Place).chain_next; }
  static auto& chain_prev(auto* m) { return (m->*Place).chain_prev; }
  static void mark(auto*, bool) {}
};
struct TagKey {
  static std::int64_t of(const auto* m) { return m->match.tag; }
};
struct SeqKey {
  static std::int64_t of(const auto* m) { return m->match.seq; }
};
struct ContextKey {
  static std::int64_t of(const auto* m) { return m->match.ctx; }
};
struct MessageKey {
  static std::int64_t of(const core::MatchHdr& h) {
    return static_cast<std::int64_t>(std::uint64_t{h.ctx} << 48 | std::uint64_t{h.seq} << 32 |
                                     static_cast<std::uint32_t>(h.src));
  }
  static std::int64_t of(const auto* m) { return of(m->match); }
};
template <class P, class Key>
using MessageQueue = Queue<Unexpected<P>, MessageLink<&Unexpected<P>::mine>, Key>;
template <class P, class Key>
using CommQueue = Queue<Unexpected<P>, MessageLink<&Unexpected<P>::among_all>, Key>;

/// One rank of one communicator, made on first use.
template <class P>
struct Proc {
  Proc* next = nullptr;  ///< all ranks of the same peer, once the peer is known
  Proc* prev = nullptr;
  bool linked = false;
  Comm<P>* comm = nullptr;
  Peer<P>* peer = nullptr;
  std::int32_t rank = 0;
  // sending
  Seq16 next_seq = 0;
  Seq16 stop_seq = 0;   ///< the first number that needs a look at the window (H5)
  Seq16 confirmed = 0;  ///< the peer has received every message before this one
  bool resent = false;  ///< messages from `hold_seq` on were sent twice, and the dead epoch is not yet closed
                        ///< at both ends
  bool marked = false;  ///< `mark` and `rail_mark` are valid
  Seq16 hold_seq = 0;
  // receiving
  Seq16 expected = 0;
  Seq16 last_early = 0;                ///< the highest number in `early`
  MessageQueue<P, SeqKey> early;       ///< out of sequence, as they came
  MessageQueue<P, TagKey> unexpected;  ///< in sequence, not matched
  PostedQueue<P> posted;
  List<typename P::SendRequest, XferLink> stalled;  ///< sends that wait for the sequence window (H5)
  Proc* next_stalled = nullptr;                     ///< list of all ranks with stalled sends
  bool in_stalled = false;
  // sending; used only when next_seq reaches stop_seq
  /// the rails have reported the end of all messages before this one: none of them is sent again
  Seq16 acked = 0;
  /// checkpoint: `acked` becomes this when every rail has ended what it had accepted at that time
  Seq16 mark = 0;
  std::uint16_t question = 0;  ///< number of the open SEQSYNC question to the peer: see seq_question()
  std::uint64_t rail_mark[kMaxRails] = {};
};

/// PEERLOST of a peer that has no record here yet. It takes effect when the record is made.
struct EarlyLoss {
  EarlyLoss* next = nullptr;
  std::uint64_t conn = 0;
  PeerLoss loss;
};
inline constexpr std::size_t kMaxEarlyLosses = 4096;

/// What comm_add() is told.
template <class P>
struct CommDesc {
  typename P::CommHandle handle{};
  std::uint16_t ctx = 0;
  std::int32_t my_rank = 0;
  std::int32_t size = 0;  ///< of an intercommunicator: of the remote group
  bool inter = false;
};

template <class P>
struct Comm {
  Comm* next = nullptr;  ///< all communicators
  Comm* prev = nullptr;
  bool linked = false;
  bool inter = false;  ///< `my_rank` is none of its ranks
  /// not 0: a probe from any source found nothing, at most two calls of keep_alive() ago
  std::uint8_t probed = 0;
  Outcome lost_outcome = Outcome::kOk;
  typename P::CommHandle handle{};
  std::uint16_t ctx = 0;
  std::int32_t my_rank = 0;
  std::int32_t size = 0;
  std::int32_t n_lost = 0;     ///< members that have failed
  std::int32_t lost_rank = 0;  ///< the last member that failed, and with which outcome
  std::int32_t watch = 0;      ///< watch_wildcards(): the next rank to look at
  /// Members that are not this process.
  std::int32_t others() const { return inter ? size : size - 1; }
  Proc<P>** procs = nullptr;
  PostedQueue<P> wild;            ///< posted with MPI_ANY_SOURCE
  CommQueue<P, TagKey> held;      ///< taken by a matched probe, not yet received
  CommQueue<P, TagKey> arrivals;  ///< all unexpected, in order of arrival
  std::uint64_t post_order = 0;   ///< of the next receive
};

/// The numbering of a freed communicator. The next communicator with the same context id continues it, so
/// that a late copy of an old message is recognised as a duplicate (H6).
struct PastSequence {
  std::uint16_t ctx;
  Seq16 next_seq;
  Seq16 stop_seq;
  Seq16 confirmed;
  Seq16 acked;
  Seq16 expected;
  Seq16 hold_seq;
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
struct Starved {
  Starved* next = nullptr;
  Starved* prev = nullptr;
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
  bool parked = false;
  bool excused = false;         ///< the park time began anew once, because this process was outside MPI
  bool lost = false;            ///< declared failed
  bool left = false;            ///< its process has finalized in order: nothing is sent to it any more
  bool probed = false;          ///< a probe found nothing, since the last keep_alive() or since no rail is up
  bool own = false;             ///< this process itself: no message to it uses a rail
  bool end_brief = false;       ///< one of `ends_out` stands for those without a record of a fragment
  std::uint8_t end_looks = 0;   ///< how often their end was of interest since the last one
  std::uint8_t unanswered = 0;  ///< longer eager messages on `home` since it sent a message (schedule.h)
  Rail<P>* home = nullptr;      ///< preferred rail of short messages; nullptr: none, or it refused one
  std::uint64_t home_key = 0;
  std::uint32_t away = 0;  ///< back-off: messages that are spread before `home` is used again
  /// the rail with `ends_out` messages under way that end sends of the peer (order.h)
  Rail<P>* order = nullptr;
  std::uint32_t ends_out = 0;    ///< number of these messages; the user's messages use the same rail
  std::uint32_t order_turn = 0;  ///< number of different values that `order` has had
  /// work that `order` must have ended until those of `end_brief` have; 0: not asked yet
  std::uint64_t end_mark = 0;
  /// bytes stored of its messages for communicators that do not exist here yet
  std::uint32_t unknown_held = 0;
  PeerLoss loss;                 ///< how its requests end when it is declared failed
  bool doomed = false;           ///< `loss` is set; it is declared failed when the engine is left
  bool knows = false;            ///< it declared this process failed first: PEERLOST is not needed
  bool owe_lost = false;         ///< declared failed here, and PEERLOST not sent yet
  bool awaited = false;          ///< the next keep_alive() sends to it, because a wildcard waits for it
  bool wanted = false;           ///< a wildcard waits for it, or did when watch_wildcards() last looked
  bool pinging = false;          ///< a message of keep_alive() is under way
  std::size_t eager_limit = 0;   ///< largest of its rails
  PastSequence* past = nullptr;  ///< of communicators that were freed
  std::uint32_t n_past = 0;
  std::uint32_t past_capacity = 0;
  FailedReceive* failed = nullptr;  ///< messages of it whose receive ended with an error
  Rail<P>* eager[kMaxRails] = {};   ///< rails that are usable now; of these, the preferred ones
  std::uint64_t parked_since_ns = 0;
  List<Proc<P>> procs;                                  ///< of it, on all communicators
  List<typename P::SendRequest, XferLink> ready_sends;  ///< requests with something to send
  List<typename P::RecvRequest, XferLink> ready_recvs;
  List<typename P::SendRequest, XferLink>
      nameless;                          ///< sends that wait for a free name, to become rendezvous
  List<typename P::Frag, XferLink> raw;  ///< stored messages that wait for a rail
  List<Starved<P>> starved;              ///< the same, without a fragment record
  List<typename P::SendRequest, LiveLink> live_sends;  ///< named requests
  List<typename P::RecvRequest, LiveLink> live_recvs;
};

}  // namespace bfo::xfer
