// SPDX-License-Identifier: BSD-3-Clause
//
// port.h: the Port of the PML's engine (pml/bfo/xfer/port.h) on the BTL's engine, in place of glue: what
// pml/bfo/glue does with a BTL module and btl/verbs/glue with an endpoint, without Open MPI in between.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "btl/verbs/engine/base/frag.h"
#include "pml/bfo/xfer/engine.h"

namespace bfo::stack {

class Process;
struct Buffer;
struct Link;
struct SendRequest;
struct RecvRequest;
struct Frag;

struct InlineSource {
  const uint8_t* base = nullptr;
  uint32_t pair = 0;
};
inline constexpr unsigned kMaxStackRails = 4;
struct Registration {
  ibv_mr* mr[kMaxStackRails] = {};
  bool made = false;
};
struct NoLock {
  void lock() {}
  void unlock() {}
};

class StackPort : public xfer::NoHooks {
 public:
  using SendRequest = stack::SendRequest;
  using RecvRequest = stack::RecvRequest;
  using InlineSource = stack::InlineSource;
  using Frag = stack::Frag;
  struct RailHandle {
    Link* link = nullptr;
  };
  using PeerHandle = uint32_t;  // process
  using CommHandle = uint32_t;  // index in the scenario
  using Registration = stack::Registration;
  using Lock = NoLock;

  explicit StackPort(Process& process) : process_(process) {}

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
  void copy(SendRequest& s, RecvRequest& r, size_t n);
  void copy(InlineSource& s, RecvRequest& r, size_t n);
  bool gather(SendRequest& s, void* to, size_t n);
  bool gather(InlineSource& s, void* to, size_t n);

  void complete_send(SendRequest& r, Outcome outcome);
  void complete_recv(RecvRequest& r, const xfer::RecvStatus& status);
  void* resolve(uint32_t comm, int32_t rank);
  void* known(uint32_t comm, int32_t rank) const;
  void peer_failed(uint32_t peer, const xfer::PeerLoss& loss);

  void fence(const RailHandle& rail, uint32_t epoch);
  void connect(const RailHandle& rail);
  void peer_down(const RailHandle& rail, const RailName& name, int32_t cause);
  void peer_closed(const RailHandle& rail, const RailName& name, uint64_t delivered);
  xfer::WorkCount work(const RailHandle& rail) const;

  uint64_t now_ns() const;
  /// The distance of successive sequence numbers: the window holds 2^14 / it messages.
  Seq16 seq_step() const;
  uint8_t reads_in_time(uint8_t reads) const;
  bool gate_removed() const;
  void emit(const FailoverEvent& e);
  void tell(const DegradedEvent& e);
  /// A rendezvous is over, and its state goes.
  void rndv_over(const SendRequest& r);
  void trace_sent(PeerHandle, const void*, size_t) {}
  void trace_plan(const PeerHandle&, const xfer::PlanTrace&) {}
  uint64_t copies_out() const { return 0; }
  const core::SendCell& send_cell(core::SendPhase p, core::SendEvent e) const;
  const core::RecvCell& recv_cell(core::RecvPhase p, core::RecvEvent e) const;

 private:
  bool no_room(const RailHandle& rail) const;
  Post post(const RailHandle& rail, Frag& f);
  Post send_piece(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_len, const void* bytes,
                  size_t len, Frag& f);
  Post rdma(const RailHandle& rail, Buffer& buffer, bool write, uint64_t offset, size_t len, uint64_t remote,
            const xfer::HandleBytes& handle, Frag& f);

  Process& process_;
};

using Engine = xfer::Engine<StackPort>;
}  // namespace bfo::stack
extern template class bfo::xfer::Engine<bfo::stack::StackPort>;  // engine.cc
namespace bfo::stack {
using EngineRail = xfer::Rail<StackPort>;
using EnginePeer = xfer::Peer<StackPort>;
using EngineComm = xfer::Comm<StackPort>;

/// The parts of a request that are the program's, the same for both directions.
struct Buffer {
  uint8_t* base = nullptr;
  uint32_t length = 0;
  uint32_t rdma_out = 0;  // own RDMA under way
  uint32_t pair = 0;
  uint32_t use = 0;  // counts the uses of this request
  bool contiguous = true;
  bool active = false;
};
struct SendRequest {
  xfer::SendState<StackPort> xfer;
  Buffer buf;
};
struct RecvRequest {
  xfer::RecvState<StackPort> xfer;
  Buffer buf;
  int32_t message = -1;
  uint32_t order = 0;
};
struct Frag {
  /// Leads from the work that the BTL reports back to its fragment.
  struct Work : engine::Frag {
    using engine::Frag::operator=;
    stack::Frag* owner = nullptr;
  };

  Frag() { work.owner = this; }
  Frag(const Frag&) = delete;
  Frag& operator=(const Frag&) = delete;

  xfer::FragState<StackPort> xfer;
  Work work;
  std::unique_ptr<char[]> bytes;
  Frag* next_free = nullptr;
  Buffer* rdma = nullptr;
  uint32_t pair = 0;     // message whose payload it carries ..
  uint32_t payload = 0;  // .. and how much
  bool reads = false;
  bool in_use = false;
  bool posted = false;
};

}  // namespace bfo::stack
