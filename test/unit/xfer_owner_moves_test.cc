// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_owner_moves_test.cc: Moves, made over the owners below it, without an engine: a handler returns the
// peer for which something may be posted, and posts nothing of others.
#include "pml/bfo/xfer/moves/moves.h"

#include <gtest/gtest.h>

#include "test/unit/alone_port.h"

template class bfo::xfer::Moves<bfo::test::AlonePort>;
template struct bfo::xfer::Transfers<bfo::test::AlonePort>;

namespace bfo::test {
namespace {

using core::MsgType;

struct MovesAlone : testing::Test {
  MovesAlone() {
    c = matching.comm_add({0, 7, 0, 2, false});
    p = matching.proc_at(*c, 1);
    matching.peer_of(*p);
  }
  ~MovesAlone() override {
    matching.free_all();
    moves.forget(g.peer);
    moves.free_all();
  }
  void start(uint64_t length) {
    s.xfer.proc = p;
    s.xfer.length = length;
    moves.start(s, *p);
  }
  Ground g;
  xfer::Rails<AlonePort> rails{g.base};
  xfer::Matching<AlonePort> matching{g.base};
  xfer::Moves<AlonePort> moves{g.base, rails, matching};
  xfer::Comm<AlonePort>* c = nullptr;
  xfer::Proc<AlonePort>* p = nullptr;
  AlonePort::SendRequest s;
};

TEST_F(MovesAlone, LongSend_OffersItsKeysAndEndsWithFin) {
  g.port.keeps_bytes = true;
  start(50'000);
  ASSERT_EQ(g.port.posted.size(), 1u);
  ASSERT_EQ(g.port.posted[0].type, static_cast<uint8_t>(MsgType::kRget));
  EXPECT_EQ(moves.unfinished(), 1u);
  core::RgetHdr h;
  ASSERT_TRUE(core::decode_rget({g.port.posted[0].header.data(), g.port.posted[0].header.size()}, h));
  EXPECT_EQ(h.n_keys, 2u);
  const core::FinHdr fin{static_cast<uint8_t>(MsgType::kFin), 0, 0, h.rndv.sender, Name(1, 1, 0).value, 0, 1};
  EXPECT_EQ(moves.on_fin({&g.rails[0], 1, sizeof fin}, {reinterpret_cast<const uint8_t*>(&fin), sizeof fin}),
            &g.peer);
  EXPECT_EQ(moves.unfinished(), 0u);
  EXPECT_EQ(g.base.exit_work.take_completed().sends.pop_front(), &s);
}

TEST_F(MovesAlone, ShortSendWhoseFragmentWasLost_WaitsForAnotherRail) {
  start(8);
  ASSERT_EQ(g.port.posted.size(), 1u);
  AlonePort::Frag& f = *g.port.posted[0].frag;
  f.xfer.fate = Fate::kUnknown;
  rails.ended(f);
  moves.frag_over(f);
  g.port.frag_free(f);
  EXPECT_TRUE(g.peer.active);
  EXPECT_TRUE(moves.post_requests(g.peer));
  ASSERT_EQ(g.port.posted.size(), 2u);
  EXPECT_EQ(g.port.posted[1].header, g.port.posted[0].header) << "unchanged";
  AlonePort::Frag& again = *g.port.posted[1].frag;
  rails.ended(again);
  moves.frag_over(again);
  g.port.frag_free(again);
  EXPECT_EQ(moves.unfinished(), 0u);
  g.base.agenda.deactivate(g.peer);
}

TEST_F(MovesAlone, UnknownType_IsCounted) {
  xfer::Proc<AlonePort>* opened = nullptr;
  EXPECT_EQ(moves.on_message(static_cast<MsgType>(0), {}, {}, opened), nullptr);
  EXPECT_EQ(g.base.counters.malformed, 1u);
}

}  // namespace
}  // namespace bfo::test
