// SPDX-License-Identifier: BSD-3-Clause
//
// tiny_port.h: what parts of the engine need of a Port, without an engine: memory and fragment records that
// can run out and are counted, a clock and counts of work that the test sets.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "pml/bfo/xfer/state.h"

namespace bfo::test {

struct TinyPort : xfer::NoHooks {
  struct SendRequest;
  struct RecvRequest;
  struct InlineSource {};
  struct Frag;
  using RailHandle = unsigned;  ///< index of `work_of`
  using PeerHandle = int;
  using CommHandle = int;
  struct Registration {};

  Frag* frag_alloc();
  void frag_free(Frag& f);
  void* alloc(size_t n) {
    if (allocs_left-- <= 0) return nullptr;
    ++live;
    return std::malloc(n);
  }
  void free(void* p) {
    if (p) --live;
    std::free(p);
  }
  void* resolve(CommHandle, int32_t) { return resolved; }
  xfer::WorkCount work(RailHandle rail) const { return work_of[rail]; }
  uint64_t now_ns() const { return now; }
  void tell(const DegradedEvent& e) { told.push_back(e); }

  int frags_left = 1000;
  int frags = 0;  ///< records in use
  int allocs_left = 1000;
  int live = 0;  ///< pieces of memory in use
  uint64_t now = 0;
  xfer::WorkCount work_of[xfer::kMaxRails];
  void* resolved = nullptr;
  std::vector<DegradedEvent> told;
};

struct TinyPort::SendRequest {
  xfer::SendState<TinyPort> xfer;
};
struct TinyPort::RecvRequest {
  xfer::RecvState<TinyPort> xfer;
};
struct TinyPort::Frag {
  xfer::FragState<TinyPort> xfer;
};
inline TinyPort::Frag* TinyPort::frag_alloc() {
  if (frags_left-- <= 0) return nullptr;
  ++frags;
  return new Frag;
}
inline void TinyPort::frag_free(Frag& f) {
  --frags;
  delete &f;
}

/// A peer with rails 0 to n - 1, all up.
struct TinyPeer {
  explicit TinyPeer(unsigned n, bool failover = true) {
    peer.n_rails = static_cast<uint8_t>(n);
    for (unsigned i = 0; i < n; ++i) {
      peer.rails.at[i] = &rails[i];
      rails[i].peer = &peer;
      rails[i].handle = i;
      rails[i].index = static_cast<uint8_t>(i);
      rails[i].state = RailState::kUp;
      rails[i].name = {100 + i, 1};
      rails[i].up_epoch = 1;
      rails[i].limits.failover = failover;
      rails[i].limits.weight = 1000;
    }
    peer.choice.rebuild(peer.rails, n);
  }
  xfer::Peer<TinyPort> peer;
  xfer::Rail<TinyPort> rails[xfer::kMaxRails];
};

}  // namespace bfo::test
