// SPDX-License-Identifier: BSD-3-Clause
//
// alone_port.h: a Port for an owner of pml/bfo/xfer that is made alone, without an engine: it notes what was
// posted, and the test says how it ends. A peer with two rails is known, as rank 1 of a communicator of two.
// Includes nothing of an owner above base: each test adds the one that it is about.
#pragma once

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "pml/bfo/xfer/base/base.h"

namespace bfo::test {

struct AlonePort : xfer::NoHooks {
  struct SendRequest;
  struct RecvRequest;
  struct Frag;
  struct InlineSource {
    const void* data = nullptr;
  };
  using RailHandle = unsigned;
  using PeerHandle = int;
  using CommHandle = int;
  struct Registration {
    bool done = false;
  };
  struct Lock {
    void lock() {}
    void unlock() {}
  };
  using Bytes = std::vector<uint8_t>;
  struct Posted {
    uint8_t type;  ///< 0: a READ or a write
    unsigned rail;
    Bytes header;
    Frag* frag;
  };

  Frag* frag_alloc();
  void frag_free(Frag& f);
  void* alloc(size_t n) {
    ++live;
    return std::malloc(n ? n : 1);
  }
  void free(void* p) {
    if (p) --live;
    std::free(p);
  }
  bool sendi(unsigned rail, uint8_t tag, const void* h, size_t n, SendRequest&, size_t) {
    return kept(rail, tag, h, n);
  }
  bool sendi(unsigned rail, uint8_t tag, const void* h, size_t n, InlineSource&, size_t) {
    return kept(rail, tag, h, n);
  }
  Post send(unsigned rail, uint8_t tag, const void* h, size_t n, SendRequest&, uint64_t, size_t&, Frag& f) {
    return note(tag, rail, h, n, &f);
  }
  Post send_bytes(unsigned rail, uint8_t tag, const void* h, size_t n, const void*, size_t, Frag& f) {
    return note(tag, rail, h, n, &f);
  }
  Post put(unsigned rail, SendRequest&, uint64_t, size_t, uint64_t, const xfer::HandleBytes&, Frag& f) {
    return note(0, rail, nullptr, 0, &f);
  }
  Post get(unsigned rail, RecvRequest&, uint64_t, size_t, uint64_t, const xfer::HandleBytes&, Frag& f) {
    return note(0, rail, nullptr, 0, &f);
  }
  void* contiguous(SendRequest&) { return buffer; }
  void* contiguous(RecvRequest&) { return buffer; }
  bool register_send(SendRequest&, size_t, Registration& r, const RailHandle*) { return r.done = true; }
  bool register_recv(RecvRequest&, size_t, Registration& r, const RailHandle*) { return r.done = true; }
  void deregister(Registration& r) { r.done = false; }
  bool handle(const Registration& r, unsigned, xfer::HandleBytes& h) {
    h.size = 8;
    return r.done;
  }
  void matched(RecvRequest&, int32_t, int32_t, uint64_t) {}
  void unpack(RecvRequest&, uint64_t offset, const void* bytes, size_t n) {
    if (n != 0) std::memcpy(buffer + offset, bytes, n);
    unpacked += n;
  }
  void copy(SendRequest&, RecvRequest&, size_t) {}
  void copy(InlineSource&, RecvRequest&, size_t) {}
  bool gather(SendRequest&, void*, size_t) { return true; }
  bool gather(InlineSource&, void*, size_t) { return true; }
  void complete_send(SendRequest&, Outcome) { ++completed; }
  void complete_recv(RecvRequest&, const xfer::RecvStatus&) { ++completed; }
  void* resolve(int, int32_t) { return peer; }
  void* known(int, int32_t) { return peer; }
  void peer_failed(int, const xfer::PeerLoss&) { ++failed; }
  void fence(unsigned, uint32_t) { ++fences; }
  void connect(unsigned) {}
  void peer_down(unsigned, const RailName&, int32_t) { ++peer_downs; }
  void peer_closed(unsigned, const RailName&, uint64_t) {}
  xfer::WorkCount work(unsigned) { return {}; }
  uint64_t now_ns() const { return now; }
  void emit(const FailoverEvent&) { ++events; }
  void tell(const DegradedEvent&) { ++events; }
  void trace_sent(int, const void*, size_t) {}
  void trace_plan(int, const xfer::PlanTrace&) {}
  uint64_t copies_out() const { return 0; }

  bool kept(unsigned rail, uint8_t tag, const void* h, size_t n) {
    if (keeps_bytes) note(tag, rail, h, n, nullptr);
    return keeps_bytes;
  }
  Post note(uint8_t type, unsigned rail, const void* h, size_t n, Frag* f) {
    const auto* const bytes = static_cast<const uint8_t*>(h);
    posted.push_back({type, rail, n ? Bytes(bytes, bytes + n) : Bytes{}, f});
    return Post::kAccepted;
  }

  bool keeps_bytes = false;  ///< sendi() takes what it is given
  uint8_t buffer[100'000] = {};
  std::vector<Posted> posted;
  int live = 0, frags = 0, completed = 0, failed = 0, fences = 0, peer_downs = 0, events = 0;
  size_t unpacked = 0;
  uint64_t now = 1;
  void* peer = nullptr;
};

struct AlonePort::SendRequest {
  xfer::SendState<AlonePort> xfer;
};
struct AlonePort::RecvRequest {
  xfer::RecvState<AlonePort> xfer;
};
struct AlonePort::Frag {
  xfer::FragState<AlonePort> xfer;
};
inline AlonePort::Frag* AlonePort::frag_alloc() {
  ++frags;
  return new Frag;
}
inline void AlonePort::frag_free(Frag& f) {
  --frags;
  delete &f;
}

/// The ground that an owner stands on: a port, Base, and a peer with two rails that are up.
struct Ground {
  Ground() {
    peer.n_rails = 2;
    peer.eager_limit = 4096;
    for (unsigned i : {0u, 1u}) {
      xfer::Rail<AlonePort>& r = rails[i];
      peer.rails.at[i] = &r;
      r.peer = &peer;
      r.handle = i;
      r.index = static_cast<uint8_t>(i);
      r.state = RailState::kUp;
      r.name = {100 + i, 1};
      r.up_epoch = 1;
      r.limits.failover = true;
      r.limits.post_limit = 65536;
      r.limits.get_limit = r.limits.put_limit = 1 << 20;
    }
    peer.choice.rebuild(peer.rails, 2);
    peer.choice.prefer(&rails[0]);
    port.peer = &peer;
    base.peers.add(peer);
  }
  ~Ground() { base.peers.pop_front(); }
  AlonePort port;
  xfer::Base<AlonePort> base{port, {}};
  xfer::Peer<AlonePort> peer;
  xfer::Rail<AlonePort> rails[2];
};

}  // namespace bfo::test
