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

/// What isend() is asked for. A buffered send is a standard send of the copy (the port's business).
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
  bool keeps_waiting = false;  ///< from any source: the loss of a peer does not end it (wildcard.h)
};

enum class Protocol : std::uint8_t { kEager, kCopy, kGet, kPut };

/// Things a request still has to send; regenerated from state, never stored as packets (H11).
enum Owed : std::uint8_t {
  kOweNothing = 0,
  kOweStart = 1,   ///< S: MATCH, RNDV or RGET.      R: ACK
  kOweData = 2,    ///< S: FRAGs or writes.          R: PUTs or READs
  kOweNotify = 4,  ///< S: RNDVRESTARTNOTIFY.        R: RECVERRNOTIFY
  kOweQuiet = 8    ///<                              R: RNDVRESTARTACK
};

/// One access to this process's memory that a rail may still execute (P2). `conn`/`epoch` name the
/// connection; the entry leaves by FIN, by its own completion, or by FENCED.
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
  bool owed = false;    ///< PUT: to be handed to its rail (again)
  bool sent = false;    ///< PUT: was handed to its rail at least once
  bool fin = false;     ///< its bytes are known to have arrived
  bool dead = false;    ///< no more use of it: only FENCED is awaited
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
  bool known = false;    ///< the receiver has its header, unanswered as it may be
  bool opened = false;   ///< its header or, when it was an eager message, all of it went before
  bool no_rdma = false;  ///< fell back to copy for the rest of the request
  bool registered = false;
  std::uint32_t in_flight = 0;    ///< fragments of this request that have not ended
  std::uint32_t frags = 0;        ///< FRAGs of the last round that sent any by copy, delivered
  Name name;                      ///< ours, with the current round
  Name peer_name;                 ///< the receiver's; 0 until it answers
  RangeSet todo;                  ///< ranges still to be handed to rails in this round
  std::uint64_t undelivered = 0;  ///< bytes of this round that are not known to be delivered
  std::uint32_t restarts = 0;
  std::uint16_t dirty_rails = 0;  ///< rails (by index) on which a write of this round failed
  std::uint16_t exposed = 0;      ///< RGET: rails (by index) whose keys the receiver has
  std::uint16_t unfenced = 0;     ///< rails (by index) of failed writes that there was no memory to list
  std::uint64_t open_len = 0;     ///< payload of the RNDV
  RangeSet gone;                  ///< bytes known to have gone over a rail: what goes of them goes again
  std::uint64_t received = 0;     ///< of those, bytes the receiver said it has
  std::uint64_t again = 0;        ///< of those, bytes of this round's plan that have not gone again yet
  RangeSet granted;  ///< PUT: numbers of the grants of this round that were seen: a PUT may come twice
  Grant<P>* grants = nullptr;        ///< PUT: grants to be written, in order of arrival
  Grant<P>* last_grant = nullptr;    ///< .. and the last of them
  std::uint32_t n_grants = 0;        ///< .. and their number
  LedgerEntry<P>* ledger = nullptr;  ///< exposures (RGET) and failed writes
  typename P::Registration reg{};
};

