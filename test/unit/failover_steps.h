// SPDX-License-Identifier: BSD-3-Clause
//
// failover_steps.h: what the tests of failures do to a World step by step, and what must be left at the end.
#pragma once

#include <gtest/gtest.h>

#include "test/unit/fake_world.h"
#include "test/unit/pattern.h"

namespace bfo::test {

using core::MsgType;

inline constexpr auto all = [](const Flight&) { return true; };

inline std::uint64_t count(const World& w, MsgType t) {
  return w.delivered[static_cast<std::uint8_t>(t)];
}

/// Deliver flights until the next one is of type `t`, or is an RDMA operation when t is 0.
inline bool until(World& w, std::uint8_t t) {
  for (int i = 0; i < 10000 && !w.flights.empty(); ++i) {
    if (w.flights[0].tag == t) return true;
    w.take();
  }
  return false;
}
inline bool until(World& w, MsgType t) {
  return until(w, static_cast<std::uint8_t>(t));
}

inline void expect_clean(World& w) {
  for (std::size_t i = 0; i < w.engines.size(); ++i) {
    EXPECT_EQ(w.engines[i]->unfinished(), 0u) << "rank " << i;
    EXPECT_EQ(w.ports[i]->frags_, 0) << "rank " << i;
    EXPECT_EQ(w.ports[i]->registrations_, 0) << "rank " << i;
    EXPECT_EQ(w.engines[i]->counters().malformed, 0u) << "rank " << i;
  }
}

}  // namespace bfo::test
