// SPDX-License-Identifier: BSD-3-Clause
//
// fake_port.h: a tiny Port in memory for the unit tests, one of each rank of a World (fake_world.h), and what
// was told to it.
#pragma once

#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "pml/bfo/xfer/engine.h"

namespace bfo::test {

class World;

class FakePort : public xfer::NoHooks {
 public:
  struct SendRequest;
  struct RecvRequest;
  struct InlineSource {
    const uint8_t* data;
  };
  struct Frag;
  struct RailHandle {
    int rank = -1;  ///< the rank at the other end
    int rail = -1;
  };
  using PeerHandle = int;
  using CommHandle = int;
  struct Registration {
    uint8_t* base = nullptr;
    size_t size = 0;
    unsigned rails = 0;  ///< one bit each
  };
  struct Lock {
    void lock() {}
    void unlock() {}
  };

  FakePort(World& world, int rank) : world_(world), rank_(rank) {}

  Frag* frag_alloc();
  void frag_free(Frag& f);
  void* alloc(size_t n) {
    if (refuse_ && refuse_(n)) return nullptr;
    void* const p = std::malloc(n ? n : 1);
    live_ += malloc_usable_size(p);
    return p;
  }
  void free(void* p) {
    live_ -= malloc_usable_size(p);
    std::free(p);
  }

  bool sendi(const RailHandle& rail, uint8_t tag, const void* h, size_t hl, SendRequest& r, size_t n);
  bool sendi(const RailHandle& rail, uint8_t tag, const void* h, size_t hl, InlineSource& s, size_t n);
  Post send(const RailHandle& rail, uint8_t tag, const void* h, size_t hl, SendRequest& r, uint64_t offset,
            size_t& n, Frag& f);
  Post send_bytes(const RailHandle& rail, uint8_t tag, const void* h, size_t hl, const void* data, size_t n,
                  Frag& f);
  Post put(const RailHandle& rail, SendRequest& r, uint64_t offset, size_t n, uint64_t remote,
           const xfer::HandleBytes& handle, Frag& f);
  Post get(const RailHandle& rail, RecvRequest& r, uint64_t offset, size_t n, uint64_t remote,
           const xfer::HandleBytes& handle, Frag& f);

  void* contiguous(SendRequest& r);
  void* contiguous(RecvRequest& r);
  bool register_send(SendRequest& r, size_t n, Registration& reg, const RailHandle* only);
  bool register_recv(RecvRequest& r, size_t n, Registration& reg, const RailHandle* only);
  bool register_buffer(uint8_t* base, size_t n, Registration& reg, const RailHandle* only);
  void deregister(Registration& reg) {
    if (reg.base) --registrations_;
    reg = {};
  }
  bool handle(const Registration& reg, const RailHandle& rail, xfer::HandleBytes& out) {
    if ((reg.rails >> rail.rail & 1) == 0) return false;
    out = handle_of(reg.base);
    return true;
  }
  void matched(RecvRequest& r, int32_t src, int32_t tag, uint64_t length);
  void unpack(RecvRequest& r, uint64_t offset, const void* data, size_t n);
  void copy(SendRequest& s, RecvRequest& r, size_t n);
  void copy(InlineSource& s, RecvRequest& r, size_t n) { unpack(r, 0, s.data, n); }
  bool gather(SendRequest& s, void* to, size_t n);
  bool gather(InlineSource& s, void* to, size_t n) {
    std::memcpy(to, s.data, n);
    return true;
  }

  void complete_send(SendRequest& r, Outcome o);
  void complete_recv(RecvRequest& r, const xfer::RecvStatus& s);
  void* resolve(const CommHandle& comm, int32_t rank);
  void* known(const CommHandle& comm, int32_t rank) const;
  void peer_failed(const PeerHandle& peer, const xfer::PeerLoss& loss) {
    ++peers_failed_;
    losses_.emplace_back(peer, loss);
  }

  void fence(const RailHandle& rail, uint32_t epoch);
  void connect(const RailHandle& rail) { asked_ |= 1u << rail.rail; }
  void peer_down(const RailHandle& rail, const RailName& name, int32_t cause);
  void peer_closed(const RailHandle&, const RailName&, uint64_t) {}
  xfer::WorkCount work(const RailHandle& rail) const;

  uint64_t now_ns();
  void emit(const FailoverEvent& e) { events_.push_back(e); }
  void tell(const DegradedEvent& e) { degraded_.push_back(e); }
  void trace_sent(const PeerHandle&, const void*, size_t) {}
  void trace_plan(const PeerHandle&, const xfer::PlanTrace&) {}
  uint64_t copies_out() const { return 0; }

  World& world_;
  int rank_;
  int frags_ = 0;
  unsigned asked_ = 0;    ///< connections of these rails were asked for, one bit each
  uint64_t offered_ = 0;  ///< messages offered to rails
  size_t live_ = 0;       ///< bytes that the engine has allocated
  int registrations_ = 0;
  int unregistered_ = -1;  ///< the device of this rail registers nothing
  int refused_registrations_ = 0;
  uint8_t handle_size_ = 8;
  /// What names memory at `base` of this process.
  xfer::HandleBytes handle_of(const uint8_t* base) const {
    xfer::HandleBytes handle{};
    handle.size = handle_size_;
    std::memset(handle.bytes, 0x5a, handle_size_);
    std::memcpy(handle.bytes, &base, sizeof base);
    return handle;
  }
  int peers_failed_ = 0;
  std::vector<std::pair<PeerHandle, xfer::PeerLoss>> losses_;
  std::function<bool(size_t)> refuse_;  ///< true: no memory for that many bytes
  size_t longest_offered_ = 0;          ///< to sendi, header included
  std::function<void()> inside_;        ///< called once, inside the next sendi
  std::vector<FailoverEvent> events_;
  std::vector<DegradedEvent> degraded_;
  std::vector<RailName> peer_downs_;                      ///< what was handed to the BTL
  std::vector<std::pair<int, uint32_t>> closings_asked_;  ///< rails that were down, and the epoch
};

struct FakePort::SendRequest {
  std::vector<uint8_t> data;
  bool contiguous = true;
  bool done = false;
  Outcome outcome = Outcome::kOk;
  std::function<void()> then;  ///< run by complete_send, may call the engine
  xfer::SendState<FakePort> xfer;
};
struct FakePort::RecvRequest {
  std::vector<uint8_t> data;
  bool contiguous = true;
  bool matched = false;
  bool done = false;
  xfer::RecvStatus status;
  std::function<void()> then;
  xfer::RecvState<FakePort> xfer;
};
struct FakePort::Frag {
  xfer::FragState<FakePort> xfer;
};

using Engine = xfer::Engine<FakePort>;
}  // namespace bfo::test
extern template class bfo::xfer::Engine<bfo::test::FakePort>;  // fake_engine.cc
namespace bfo::test {
using SendReq = FakePort::SendRequest;
using RecvReq = FakePort::RecvRequest;
static_assert(xfer::Port<FakePort>);

}  // namespace bfo::test