/// The same of a receive.
template <class P>
struct RecvRndv {
  using Request = typename P::RecvRequest;
  RecvRndv* next_free = nullptr;
  Request* live_next = nullptr;
  Request* live_prev = nullptr;
  bool live_linked = false;
  bool nack_owed = false;    ///< the sender asked while READs were open: answered when the gate opens
  bool sender_done = false;  ///< SENDDONE came: nothing more will be sent
  bool no_rdma = false;
  bool registered = false;
  std::uint8_t looks = 0;     ///< kQuiescing: this process looks for FRAGs so many times more
  std::uint8_t refusals = 0;  ///< PUT: grants the sender could not use
  std::uint8_t n_keys = 0;
  std::uint64_t want = 0;       ///< min(length, capacity): bytes that must arrive
  Name name;                    ///< ours, with the current round
  Name peer_name;               ///< the sender's, with its round
  RangeSet have;                ///< bytes received (unpacked, or FINed)
  RangeSet todo;                ///< RDMA: ranges not yet granted or read
  RangeSet lost;                ///< not in `have`, and read at least once: what comes of them went again
  std::uint32_t in_flight = 0;  ///< own READs that have not ended
  std::uint32_t frags = 0;      ///< FRAGs of this round that came
  std::uint32_t frags_due = 0;  ///< kQuiescing: so many were delivered; what is missing is in a rail's queue
  std::uint32_t next_grant = 1;
  std::uint32_t refused = 0;  ///< PUT: rails (by index) the sender refused in this round
  std::uint64_t total = 0;    ///< PUT: bytes granted in this round altogether
  RangeSet doubtful;  ///< PUT: granted on a rail that is fenced now; SENDDONE says that they were written
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
  bool went = false;  ///< eager and waiting, or nameless: a rail had it before

  core::SendPhase phase = core::SendPhase::kIdle;
  SendRndv<P>* rndv = nullptr;  ///< from the name to the gate, else nullptr
};

template <class P>
struct RecvState {
  using Request = typename P::RecvRequest;
  Request* next = nullptr;  ///< posted queue, then the peer's ready list, then completion list
  Request* prev = nullptr;
  Request* chain_next = nullptr;  ///< posted queue: receives with the same tag, while there is an index
  Request* chain_prev = nullptr;
  std::uint8_t linked = 0;  ///< kPosted in a posted queue, 1 in a list

  // hot
  Comm<P>* comm = nullptr;
  std::int32_t src = kAnySource;  ///< asked for
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
  RecvRndv<P>* rndv = nullptr;  ///< from the name to the gate, else nullptr
};

/// What a fragment carries; decides what its end means.
enum class FragKind : std::uint8_t {
  kMatch,    ///< eager message of `send`
  kOpen,     ///< RNDV or RGET of `send`
  kFrag,     ///< FRAG of `send`
  kWrite,    ///< RDMA write of `send`
  kRead,     ///< RDMA read of `recv`
  kControl,  ///< owed by the state of the request named by `name`
  kRaw       ///< bytes kept in the fragment (or in `buffer`): resent as they are
};

template <class P>
struct FragState {
  using Record = typename P::Frag;
  Record* next = nullptr;  ///< deferred completions, waiting raw messages
  Record* prev = nullptr;
  bool linked = false;
  FragKind kind = FragKind::kRaw;
  std::uint8_t type = 0;  ///< wire type of what was sent
  Fate fate = Fate::kDelivered;
  bool pinned = false;     ///< kRaw: goes over `rail` as long as its epoch lives (FIN, H9)
  bool to_sender = false;  ///< kControl: `name` names a receive of ours (R->S message)
  Rail<P>* rail = nullptr;
  std::uint32_t epoch = 0;
  Name name;  ///< our request, with the round it was posted in; looked up again when it ends (H17)
  typename P::SendRequest* send = nullptr;  ///< kMatch: owned, cannot end before the fragment
  Peer<P>* peer = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint32_t grant = 0;
  std::uint32_t raw_len = 0;
  std::uint32_t order_turn = 0;  ///< kRaw: counted in the peer's ends_out of that turn; 0: not counted
  void* buffer = nullptr;        ///< kRaw longer than `raw`: from Port::alloc
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
  RailName dead;                   ///< what RAILDOWN / EPOCHCLOSED are about
  std::uint32_t closed_epoch = 0;  ///< every epoch <= this is fenced
  std::uint32_t up_epoch = 0;      ///< the last one that was up here
  bool unfenceable = false;
  bool answers = false;                 ///< not up, but the BTL says the peer lives and is only busy
  std::uint64_t unfenceable_ns = 0;     ///< when that was known
  std::uint32_t peer_closed_epoch = 0;  ///< every epoch <= this is closed at the peer
  std::int32_t dead_cause = 0;
  std::uint64_t dead_delivered = 0;
  std::uint64_t inflight_bytes = 0;  ///< long-message bytes posted and not ended: the striping measure
  FailoverEvent* event = nullptr;    ///< of its last loss; nullptr until the first one
  bool event_open = false;
  bool event_held = false;  ///< it waits only for what has to go again
};

