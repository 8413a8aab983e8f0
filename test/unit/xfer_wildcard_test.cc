// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_wildcard_test.cc: what waits for anybody when somebody is given up, and who is watched for it
// (wildcard.h).
#include <gtest/gtest.h>

#include "test/unit/failover_steps.h"

namespace bfo::test {
namespace {

constexpr uint64_t kParkNs = 1'000'000'000;

World::Options crowd(int ranks, xfer::AnySource policy = xfer::AnySource::kError) {
  World::Options o = impatient();
  o.ranks = ranks;
  o.rails = 1;
  o.config.any_source_on_loss = policy;
  return o;
}

RecvReq* any(World& w, int tag = 7, xfer::Comm<FakePort>* comm = nullptr) {
  return w.irecv(0, xfer::kAnySource, tag, 10, comm);
}

/// Rank 0 gives up `rank`, as the runtime tells it.
void lose(World& w, int rank) {
  w.engines[0]->peer_lost(w.peer(0, rank));
}

xfer::ProbeResult probe(World& w, int tag = 7) {
  xfer::ProbeResult p;
  EXPECT_FALSE(w.engines[0]->iprobe(w.comms[0], xfer::kAnySource, tag, p));
  xfer::ProbeResult q;
  EXPECT_EQ(w.engines[0]->improbe(w.comms[0], xfer::kAnySource, tag, q), nullptr);
  EXPECT_EQ(p.outcome, q.outcome);
  return p;
}

TEST(Wildcard, PeerIsLost_PostedReceiveEndsWithItsError) {
  World w(crowd(3));
  meet(w);
  RecvReq* r = any(w);
  RecvReq* named = w.irecv(0, 2, 7, 10);
  lose(w, 1);
  ASSERT_TRUE(r->done);
  EXPECT_EQ(r->status.outcome, Outcome::kPeerLost);
  EXPECT_EQ(r->status.source, 1) << "who was lost";
  EXPECT_FALSE(named->done) << "rank 2 is there";
  w.isend(2, 0, 7, pattern(10, 1));
  ASSERT_TRUE(w.run());
  EXPECT_EQ(named->status.outcome, Outcome::kOk);
}

TEST(Wildcard, PeerRanOutOfMemory_TheErrorSaysThat) {
  World w(crowd(3));
  meet(w);
  RecvReq* r = any(w);
  w.engines[0]->on_message_unstored(w.rail(0, 1, 0), 100);
  ASSERT_TRUE(r->done);
  EXPECT_EQ(r->status.outcome, Outcome::kNoMemory);
}

TEST(Wildcard, PostedAfterTheLoss_WhatIsHereIsReceivedAndTheRestEndsWithTheError) {
  World w(crowd(3));
  meet(w);
  w.isend(1, 0, 7, pattern(10, 1));  // of the lost one
  w.isend(2, 0, 7, pattern(10, 2));
  ASSERT_TRUE(w.run());
  lose(w, 1);
  xfer::ProbeResult p;
  EXPECT_TRUE(w.engines[0]->iprobe(w.comms[0], xfer::kAnySource, 7, p));
  EXPECT_EQ(p.source, 1);
  RecvReq* first = any(w);
  RecvReq* second = any(w);
  RecvReq* third = any(w);
  ASSERT_TRUE(first->done && second->done && third->done);
  EXPECT_EQ(first->data, pattern(10, 1));
  EXPECT_EQ(second->data, pattern(10, 2));
  EXPECT_EQ(third->status.outcome, Outcome::kPeerLost);
  EXPECT_EQ(w.engines[0]->queue_lengths(w.comms[0], xfer::kAnySource).posted, 0u);
}

TEST(Wildcard, PeerIsLost_ProbesReturnTheError) {
  World w(crowd(3));
  meet(w);
  EXPECT_EQ(probe(w).outcome, Outcome::kOk);
  lose(w, 2);
  EXPECT_EQ(probe(w).outcome, Outcome::kPeerLost);
}

/// Every communicator the lost one is a member of, met there or not, made before or after.
TEST(Wildcard, OtherCommunicators_EndToo) {
  World w(crowd(3));
  meet(w);
  auto* const before = w.add_comm(0, 5);
  RecvReq* r = any(w, 7, before);
  EXPECT_EQ(before->procs[1], nullptr) << "not met on this one";
  lose(w, 1);
  EXPECT_TRUE(r->done);
  auto* const after = w.add_comm(0, 6);
  EXPECT_EQ(any(w, 7, after)->status.outcome, Outcome::kPeerLost);
}

TEST(Wildcard, CommunicatorWithoutTheLostOne_GoesOn) {
  World w(crowd(3));
  meet(w);
  const xfer::CommDesc<FakePort> two{5, 5, 0, 2, false};  // ranks 0 and 1
  auto* const before = w.engines[0]->comm_add(two);
  RecvReq* r = any(w, 7, before);
  lose(w, 2);
  EXPECT_FALSE(r->done);
  auto* const after = w.engines[0]->comm_add({6, 6, 0, 2, false});
  EXPECT_FALSE(any(w, 7, after)->done);
}

/// The last rank of an intercommunicator's remote group is another process, whatever my rank is.
TEST(Wildcard, Intercommunicator_MyRankIsNoneOfItsRanks) {
  for (const xfer::AnySource policy : {xfer::AnySource::kError, xfer::AnySource::kWait}) {
    World w(crowd(2, policy));
    meet(w);
    auto* const inter = w.engines[0]->comm_add({5, 5, 1, 2, true});
    RecvReq* r = any(w, 7, inter);
    lose(w, 1);
    EXPECT_EQ(r->done, policy == xfer::AnySource::kError) << "rank 0 of the remote group is still there";
  }
}

TEST(Wildcard, ToldToWait_EndsWhenNobodyElseIsLeft) {
  World w(crowd(3, xfer::AnySource::kWait));
  meet(w);
  RecvReq* r = any(w);
  lose(w, 1);
  EXPECT_FALSE(r->done);
  EXPECT_FALSE(any(w, 8)->done);
  EXPECT_EQ(probe(w).outcome, Outcome::kOk);
  w.isend(2, 0, 8, pattern(10, 1));
  ASSERT_TRUE(w.run());
  lose(w, 2);
  EXPECT_EQ(r->status.outcome, Outcome::kPeerLost);
  EXPECT_EQ(probe(w).outcome, Outcome::kPeerLost);
  EXPECT_EQ(any(w)->status.outcome, Outcome::kPeerLost);
}

/// A communicator of one rank has nobody who could be lost.
TEST(Wildcard, Alone_Waits) {
  World w(crowd(2));
  meet(w);
  auto* const self = w.engines[0]->comm_add({5, 5, 0, 1, false});
  RecvReq* r = any(w, 7, self);
  lose(w, 1);
  EXPECT_FALSE(r->done);
  EXPECT_FALSE(any(w, 7, self)->done);
}

TEST(Wildcard, PeerLeavesInOrder_IsNoLoss) {
  World w(crowd(3));
  meet(w);
  RecvReq* r = any(w);
  w.engines[0]->peer_lost(w.peer(0, 1), true);
  EXPECT_FALSE(r->done);
}

/// Layers inside Open MPI take what is in the buffer for a message, whatever the status says.
TEST(Wildcard, ReceiveOfALayerThatKnowsNoErrors_KeepsWaiting) {
  World w(crowd(2));
  meet(w);
  RecvReq r;
  r.data.resize(10);
  xfer::RecvArgs<FakePort> args;
  args.comm = w.comms[0];
  args.tag = 7;
  args.capacity = 10;
  args.keeps_waiting = true;
  w.engines[0]->irecv(&r, args);
  w.engines[0]->keep_alive();
  EXPECT_TRUE(w.flights.empty()) << "nobody is watched for it";
  lose(w, 1);
  EXPECT_FALSE(r.done);
  EXPECT_TRUE(w.engines[0]->cancel(&r));
}

// ---- who is watched

/// One call in a second of the world's time, and what comes of it.
void pass(World& w, int seconds) {
  for (int i = 0; i < seconds; ++i) {
    w.now += 1'000'000'000;
    w.engines[0]->keep_alive();
    w.engines[0]->progress(w.now);
    ASSERT_TRUE(w.run());
  }
}

TEST(Wildcard, WaitsAlone_PeersAreAskedWhetherTheyLive) {
  World w(crowd(4));
  meet(w);
  w.engines[0]->keep_alive();
  EXPECT_TRUE(w.flights.empty()) << "nothing waits";
  RecvReq* r = any(w);
  w.engines[0]->keep_alive();
  EXPECT_EQ(w.flights.size(), 3u);
  ASSERT_TRUE(w.run());
  w.isend(1, 0, 7, pattern(10, 1));
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(r->done);
  w.engines[0]->keep_alive();
  EXPECT_TRUE(w.flights.empty());
}

/// A probe that is made again and again is watched for, one of long ago is not.
TEST(Wildcard, Probes_PeersAreAskedWhileTheyGoOn) {
  World w(crowd(2));
  meet(w);
  probe(w);
  w.engines[0]->keep_alive();
  EXPECT_EQ(w.flights.size(), 1u);
  pass(w, 3);
  w.engines[0]->keep_alive();
  EXPECT_TRUE(w.flights.empty());
}

/// The message that asks is what shows that the rail is dead.
TEST(Wildcard, RailsOfAPeerAreGone_EndsAfterTheParkTime) {
  World w(crowd(3));
  meet(w);
  RecvReq* r = any(w);
  w.kill(0, 1, 0);
  ASSERT_TRUE(w.run());
  w.engines[0]->keep_alive();
  w.engines[0]->progress(w.now += kParkNs / 2);
  EXPECT_FALSE(r->done);
  pass(w, 1);
  ASSERT_TRUE(r->done);
  EXPECT_EQ(r->status.outcome, Outcome::kPeerLost);
  EXPECT_EQ(r->status.source, 1);
  EXPECT_EQ(w.ports[0]->peers_failed_, 1);
}

TEST(Wildcard, NothingWaitsAnyMore_NobodyIsGivenUp) {
  World w(crowd(3));
  meet(w);
  RecvReq* r = any(w);
  w.engines[0]->keep_alive();
  ASSERT_TRUE(w.run());
  w.kill(0, 1, 0);
  w.isend(2, 0, 7, pattern(10, 1));
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(r->done);
  pass(w, 5);
  EXPECT_EQ(w.ports[0]->peers_failed_, 0);
}

/// In a small communicator also those that were never spoken to: they may have died before.
TEST(Wildcard, StrangersOfASmallCommunicator_AreWatched) {
  World w(crowd(3));
  w.up[w.key(0, 2, 0)] = false;
  RecvReq* r = any(w);
  EXPECT_EQ(w.peers[0][2], nullptr);
  pass(w, 1);
  EXPECT_FALSE(r->done);
  pass(w, 2);
  ASSERT_TRUE(r->done);
  EXPECT_EQ(r->status.source, 2);
}

/// Not those of a large one: that would connect it as a whole. And the cost of one look has a bound.
TEST(Wildcard, LargeCommunicator_OnlyConnectedMembersAreWatchedInTurn) {
  World w(crowd(600));
  for (const int i : {1, 300, 599}) {
    w.isend(0, i, 99, {});
    w.irecv(i, 0, 99, 0);
  }
  ASSERT_TRUE(w.run());
  any(w);
  int asked = 0;
  for (int i = 0; i < 3; ++i) {
    w.engines[0]->keep_alive();
    EXPECT_LE(w.flights.size(), 2u);
    asked += static_cast<int>(w.flights.size());
    ASSERT_TRUE(w.run());
  }
  EXPECT_GE(asked, 3);
  int met = 0;
  for (const auto* p : w.peers[0]) met += p != nullptr;
  EXPECT_EQ(met, 3);
}

/// Those that left in order are waited for when nobody else is left: else it would have no end.
TEST(Wildcard, EverybodyHasLeft_EndsAfterTheParkTime) {
  World w(crowd(2));
  meet(w);
  RecvReq* r = any(w);
  xfer::RailEvent ev;
  ev.name = w.name(0, 1, 0);
  ev.left = true;
  w.up[w.key(0, 1, 0)] = false;
  w.engines[0]->on_rail_down(w.rail(0, 1, 0), ev);
  w.engines[0]->on_rail_closed(w.rail(0, 1, 0), ev, FenceResult::kFenced, 0);
  pass(w, 3);
  ASSERT_TRUE(r->done);
  EXPECT_EQ(r->status.outcome, Outcome::kPeerLost);
}

}  // namespace
}  // namespace bfo::test
