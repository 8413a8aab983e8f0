// SPDX-License-Identifier: BSD-3-Clause
//
// port.h: the concept Port: everything that the transfer protocols need from the BTLs below and from MPI
// above.
//
// Engine<Port> (engine.h) holds all protocol state and no globals; it reaches rails, memory, the clock and
// the MPI requests only through a Port. The component's glue implements one on Open MPI's BTLs, the simulator
// one on a virtual network, the unit tests one in memory. Everything is resolved at compile time.
//
// Calling rules
//  - The engine calls the port with its lock held, except complete_send(), complete_recv(), peer_failed(),
//    emit(), copy() and unpack() of eager messages, which it calls with the lock released because they may
//    run user code that re-enters the engine.
//  - sendi(), send(), send_bytes(), put() and get() may call Engine::on_done() or Engine::on_message() before
//    they return (self and vader do). The engine defers such a callback, or handles it at once where its
//    state is complete.
//  - No port function blocks or runs progress.
//
// Associated types
//  - SendRequest, RecvRequest: the MPI requests. Each has a public member `xfer` of type SendState<Port> or
//    RecvState<Port> (state.h). The engine keeps pointers to them from isend()/irecv() to complete_*(), not
//    longer. Their memory is never returned to the system while the engine lives.
//  - InlineSource: the user buffer of a blocking send without a request (send_inline).
//  - Frag: record of one posted fragment, with a public member `xfer` of type FragState<Port>. From a free
//    list; owned by the engine between frag_alloc() and frag_free().
//  - RailHandle: how the port names one rail (glue: BTL module and endpoint), copied by value.
//  - PeerHandle, CommHandle: how the port names a process or a communicator; opaque to the engine.
//  - Registration: one registered buffer, for some rails or all; default constructed = none.
//  - Lock: lock()/unlock(), recursive; may be a no-op while the process uses one thread.
//
// P1..P8: contrib/doc/design.md; H1..H23: contrib/doc/hazards.md
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "common/events.h"
#include "common/ids.h"
#include "common/seq.h"
#include "common/status.h"
#include "pml/bfo/xfer/hooks.h"
#include "pml/bfo/xfer/plan_trace.h"

