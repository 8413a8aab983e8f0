// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_owner_rails_test.cc: Rails, made alone over its Base.
#include "pml/bfo/xfer/rails/rails.h"

#include <gtest/gtest.h>

#include "test/unit/alone_port.h"

template class bfo::xfer::Rails<bfo::test::AlonePort>;

namespace bfo::test {
namespace {

using xfer::FragKind;

struct RailsAlone : testing::Test {
  Ground g;
  xfer::Rails<AlonePort> rails{g.base};
  const core::AckHdr ack{static_cast<uint8_t>(core::MsgType::kAck), 0, 0, 1, 2};

  void end(AlonePort::Frag& f) {
    rails.ended(f);
    g.port.frag_free(f);
  }
};

/// Whatever carried it, and however it was posted: what is over does not count.
TEST_F(RailsAlone, ControlMessagesUnderWay_AreCountedUntilTheyEnd) {
  for (const FragKind kind : {FragKind::kControl, FragKind::kOpen, FragKind::kSync}) {
    ASSERT_TRUE(rails.post_on(g.rails[0], &ack, sizeof ack, kind, Name(), true));
    EXPECT_EQ(g.rails[0].control_out, 1u);
    EXPECT_EQ(rails.frags_out(), 1u);
    end(*g.port.posted.back().frag);
    EXPECT_EQ(g.rails[0].control_out, 0u) << "kind " << static_cast<int>(kind);
    EXPECT_EQ(rails.frags_out(), 0u);
  }
  EXPECT_EQ(g.port.frags, 0);
}

TEST_F(RailsAlone, RailWithTooManyControlMessages_TakesNoMoreUntilOneEnds) {
  for (unsigned i = 0; i < xfer::kMostControl; ++i)
    ASSERT_TRUE(rails.post_on(g.rails[0], &ack, sizeof ack, FragKind::kControl, Name(), true));
  EXPECT_FALSE(rails.post_on(g.rails[0], &ack, sizeof ack, FragKind::kControl, Name(), true));
  EXPECT_TRUE(rails.post_control(g.peer, &ack, sizeof ack, FragKind::kControl, Name(), true))
      << "the other one";
  EXPECT_EQ(g.port.posted.back().rail, 1u);
  end(*g.port.posted.front().frag);
  EXPECT_TRUE(rails.post_on(g.rails[0], &ack, sizeof ack, FragKind::kControl, Name(), true));
  for (size_t i = 1; i < g.port.posted.size(); ++i) end(*g.port.posted[i].frag);
  EXPECT_EQ(g.port.frags, 0);
}

TEST_F(RailsAlone, StoredMessageThatComesBack_GoesOverTheOtherRail) {
  rails.send_stored(g.peer, &ack, sizeof ack, &g.rails[0], 1);
  ASSERT_TRUE(rails.post_stored(g.peer));
  ASSERT_EQ(g.port.posted.size(), 1u);
  EXPECT_EQ(g.port.posted[0].rail, 0u);
  g.rails[0].state = RailState::kDown;
  g.peer.choice.rebuild(g.peer.rails, 2);
  AlonePort::Frag& f = *g.port.posted[0].frag;
  rails.ended(f);
  xfer::completing_ends(g.peer, f);
  rails.store_again(g.peer, f);
  ASSERT_TRUE(rails.post_stored(g.peer));
  ASSERT_EQ(g.port.posted.size(), 2u);
  EXPECT_EQ(g.port.posted[1].rail, 1u);
  EXPECT_EQ(g.port.posted[1].header, g.port.posted[0].header);
  end(f);
}

TEST_F(RailsAlone, RailsOverAPortWithAnotherRate_HaveAnotherWeight) {
  const auto* const port = &g.rails[1].handle;
  const auto over = [port](const auto& handle) { return &handle == port; };
  g.rails[0].limits.weight = g.rails[1].limits.weight = 100'000;
  EXPECT_EQ(rails.reweigh(over, 10'000), 1u);
  EXPECT_EQ(g.rails[0].limits.weight, 100'000u);
  EXPECT_EQ(g.rails[1].limits.weight, 10'000u);
  g.rails[0].inflight_bytes = 9'000;
  g.rails[1].inflight_bytes = 1'000;
  EXPECT_TRUE(xfer::lighter(g.rails[0], g.rails[1])) << "what comes next goes over the fast one";
  EXPECT_EQ(rails.reweigh(over, 0), 1u);
  EXPECT_EQ(g.rails[1].limits.weight, 1u) << "0 would be infinitely light";
  EXPECT_EQ(rails.reweigh([](const auto&) { return false; }, 7), 0u);
}

}  // namespace
}  // namespace bfo::test
