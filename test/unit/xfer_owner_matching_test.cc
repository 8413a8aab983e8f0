// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_owner_matching_test.cc: Matching, made alone over its Base. It says what came of a message, and calls
// nobody.
#include "pml/bfo/xfer/matching/matching.h"

#include <gtest/gtest.h>

#include "test/unit/alone_port.h"

template class bfo::xfer::Matching<bfo::test::AlonePort>;

namespace bfo::test {
namespace {

using xfer::Came;

struct MatchingAlone : testing::Test {
  MatchingAlone() { c = matching.comm_add({0, 7, 0, 2, false}); }
  ~MatchingAlone() override { matching.free_all(); }
  xfer::Matched<AlonePort> came(Seq16 seq) {
    h = core::match_words(7, 1, 5, seq).header;
    const xfer::Arrival<AlonePort> a{&g.rails[0], 1, sizeof h};
    const auto o = core::Opened::match(&h, {nullptr, 0});
    bool over = false;
    xfer::Proc<AlonePort>* const p = matching.sender(a, o, over);
    EXPECT_NE(p, nullptr);
    return matching.accept(*p, o, a);
  }
  xfer::Unexpected<AlonePort>* post(AlonePort::RecvRequest& r) {
    xfer::RecvArgs<AlonePort> args;
    args.comm = c;
    args.src = 1;
    args.tag = 5;
    return matching.post(r, args);
  }
  Ground g;
  xfer::Matching<AlonePort> matching{g.base};
  xfer::Comm<AlonePort>* c = nullptr;
  core::MatchHdr h{};
};

TEST_F(MatchingAlone, PostedReceive_TakesTheMessage) {
  AlonePort::RecvRequest r;
  EXPECT_EQ(post(r), nullptr);
  const auto m = came(0);
  EXPECT_EQ(m.what, Came::kEager);
  EXPECT_EQ(m.receive, &r);
  EXPECT_EQ(g.port.completed, 0) << "whoever asked completes it";
}

TEST_F(MatchingAlone, MessageWithoutAReceive_IsKeptForIt) {
  EXPECT_EQ(came(0).what, Came::kNothing);
  AlonePort::RecvRequest r;
  auto* const m = post(r);
  ASSERT_NE(m, nullptr);
  matching.free_message(m);
}

TEST_F(MatchingAlone, MessageOutOfSequence_WaitsForTheMissingOne) {
  AlonePort::RecvRequest first, second;
  post(first);
  post(second);
  EXPECT_EQ(came(1).what, Came::kNothing);
  EXPECT_TRUE(matching.has_gap(*c->procs[1]));
  EXPECT_EQ(came(0).receive, &first);
  AlonePort::RecvRequest* follows = nullptr;
  auto* const m = matching.take_following(*c->procs[1], follows);
  ASSERT_NE(m, nullptr);
  EXPECT_EQ(follows, &second);
  matching.free_message(m);
}

}  // namespace
}  // namespace bfo::test
