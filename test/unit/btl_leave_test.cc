// SPDX-License-Identifier: BSD-3-Clause
//
// btl_leave_test.cc: a peer leaves (BYE), also while its rail is not up here. It never comes: whoever counts
// on the rail must hear of it, what waits for it comes back, and nothing more is taken.
#include <gtest/gtest.h>

#include "btl/verbs/engine/progress/contract.h"
#include "test/unit/btl_crowd.h"
#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Accepted;
using engine::Phase;

constexpr int kAll = 1 << 30;

void expect_gone(World& w, Process& left, const Log& log) {
  EXPECT_EQ(left.endpoint.phase, Phase::kGone);
  EXPECT_EQ(left.log, log);
  EXPECT_EQ(left.last_event.cause, BFO_CAUSE_SHUTDOWN);
  EXPECT_EQ(left.last_result, BFO_FENCED);
  EXPECT_EQ(engine::send(left.endpoint, w.frag("late")), Accepted::kRefused);
  bfo_rail_info_t info;
  engine::rail_info(left.endpoint, &info);
  EXPECT_EQ(info.state, BFO_RAIL_UNUSABLE);
  const size_t packets = w.fabric.datagrams.size();
  w.pass(300);
  EXPECT_EQ(w.fabric.datagrams.size(), packets);
  EXPECT_EQ(left.log, log);
}

engine::Config slow_retry() {
  engine::Config config = small_config();
  config.retry_min_ns = config.retry_max_ns = 100'000'000;
  return config;
}

// Turns in which no millisecond passes: nothing is said again.
void turn(World& w, Process& one, Process& other, Phase until) {
  for (int i = 0; i < 100 && one.endpoint.phase != until; ++i) {
    test_now() += 1'000;
    one.poll();
    other.poll();
  }
  ASSERT_EQ(one.endpoint.phase, until);
}

// B waits with a fragment, and has replied; A's probe is held.
void reply(World& w) {
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("early")), Accepted::kQueued);
  w.fabric.hold = true;
  turn(w, w.a, w.b, Phase::kProbing);
  ASSERT_EQ(w.b.endpoint.phase, Phase::kReplied);
}

TEST(Leave, WhileTheEndpointIsIdle) {
  World w;
  w.fabric.drop_datagrams = kAll;
  engine::cm_connect(w.a.endpoint);
  w.pass(1);
  ASSERT_EQ(w.b.endpoint.phase, Phase::kIdle);
  w.fabric.drop_datagrams = 0;
  w.a.port.remove(w.a.endpoint);
  w.pass(1);
  expect_gone(w, w.b, {"down 0", "closed 0"});
}

TEST(Leave, WhileTheResponderSolicits) {
  World w;
  w.fabric.drop_datagrams = kAll;
  engine::cm_connect(w.a.endpoint);
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("early")), Accepted::kQueued);
  w.pass(1);
  ASSERT_EQ(w.b.endpoint.phase, Phase::kSoliciting);
  w.fabric.drop_datagrams = 0;
  w.a.port.remove(w.a.endpoint);
  w.pass(1);
  expect_gone(w, w.b, {"down 0", "done early -12", "closed 0"});
}

TEST(Leave, WhileTheInitiatorRequests) {
  World w;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("early")), Accepted::kQueued);
  turn(w, w.a, w.a, Phase::kRequesting);
  w.fabric.drop_datagrams = 1;  // REPLY
  turn(w, w.b, w.b, Phase::kReplied);
  ASSERT_EQ(w.a.endpoint.phase, Phase::kRequesting);
  w.b.port.remove(w.b.endpoint);
  w.pass(1);
  expect_gone(w, w.a, {"down 1", "done early -12", "closed 1"});
}

TEST(Leave, WhileTheInitiatorWaitsForItsNextAttempt) {
  World w(slow_retry());
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("early")), Accepted::kQueued);
  w.fabric.hold = true;  // the probe
  turn(w, w.a, w.b, Phase::kProbing);
  ASSERT_TRUE(w.fabric.fail(w.a.endpoint.qps().data.number(), IBV_WC_RETRY_EXC_ERR));
  w.a.endpoint.skip_backoff = false;  // of its first send, which need not wait any more
  w.a.poll();
  ASSERT_EQ(w.a.endpoint.phase, Phase::kClosed);
  w.fabric.hold = false;
  w.b.port.remove(w.b.endpoint);
  w.a.poll();
  w.a.poll();
  expect_gone(w, w.a, {"down 1", "done early -12", "closed 1"});
}

TEST(Leave, WhileTheResponderHasReplied) {
  World w;
  reply(w);
  w.a.port.remove(w.a.endpoint);
  w.fabric.hold = false;
  w.pass(5);
  expect_gone(w, w.b, {"down 1", "done early -12", "closed 1"});
}

