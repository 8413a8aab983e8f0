// SPDX-License-Identifier: BSD-3-Clause
//
// btl_send_test.cc: the send ring: signaling, retiring, queueing, inline, and what a refused message means.
#include "btl/verbs/engine/send/send.h"

#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

TEST(Send, SmallMessages_OneCompletionInSignalInterval) {
  World w;
  w.connect();
  w.fabric.signaled = w.fabric.posted = 0;
  for (int i = 0; i < 64; ++i) {
    ASSERT_TRUE(w.sendi(w.a, "12345678"));
    w.a.poll();
    w.b.poll();
  }
  EXPECT_EQ(w.fabric.posted, 64);
  EXPECT_EQ(w.fabric.signaled, 16);  // signal_interval is 4 here
  EXPECT_EQ(w.b.count("recv"), 64);
}

TEST(Send, RetiringCompletion_FreesEverythingBeforeIt) {
  World w;
  w.connect();
  ASSERT_TRUE(w.sendi(w.a, "a"));
  ASSERT_TRUE(w.sendi(w.a, "b"));
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("c", false)), engine::Accepted::kPosted);
  w.a.poll();
  EXPECT_EQ(w.a.count("done"), 0);
  EXPECT_EQ(engine::outstanding(w.a.endpoint), 3u);
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("d", true)), engine::Accepted::kPosted);
  w.a.poll();
  EXPECT_EQ(w.a.log, (Log{"done c 0", "done d 0"}));
  EXPECT_EQ(engine::outstanding(w.a.endpoint), 0u);
}

/// Each rail of a port that stands still asks in the same tick.
TEST(Send, BytesOfAPort_AreCountedOncePerTick) {
  World w;
  w.connect();
  w.fabric.hold = true;
  EXPECT_EQ(w.a.port.queued_bytes(1), 0u);
  ASSERT_TRUE(w.sendi(w.a, "12345678"));
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("1234")), engine::Accepted::kPosted);
  EXPECT_EQ(w.a.port.queued_bytes(1), 0u);
  EXPECT_EQ(w.a.port.queued_bytes(2), 12u);
  w.fabric.hold = false;
  w.pass(2);
  EXPECT_EQ(w.a.port.queued_bytes(2), 12u);
  EXPECT_EQ(w.a.port.queued_bytes(3), 0u);
}

TEST(Send, RingFull_FragmentsQueueAndGoOutInOrder) {
  World w;
  w.connect();
  w.fabric.hold = true;
  std::vector<std::string> expected;
  for (int i = 0; i < 40; ++i) {
    const std::string text = "m" + std::to_string(100 + i);
    const auto accepted = engine::send(w.a.endpoint, w.frag(text));
    EXPECT_EQ(accepted, i < 14 ? engine::Accepted::kPosted : engine::Accepted::kQueued) << i;
    expected.push_back("recv 65 " + text);
  }
  EXPECT_FALSE(w.sendi(w.a, "overtaker")) << "a message must not overtake queued ones";
  w.fabric.hold = false;
  w.pass(2);
  EXPECT_EQ(w.b.log, expected);
  EXPECT_EQ(w.a.count("done"), 40);
}

TEST(Send, FromACompletionCallback_DoesNotOvertakeQueuedWork) {
  World w;
  w.connect();
  w.fabric.hold = true;
  for (int i = 0; i < 16; ++i) engine::send(w.a.endpoint, w.frag("m" + std::to_string(100 + i)));
  ASSERT_EQ(w.a.endpoint.queued.size(), 2u);
  // In the callback there is room again, but two fragments are queued.
  w.a.on_done = [&] { EXPECT_EQ(engine::send(w.a.endpoint, w.frag("new")), engine::Accepted::kQueued); };
  w.fabric.hold = false;
  w.pass(2);
  ASSERT_EQ(w.b.log.size(), 17u);
  EXPECT_EQ(w.b.log.back(), "recv 65 new");
}

TEST(Send, PayloadLongerThanASlot_IsNotTaken) {
  World w;
  w.connect();
  EXPECT_FALSE(w.sendi(w.a, std::string(513, 'x')));
  EXPECT_TRUE(w.sendi(w.a, std::string(512, 'x')));
}

