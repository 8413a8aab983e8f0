// SPDX-License-Identifier: BSD-3-Clause
//
// btl_drain_test.cc: how an epoch ends: order of reports, every completion status, every event, dying
// devices, fences and gaps.
#include "btl/verbs/engine/drain/drain.h"

#include "btl/verbs/engine/progress/contract.h"

#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Phase;

TEST(Drain, FailedSend_ReportsDownThenFragmentsInOrderThenQueuedThenClosed) {
  World w;
  w.connect();
  w.fabric.hold = true;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("one")), engine::Accepted::kPosted);
  ASSERT_TRUE(w.sendi(w.a, "two"));
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(w.sendi(w.a, "fill"));
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("late")), engine::Accepted::kQueued);
  ASSERT_TRUE(w.fabric.fail(w.a.endpoint.qps().data.number(), IBV_WC_RETRY_EXC_ERR));
  for (int i = 0; i < 10; ++i) w.a.poll();
  ASSERT_EQ(w.a.log.size(), 17u);
  EXPECT_EQ(w.a.log[0], "down 1");
  EXPECT_EQ(w.a.log[1], "done one -1");
  EXPECT_EQ(w.a.log[2], "payload two -1");
  EXPECT_EQ(w.a.log[14 + 1], "done late -12");
  EXPECT_EQ(w.a.log[16], "closed 1");
  EXPECT_STREQ(w.a.last_event.text, "RETRY_EXC_ERR");
  EXPECT_EQ(w.a.last_event.cause, BFO_CAUSE_WC_ERROR);
  EXPECT_EQ(w.a.last_result, BFO_FENCED);
  EXPECT_TRUE(w.a.balanced());
}

class EveryStatus : public testing::TestWithParam<int> {};

TEST_P(EveryStatus, OnASend_ClosesTheRailOnceAndReconnects) {
  World w;
  w.connect();
  const auto status = static_cast<ibv_wc_status>(GetParam());
  w.fabric.fail_next(w.a.endpoint.qps().data.number(), status);
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kPosted);
  w.pass(20);
  if (engine::status_reaction(status) == engine::StatusReaction::kDropReceive) {
    // Only an unreliable connection's receive produces it: on a send it is counted and costs no rail.
    EXPECT_EQ(w.a.down, 0);
    EXPECT_EQ(w.a.port.accounting().dropped, 1u);
    return;
  }
  EXPECT_EQ(w.a.down, 1);
  EXPECT_EQ(w.a.closed, 1);
  EXPECT_EQ(w.a.count("done x -1"), 1);
  EXPECT_EQ(w.a.last_event.code, GetParam());
  EXPECT_EQ(w.a.port.program_errors,
            engine::status_reaction(status) == engine::StatusReaction::kCloseProgramError ? 1u : 0u);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.a.endpoint.epoch, 2u);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.b.endpoint.epoch, 2u);
}

// The value after the last known one stands for a status of a newer library.
INSTANTIATE_TEST_SUITE_P(AllStatuses, EveryStatus,
                         testing::Range(1, static_cast<int>(engine::kStatusRows.size()) + 1));

class EveryReceiveStatus : public testing::TestWithParam<int> {};

TEST_P(EveryReceiveStatus, OnASharedReceive_ReturnsTheBufferAndClosesOnlyWhenTheTableSaysSo) {
  World w;
  w.connect();
  ibv_wc wc{};
  wc.wr_id = engine::work_id(engine::WorkKind::kReceive, 3);
  wc.status = static_cast<ibv_wc_status>(GetParam());
  wc.qp_num = w.b.endpoint.qps().data.number();
  w.fabric.push(w.b.port.cqs().first(), wc);
  const uint32_t waiting = w.b.port.srq().waiting();
  w.b.port.poll();
  EXPECT_EQ(w.b.port.srq().waiting(), waiting + 1);
  const bool closes = engine::status_reaction(GetParam()) != engine::StatusReaction::kDropReceive;
  EXPECT_EQ(w.b.down, closes ? 1 : 0);
  w.pass(20);
}

INSTANTIATE_TEST_SUITE_P(AllStatuses, EveryReceiveStatus,
                         testing::Range(1, static_cast<int>(engine::kStatusRows.size()) + 1));

class EveryEvent : public testing::TestWithParam<int> {};

