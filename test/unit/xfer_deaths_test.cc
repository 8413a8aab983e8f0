// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_deaths_test.cc: a runtime that tells which processes are gone, and communicators that are revoked
// (revoked.h).
#include <gtest/gtest.h>

#include "test/unit/failover_steps.h"

namespace bfo::test {
namespace {

World::Options survivors(int ranks, World::Options o = {}) {
  o.ranks = ranks;
  o.config.any_source_on_loss = xfer::AnySource::kRuntime;
  return o;
}

/// Rank 0 hears that `dead` is gone. Returns whom it has given up without the runtime's word.
std::vector<int> hear_of(World& w, int dead) {
  std::vector<int> given_up;
  w.engines[0]->compare_losses([dead](const auto& peer) { return peer == dead; },
                               [&given_up](const auto& peer, uint64_t) { given_up.push_back(peer); });
  return given_up;
}

constexpr int kNobody = -1;
constexpr xfer::Refusal kAll{{INT32_MIN, INT32_MAX}, {-9, -7}};

TEST(Deaths, WhatWaitsForTheDead_EndsAndNothingElse) {
  World w(survivors(3));
  meet(w);
  RecvReq* const posted = w.irecv(0, 1, 7, 10);
  RecvReq* const other = w.irecv(0, 2, 7, 10);
  RecvReq* const any = w.irecv(0, xfer::kAnySource, 8, 10);
  SendReq* const unmatched = w.isend(0, 1, 7, pattern(5000, 1));
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(hear_of(w, 1).empty()) << "the runtime knows it";
  ASSERT_TRUE(w.run());
  EXPECT_EQ(posted->status.outcome, Outcome::kPeerLost);
  ASSERT_TRUE(unmatched->done);
  EXPECT_EQ(unmatched->outcome, Outcome::kPeerLost);
  EXPECT_FALSE(other->done);
  EXPECT_FALSE(any->done) << "the runtime says who may wait for it";
  ASSERT_EQ(w.ports[0]->losses_.size(), 1u);
  EXPECT_TRUE(w.ports[0]->losses_[0].second.died);
  w.isend(2, 0, 8, pattern(10, 2));
  ASSERT_TRUE(w.run());
  EXPECT_EQ(any->data, pattern(10, 2));
}

/// The buffer of a send that is being read is out of reach before the send ends.
TEST(Deaths, InTheMiddleOfReads_TheSendEndsWhenItsRailIsFenced) {
  World w(survivors(2, reads()));
  meet(w);
  const Transfer t = transfer(w, 100000);
  ASSERT_TRUE(until(w, kRdma));
  hear_of(w, 1);
  EXPECT_FALSE(t.s->done);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(t.s->done);
  EXPECT_EQ(t.s->outcome, Outcome::kPeerLost);
}

TEST(Deaths, AllOthersAreGone_ReceiveFromAnySourceStays) {
  World w(survivors(2));
  meet(w);
  RecvReq* const any = w.irecv(0, xfer::kAnySource, 8, 10);
  hear_of(w, 1);
  EXPECT_FALSE(any->done);
  EXPECT_FALSE(w.irecv(0, xfer::kAnySource, 9, 10)->done);
}

TEST(Deaths, GivenUpHere_TheRuntimeIsToldUntilItKnows) {
  World w(survivors(3));
  meet(w);
  EXPECT_TRUE(hear_of(w, kNobody).empty());
  w.engines[0]->peer_lost(w.peer(0, 2));
  EXPECT_EQ(hear_of(w, kNobody), std::vector<int>{2});
  EXPECT_EQ(hear_of(w, kNobody), std::vector<int>{2});
  EXPECT_TRUE(hear_of(w, 2).empty());
}

/// Its process does its work: that this one has no memory for it is no reason to end it.
TEST(Deaths, GivenUpForWantOfMemory_TheRuntimeIsNotTold) {
  World w(survivors(3));
  meet(w);
  w.ports[0]->refuse_ = [](size_t n) { return n >= 100; };
  w.isend(2, 0, 1, pattern(200, 1));
  ASSERT_TRUE(w.run());
  EXPECT_EQ(w.irecv(0, 2, 2, 10)->status.outcome, Outcome::kNoMemory);
  EXPECT_TRUE(hear_of(w, kNobody).empty());
}

TEST(Deaths, LeftInOrder_IsNoDeath) {
  World w(survivors(2));
  meet(w);
  w.engines[0]->peer_lost(w.peer(0, 1), true);
  EXPECT_TRUE(hear_of(w, kNobody).empty());
}

TEST(Revoked, WhatNobodyHasMatched_IsRefused) {
  World w(survivors(2));
  meet(w);
  SendReq* const before = w.isend(0, 1, 7, pattern(5000, 1));
  SendReq* const agreeing = w.isend(0, 1, -8, pattern(5000, 2));
  ASSERT_TRUE(w.run());
  EXPECT_FALSE(before->done);
  w.engines[1]->comm_revoke(w.comms[1], kAll);
  SendReq* const after = w.isend(0, 1, 7, pattern(5000, 3));
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(before->done && after->done);
  EXPECT_EQ(before->outcome, Outcome::kPeerLost);
  EXPECT_EQ(after->outcome, Outcome::kPeerLost);
  EXPECT_FALSE(agreeing->done);
  RecvReq* const r = w.irecv(1, 0, -8, 5000);
  ASSERT_TRUE(w.run());
  EXPECT_EQ(r->data, pattern(5000, 2));
  EXPECT_EQ(agreeing->outcome, Outcome::kOk);
  EXPECT_EQ(w.engines[1]->queue_lengths(w.comms[1], xfer::kAnySource).unexpected, 0u);
}

/// Its buffer was exposed, but nobody has begun to read it: the rails to a living peer stay up.
TEST(Revoked, BufferThatNobodyReads_NeedsNoFence) {
  World w(survivors(2, reads()));
  meet(w);
  SendReq* const s = w.isend(0, 1, 7, pattern(5000, 1));
  ASSERT_TRUE(w.run());
  w.engines[1]->comm_revoke(w.comms[1], kAll);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done);
  EXPECT_EQ(s->outcome, Outcome::kPeerLost);
  EXPECT_EQ(w.engines[0]->counters().fences, 0u);
  EXPECT_EQ(w.engines[0]->counters().rails_lost, 0u);
}

/// What waited for a message before it is refused with it.
TEST(Revoked, OutOfSequence_IsRefusedToo) {
  World w(survivors(2));
  meet(w);
  w.engines[1]->comm_revoke(w.comms[1], kAll);
  SendReq* const first = w.isend(0, 1, 7, pattern(5000, 1));
  SendReq* const second = w.isend(0, 1, 7, pattern(5000, 2));
  ASSERT_GE(w.flights.size(), 2u);
  std::swap(w.flights[0], w.flights[1]);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(first->done && second->done);
  EXPECT_EQ(first->outcome, Outcome::kPeerLost);
  EXPECT_EQ(second->outcome, Outcome::kPeerLost);
}

/// The header of a refused message may come again: the answer is the same.
TEST(Revoked, RefusedMessageComesAgain_IsRefusedAgain) {
  World w(survivors(2));
  meet(w);
  SendReq* const s = w.isend(0, 1, 7, pattern(5000, 1));
  ASSERT_TRUE(w.run());
  w.engines[1]->comm_revoke(w.comms[1], kAll);
  w.kill(0, 1, 0);  // with the answer; headers that were not answered go again
  w.kill(0, 1, 1);
  w.revive(0, 1, 0);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done);
  EXPECT_EQ(s->outcome, Outcome::kPeerLost);
}

TEST(Revoked, MessageToOneself_Ends) {
  World::Options o = survivors(2);
  o.own = true;
  World w(o);
  SendReq* const s = w.isend(0, 0, 7, pattern(5000, 1));
  EXPECT_FALSE(s->done);
  w.engines[0]->comm_revoke(w.comms[0], kAll);
  ASSERT_TRUE(s->done);
  EXPECT_EQ(s->outcome, Outcome::kPeerLost);
}

TEST(Revoked, MatchedBefore_GoesOn) {
  World w(survivors(2));
  meet(w);
  const Transfer t = transfer(w, 5000);
  ASSERT_TRUE(until(w, MsgType::kFrag));
  w.engines[1]->comm_revoke(w.comms[1], kAll);
  ASSERT_TRUE(w.run());
  EXPECT_EQ(t.s->outcome, Outcome::kOk);
  EXPECT_EQ(t.r->data, pattern(5000, 1));
}

}  // namespace
}  // namespace bfo::test