namespace bfo::xfer {

/// What one rail can do. Sizes in bytes; limits of messages include the header. rail_add() makes them fit
/// each other (limits.h).
struct RailLimits {
  size_t eager_limit = 4096;        ///< longest MATCH that is sent without asking
  size_t inline_limit = SIZE_MAX;   ///< longest MATCH that is offered to sendi()
  size_t blocking_limit = 0;        ///< the same, of a blocking send while no receive is posted
  size_t rndv_eager_limit = 4096;   ///< longest RNDV, payload included
  size_t max_send_size = 65536;     ///< longest FRAG
  size_t post_limit = 0;            ///< longest message of any kind; 0: the larger of eager and FRAG
  size_t put_limit = 0;             ///< longest single put; 0 = the rail cannot put
  size_t get_limit = 0;             ///< longest single get; 0 = the rail cannot get
  size_t get_alignment = 1;         ///< of offset and length of a get, power of two
  size_t min_rdma_size = 0;         ///< shorter messages use the copy protocol
  size_t rdma_frag_size = 1 << 20;  ///< segment of one put or get
  uint32_t weight = 1;              ///< share of long messages, e.g. bandwidth in Mb/s
  uint32_t given = 1;               ///< the same, from the user: Weights::kGiven
  bool failover = false;            ///< its BTL speaks common/failover_btl.h
  uint8_t port =
      UINT8_MAX;  ///< rails with the same number leave by the same port; from kMaxRails on: nobody knows
};

/// What a completed receive reports.
struct RecvStatus {
  int32_t source = 0;
  int32_t tag = 0;
  uint64_t length = 0;  ///< bytes stored in the user's buffer
  Outcome outcome = Outcome::kOk;
};

/// Why a peer was declared failed.
struct PeerLoss {
  /// What the peer had made this process keep as much of as it may.
  enum class Limit : uint8_t { kMemory, kUnknown, kAnswers, kPushedOut };
  Outcome outcome = Outcome::kPeerLost;
  /// kNoMemory: size of the message for which there was no memory; or how much there is
  uint64_t bytes = 0;
  bool there = false;  ///< kNoMemory: the peer had no memory, and reported it
  /// kNoMemory. kUnknown: `bytes` of messages for communicators that do not exist yet; kAnswers: `bytes`
  /// answers that it does not take; kPushedOut: `bytes` were taken by such messages of all peers together,
  /// and one that it may have sent had to go
  Limit limit = Limit::kMemory;
  bool died = false;  ///< kPeerLost: the runtime says that its process is gone
};

/// Handle bytes of a registration for one rail, as they travel.
struct HandleBytes {
  uint8_t size = 0;
  uint8_t bytes[16] = {};
};

/// Work that one rail accepted, and work that ended. The counts continue over all its epochs.
struct WorkCount {
  uint64_t taken = 0;  ///< messages, reads and writes
  uint64_t ended = 0;  ///< the oldest `ended` of them were delivered or handed back
};

template <class P>
concept PortTypes = requires {
  typename P::SendRequest;
  typename P::RecvRequest;
  typename P::InlineSource;
  typename P::Frag;
  typename P::RailHandle;
  typename P::PeerHandle;
  typename P::CommHandle;
  typename P::Registration;
  typename P::Lock;
};

// clang-format off
template <class P>
concept Port = PortTypes<P> && requires(
    P p, typename P::SendRequest& sreq, typename P::RecvRequest& rreq, typename P::InlineSource& inl,
    typename P::Frag& frag, const typename P::RailHandle& rail, const typename P::RailHandle* only,
    const typename P::PeerHandle& peer,
    const typename P::CommHandle& comm, typename P::Registration& reg, const typename P::Registration& creg,
    uint8_t tag, const void* bytes, size_t n, size_t& n_inout, uint64_t u64,
    uint32_t u32, int32_t i32, void* mem, HandleBytes& handle, const HandleBytes& chandle,
    const RecvStatus& status, const PlanTrace& plan, const RailName& name, const PeerLoss& loss, const P& cp, core::SendPhase sphase,
    core::SendEvent sevent, core::RecvPhase rphase, core::RecvEvent revent) {

  // ---- fragments and memory
  /// A fresh record, or nullptr when the limit is reached (the engine retries from progress()). No malloc in
  /// the steady state.
  { p.frag_alloc() } -> std::same_as<typename P::Frag*>;
  { p.frag_free(frag) };
  /// Memory for unexpected messages, communicator and peer state; nullptr when there is none (failing.h).
  { p.alloc(n) } -> std::same_as<void*>;
  { p.free(mem) };

  // ---- posting
  /// Fast path of one eager message, or of a header alone: header `bytes`/`n`, then `n_inout` bytes from the start
  /// of the request's (or inline source's) buffer, packed. True: taken, no completion will be reported, but a
  /// failure comes back through Engine::on_sendi_failed(). False: nothing happened.
  { p.sendi(rail, tag, bytes, n, sreq, n) } -> std::same_as<bool>;
  { p.sendi(rail, tag, bytes, n, inl, n) } -> std::same_as<bool>;
  /// Send header plus `n_inout` bytes packed from offset `u64` of the request's buffer. On return n_inout is
  /// what was packed: fewer only when the data type cannot be cut there. The fragment's end is reported
  /// with Engine::on_done(&frag, fate), also for unsignaled sends.
  { p.send(rail, tag, bytes, n, sreq, u64, n_inout, frag) } -> std::same_as<Post>;
  /// Send header plus `n` bytes as they are.
  { p.send_bytes(rail, tag, bytes, n, bytes, n, frag) } -> std::same_as<Post>;
  /// RDMA write of [u64, u64+n) of the request's registered buffer to a remote address / read into it.
  { p.put(rail, sreq, u64, n, u64, chandle, frag) } -> std::same_as<Post>;
  { p.get(rail, rreq, u64, n, u64, chandle, frag) } -> std::same_as<Post>;

  // ---- data
  /// Base address of byte 0 when the request's data is one contiguous piece, else nullptr (no RDMA).
  { p.contiguous(sreq) } -> std::same_as<void*>;
  { p.contiguous(rreq) } -> std::same_as<void*>;
  /// Register the request's whole buffer (n bytes) for one rail of its peer, or for all (nullptr); `reg` keeps
  /// what it has. False when it has nothing then (the engine falls back to copying). deregister() of a
  /// default Registration does nothing.
  { p.register_send(sreq, n, reg, only) } -> std::same_as<bool>;
  { p.register_recv(rreq, n, reg, only) } -> std::same_as<bool>;
  { p.deregister(reg) };
  /// Bytes that let the peer reach the registration over this rail.
  { p.handle(creg, rail, handle) } -> std::same_as<bool>;
  /// The receive was matched: set source and tag in the status, prepare the convertor. Before any unpack.
  { p.matched(rreq, i32, i32, u64) };
  /// Store n packed bytes at offset u64 of the message into the user's buffer; never called for bytes past the
  /// posted length. One call at a time per request, offsets in any order.
  { p.unpack(rreq, u64, bytes, n) };
  /// A message to oneself: its first n bytes from buffer to buffer, without the lock, or packed into memory
  /// (false: there is no memory to walk its type).
  { p.copy(sreq, rreq, n) };
  { p.copy(inl, rreq, n) };
  { p.gather(sreq, mem, n) } -> std::same_as<bool>;
  { p.gather(inl, mem, n) } -> std::same_as<bool>;

  // ---- MPI
  /// The request is finished: nothing below touches it or its buffer any more (P2).
  { p.complete_send(sreq, Outcome::kOk) };
  { p.complete_recv(rreq, status) };
  /// Which process is rank i32 of the communicator. Called once per rank, on first use; calls back into
  /// Engine::peer_add()/rail_add() as needed and returns the engine's Peer*, as void*.
  { p.resolve(comm, i32) } -> std::same_as<void*>;
  /// The same if that process was resolved before, on any communicator; nullptr if not. Cheap.
  { p.known(comm, i32) } -> std::same_as<void*>;
  /// Every path to the peer was gone for the park time, a message was lost for good, or there was no memory
  /// for one. For the log only: requests end separately through complete_*().
  { p.peer_failed(peer, loss) };

  // ---- rails (only called for rails whose limits say failover)
  /// Ask for the end of all epochs <= u32; answered by Engine::on_rail_closed(). Idempotent.
  { p.fence(rail, u32) };
  /// Start a connection, or skip its back-off.
  { p.connect(rail) };
  /// The peer reported that its half is dead, or closed with u64 messages delivered.
  { p.peer_down(rail, name, i32) };
  { p.peer_closed(rail, name, u64) };
  /// How much work the rail has accepted and ended. Work ends without further calls, so asking twice shows
  /// progress (H5).
  { p.work(rail) } -> std::same_as<WorkCount>;

  // ---- clock and log
  { p.now_ns() } -> std::same_as<uint64_t>;
  { p.emit(static_cast<const FailoverEvent&>(*static_cast<FailoverEvent*>(nullptr))) };
  /// A rail moves much less than it should, or is well again.
  { p.tell(static_cast<const DegradedEvent&>(*static_cast<DegradedEvent*>(nullptr))) };
  /// A restart message of n bytes goes to `peer`. For the log only.
  { p.trace_sent(peer, bytes, n) };
  /// What was planned for a message to or from `peer`. For the log only, and only if Config::trace_plans.
  { p.trace_plan(peer, plan) };
  /// Copies of messages that sendi() made and a rail still has. Finalize waits until there is none.
  { cp.copies_out() } -> std::same_as<uint64_t>;

  // ---- changed by tests only (hooks.h)
  { cp.seq_step() } -> std::same_as<Seq16>;
  { cp.reads_in_time(uint8_t{}) } -> std::same_as<uint8_t>;
  { cp.gate_removed() } -> std::same_as<bool>;
  { cp.send_cell(sphase, sevent) } -> std::same_as<const core::SendCell&>;
  { cp.recv_cell(rphase, revent) } -> std::same_as<const core::RecvCell&>;
  { p.rndv_over(sreq) };
};
// clang-format on

}  // namespace bfo::xfer