TEST_P(EveryEvent, DoesWhatTheTableSays) {
  World w;
  w.connect();
  const auto type = static_cast<ibv_event_type>(GetParam());
  const engine::EventReaction reaction = engine::event_reaction(type);
  const bool of_qp = engine::event_row(type).about == engine::EventElement::kQueuePair;
  bool has_case = false;
  const bool moves =
      type == IBV_EVENT_LID_CHANGE || GetParam() == static_cast<int>(engine::kEventRows.size());
  if (type == IBV_EVENT_PORT_ERR) w.a.hca->port.state = IBV_PORT_DOWN;
  if (moves) w.a.hca->port.lid = 77;
  w.fabric.raise(*w.a.hca, type, 1, of_qp ? w.a.endpoint.qps().data.ib() : nullptr);
  for (int i = 0; i < 8; ++i) w.a.poll();
  switch (reaction) {
    case engine::EventReaction::kCloseRail:
      has_case = true;
      EXPECT_EQ(w.a.down, 1);
      break;
    case engine::EventReaction::kSuspectRail:
      has_case = true;
      EXPECT_EQ(w.a.log, Log{"suspect"});
      w.pass(3);
      EXPECT_EQ(w.a.log, (Log{"suspect", "up 1"})) << "the path works";
      break;
    case engine::EventReaction::kPortDown:
      has_case = true;
      EXPECT_EQ(w.a.down, 1);
      EXPECT_EQ(w.a.port.state(), engine::PortState::kDown);
      break;
    case engine::EventReaction::kQueueDead:
    case engine::EventReaction::kDeviceDead:
      has_case = true;
      EXPECT_EQ(w.a.down, 1);
      EXPECT_EQ(w.a.port.state(), engine::PortState::kDead);
      EXPECT_EQ(engine::rail_state(w.a.endpoint), BFO_RAIL_UNUSABLE);
      break;
    case engine::EventReaction::kPortRefresh:
      has_case = true;
      EXPECT_EQ(w.a.down, moves ? 1 : 0);
      break;
    case engine::EventReaction::kIgnore:
    case engine::EventReaction::kMoreReceives:
    case engine::EventReaction::kLastReceive:
    case engine::EventReaction::kPortUp:
      has_case = true;
      EXPECT_EQ(w.a.down, 0);
      break;
  }
  EXPECT_TRUE(has_case) << "this test has no case for the reaction to " << engine::event_name(type);
  if (w.a.down != 0) {
    EXPECT_EQ(w.a.last_event.cause, BFO_CAUSE_ASYNC_EVENT);
    EXPECT_STREQ(w.a.last_event.text, engine::event_name(type));
  }
}

// The value after the last known one stands for an event of a newer library.
INSTANTIATE_TEST_SUITE_P(AllEvents, EveryEvent,
                         testing::Range(0, static_cast<int>(engine::kEventRows.size()) + 1));

TEST(Drain, PortEventOfTheOtherPort_TouchesNothing) {
  World w;
  w.connect();
  w.fabric.raise(*w.a.hca, IBV_EVENT_PORT_ERR, 2);
  w.pass(1);
  EXPECT_EQ(w.a.down, 0);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
}

TEST(Drain, PortDownThenActive_ComesBackWithANewEpoch) {
  World w;
  w.connect();
  w.set_port(w.a, IBV_PORT_DOWN);
  w.pass(50);
  EXPECT_EQ(w.a.closed, 1);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kClosed);
  EXPECT_EQ(engine::send(w.a.endpoint, w.frag("no")), engine::Accepted::kRefused);
  EXPECT_EQ(w.b.down, 0);  // its half knows nothing yet
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.pass(20);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.a.endpoint.epoch, 2u);
  EXPECT_EQ(w.b.closed, 1);
  EXPECT_EQ(w.b.last_event.cause, BFO_CAUSE_PEER_DOWN) << "the peer has the evidence, and says so";
  EXPECT_EQ(w.b.last_event.code, BFO_CAUSE_ASYNC_EVENT);
  EXPECT_EQ(w.b.endpoint.epoch, 2u);
  ASSERT_TRUE(w.sendi(w.b, "again"));
  w.pass(1);
  EXPECT_EQ(w.a.count("recv 65 again"), 1);
}

TEST(Drain, LostPortActiveEvent_PortIsAskedNowAndThen) {
  World w;
  w.connect();
  w.set_port(w.a, IBV_PORT_DOWN);
  w.pass(5);
  w.a.hca->port.state = IBV_PORT_ACTIVE;
  w.pass(1100);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
}