TEST(Send, InlineUpToTheLimitOnly) {
  World w;
  w.connect();
  w.fabric.inlined = 0;
  ASSERT_TRUE(w.sendi(w.a, std::string(128, 'x')));
  EXPECT_EQ(w.fabric.inlined, 1);
  ASSERT_TRUE(w.sendi(w.a, std::string(129, 'x')));
  EXPECT_EQ(w.fabric.inlined, 1);
}

TEST(Send, DeviceWithLittleInline_IsAskedForLessUntilItAgrees) {
  TestFabric fabric;
  fabric.max_inline = 60;
  Process p;
  p.open(fabric, "dev", 1, small_config());
  engine::Qp qp;
  ASSERT_TRUE(qp.create(test_verbs(), p.device.pd(), p.port.cqs().first(), p.port.cqs().first(),
                        p.port.srq().ib(), p.port.settings()));
  EXPECT_EQ(qp.max_inline(), 32u);
  qp.destroy();
  p.port.close();
}

TEST(Send, EpochsReuseTheSlotsAlternately) {
  World w;
  w.connect();
  const char* first = w.a.endpoint.ring().memory;
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  w.pass(20);
  const char* second = w.a.endpoint.ring().memory;
  EXPECT_NE(first, second) << "the closed epoch's slots must survive for a gap";
  engine::close_order(w.a.endpoint, 2, BFO_CAUSE_FENCE, 0, 0);
  w.pass(20);
  EXPECT_EQ(w.a.endpoint.ring().memory, first);
}

TEST(Send, MarkBehindUnsignaledWork_EndsIt) {
  World w;
  w.connect();
  ASSERT_TRUE(w.sendi(w.a, "tail"));
  w.a.poll();
  ASSERT_EQ(engine::outstanding(w.a.endpoint), 1u);
  engine::ring_mark(w.a.endpoint);
  w.a.poll();
  EXPECT_EQ(engine::outstanding(w.a.endpoint), 0u);
  EXPECT_EQ(w.b.count("recv"), 0) << "a marker is no message";
}

/// What became of the work of one endpoint, since `start`.
struct Counted {
  explicit Counted(World& world) : w(world), start(engine::work(w.a.endpoint)) {}
  engine::Work now() {
    const engine::Work at = engine::work(w.a.endpoint);
    return {at.taken - start.taken, at.ended - start.ended};
  }
  World& w;
  engine::Work start;
};

TEST(Work, AskingMarksTheUnsignaledTail) {
  World w;
  w.connect();
  Counted count(w);
  ASSERT_TRUE(w.sendi(w.a, "a"));
  ASSERT_TRUE(w.sendi(w.a, "b"));
  w.a.poll();
  EXPECT_EQ(count.now().taken, 2u);
  EXPECT_EQ(count.now().ended, 0u);
  w.a.poll();
  EXPECT_GE(count.now().ended, 2u) << "the marker that was asked for covers them";
}

TEST(Work, Queued_CountsAndNoMarkerOvertakesIt) {
  World w;
  w.connect();
  Counted count(w);
  w.fabric.hold = true;
  for (int i = 0; i < 16; ++i) engine::send(w.a.endpoint, w.frag("m" + std::to_string(100 + i), false));
  ASSERT_EQ(w.a.endpoint.queued.size(), 2u);
  EXPECT_EQ(count.now().taken, 16u);
  EXPECT_EQ(count.now().taken, 16u) << "a marker would be counted in front of what is queued";
  w.fabric.hold = false;
  w.pass(2);
  count.now();
  w.pass(2);
  EXPECT_GE(count.now().ended, 16u);
  EXPECT_EQ(w.a.count("done"), 16);
}

