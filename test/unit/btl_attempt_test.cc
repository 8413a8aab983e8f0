// SPDX-License-Identifier: BSD-3-Clause
//
// btl_attempt_test.cc: attempts to connect that come to nothing: nobody answers, a port or a device dies,
// either side gives up or closes what the other one has used.
#include "btl/verbs/engine/connect/attempt.h"

#include <cerrno>

#include "btl/verbs/engine/progress/contract.h"

#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Phase;

// The initiator is up and sends; the device of the responder acknowledges; at that instant the responder,
// which has not seen READY, gives it up because another rail could carry what it has to say.
TEST(Cm, ResponderGivesUpAnEpochInUse_AcknowledgedMessagesAreDelivered) {
  World w;
  engine::cm_connect(w.a.endpoint);
  w.until_replied();
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("answer")), engine::Accepted::kQueued);
  w.fabric.drop_datagrams = 1;  // READY
  w.a.poll();
  w.a.poll();
  ASSERT_EQ(w.a.endpoint.phase, Phase::kUp);
  test_now() += 17 * w.b.port.config().connect_timeout_ns;
  w.b.on_other_rail = [&] {
    ASSERT_EQ(engine::send(w.a.endpoint, w.frag("question")), engine::Accepted::kPosted);
    w.a.poll();
    EXPECT_EQ(w.a.count("done question 0"), 1);
  };
  for (int i = 0; i < 40; ++i) w.b.poll();
  EXPECT_FALSE(w.b.on_other_rail);
  w.pass(400);
  EXPECT_EQ(w.b.count("recv 65 question"), 1);
  EXPECT_EQ(w.b.count("done answer"), 1);
}

TEST(Cm, NobodyAnswers_QueuedFragmentsComeBackAsNeverSent) {
  engine::Config config = small_config();
  config.connect_timeout_ns = 50'000'000;
  World w(config);
  w.fabric.drop_datagrams = 1 << 30;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  w.pass(60);
  EXPECT_EQ(w.a.log, (Log{"down 1", "done x -12"})) << "late, and not lost: the attempt goes on";
  EXPECT_EQ(w.a.endpoint.phase, engine::Phase::kRequesting);
  EXPECT_EQ(w.a.last_event.cause, BFO_CAUSE_HANDSHAKE);
  EXPECT_EQ(w.a.last_event.code, EINPROGRESS);
  EXPECT_NE(std::string(engine::cause_text(w.a.last_event.cause, w.a.last_event.code))
                .find("btl_verbs_connect_timeout"),
            std::string::npos);
}

/// The PML may wait for the end of an epoch that never was up here: it listed a key of this rail in a message
/// that waits for it, and its peer is given up.
TEST(Fence, AttemptUnderWay_IsReportedClosed) {
  World w;
  w.fabric.drop_datagrams = 1 << 30;
  engine::cm_connect(w.a.endpoint);
  w.pass(2);
  ASSERT_EQ(w.a.endpoint.phase, Phase::kRequesting);
  ASSERT_EQ(w.a.endpoint.epoch, 1u);
  engine::rail_fence(w.a.endpoint, 1);
  w.pass(2);
  EXPECT_EQ(w.a.count("closed 1"), 1);
  EXPECT_EQ(w.a.last_result, BFO_FENCED);
  EXPECT_EQ(w.a.last_delivered, 0u);
}

TEST(Fence, AttemptGivenUpBefore_IsReportedClosed) {
  World w;
  w.fabric.drop_datagrams = 1 << 30;
  engine::cm_connect(w.a.endpoint);
  w.pass(2);
  engine::attempt_drop(w.a.endpoint, test_now());
  ASSERT_EQ(w.a.endpoint.phase, Phase::kClosed);
  engine::rail_fence(w.a.endpoint, 1);
  w.pass(1);
  EXPECT_EQ(w.a.count("closed 1"), 1);
  w.fabric.drop_datagrams = 0;
  w.pass(600);
  ASSERT_EQ(w.a.endpoint.phase, Phase::kUp);
  ASSERT_EQ(w.a.endpoint.epoch, 2u);
  EXPECT_EQ(w.a.count("closed 1"), 1) << "once for each fence";
}

TEST(Fence, ResponderThatNeverWasUp_IsReportedClosedWhenItsQueuePairsAreGone) {
  World w;
  engine::cm_connect(w.a.endpoint);
  w.until_replied();
  engine::rail_fence(w.b.endpoint, 1);
  w.pass(40);
  EXPECT_EQ(w.b.count("closed 1"), 1);
}