TEST(Drain, SuccessfulReceivesWaiting_AreDeliveredBeforeClosed) {
  World w;
  w.connect();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(w.sendi(w.b, "m" + std::to_string(i)));
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  for (int i = 0; i < 8; ++i) w.a.poll();
  EXPECT_EQ(w.a.count("recv"), 5);
  EXPECT_EQ(w.a.last_delivered, 5u);
  EXPECT_EQ(w.a.log.back(), "closed 1");
}

TEST(Drain, BothQueuePairsStopBeforeTheRailIsReportedDown) {
  World w;
  w.connect();
  const uint32_t data = w.a.endpoint.qps().data.number();
  const uint32_t probe = w.a.endpoint.qps().probe.number();
  w.fabric.traits.no_last_receive = 1;
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  w.a.poll();
  ASSERT_EQ(w.a.log, Log{"down 1"});
  EXPECT_EQ(w.fabric.find(data)->attr.qp_state, IBV_QPS_ERR);
  EXPECT_EQ(w.fabric.find(probe)->attr.qp_state, IBV_QPS_ERR);
}

TEST(Drain, ManyReceivesWaitingAndNoMarker_AllAreDeliveredBeforeDestroy) {
  World w;
  w.connect();
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(w.sendi(w.b, "m"));
    w.b.poll();
  }
  w.fabric.lose_marker = true;
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  w.a.poll();
  test_now() += 100'000'000;
  for (int i = 0; i < 20; ++i) w.a.poll();
  EXPECT_EQ(w.a.closed, 1);
  EXPECT_EQ(w.a.count("recv"), 60);
  EXPECT_EQ(w.a.last_delivered, 60u);
}

TEST(Drain, GapOfAPayloadThatWasInAFragment_IsLostNotReadFromTheSlot) {
  World w;
  w.connect();
  engine::Frag* frag = w.frag("in a fragment", false);
  frag->kind = engine::Kind::kSendi;
  ASSERT_EQ(engine::send(w.a.endpoint, frag), engine::Accepted::kPosted);
  w.pass(10);
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  w.pass(1);
  w.a.endpoint.notices().gap_asked = true;
  w.a.endpoint.notices().gap_name = w.a.endpoint.epochs()->last_closed.name;
  w.a.endpoint.notices().gap_delivered = 0;
  w.a.port.need_service();
  w.a.poll();
  EXPECT_EQ(w.a.count("payload"), 0);
  EXPECT_EQ(w.a.gap, 1u);
}

TEST(Drain, MarkerThatNeverReturns_FragmentsComeBackOnlyAfterDestroy) {
  World w;
  w.connect();
  w.fabric.hold = true;
  w.fabric.lose_marker = true;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kPosted);
  const uint32_t qpn = w.a.endpoint.qps().data.number();
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  for (int i = 0; i < 20; ++i) w.a.poll();
  EXPECT_EQ(w.a.count("done"), 0);
  EXPECT_NE(w.fabric.find(qpn), nullptr);
  test_now() += 60'000'000;
  for (int i = 0; i < 20; ++i) w.a.poll();
  EXPECT_EQ(w.fabric.find(qpn), nullptr);
  EXPECT_EQ(w.a.count("done x -1"), 1);
  EXPECT_EQ(w.a.last_result, BFO_FENCED);
}

TEST(Drain, NoLastReceiveEvent_WaitsABoundedTime) {
  World w;
  w.connect();
  w.fabric.traits.no_last_receive = 1;
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  for (int i = 0; i < 20; ++i) w.a.poll();
  EXPECT_EQ(w.a.closed, 0);
  test_now() += 4'000'000;
  for (int i = 0; i < 4; ++i) w.a.poll();
  EXPECT_EQ(w.a.closed, 1);
}

TEST(Drain, PostRefused_ClosesFromProgressNotFromTheCall) {
  World w;
  w.connect();
  w.fabric.refuse_post = EIO;
  EXPECT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kRefused);
  EXPECT_TRUE(w.a.log.empty());
  w.pass(1);
  EXPECT_EQ(w.a.down, 1);
  EXPECT_EQ(w.a.last_event.cause, BFO_CAUSE_POST_FAILED);
  EXPECT_EQ(w.a.last_event.code, EIO);
}

