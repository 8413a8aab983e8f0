// SPDX-License-Identifier: BSD-3-Clause
//
// btl_cause_test.cc: a flushed work request is a consequence. Whatever names the cause while the epoch ends
// is reported instead: a completion on the send or the receive side, an event, or what queue pair and port
// say when they are asked.
#include "btl/verbs/engine/rail/cause.h"

#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::WorkKind;

/// A failed completion of the data queue pair of `p`. Send or receive side.
void push(World& w, Process& p, ibv_wc_status status, WorkKind kind, uint64_t low = 0) {
  ibv_wc wc{};
  wc.wr_id = engine::work_id(kind, low);
  wc.status = status;
  wc.vendor_err = 7;
  wc.qp_num = p.endpoint.qps().data.number();
  w.fabric.push(p.port.cqs().first(), wc);
}

void send_one(World& w) {
  w.fabric.hold = true;
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kPosted);
}

void finish(World& w) {
  for (int i = 0; i < 12; ++i) w.a.poll();
  ASSERT_EQ(w.a.closed, 1);
}

TEST(Cause, ErrorBehindAFlushOfTheSameQueue_IsReported) {
  World w;
  w.connect();
  send_one(w);
  push(w, w.a, IBV_WC_WR_FLUSH_ERR, WorkKind::kSend, w.a.endpoint.ring().tail);
  push(w, w.a, IBV_WC_RETRY_EXC_ERR, WorkKind::kSend, w.a.endpoint.ring().tail);
  finish(w);
  EXPECT_STREQ(w.a.last_event.text, "RETRY_EXC_ERR");
  EXPECT_EQ(w.a.last_event.code, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(w.a.last_event.vendor_err, 7u);
  EXPECT_EQ(w.a.closed_event.code, IBV_WC_RETRY_EXC_ERR);
}

TEST(Cause, ErrorAfterTheDrainBegan_IsReportedBeforeAnyFragmentComesBack) {
  World w;
  w.connect();
  send_one(w);
  push(w, w.a, IBV_WC_WR_FLUSH_ERR, WorkKind::kSend, w.a.endpoint.ring().tail);
  w.fabric.lose_marker = true;
  w.a.poll();
  ASSERT_EQ(w.a.down, 1);
  push(w, w.a, IBV_WC_REM_ACCESS_ERR, WorkKind::kSend, w.a.endpoint.ring().tail);
  w.a.poll();
  test_now() += 100'000'000;
  finish(w);
  const Log wanted = {"down 1", "because REM_ACCESS_ERR", "done x -1", "closed 1"};
  EXPECT_EQ(w.a.log, wanted);
  EXPECT_EQ(w.a.closed_event.code, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(w.a.port.program_errors, 1u);
}

TEST(Cause, ErrorOfTheReceiveSide_ExplainsTheFlushOfTheSendSide) {
  World w;
  w.connect();
  send_one(w);
  push(w, w.a, IBV_WC_WR_FLUSH_ERR, WorkKind::kSend, w.a.endpoint.ring().tail);
  push(w, w.a, IBV_WC_LOC_LEN_ERR, WorkKind::kReceive, 3);
  finish(w);
  EXPECT_STREQ(w.a.closed_event.text, "LOC_LEN_ERR");
}

TEST(Cause, FlushedReceiveThenErrorOfTheSendSide_IsReported) {
  World w;
  w.connect();
  send_one(w);
  push(w, w.a, IBV_WC_WR_FLUSH_ERR, WorkKind::kReceive, 3);
  push(w, w.a, IBV_WC_RNR_RETRY_EXC_ERR, WorkKind::kSend, w.a.endpoint.ring().tail);
  finish(w);
  EXPECT_STREQ(w.a.closed_event.text, "RNR_RETRY_EXC_ERR");
}

TEST(Cause, ResponderSide_LearnsItFromItsOwnCompletions) {
  World w;
  w.connect();
  push(w, w.b, IBV_WC_WR_FLUSH_ERR, WorkKind::kReceive, 3);
  push(w, w.b, IBV_WC_LOC_PROT_ERR, WorkKind::kReceive, 4);
  for (int i = 0; i < 12; ++i) w.b.poll();
  ASSERT_EQ(w.b.closed, 1);
  EXPECT_STREQ(w.b.closed_event.text, "LOC_PROT_ERR");
}

TEST(Cause, EventThatComesAfterTheFlush_IsReported) {
  for (const ibv_event_type type : {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_PORT_ERR}) {
    World w;
    w.connect();
    send_one(w);
    push(w, w.a, IBV_WC_WR_FLUSH_ERR, WorkKind::kSend, w.a.endpoint.ring().tail);
    w.fabric.traits.no_last_receive = 1;
    w.a.poll();
    ASSERT_EQ(w.a.down, 1);
    w.fabric.raise(*w.a.hca, type, 1, type == IBV_EVENT_PORT_ERR ? nullptr : w.a.endpoint.qps().data.ib());
    w.a.poll();
    test_now() += 100'000'000;
    finish(w);
    EXPECT_STREQ(w.a.closed_event.text, engine::event_name(type));
    EXPECT_EQ(w.a.closed_event.cause, BFO_CAUSE_ASYNC_EVENT);
  }
}

/// The port was down for a moment, also here. The peer's next handshake is read before the event.
TEST(Cause, EventThatIsOlderThanThePeersNextHandshake_IsReported) {
  World w;
  w.connect();
  w.fabric.traits.no_last_receive = 1;
  engine::close_order(w.b.endpoint, 1, BFO_CAUSE_PEER_DOWN, BFO_CAUSE_ASYNC_EVENT, 0);
  w.b.poll();
  ASSERT_EQ(w.b.down, 1);
  ASSERT_EQ(w.b.last_event.cause, BFO_CAUSE_PEER_DOWN);
  w.fabric.raise(*w.b.hca, IBV_EVENT_PORT_ERR, 1);
  for (int i = 0; i < 12; ++i) {
    test_now() += 100'000'000;
    w.b.poll();
  }
  ASSERT_EQ(w.b.closed, 1);
  EXPECT_STREQ(w.b.closed_event.text, "IBV_EVENT_PORT_ERR");
}

/// What this side sees of the peer's half that is gone explains nothing.
TEST(Cause, ErrorAfterThePeersWord_IsItsConsequence) {
  World w;
  w.connect();
  send_one(w);
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_PEER_DOWN, BFO_CAUSE_ASYNC_EVENT, 0);
  push(w, w.a, IBV_WC_RETRY_EXC_ERR, WorkKind::kSend, w.a.endpoint.ring().tail);
  finish(w);
  EXPECT_EQ(w.a.closed_event.cause, BFO_CAUSE_PEER_DOWN);
}

TEST(Cause, FirstErrorStays) {
  World w;
  w.connect();
  send_one(w);
  push(w, w.a, IBV_WC_RETRY_EXC_ERR, WorkKind::kSend, w.a.endpoint.ring().tail);
  push(w, w.a, IBV_WC_REM_OP_ERR, WorkKind::kSend, w.a.endpoint.ring().tail);
  w.a.poll();
  w.fabric.raise(*w.a.hca, IBV_EVENT_QP_FATAL, 1, w.a.endpoint.qps().data.ib());
  finish(w);
  EXPECT_STREQ(w.a.closed_event.text, "RETRY_EXC_ERR");
  EXPECT_EQ(w.a.count("because"), 0);
}

TEST(Cause, OnlyFlushes_QueuePairAndPortAreAskedOnceBeforeTheStateChanges) {
  World w;
  w.connect();
  send_one(w);
  push(w, w.a, IBV_WC_WR_FLUSH_ERR, WorkKind::kSend, w.a.endpoint.ring().tail);
  push(w, w.a, IBV_WC_WR_FLUSH_ERR, WorkKind::kSend, w.a.endpoint.ring().tail);
  finish(w);
  EXPECT_STREQ(w.a.closed_event.text,
               "work was flushed, and nothing says why: queue pair in RTS, port ACTIVE");
  EXPECT_EQ(w.a.count("because"), 1);
  EXPECT_EQ(w.a.closed_event.code, IBV_WC_WR_FLUSH_ERR);
}

TEST(Cause, OnlyFlushesAndThePortIsDown_ThePortIsNamed) {
  World w;
  w.connect();
  send_one(w);
  w.a.hca->port.state = IBV_PORT_DOWN;  // its event is lost
  push(w, w.a, IBV_WC_WR_FLUSH_ERR, WorkKind::kSend, w.a.endpoint.ring().tail);
  finish(w);
  EXPECT_STREQ(w.a.closed_event.text, "its port is not active (DOWN), and its work was flushed");
}

TEST(Cause, FlushOfAnEarlierEpoch_DoesNotHideOrChangeTheNextOne) {
  World w;
  w.connect();
  send_one(w);
  push(w, w.a, IBV_WC_WR_FLUSH_ERR, WorkKind::kSend, w.a.endpoint.ring().tail);
  finish(w);
  w.fabric.hold = false;
  w.pass(20);
  ASSERT_EQ(w.a.endpoint.epoch, 2u);
  ASSERT_TRUE(w.fabric.fail(w.a.endpoint.qps().data.number(), IBV_WC_RETRY_EXC_ERR) ||
              engine::close_order(w.a.endpoint, 2, BFO_CAUSE_FENCE, 0, 0));
  for (int i = 0; i < 12; ++i) w.a.poll();
  EXPECT_EQ(w.a.closed, 2);
  EXPECT_NE(w.a.closed_event.code, IBV_WC_WR_FLUSH_ERR);
}

TEST(Cause, TextsFitTheEvent) {
  engine::Finding finding;
  finding.asked = true;
  finding.port = IBV_PORT_ACTIVE;
  char text[sizeof(bfo_rail_event_t::text)];
  for (int state = 0; state <= IBV_QPS_UNKNOWN; ++state) {
    finding.qp = static_cast<ibv_qp_state>(state);
    engine::flush_text(finding, text, sizeof text);
    EXPECT_LT(strlen(text) + 1, sizeof text);
  }
  finding.port = IBV_PORT_ACTIVE_DEFER;
  engine::flush_text(finding, text, sizeof text);
  EXPECT_STREQ(text, "its port is not active (ACTIVE_DEFER), and its work was flushed");
}

}  // namespace
}  // namespace bfo::test