/// Another thread sends between the look at the clock and the turn of the port, or this one does, for another
/// endpoint's loss.
TEST(Cm, FirstSendAfterTheClockWasRead_HasNotWaitedLong) {
  World w;
  w.fabric.drop_datagrams = 1 << 30;
  w.pass(1);
  const uint64_t looked = test_now();
  test_now() += 1000;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  engine::cm_step(w.a.endpoint, looked);
  EXPECT_EQ(w.a.down, 0);
  EXPECT_EQ(w.a.count("done x"), 0);
  w.fabric.drop_datagrams = 0;
  w.pass(5);
  EXPECT_EQ(w.b.count("recv 65 x"), 1);
}

TEST(Cm, PeerComputesForMinutesOnTheOnlyRail_NothingIsGivenUp) {
  engine::Config config = small_config();
  config.connect_timeout_ns = 50'000'000;
  World w(config);
  w.a.other_rail = false;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  for (int i = 0; i < 2000; ++i) {  // 200 s in which b takes no step
    test_now() += 100'000'000;
    w.fabric.run();
    w.b.serve_heartbeat();
    for (int k = 0; k < 32; ++k) w.a.poll();
  }
  EXPECT_EQ(w.a.down, 0);
  EXPECT_GT(w.a.others_asked, 0);
  w.pass(600);
  EXPECT_EQ(w.b.count("recv 65 x"), 1);
  EXPECT_EQ(w.a.count("done x 0"), 1);
}

TEST(Cm, PortDiesWhileConnecting_QueuedFragmentsComeBackAtOnce) {
  World w;
  w.fabric.drop_datagrams = 1 << 30;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  w.pass(2);
  w.set_port(w.a, IBV_PORT_DOWN);
  w.pass(1);
  EXPECT_EQ(w.a.count("done x -12"), 1);
  // The port returns: nobody above sends on a rail that is down, so it must come up by itself.
  w.fabric.drop_datagrams = 0;
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.pass(600);
  EXPECT_EQ(w.a.up, 1);
}

TEST(Cm, PortIsDownBeforeTheFirstSend_ItComesBackWithTheLossOfTheRail) {
  World w;
  w.set_port(w.a, IBV_PORT_DOWN);
  w.pass(2);
  ASSERT_EQ(w.a.log, Log{}) << "nobody has used the rail yet";
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  w.pass(1);
  EXPECT_EQ(w.a.log, (Log{"down 0", "done x -12", "closed 0"}));
  EXPECT_EQ(w.a.last_event.cause, BFO_CAUSE_ASYNC_EVENT);
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.pass(600);
  EXPECT_EQ(w.a.up, 1);
}

TEST(Cm, PortDiesWhileConnectingForNobody_AFirstSendComesBackToo) {
  World w;
  w.fabric.drop_datagrams = 1 << 30;
  engine::cm_connect(w.a.endpoint);
  w.pass(2);
  ASSERT_EQ(w.a.endpoint.phase, Phase::kRequesting);
  w.set_port(w.a, IBV_PORT_DOWN);
  w.pass(2);
  ASSERT_EQ(w.a.endpoint.phase, Phase::kClosed);
  ASSERT_EQ(w.a.log, Log{}) << "nobody has used the rail yet";
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  w.pass(1);
  EXPECT_EQ(w.a.log, (Log{"down 1", "done x -12", "closed 1"}));
}

TEST(Cm, PortDiesWhileReplied_TheNextSendSaysSo) {
  World w;
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("x")), engine::Accepted::kQueued);
  w.until_replied();
  w.fabric.drop_datagrams = 1 << 30;
  w.set_port(w.b, IBV_PORT_DOWN);
  w.pass(20);
  ASSERT_EQ(w.b.endpoint.phase, Phase::kClosed);
  EXPECT_EQ(w.b.count("done x -12"), 1);
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("x")), engine::Accepted::kQueued);
  w.pass(1);
  EXPECT_EQ(w.b.count("done x -12"), 2);
  EXPECT_EQ(w.b.down, 1);
}

TEST(Cm, DeviceDiesWhileConnecting_IsNotTriedAgain) {
  World w;
  w.fabric.drop_datagrams = 1 << 30;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  w.pass(2);
  w.fabric.raise(*w.a.hca, IBV_EVENT_DEVICE_FATAL, 0);
  w.pass(2);
  EXPECT_EQ(w.a.count("done x -12"), 1);
  EXPECT_FALSE(w.a.endpoint.connect_wanted);
}

TEST(Cm, DeviceDiesBeforeTheFirstPoll_QueuedFragmentsComeBack) {
  World w;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  w.fabric.raise(*w.a.hca, IBV_EVENT_DEVICE_FATAL, 0);
  w.pass(2);
  EXPECT_EQ(w.a.count("done x -12"), 1);
  EXPECT_EQ(w.a.down, 1);
}