/// Whoever posts holds the lock of the port; with a lock that did not let its holder in again the post hung.
TEST(Drain, PostRefusedWithThreads_EveryWayToPostComesBack) {
  for (int way = 0; way < 3; ++way) {
    World w;
    static constexpr bool kThreads = true;  // the port reads it as long as it lives
    w.a.port.lock().open(&kThreads);
    w.connect();
    w.fabric.refuse_post = EIO;
    if (way == 0) {
      EXPECT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kRefused);
    } else if (way == 1) {
      char* slot = engine::slot_reserve(w.a.endpoint, 1);
      ASSERT_NE(slot, nullptr);
      EXPECT_FALSE(engine::slot_commit(w.a.endpoint, slot, 1, 1));
    } else {
      w.fabric.refuse_post = 0;
      char* slot = engine::slot_reserve(w.a.endpoint, 1);
      ASSERT_NE(slot, nullptr);
      EXPECT_TRUE(engine::slot_commit(w.a.endpoint, slot, 1, 1));
      w.fabric.refuse_post = EIO;
      engine::rail_work(w.a.endpoint);  // marks the end of what is in flight
      EXPECT_EQ(w.fabric.refuse_post, 0);
    }
    w.pass(1);
    EXPECT_EQ(w.a.down, 1) << way;
    EXPECT_EQ(w.a.last_event.cause, BFO_CAUSE_POST_FAILED) << way;
  }
}

TEST(Drain, SecondEvidenceForTheSameEpoch_IsNotNews) {
  World w;
  w.connect();
  EXPECT_TRUE(engine::close_order(w.a.endpoint, 1, BFO_CAUSE_PEER_DOWN, 0, 0));
  EXPECT_FALSE(engine::close_order(w.a.endpoint, 1, BFO_CAUSE_WC_ERROR, 12, 0));
  w.pass(20);
  EXPECT_EQ(w.a.down, 1);
  EXPECT_FALSE(engine::close_order(w.a.endpoint, 1, BFO_CAUSE_PEER_DOWN, 0, 0)) << "epoch 2 is not meant";
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
}

TEST(Drain, PeerGotFewerThanAcknowledged_SlotsAreHandedBackAndTheRestCounted) {
  World w;
  w.connect();
  // 20 messages through 16 slots, all acknowledged; the peer's device lost the last 16 after acknowledging.
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(w.sendi(w.a, "m" + std::to_string(i)));
    w.a.poll();
  }
  w.pass(10);
  ASSERT_EQ(w.a.endpoint.ring().tail, w.a.endpoint.ring().head);
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  w.pass(1);
  w.a.endpoint.notices().gap_asked = true;
  w.a.endpoint.notices().gap_name = w.a.endpoint.epochs()->last_closed.name;
  w.a.endpoint.notices().gap_delivered = 2;
  w.a.port.need_service();
  w.a.log.clear();
  w.a.poll();
  // 18 are missing; the ring remembers the youngest 16 work requests (a marker may be among them).
  const int back = w.a.count("payload");
  EXPECT_GE(back, 15);
  EXPECT_EQ(static_cast<uint64_t>(back) + w.a.gap, 18u);
  EXPECT_EQ(w.a.count("payload m19 -1"), 1);
}

TEST(Drain, GapReportForAnOpenEpoch_WaitsUntilOurHalfIsClosed) {
  World w;
  w.connect();
  ASSERT_TRUE(w.sendi(w.a, "m"));
  w.pass(10);
  bfo_rail_info_t info;
  engine::rail_info(w.a.endpoint, &info);
  w.a.endpoint.notices().gap_name = info.name;
  w.a.endpoint.notices().gap_delivered = 0;
  w.a.endpoint.notices().gap_asked = true;
  w.a.port.need_service();
  w.pass(1);
  EXPECT_EQ(w.a.count("payload"), 0);
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_PEER_DOWN, 0, 0);
  w.pass(1);
  EXPECT_EQ(w.a.count("payload m -1"), 1);
  EXPECT_EQ(w.a.gap, 0u);
}

