// SPDX-License-Identifier: BSD-3-Clause
//
// rndv_state.h: what a send or a receive keeps while it is a rendezvous: the ranges that are missing, the
// ledger of accesses that may still be executed, and the grants of a PUT.
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include <cstdint>

#include "common/ids.h"
#include "common/ranges.h"
#include "pml/bfo/core/wire.h"
#include "pml/bfo/xfer/args.h"
#include "pml/bfo/xfer/moves/grants.h"
#include "pml/bfo/xfer/port.h"

namespace bfo::xfer {

enum class Protocol : uint8_t { kEager, kCopy, kGet, kPut };

/// Control messages that the state of a request requires. They are derived from the state, never stored as
/// packets (H11).
enum Pending : uint8_t {
  kPendingNothing = 0,
  kPendingStart = 1,      ///< S: MATCH, RNDV or RGET.      R: ACK
  kPendingData = 2,       ///< S: FRAGs or writes.          R: PUTs or READs
  kPendingNotify = 4,     ///< S: RNDVRESTARTNOTIFY.        R: RECVERRNOTIFY
  kPendingRestartAck = 8  ///<                              R: RNDVRESTARTACK
};

/// One access to this process's memory that a rail may still execute (P2). `conn` and `epoch` name the
/// connection. The entry leaves by FIN, by its own completion, or by FENCED.
template <class P>
struct LedgerEntry {
  Rail<P>* rail = nullptr;
  uint64_t conn = 0;
  uint32_t epoch = 0;
  uint32_t grant = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
  Round round = 0;
  bool loaded = false;   ///< counted in its rail's inflight_bytes
  bool pending = false;  ///< PUT: must be sent, for the first time or again
  uint8_t puts = 0;      ///< PUTs of it that were accepted and did not come back as never sent; stays at 255
  bool fin = false;      ///< its bytes are known to have arrived
  bool dead = false;     ///< not used any more, waits only for FENCED
  LedgerEntry* next = nullptr;

  /// May the sender have this grant?
  bool sent() const { return puts != 0; }
};

/// For which rails its buffer is registered. kAll: for all whose devices can.
enum class Registered : uint8_t { kNo, kSome, kAll };

/// What a send needs while it is a rendezvous: from a free list, with the memory of its range sets. What each
/// message uses comes first.
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
  Registered registered = Registered::kNo;
  uint16_t unregistered = 0;  ///< rails (by index) whose devices refused to register its buffer
  uint16_t dirty_rails = 0;   ///< rails (by index) on which a write of this round failed
  uint16_t wrote_rails = 0;   ///< rails (by index) on which one was acknowledged
  uint16_t exposed = 0;       ///< RGET: rails (by index) whose keys the receiver has
  /// rails (by index) of failed writes for which there was no memory for a ledger entry
  uint16_t unfenced = 0;
  uint32_t in_flight = 0;  ///< fragments of this request that have not ended
  uint32_t frags = 0;      ///< FRAGs delivered in the last round in which any was sent
  uint32_t restarts = 0;
  Name name;                 ///< ours, with the current round
  Name peer_name;            ///< the receiver's; 0 until it answers
  uint64_t undelivered = 0;  ///< bytes of this round that are not known to be delivered
  uint64_t open_len = 0;     ///< payload of the RNDV
  uint64_t received = 0;     ///< of `sent_once`, bytes that the receiver reported as received
  /// of those, bytes of this round that have to be sent again and were not yet
  uint64_t resend_bytes = 0;
  LedgerEntry<P>* ledger = nullptr;  ///< exposures (RGET) and failed writes
  RangeSet todo{rooms[0]};           ///< ranges of this round that no rail has accepted yet
  RangeSet sent_once{rooms[1]};  ///< bytes that a rail accepted at least once: what is sent of them is sent
                                 ///< again
  Grants<P> grants;              ///< PUT: of this round
  typename P::Registration reg{};
  RangeRoom rooms[2];

  /// FIN of grant `grant`.
  core::FinHdr fin(uint32_t grant, uint8_t flags) const {
    return {static_cast<uint8_t>(core::MsgType::kFin), flags, 0, name.value, peer_name.value, grant, 0};
  }
  /// Flags of its header: how the receiver finds the request. By its own name for it (restart), by the
  /// sender's name (known), or as a new one.
  uint8_t open_flags() const { return restarts != 0 ? core::kFlagRestart : known ? core::kFlagKnown : 0; }
};

/// What a receive needs while it is a rendezvous. What each message uses comes first.
template <class P>
struct RecvRndv {
  using Request = typename P::RecvRequest;
  RecvRndv* next_free = nullptr;
  Request* live_next = nullptr;
  Request* live_prev = nullptr;
  bool live_linked = false;
  /// the sender asked while READs were under way; it is answered when the gate opens
  bool nack_pending = false;
  bool sender_done = false;  ///< SENDDONE came: the sender will send nothing more
  bool no_rdma = false;
  Registered registered = Registered::kNo;
  bool keep_up = false;    ///< RGET: READs end at once on all rails that may read it (plan.h)
  uint8_t polls_left = 0;  ///< kQuiescing: how many more times all rails are polled for missing FRAGs
  uint8_t refusals = 0;    ///< PUT: grants the sender could not use
  uint8_t n_keys = 0;
  uint16_t unregistered = 0;  ///< rails (by index) whose devices refused to register its buffer
  uint32_t in_flight = 0;     ///< own READs that have not ended
  uint32_t frags = 0;         ///< FRAGs of this round that came
  uint32_t frags_due = 0;     ///< kQuiescing: FRAGs of this round that were delivered, says NOTIFY; missing
                              ///< ones are in a rail's queue
  uint32_t next_grant = 1;
  uint32_t refused = 0;              ///< PUT: rails (by index) the sender refused in this round
  uint64_t want = 0;                 ///< min(length, capacity): bytes that must arrive
  Name name;                         ///< ours, with the current round
  Name peer_name;                    ///< the sender's, with its round
  uint64_t total = 0;                ///< PUT: bytes granted in this round altogether
  Rail<P>* key_rail = nullptr;       ///< the header came over it, so that of a key without a connection name
  LedgerEntry<P>* ledger = nullptr;  ///< grants (PUT) and READs
  uint64_t remote_address = 0;       ///< RGET
  uint64_t bytes_out = 0;            ///< of own READs that have not ended
  RangeSet received{rooms[0]};       ///< bytes received: unpacked, or written and reported by FIN
  RangeSet todo{rooms[1]};           ///< RDMA: ranges not yet granted or read
  RangeSet read_failed{
      rooms[2]};                ///< read at least once, in vain: what arrives of them was transferred again
  RangeSet doubtful{rooms[3]};  ///< PUT: granted on a rail that is fenced now; counts as received when
                                ///< SENDDONE says that it was written
  typename P::Registration reg{};
  core::RailKey keys[core::kMaxWireRails];
  RangeRoom rooms[4];
};

}  // namespace bfo::xfer