/// A message that arrived before its receive was posted. MPI_Message points to one.
template <class P>
struct Unexpected {
  /// Places in two queues: one of its sender's or of all parked ones, and one of its communicator's.
  struct Place {
    Unexpected* next;
    Unexpected* prev;
    Unexpected* chain_next;
    Unexpected* chain_prev;
  };
  Place mine;
  Place among_all;
  Proc<P>* proc = nullptr;
  Rail<P>* rail = nullptr;  ///< arrival; nullptr when unknown
  std::uint32_t epoch = 0;
  core::MatchHdr match{};
  bool separate = false;         ///< `data` is an allocation of its own (replaced by a newer header, H21)
  std::uint8_t* data = nullptr;  ///< header and payload as received; normally right behind this struct
  std::uint32_t size = 0;
  core::Bytes bytes() const { return {data, size}; }
};

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

/// Messages by tag, by sequence number, by communicator, by all of these.
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
  Proc* next = nullptr;  ///< all of its peer, once that is known
  Proc* prev = nullptr;
  bool linked = false;
  Comm<P>* comm = nullptr;
  Peer<P>* peer = nullptr;
  std::int32_t rank = 0;
  // sending
  Seq16 next_seq = 0;
  Seq16 stop_seq = 0;   ///< the send path asks before it uses this number (H5)
  Seq16 confirmed = 0;  ///< every number before it was received by the peer
  bool resent = false;  ///< messages from `hold_seq` on were sent twice and a dead epoch is not closed yet
  bool marked = false;  ///< `mark` and `rail_mark` are valid
  Seq16 hold_seq = 0;
  // receiving
  Seq16 expected = 0;
  Seq16 last_early = 0;                ///< the highest number in `early`
  MessageQueue<P, SeqKey> early;       ///< out of sequence, as they came
  MessageQueue<P, TagKey> unexpected;  ///< in sequence, not matched
  PostedQueue<P> posted;
  List<typename P::SendRequest, XferLink> stalled;  ///< window full (H5)
  Proc* next_stalled = nullptr;                     ///< of the engine's list of those that are
  bool in_stalled = false;
  // sending, at a stop only
  Seq16 acked = 0;  ///< of every number before it the rails have reported the end: none is sent again
  Seq16 mark = 0;   ///< `acked` moves here when every rail has ended what it had taken at that time
  std::uint16_t question = 0;  ///< number of the one to the peer that is open: see seq_question()
  std::uint64_t rail_mark[kMaxRails] = {};
};

/// What a peer said that this process has not spoken to yet: it gave this process up. Counts when they meet.
struct EarlyLoss {
  EarlyLoss* next = nullptr;
  std::uint64_t conn = 0;
  PeerLoss loss;
};

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
  bool inter = false;       ///< `my_rank` is none of its ranks
  std::uint8_t probed = 0;  ///< not 0: probed from any source, in vain, at most two keep_alive()s ago
  Outcome lost_outcome = Outcome::kOk;
  typename P::CommHandle handle{};
  std::uint16_t ctx = 0;
  std::int32_t my_rank = 0;
  std::int32_t size = 0;
  std::int32_t n_lost = 0;     ///< members that were given up
  std::int32_t lost_rank = 0;  ///< the last of them, and how
  std::int32_t watch = 0;      ///< watch_wildcards(): next rank to be looked at
  /// Members that are not this process.
  std::int32_t others() const { return inter ? size : size - 1; }
  Proc<P>** procs = nullptr;
  PostedQueue<P> wild;            ///< posted with ANY_SOURCE
  CommQueue<P, TagKey> held;      ///< taken by a matched probe, not yet received
  CommQueue<P, TagKey> arrivals;  ///< all unexpected, in order of arrival
  std::uint64_t post_order = 0;   ///< of the next receive
};

