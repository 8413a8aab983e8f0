// SPDX-License-Identifier: BSD-3-Clause
//
// accounting.h: messages of each way, and the sums that balance over them (P8).
//
// P1..P8: contrib/doc/design.md
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "test/unit/fake_world.h"
#include "test/unit/pattern.h"

namespace bfo::test {

/// How a message goes.
enum class Way { kSendi, kFragment, kCopy, kGet, kPut };
inline constexpr Way kWays[] = {Way::kSendi, Way::kFragment, Way::kCopy, Way::kGet, Way::kPut};

inline World::Options options(Way way) {
  World::Options o;
  o.sendi = way != Way::kFragment;
  o.get = way == Way::kGet;
  o.put = way == Way::kPut;
  return o;
}

/// Messages of `way` in both directions, and their receives.
struct Traffic {
  explicit Traffic(World& w, Way way) {
    const bool eager = way == Way::kSendi || way == Way::kFragment;
    for (int i = 0; i < 6; ++i)
      for (int from : {0, 1}) {
        const size_t n = eager ? 40u * i : 3000u + 9000u * i;
        application += n;
        recvs.push_back(w.irecv(1 - from, from, i, n));
        sends.push_back(w.isend(from, 1 - from, i, pattern(n, i)));
      }
  }
  void expect_done() {
    for (size_t i = 0; i < sends.size(); ++i) {
      ASSERT_TRUE(sends[i]->done && recvs[i]->done) << i;
      EXPECT_EQ(recvs[i]->data, sends[i]->data) << i;
    }
  }
  uint64_t application = 0;
  std::vector<SendReq*> sends;
  std::vector<RecvReq*> recvs;
};

/// What all processes have moved, read, and sent again.
struct Sums {
  explicit Sums(const World& w) {
    for (const auto& e : w.engines) {
      moved += e->counters().bytes_sent + e->counters().bytes_read;
      read += e->counters().bytes_read;
      again += e->counters().bytes_resent;
    }
  }
  uint64_t moved = 0;
  uint64_t read = 0;
  uint64_t again = 0;
};

/// What each rail carried for a process is what its counters say.
inline void expect_rails_carried(const World& w) {
  for (size_t i = 0; i < w.engines.size(); ++i) {
    const xfer::Counters& c = w.engines[i]->counters();
    EXPECT_EQ(w.carried[i], c.bytes_sent + c.bytes_read + c.bytes_protocol()) << "rank " << i;
  }
}

}  // namespace bfo::test
