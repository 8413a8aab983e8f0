// SPDX-License-Identifier: BSD-3-Clause
//
// driver.h: the simulated BTL of one process: what btl/verbs promises in common/failover_btl.h, in the order
// given there. It polls queue pairs, reports each fragment once, closes epochs and connects again.
#pragma once

#include <cstdint>

#include "test/sim/fabric.h"
#include "test/sim/sim_port.h"

namespace bfo::sim {

class Driver {
 public:
  Driver(Context& ctx, Fabric& fabric, uint32_t proc) : ctx_(ctx), fabric_(fabric), proc_(proc) {}
  void reset(Engine* engine) {
    engine_ = engine;
    dice_ = Prng(mix(ctx_.machine.seed, 0xd1, proc_));
    turn_ = 0;
  }

  /// A packet for a work request of `n` bytes if the rail takes one now; otherwise `why` says what to answer.
  Packet* prepare(Half& h, WrKind kind, size_t n, Post& why);
  Post commit(Half& h, Packet* p, Frag& f);
  void commit_sendi(Half& h, Packet* p);

  void fence(Half& h, uint32_t epoch);
  void connect(Half& h);
  void peer_down(Half& h, const RailName& name);
  void peer_closed(Half& h, const RailName& name, uint64_t delivered);
  /// The port's state was reported by the driver's event queue.
  void port_event(uint32_t rail);
  /// One round of progress. True: something happened.
  bool poll();
  /// Work requests whose end was not reported yet.
  uint64_t outstanding();
  static xfer::RailEvent event(const Half& h, uint32_t epoch);

 private:
  bool poll_slots(uint32_t from, uint32_t end);
  bool poll_half(Half& h);
  bool poll_receives(Half& h);
  bool poll_sends(Half& h);
  void begin_close(Half& h);
  bool poll_closing(Half& h);
  void finish_close(Half& h);
  void fill_gap(Half& h);
  void report(Half& h, Packet* p, Fate fate);

  Context& ctx_;
  Fabric& fabric_;
  Engine* engine_ = nullptr;
  Prng dice_;
  uint32_t proc_;
  uint32_t turn_ = 0;
};

}  // namespace bfo::sim
