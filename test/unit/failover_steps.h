// SPDX-License-Identifier: BSD-3-Clause
//
// failover_steps.h: what the tests of failures do to a World step by step, and what must be left at the end.
#pragma once

#include <gtest/gtest.h>

#include "test/unit/fake_world.h"
#include "test/unit/pattern.h"

namespace bfo::test {

using core::MsgType;

/// READs and writes instead of FRAGs.
inline World::Options reads() {
  World::Options o;
  o.get = true;
  return o;
}
inline World::Options writes() {
  World::Options o;
  o.put = true;
  return o;
}
/// A peer without a rail is given up after a second.
inline World::Options impatient(World::Options o = {}) {
  o.config.park_timeout_ns = 1'000'000'000;
  return o;
}

/// Every process knows every other one, so that only messages need memory from now on.
inline void meet(World& w) {
  for (int a = 0; a < w.options.ranks; ++a)
    for (int b = 0; b < w.options.ranks; ++b)
      if (a != b) {
        w.isend(a, b, 99, {});
        w.irecv(b, a, 99, 0);
      }
  ASSERT_TRUE(w.run());
}

struct Transfer {
  SendReq* s;
  RecvReq* r;
};
/// A message of `n` bytes from rank 0 to rank 1, where its receive is waiting.
inline Transfer transfer(World& w, size_t n) {
  RecvReq* const r = w.irecv(1, 0, 1, n);
  return {w.isend(0, 1, 1, pattern(n, 1)), r};
}

inline constexpr auto all = [](const Flight&) { return true; };

inline uint64_t count(const World& w, MsgType t) {
  return w.delivered[static_cast<uint8_t>(t)];
}

inline constexpr uint8_t kRdma = 0;
/// Deliver flights until the next one is of type `t`, or is an RDMA operation.
inline bool until(World& w, uint8_t t) {
  for (int i = 0; i < 10000 && !w.flights.empty(); ++i) {
    if (w.flights[0].tag == t) return true;
    w.take();
  }
  return false;
}
inline bool until(World& w, MsgType t) {
  return until(w, static_cast<uint8_t>(t));
}

/// The rail between ranks 0 and 1 dies, and its halves are closed one by one: close_half().
inline World::Close cut(World& w, int rail) {
  w.hold_close = true;
  w.kill(0, 1, rail);
  const World::Close c = w.pending_close.front();
  w.pending_close.clear();
  return c;
}
inline void close_half(World& w, const World::Close& c, int rank, FenceResult result) {
  w.engines[rank]->on_rail_closed(w.rail(rank, 1 - rank, c.r), c.ev, result, 0);
}

inline void expect_clean(World& w) {
  for (size_t i = 0; i < w.engines.size(); ++i) {
    EXPECT_EQ(w.engines[i]->unfinished(), 0u) << "rank " << i;
    EXPECT_EQ(w.ports[i]->frags_, 0) << "rank " << i;
    EXPECT_EQ(w.ports[i]->registrations_, 0) << "rank " << i;
    EXPECT_EQ(w.engines[i]->counters().malformed, 0u) << "rank " << i;
  }
  w.each_rail([](int me, int other, const xfer::Rail<FakePort>& rail) {
    EXPECT_EQ(rail.control_out, 0u) << "rank " << me << " to " << other << ", rail " << unsigned{rail.index};
    EXPECT_EQ(rail.inflight_bytes, 0u)
        << "rank " << me << " to " << other << ", rail " << unsigned{rail.index};
  });
}

}  // namespace bfo::test