// It is draining for another reason already when the peer leaves.
TEST(Leave, WhileAResponderThatHadRepliedIsDrained_IsNoFailure) {
  World w;
  reply(w);
  engine::close_order(w.b.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  turn(w, w.b, w.b, Phase::kDraining);
  w.a.port.remove(w.a.endpoint);
  w.fabric.hold = false;
  w.pass(5);
  EXPECT_EQ(w.b.count("down 1"), 1);
  EXPECT_EQ(w.b.count("closed 1"), 1);
  EXPECT_EQ(w.b.count("done early -12"), 1);
  EXPECT_EQ(w.b.last_event.cause, BFO_CAUSE_SHUTDOWN);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kGone);
}

TEST(Leave, WhileTheRailIsLate_IsNoNews) {
  engine::Config config = small_config();
  config.connect_timeout_ns = 50'000'000;
  World w(config);
  w.fabric.drop_datagrams = kAll;
  engine::cm_connect(w.a.endpoint);
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("early")), Accepted::kQueued);
  w.pass(60);
  const Log before = w.b.log;
  ASSERT_EQ(w.b.down, 1);
  ASSERT_NE(w.b.last_event.cause, BFO_CAUSE_SHUTDOWN);
  w.fabric.drop_datagrams = 0;
  w.a.port.remove(w.a.endpoint);
  w.pass(5);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kGone);
  EXPECT_EQ(w.b.log, before);
  EXPECT_NE(w.b.last_event.cause, BFO_CAUSE_SHUTDOWN) << "what is said of it later is why it was lost";
  EXPECT_EQ(engine::send(w.b.endpoint, w.frag("late")), Accepted::kRefused);
}

// Its other rail works and its connect time is over: it is not given up as a failure first.
TEST(Leave, WhileTheInitiatorRequestsForTooLong) {
  World w;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("early")), Accepted::kQueued);
  turn(w, w.a, w.a, Phase::kRequesting);
  w.fabric.drop_datagrams = 1;  // REPLY
  turn(w, w.b, w.b, Phase::kReplied);
  test_now() += 17 * w.a.port.config().connect_timeout_ns;
  w.b.port.remove(w.b.endpoint);
  w.pass(1);
  expect_gone(w, w.a, {"down 1", "done early -12", "closed 1"});
}

// The loss of the epoch before was told already.
TEST(Leave, BetweenTwoEpochs_IsNoNews) {
  World w(slow_retry());
  w.connect();
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_WC_ERROR, IBV_WC_RETRY_EXC_ERR, 0);
  turn(w, w.a, w.a, Phase::kClosed);
  const Log before = w.a.log;
  w.b.port.remove(w.b.endpoint);
  w.pass(5);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kGone);
  EXPECT_EQ(w.a.log, before);
  EXPECT_EQ(engine::send(w.a.endpoint, w.frag("late")), Accepted::kRefused);
}

// BYE is lost on the way: the peer would wait for the acknowledgment of a queue pair that is gone.
TEST(Leave, TheRailStaysUntilThePeerHasAnswered) {
  World w;
  w.connect();
  EXPECT_TRUE(engine::rail_leave(w.a.endpoint));
  w.fabric.drop_datagrams = 1;
  w.pass(1);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
  EXPECT_TRUE(engine::rail_leave(w.a.endpoint));
  ASSERT_TRUE(w.sendi(w.b, "late")) << "nobody has told it yet";
  w.pass(30);
  EXPECT_FALSE(engine::rail_leave(w.a.endpoint));
  EXPECT_EQ(w.a.count("recv 65 late"), 1);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kGone);
  EXPECT_EQ(w.b.count("payload"), 0);
  for (Process* p : {&w.a, &w.b}) {
    EXPECT_EQ(p->down, 1);
    EXPECT_EQ(p->last_event.cause, BFO_CAUSE_SHUTDOWN);
  }
}

// The peer has gone already when the BYE comes a second time.
TEST(Leave, AnAnswerThatIsLost_IsGivenAgain) {
  World w;
  w.connect();
  ASSERT_TRUE(engine::rail_leave(w.a.endpoint));
  for (int i = 0; i < 100 && w.b.endpoint.phase == Phase::kUp; ++i) {
    test_now() += 1'000;
    w.a.poll();
    w.fabric.drop_datagrams = 1;  // what b says
    w.b.poll();
  }
  w.fabric.drop_datagrams = 0;
  w.pass(5);
  ASSERT_EQ(w.b.endpoint.phase, Phase::kGone);
  EXPECT_TRUE(engine::rail_leave(w.a.endpoint));
  w.pass(30);
  EXPECT_FALSE(engine::rail_leave(w.a.endpoint));
  EXPECT_EQ(w.b.down, 1);
}