/// The initiator is up, the responder waits for READY, and datagrams are lost from now on.
void up_at_the_initiator_only(World& w) {
  engine::cm_connect(w.a.endpoint);
  w.until_replied();
  w.fabric.drop_datagrams = 1'000'000;
  w.a.poll();
  w.a.poll();
  ASSERT_EQ(w.a.endpoint.phase, Phase::kUp);
  ASSERT_EQ(w.b.endpoint.phase, Phase::kReplied);
}

/// Nothing can be answered over a dead device: the initiator hears over another rail, without asking.
TEST(Cm, DeviceOfAResponderDiesBeforeReady_IsReportedDownAndClosed) {
  World w;
  up_at_the_initiator_only(w);
  w.fabric.raise(*w.b.hca, IBV_EVENT_DEVICE_FATAL, 0);
  w.pass(20);
  EXPECT_EQ(w.b.log, (Log{"up 1", "down 1", "closed 1"}));
}

TEST(Cm, DeviceDiesAfterAnEpochThatWasNeverUpHere_IsReportedDownAndClosed) {
  World w;
  up_at_the_initiator_only(w);
  engine::close_order(w.b.endpoint, 1, BFO_CAUSE_PEER_DOWN, 0, 0);
  w.pass(1);
  ASSERT_EQ(w.b.endpoint.epochs()->last_closed.name.epoch, 1u);
  EXPECT_TRUE(w.b.log.empty());
  w.fabric.raise(*w.b.hca, IBV_EVENT_DEVICE_FATAL, 0);
  w.pass(5);
  EXPECT_EQ(w.b.log, (Log{"down 1", "closed 1"}));
}

/// The responder gave up an epoch in which a message had come. What it gives up next is a later attempt,
/// which has no epoch of its own yet.
TEST(Cm, GivenUpAgainAfterADrainedEpoch_TheEpochHasOneCount) {
  World w;
  up_at_the_initiator_only(w);
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("question")), engine::Accepted::kPosted);
  engine::close_order(w.b.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  for (int i = 0; i < 400 && w.b.closed == 0; ++i) {
    test_now() += 10'000;
    w.b.poll();
  }
  ASSERT_EQ(w.b.closed, 1);
  ASSERT_EQ(w.b.last_delivered, 1u);
  engine::cm_failed(w.b.endpoint, BFO_CAUSE_HANDSHAKE, 0, test_now());
  ASSERT_EQ(w.b.closed, 2);
  EXPECT_EQ(w.b.last_event.info.name.epoch, 1u);
  EXPECT_EQ(w.b.last_delivered, 1u);
}

/// The responder had used the epoch, and waits to hear that it is closed.
TEST(Cm, AttemptGivenUpHereThatThePeerCloses_IsReportedClosedOnce) {
  World w;
  w.fabric.hold = true;
  engine::cm_connect(w.a.endpoint);
  w.pass(3);
  ASSERT_EQ(w.a.endpoint.phase, Phase::kProbing);
  bfo_rail_info_t info;
  engine::rail_info(w.a.endpoint, &info);
  w.fabric.drop_datagrams = 1'000'000;
  ASSERT_TRUE(w.fabric.fail(w.a.endpoint.qps().data.number(), IBV_WC_RETRY_EXC_ERR));
  w.pass(1);
  ASSERT_TRUE(w.a.log.empty());
  for (int twice = 0; twice < 2; ++twice) {
    engine::note_peer_closed(w.a.endpoint, info.name, 0);
    w.pass(1);
    EXPECT_EQ(w.a.log, Log{"closed 1"});
  }
}

TEST(Cm, PeerClosedTheEpoch_ItEndsHereToo) {
  World w;
  w.connect();
  bfo_rail_info_t info;
  engine::rail_info(w.b.endpoint, &info);
  w.fabric.drop_datagrams = 1'000'000;
  engine::note_peer_closed(w.b.endpoint, info.name, 0);
  w.pass(1);
  EXPECT_EQ(w.b.log, (Log{"down 1", "closed 1"}));
  EXPECT_EQ(w.b.last_event.cause, BFO_CAUSE_PEER_DOWN);
}

TEST(Cm, OlderCountThatComesLate_DoesNotReplaceANewerOne) {
  World w;
  w.connect();
  bfo_rail_info_t info;
  engine::rail_info(w.b.endpoint, &info);
  bfo_rail_name_t newer = info.name;
  ++newer.epoch;
  engine::note_peer_closed(w.b.endpoint, newer, 5);
  engine::note_peer_closed(w.b.endpoint, info.name, 3);
  EXPECT_EQ(w.b.endpoint.notices().gap_name.epoch, newer.epoch);
  EXPECT_EQ(w.b.endpoint.notices().gap_delivered, 5u);
}

}  // namespace
}  // namespace bfo::test
