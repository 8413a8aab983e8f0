// SPDX-License-Identifier: BSD-3-Clause
//
// sim_port.h: the Port of a simulated process (see pml/bfo/xfer/port.h), and the requests and fragments it
// embeds the component's state in. Requests are reused last-in first-out without being cleared, as an MPI
// library's free lists and persistent requests do.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pml/bfo/xfer/engine.h"
#include "test/sim/context.h"
#include "test/sim/fabric.h"

namespace bfo::sim {

struct SendRequest;
struct RecvRequest;
struct InlineSource;
struct Frag;
class Process;

struct RailHandle {
  Half* half = nullptr;
};
struct Registration {
  uint32_t key = 0;
};
struct NoLock {
  void lock() {}
  void unlock() {}
};

class SimPort : public xfer::NoHooks {
 public:
  using SendRequest = sim::SendRequest;
  using RecvRequest = sim::RecvRequest;
  using InlineSource = sim::InlineSource;
  using Frag = sim::Frag;
  using RailHandle = sim::RailHandle;
  using PeerHandle = uint32_t;  ///< process
  using CommHandle = uint32_t;  ///< index in Scenario::comms
  using Registration = sim::Registration;
  using Lock = NoLock;

  explicit SimPort(Process& process) : process_(process) {}

  Frag* frag_alloc();
  void frag_free(Frag& f);
  void* alloc(size_t n);
  void free(void* p);

  bool sendi(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_len, SendRequest& r,
             size_t len);
  bool sendi(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_len, InlineSource& s,
             size_t len);
  Post send(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_len, SendRequest& r,
            uint64_t offset, size_t& len, Frag& f);
  Post send_bytes(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_len, const void* bytes,
                  size_t len, Frag& f);
  Post put(const RailHandle& rail, SendRequest& r, uint64_t offset, size_t len, uint64_t remote,
           const xfer::HandleBytes& handle, Frag& f);
  Post get(const RailHandle& rail, RecvRequest& r, uint64_t offset, size_t len, uint64_t remote,
           const xfer::HandleBytes& handle, Frag& f);

  void* contiguous(SendRequest& r);
  void* contiguous(RecvRequest& r);
  bool register_send(SendRequest& r, size_t n, Registration& reg, const RailHandle* only);
  bool register_recv(RecvRequest& r, size_t n, Registration& reg, const RailHandle* only);
  void deregister(Registration& reg);
  bool handle(const Registration& reg, const RailHandle& rail, xfer::HandleBytes& out);
  void matched(RecvRequest& r, int32_t source, int32_t tag, uint64_t length);
  void unpack(RecvRequest& r, uint64_t offset, const void* bytes, size_t n);
  // Its processes send to themselves over a rail.
  void copy(SendRequest&, RecvRequest&, size_t) { std::abort(); }
  void copy(InlineSource&, RecvRequest&, size_t) { std::abort(); }
  bool gather(SendRequest&, void*, size_t) { return false; }
  bool gather(InlineSource&, void*, size_t) { return false; }

  void complete_send(SendRequest& r, Outcome outcome);
  void complete_recv(RecvRequest& r, const xfer::RecvStatus& status);
  void* resolve(uint32_t comm, int32_t rank);
  void* known(uint32_t comm, int32_t rank) const;
  void peer_failed(uint32_t peer, const xfer::PeerLoss& loss);

  void fence(const RailHandle& rail, uint32_t epoch);
  void connect(const RailHandle& rail);
  void peer_down(const RailHandle& rail, const RailName& name, int32_t cause);
  void peer_closed(const RailHandle& rail, const RailName& name, uint64_t delivered);
  xfer::WorkCount work(const RailHandle& rail) const { return {rail.half->taken, rail.half->ended}; }

  uint64_t now_ns() const;
  /// Test hook of the engine: requests complete whatever their ledger says.
  bool gate_removed() const;
  /// Test hook of the engine: a rendezvous is over, its state goes.
  void rndv_over(SendRequest& r);
  /// Test hook of the engine: the tables it walks.
  const core::SendCell& send_cell(core::SendPhase p, core::SendEvent e) const;
  const core::RecvCell& recv_cell(core::RecvPhase p, core::RecvEvent e) const;
  void emit(const FailoverEvent& e);
  void trace_sent(PeerHandle, const void*, size_t) {}
  void trace_plan(const PeerHandle&, const xfer::PlanTrace&) {}
  uint64_t copies_out() const { return 0; }

 private:
  Process& process_;
};

using Engine = xfer::Engine<SimPort>;
}  // namespace bfo::sim
extern template class bfo::xfer::Engine<bfo::sim::SimPort>;  // sim_engine.cc
namespace bfo::sim {
using EngineRail = xfer::Rail<SimPort>;
using EnginePeer = xfer::Peer<SimPort>;
using EngineComm = xfer::Comm<SimPort>;

/// The parts of a request that are the program's, the same for both directions.
struct Buffer {
  uint8_t* base = nullptr;
  uint32_t length = 0;    ///< bytes of the message, or that fit
  uint32_t regions = 0;   ///< first registration of this use
  uint32_t rdma_out = 0;  ///< own RDMA in flight
  uint32_t pair = 0;      ///< index in Scenario::pairs
  bool contiguous = true;
  bool active = false;
};

struct SendRequest {
  xfer::SendState<SimPort> xfer;
  Buffer buf;
};
struct RecvRequest {
  xfer::RecvState<SimPort> xfer;
  Buffer buf;
  int32_t message = -1;  ///< pair whose message was matched
  uint32_t order = 0;    ///< position among the receives posted on the communicator here
};
struct InlineSource {
  const uint8_t* base = nullptr;
};
struct Frag {
  xfer::FragState<SimPort> xfer;
  Frag* next_free = nullptr;
  bool in_use = false;
  bool posted = false;
  SendRequest* put = nullptr;
  RecvRequest* get = nullptr;
  uint32_t pair = 0;   ///< message whose payload it carries
  uint32_t bytes = 0;  ///< how much
};

}  // namespace bfo::sim