TEST(Work, GoesOnOverEpochsAndEndsWithThem) {
  World w;
  w.connect();
  Counted count(w);
  w.fabric.hold = true;
  for (int i = 0; i < 20; ++i) engine::send(w.a.endpoint, w.frag("m" + std::to_string(100 + i)));
  ASSERT_EQ(w.a.endpoint.queued.size(), 6u);
  ASSERT_EQ(count.now().ended, 0u);
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  for (int i = 0; i < 8; ++i) w.a.poll();
  ASSERT_EQ(w.a.count("done"), 20) << "fourteen of unknown fate, six never sent";
  EXPECT_EQ(count.now().taken, 20u);
  EXPECT_EQ(count.now().ended, 20u);
  w.fabric.hold = false;
  w.pass(20);
  ASSERT_EQ(w.a.endpoint.epoch, 2u);
  ASSERT_TRUE(w.sendi(w.a, "next"));
  EXPECT_EQ(count.now().taken, 21u);
  w.pass(1);
  EXPECT_GE(count.now().ended, 21u);
}

TEST(Rdma, PutAndGet_MoveBytesAndEndOnce) {
  World w;
  w.connect();
  Exposed remote(w.b, "0123456789");
  engine::Frag* put = w.frag("abcde");
  remote.name_in(put);
  ASSERT_EQ(engine::put(w.a.endpoint, put), engine::Accepted::kPosted);
  engine::Frag* get = w.frag(".....");
  remote.name_in(get, 5);
  ASSERT_EQ(engine::get(w.a.endpoint, get), engine::Accepted::kPosted);
  w.pass(1);
  EXPECT_EQ(remote.bytes, "abcde56789");
  EXPECT_EQ(w.a.log, (Log{"done abcde 0", "done 56789 0"}));
}

TEST(Rdma, OnARailThatNeverConnected_IsQueuedAndDone) {
  World w;
  Exposed remote(w.b, ".....");
  engine::Frag* put = w.frag("abcde");
  remote.name_in(put);
  ASSERT_EQ(engine::put(w.a.endpoint, put), engine::Accepted::kQueued);
  w.pass(5);
  EXPECT_EQ(remote.bytes, "abcde");
  EXPECT_EQ(w.a.count("done abcde 0"), 1);
}

TEST(Rdma, GetOnARailThatDies_IsUnknown) {
  World w;
  w.connect();
  w.fabric.hold = true;
  Exposed remote(w.b, ".....");
  engine::Frag* get = w.frag("abcde");
  remote.name_in(get);
  ASSERT_EQ(engine::get(w.a.endpoint, get), engine::Accepted::kPosted);
  engine::close_order(w.a.endpoint, 1, BFO_CAUSE_FENCE, 0, 0);
  for (int i = 0; i < 8; ++i) w.a.poll();
  EXPECT_EQ(w.a.count("done abcde -1"), 1);
}

TEST(Receive, WithoutImmediate_IsDroppedAndTheBufferReturned) {
  World w;
  w.connect();
  ibv_wc wc{};
  wc.wr_id = engine::work_id(engine::WorkKind::kReceive, 5);
  wc.qp_num = w.b.endpoint.qps().data.number();
  wc.byte_len = 4;
  w.fabric.push(w.b.port.cqs().first(), wc);
  const uint64_t before = w.b.port.accounting().dropped;
  w.b.poll();
  EXPECT_EQ(w.b.port.accounting().dropped, before + 1);
  EXPECT_EQ(w.b.count("recv"), 0);
}

TEST(Receive, OfAQueuePairThatIsGone_IsDropped) {
  World w;
  w.connect();
  ibv_wc wc{};
  wc.wr_id = engine::work_id(engine::WorkKind::kReceive, 5);
  wc.qp_num = 0xfffff;
  wc.wc_flags = IBV_WC_WITH_IMM;
  w.fabric.push(w.b.port.cqs().first(), wc);
  w.b.poll();
  EXPECT_EQ(w.b.port.accounting().dropped, 1u);
  EXPECT_EQ(w.b.endpoint.delivered, 0u);
}

TEST(Receive, MoreThanTheSharedQueueHolds_WaitsAndLosesNothing) {
  World w;
  w.connect();
  int sent = 0;
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 14; ++i) sent += w.sendi(w.a, "x");
    w.a.poll();
  }
  for (int i = 0; i < 400; ++i) {
    w.b.poll();
    w.fabric.run();
    w.a.poll();
  }
  EXPECT_EQ(w.b.count("recv"), sent);
  EXPECT_EQ(w.b.endpoint.delivered, static_cast<uint64_t>(sent));
}

}  // namespace
}  // namespace bfo::test