/// The initiator was up in an epoch in which this side never was. It waits to hear that it is closed here.
TEST(Drain, EpochThatWasUpAtThePeerOnly_IsReportedClosedWhenThePeerAsks) {
  for (const bool asks_first : {true, false}) {
    World w;
    engine::cm_connect(w.a.endpoint);
    w.until_replied();
    w.fabric.drop_datagrams = 1;  // READY
    w.a.poll();
    w.a.poll();
    ASSERT_EQ(w.a.endpoint.phase, engine::Phase::kUp);
    ASSERT_EQ(w.b.endpoint.phase, engine::Phase::kReplied);
    bfo_rail_info_t info;
    engine::rail_info(w.a.endpoint, &info);
    const auto peer_says_closed = [&] {
      w.b.endpoint.notices().gap_name = info.name;
      w.b.endpoint.notices().gap_asked = true;
      w.b.port.need_service();
    };
    w.fabric.drop_datagrams = 1'000'000;  // no reconnection
    if (asks_first) peer_says_closed();
    engine::close_order(w.b.endpoint, 1, BFO_CAUSE_PEER_DOWN, 0, 0);
    w.pass(1);
    if (!asks_first) {
      EXPECT_TRUE(w.b.log.empty());
      peer_says_closed();
      w.pass(1);
    }
    EXPECT_EQ(w.b.log, Log{"closed 1"});
    peer_says_closed();
    w.pass(1);
    EXPECT_EQ(w.b.log, Log{"closed 1"});
  }
}

/// The initiator is silent after such an epoch. What is sent here then waits for the next one, and comes back
/// when that does not come: refused, it would be tried for ever, and nobody told that the path is dead.
TEST(Drain, EpochThatWasNeverUpHere_NextMessageWaitsForTheNextEpoch) {
  engine::Config config = small_config();
  config.connect_timeout_ns = 50'000'000;
  World w(config);
  engine::cm_connect(w.a.endpoint);
  w.until_replied();
  w.fabric.drop_datagrams = 1'000'000;
  ASSERT_TRUE(engine::close_order(w.b.endpoint, 1, BFO_CAUSE_PEER_DOWN, 0, 0));
  w.pass(10);
  ASSERT_EQ(w.b.endpoint.phase, engine::Phase::kSoliciting);
  EXPECT_TRUE(w.b.log.empty());
  EXPECT_EQ(engine::send(w.b.endpoint, w.frag("x")), engine::Accepted::kQueued);
  w.pass(60);
  EXPECT_EQ(w.b.log, (Log{"down 1", "done x -12"})) << "late";
}

/// Nothing was sent in an epoch that was never up here, whatever was acknowledged in the one before it.
TEST(Drain, EpochThatWasUpAtThePeerOnly_HasNoGap) {
  World w;
  w.connect();
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(w.sendi(w.b, "m" + std::to_string(i)));
    w.b.poll();
  }
  w.pass(10);
  ASSERT_EQ(w.a.count("recv"), 20);
  w.fabric.drop_datagrams = 1'000'000;
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_PEER_DOWN, 0, 0);
  engine::close_order(w.b.endpoint, 1, BFO_CAUSE_PEER_DOWN, 0, 0);
  w.pass(1);
  w.fabric.drop_datagrams = 0;
  for (int i = 0; i < 40'000 && w.b.endpoint.phase != engine::Phase::kReplied; ++i) {
    test_now() += 10'000;
    w.a.poll();
    w.b.poll();
  }
  ASSERT_EQ(w.b.endpoint.phase, engine::Phase::kReplied);
  w.fabric.drop_datagrams = 1'000'000;  // READY, and no reconnection
  w.a.poll();
  w.a.poll();
  ASSERT_EQ(w.a.endpoint.phase, engine::Phase::kUp);
  bfo_rail_info_t info;
  engine::rail_info(w.a.endpoint, &info);
  ASSERT_GT(info.name.epoch, 1u);
  engine::close_order(w.b.endpoint, info.name.epoch, BFO_CAUSE_PEER_DOWN, 0, 0);
  w.b.log.clear();
  w.b.endpoint.notices().gap_name = info.name;  // the peer's EPOCHCLOSED: it received nothing in this epoch
  w.b.endpoint.notices().gap_delivered = 0;
  w.b.endpoint.notices().gap_asked = true;
  w.b.port.need_service();
  w.pass(1);
  EXPECT_EQ(w.b.log, Log{"closed " + std::to_string(info.name.epoch)});
  EXPECT_EQ(w.b.gap, 0u) << "a healthy pair would be given up";
}

}  // namespace
}  // namespace bfo::test