/// Where the numbering of a freed communicator stopped. The next one with the same context id goes on from
/// there, so that a late copy of an old message is recognised as a duplicate (H6).
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

/// A raw message that found no fragment record. Its bytes follow.
template <class P>
struct Starved {
  Starved* next = nullptr;
  Starved* prev = nullptr;
  bool linked = false;
  Rail<P>* rail = nullptr;  ///< pinned to it
  std::uint32_t epoch = 0;
  std::size_t size = 0;
};

/// The rails of a peer, each in memory of its own: others point to them.
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
  Peer* active_next = nullptr;  ///< peers with something that waits: what progress() flushes
  Peer* active_prev = nullptr;
  Peer* next_timed = nullptr;  ///< peers that progress() looks at every millisecond
  bool active = false;
  bool timed = false;
  RailSet<P> rails;
  std::uint8_t n_rails = 0;
  std::uint8_t n_eager = 0;  ///< rails in `eager`
  std::uint8_t rr = 0;       ///< next of `eager` for an eager message that is spread
  std::uint8_t turn = 0;     ///< first of `eager` to be looked at for a long one
  bool parked = false;
  bool excused = false;     ///< since it is parked: see note_absence()
  bool lost = false;        ///< given up
  bool left = false;        ///< its process has left in order: nobody hears what is said to it
  bool probed = false;      ///< in vain, since the last keep_alive() or since it is parked
  Rail<P>* home = nullptr;  ///< of short messages; nullptr: none, or it was crowded
  std::uint64_t home_key = 0;
  std::uint32_t away = 0;          ///< messages that are still spread before home is tried again
  Rail<P>* order = nullptr;        ///< carries `ends_out` messages that end sends of the peer (order.h)
  std::uint32_t ends_out = 0;      ///< .. and what the user sends follows them
  std::uint32_t order_turn = 0;    ///< counts the rails that `order` has named
  std::uint32_t unknown_held = 0;  ///< bytes of its messages for communicators that do not exist here yet
  PeerLoss loss;                   ///< how its requests end once it is given up
  bool doomed = false;             ///< `loss` is known: given up when the engine is left
  bool knows = false;              ///< it gave us up first: needs not be told
  bool owe_lost = false;           ///< given up by us, and not told yet
  bool awaited = false;            ///< for the next keep_alive(): a wildcard waits for it
  bool wanted = false;             ///< a wildcard waits for it too, or did at the last look
  bool pinging = false;            ///< a message of keep_alive() is under way
  std::size_t eager_limit = 0;     ///< largest of its rails
  PastSequence* past = nullptr;    ///< of communicators that were freed
  std::uint32_t n_past = 0;
  std::uint32_t past_capacity = 0;
  FailedReceive* failed = nullptr;  ///< messages of it whose receive ended with an error
  Rail<P>* eager[kMaxRails] = {};   ///< usable now, preferred ones only
  std::uint64_t parked_since_ns = 0;
  List<Proc<P>> procs;                                  ///< of it, on all communicators
  List<typename P::SendRequest, XferLink> ready_sends;  ///< owe something
  List<typename P::RecvRequest, XferLink> ready_recvs;
  List<typename P::SendRequest, XferLink> nameless;    ///< to be rendezvous, as soon as there is a name
  List<typename P::Frag, XferLink> raw;                ///< raw messages waiting for a rail
  List<Starved<P>> starved;                            ///< .. and those without a record
  List<typename P::SendRequest, LiveLink> live_sends;  ///< named requests
  List<typename P::RecvRequest, LiveLink> live_recvs;
};

}  // namespace bfo::xfer