TEST(Leave, BothAtOnce_NeitherWaits) {
  World w;
  w.connect();
  EXPECT_TRUE(engine::rail_leave(w.a.endpoint));
  EXPECT_TRUE(engine::rail_leave(w.b.endpoint));
  w.pass(3);
  EXPECT_FALSE(engine::rail_leave(w.a.endpoint));
  EXPECT_FALSE(engine::rail_leave(w.b.endpoint));
}

// The bound of the caller is over: the peer has gone without an answer.
TEST(Leave, WhatEndsTheRailOfAProcessThatLeaves_IsNoFailure) {
  World w;
  w.connect();
  ASSERT_TRUE(engine::rail_leave(w.a.endpoint));
  w.fabric.hold = true;
  w.fabric.drop_datagrams = kAll;
  ASSERT_TRUE(w.sendi(w.a, "marker"));
  ASSERT_TRUE(w.fabric.fail(w.a.endpoint.qps().data.number(), IBV_WC_RETRY_EXC_ERR));
  w.fabric.hold = false;
  w.pass(10);
  EXPECT_EQ(w.a.down, 1);
  EXPECT_EQ(w.a.last_event.cause, BFO_CAUSE_SHUTDOWN);
  EXPECT_FALSE(engine::rail_leave(w.a.endpoint)) << "there is no rail that could be waited for";
  w.pass(300);
  EXPECT_EQ(w.a.up, 1) << "nobody connects any more";
}

// The error is in another completion queue than the BYE, which waits behind the messages of others.
TEST(Leave, AnErrorThatIsReadBeforeTheGoodbye_IsNoFailure) {
  World w;
  w.connect();
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(w.sendi(w.b, std::to_string(i)));
    if (i % 8 == 7) w.b.poll();
  }
  w.b.poll();
  w.b.port.remove(w.b.endpoint);
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_WC_ERROR, IBV_WC_RETRY_EXC_ERR, 0);
  w.pass(5);
  EXPECT_EQ(w.a.count("recv"), 60);
  EXPECT_EQ(w.a.down, 1);
  EXPECT_EQ(w.a.last_event.cause, BFO_CAUSE_SHUTDOWN);
}

// More peers than a port has buffers for datagrams to send.
TEST(Leave, OfACrowd_EveryPeerIsTold) {
  Crowd c(1);
  for (auto& end : c.ends) engine::cm_connect(*end);
  c.until_all_up(500);
  for (int i = 0; i < 40; ++i) {
    for (auto& end : c.ends) engine::rail_leave(*end);
    c.turns(1, 1'000'000);
  }
  size_t told = 0;
  for (auto& peer : c.peers) told += peer->endpoint.peer.left;
  EXPECT_EQ(told, kPeers);
  for (auto& end : c.ends) EXPECT_FALSE(engine::rail_leave(*end));
}

TEST(Cm, PeerLeavesInOrder_NobodyReconnects) {
  World w;
  w.connect();
  w.b.port.remove(w.b.endpoint);
  w.pass(20);
  EXPECT_EQ(w.a.down, 1);
  EXPECT_EQ(w.a.last_event.cause, BFO_CAUSE_SHUTDOWN);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kGone);
  const size_t packets = w.fabric.datagrams.size();
  w.pass(100);
  EXPECT_EQ(w.fabric.datagrams.size(), packets);
}

TEST(Cm, PeerLeavesBeforeReadyArrived_TheInitiatorDoesNotWaitForItsRetries) {
  World w;
  engine::cm_connect(w.a.endpoint);
  for (int i = 0; i < 400 && w.a.endpoint.phase != Phase::kUp; ++i) {
    test_now() += 10'000;
    w.a.poll();
    if (w.b.endpoint.phase != Phase::kReplied) w.b.poll();
  }
  ASSERT_EQ(w.a.endpoint.phase, Phase::kUp);
  ASSERT_EQ(w.b.endpoint.phase, Phase::kReplied);
  w.b.port.remove(w.b.endpoint);
  w.pass(5);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kGone);
  EXPECT_EQ(w.a.last_event.cause, BFO_CAUSE_SHUTDOWN);
}

TEST(Cm, PeerLeaves_WhatItReceivedCountsAsDelivered) {
  World w;
  w.connect();
  ASSERT_TRUE(w.sendi(w.a, "one"));
  ASSERT_TRUE(w.sendi(w.a, "two"));
  w.b.poll();
  w.b.port.remove(w.b.endpoint);
  w.pass(5);
  EXPECT_EQ(w.a.count("payload"), 0);
}

}  // namespace
}  // namespace bfo::test
