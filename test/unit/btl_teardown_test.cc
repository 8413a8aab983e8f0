// SPDX-License-Identifier: BSD-3-Clause
//
// btl_teardown_test.cc: the end of an epoch while control threads take their time: queue pairs go to ERR and
// are destroyed outside of progress, and whatever happens meanwhile finds the endpoint in order.
#include <memory>

#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::ControlLane;
using engine::Phase;

engine::Config deferred() {
  engine::Config config = small_config();
  config.control = engine::ControlMode::kDeferred;
  return config;
}

/// A connected World whose control commands run when the test says so.
struct Slow : World {
  Slow() : World(deferred()) {
    engine::cm_connect(a.endpoint);
    live(5);
    EXPECT_EQ(a.endpoint.phase, Phase::kUp);
    EXPECT_EQ(b.endpoint.phase, Phase::kUp);
    a.log.clear();
    b.log.clear();
    fabric.progress_verbs = 0;
  }
  static int serve(ControlLane& lane) {
    int n = 0;
    while (lane.run_one()) ++n;
    return n;
  }
  static void serve(Process& p) {
    serve(p.port.addresses().lane());
    serve(p.port.setups());
    serve(p.port.upkeep());
    serve(p.port.stops());
    serve(p.port.queue_pairs());
  }
  void turn(uint64_t ns = 1000) {
    test_now() += ns;
    fabric.run();
    a.poll();
    b.poll();
  }
  void turns(int n, uint64_t ns = 1000) {
    for (int i = 0; i < n; ++i) turn(ns);
  }
  void live(uint64_t ms) {
    for (const uint64_t end = test_now() + ms * 1'000'000; test_now() < end;) {
      serve(a);
      serve(b);
      for (int k = 0; k < 33; ++k) turn(k == 0 ? 100'000 : 0);
    }
  }
  /// The rail of a fails with a message under way.
  void break_a() {
    fabric.hold = true;
    frag("x");
    ASSERT_EQ(engine::send(a.endpoint, &frags.back()), engine::Accepted::kPosted);
    ASSERT_TRUE(fabric.fail(a.endpoint.qps().data.number(), IBV_WC_RETRY_EXC_ERR));
    fabric.hold = false;
    turns(2);
    ASSERT_EQ(a.endpoint.phase, Phase::kDraining);
  }
  /// .. and has been moved to ERR; its destruction waits for a control thread.
  void until_destroy(Process& p) {
    serve(p.port.stops());
    turns(50);
    ASSERT_EQ(p.endpoint.phase, Phase::kDraining);
    ASSERT_NE(p.endpoint.qps().command, nullptr);
  }
  void meet_again(Process& p, Process& peer, uint64_t name) {
    std::destroy_at(&p.endpoint);
    std::construct_at(&p.endpoint);
    p.meet(peer, name);
  }
  /// b, to which a said BYE, gets a new endpoint too.
  void peer_follows() {
    b.port.remove(b.endpoint);
    meet_again(b, a, 1);
  }
  size_t connections() const {
    size_t n = 0;
    for (stack::Qp* const qp : fabric.live()) n += qp->qp_type == IBV_QPT_RC;
    return n;
  }
};

TEST(Teardown, DrainAndDestruction_NoVerbInProgress) {
  Slow w;
  w.break_a();
  EXPECT_EQ(w.a.log, (Log{"down 1"})) << "told before the device was asked";
  w.until_destroy(w.a);
  EXPECT_EQ(w.a.log, (Log{"down 1", "done x -1"}));
  EXPECT_EQ(w.fabric.progress_verbs, 0);
  w.fabric.block["destroy_qp"] = 1'000'000'000;
  Slow::serve(w.a.port.queue_pairs());
  w.turns(3);
  EXPECT_EQ(w.a.log, (Log{"down 1", "done x -1", "closed 1"}));
  EXPECT_EQ(w.a.last_result, BFO_FENCED);
  EXPECT_EQ(w.fabric.progress_verbs, 0);
}

TEST(Teardown, FenceIsReportedWhenDestroyReturned) {
  Slow w;
  {
    const engine::Guard guard(w.a.port.lock());
    engine::close_order_locked(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0, test_now());
  }
  w.turns(2);
  w.until_destroy(w.a);
  w.turns(1000, 100'000);
  EXPECT_EQ(w.a.closed, 0) << "the device has not answered yet";
  w.fabric.refuse["destroy_qp"] = EIO;
  Slow::serve(w.a.port.queue_pairs());
  w.turns(3);
  EXPECT_EQ(w.a.closed, 0) << "it is asked again";
  w.turns(50, 1'000'000);
  w.fabric.refuse["destroy_qp"] = 0;
  Slow::serve(w.a.port.queue_pairs());
  w.turns(3);
  EXPECT_EQ(w.a.closed, 1);
  EXPECT_EQ(w.a.last_result, BFO_FENCED);
}

TEST(Teardown, NotInErrYet_NoFragmentComesBack) {
  Slow w;
  w.fabric.hold = true;
  w.frag("x");
  ASSERT_EQ(engine::send(w.a.endpoint, &w.frags.back()), engine::Accepted::kPosted);
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  w.turns(2000, 100'000);
  EXPECT_EQ(w.a.log, (Log{"down 1"})) << "the device may still read it";
  w.fabric.hold = false;
  w.turns(3);
  EXPECT_EQ(w.b.log, (Log{"recv 65 x"})) << "and may still send it";
  EXPECT_EQ(w.a.log, (Log{"down 1", "done x 0"}));
  w.live(50);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
}

TEST(Teardown, MessageArrivesWhileDestroyWaits_Delivered) {
  Slow w;
  w.fabric.traits.no_last_receive = 1;
  engine::close_order(w.b.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  w.turns(2);
  Slow::serve(w.b.port.stops());
  w.turns(50);
  w.turns(40, 100'000);
  ASSERT_NE(w.b.endpoint.qps().command, nullptr);
  // A completion that was under way when the queue was seen empty.
  auto* srq = static_cast<stack::Srq*>(w.fabric.find(w.b.endpoint.qps().data.number())->init.srq);
  const auto [wr_id, sge] = srq->buffers.front();
  memcpy(reinterpret_cast<void*>(sge.addr), "late", 4);
  srq->buffers.pop_front();
  ibv_wc wc{};
  wc.wr_id = wr_id;
  wc.qp_num = w.b.endpoint.qps().data.number();
  wc.byte_len = 4;
  wc.imm_data = htonl(65);
  wc.wc_flags = IBV_WC_WITH_IMM;
  w.fabric.push(w.fabric.find(wc.qp_num)->init.recv_cq, wc);
  w.turns(2);
  Slow::serve(w.b.port.queue_pairs());
  w.turns(3);
  EXPECT_EQ(w.b.log, (Log{"down 1", "recv 65 late", "closed 1"}));
  EXPECT_EQ(w.b.last_delivered, 1u);
}

TEST(Teardown, RequestOfANewEpochComesMeanwhile_AcceptedAfterTheFence) {
  Slow w;
  engine::close_order(w.b.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  w.turns(2);
  w.until_destroy(w.b);
  w.break_a();
  for (int i = 0; i < 500; ++i) {
    Slow::serve(w.a);
    w.turn(100'000);
  }
  EXPECT_EQ(w.a.endpoint.phase, Phase::kRequesting);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kDraining);
  EXPECT_EQ(w.b.endpoint.epoch, 1u);
  w.live(600);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.b.endpoint.epoch, w.a.endpoint.epoch);
}

TEST(Teardown, ByeMeanwhile_GoneWhenDestroyed) {
  Slow w;
  engine::close_order(w.b.endpoint, 1, BFO_CAUSE_WC_ERROR, IBV_WC_RETRY_EXC_ERR, 0);
  w.turns(2);
  w.until_destroy(w.b);
  w.a.port.remove(w.a.endpoint);
  w.turns(50);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kDraining);
  Slow::serve(w.b);
  w.turns(3);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kGone);
  EXPECT_EQ(w.b.closed, 1);
  w.meet_again(w.a, w.b, 2);
}

TEST(Teardown, DeviceDiesMeanwhile_UnusableAndReported) {
  Slow w;
  w.break_a();
  w.until_destroy(w.a);
  w.fabric.raise(*w.a.hca, IBV_EVENT_DEVICE_FATAL);
  w.turns(5);
  w.fabric.refuse["destroy_qp"] = EIO;
  Slow::serve(w.a);
  w.turns(3);
  w.fabric.refuse["destroy_qp"] = 0;
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUnusable);
  EXPECT_EQ(w.a.last_result, BFO_UNFENCEABLE);
}

TEST(Teardown, EndpointRemovedWhileStopped_QueuePairsGoAllTheSame) {
  Slow w;
  ASSERT_EQ(w.connections(), 4u);
  w.break_a();
  w.a.port.remove(w.a.endpoint);
  w.meet_again(w.a, w.b, 2);
  w.turns(3);
  Slow::serve(w.a.port.stops());
  w.turns(3);
  Slow::serve(w.a.port.queue_pairs());
  EXPECT_EQ(w.connections(), 2u) << "only those of the peer are left";
  w.turns(3);
  EXPECT_EQ(w.a.port.queue_pairs().pending(), 0u);
  w.peer_follows();
  engine::cm_connect(w.a.endpoint);
  w.live(600);
  EXPECT_EQ(w.a.endpoint.epoch, w.b.endpoint.epoch);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
}

TEST(Teardown, EndpointRemovedWhileDestroyed_CompletionRoomComesBack) {
  Slow w;
  w.break_a();
  w.until_destroy(w.a);
  w.a.port.remove(w.a.endpoint);
  w.meet_again(w.a, w.b, 2);
  Slow::serve(w.a);  // the data queue pair
  w.turns(3);
  Slow::serve(w.a);  // and then the other
  w.turns(3);
  EXPECT_EQ(w.connections(), 2u);
  w.peer_follows();
  engine::cm_connect(w.a.endpoint);
  w.live(600);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.a.port.cqs().count(), 1u);
}

TEST(Teardown, PortClosesWithCommandsWaiting_AllQueuePairsGo) {
  auto w = std::make_unique<Slow>();
  w->break_a();
  w->a.port.remove(w->a.endpoint);
  w->b.port.remove(w->b.endpoint);
  EXPECT_EQ(w->connections(), 4u);
  EXPECT_TRUE(w->a.port.close());
  EXPECT_TRUE(w->b.port.close());
  EXPECT_EQ(w->fabric.live().size(), 0u);
}

TEST(Teardown, AttemptGivenUp_NextOneWaitsForItsQueuePairs) {
  Slow w;
  engine::close_order(w.b.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  w.break_a();
  for (int i = 0; i < 500 && w.a.endpoint.phase != Phase::kRequesting; ++i) {
    Slow::serve(w.a);
    w.turn(100'000);
  }
  ASSERT_EQ(w.a.endpoint.phase, Phase::kRequesting);
  const uint32_t epoch = w.a.endpoint.epoch;
  w.set_port(w.a, IBV_PORT_DOWN);
  w.turns(3);
  w.set_port(w.a, IBV_PORT_ACTIVE);
  w.turns(100, 1'000'000);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kClosed);
  EXPECT_EQ(w.a.endpoint.epoch, epoch) << "at most one command of an endpoint at a time";
  w.live(600);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.connections(), 4u);
}

}  // namespace
}  // namespace bfo::test
