// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_limits_test.cc: any combination of what users may set as a BTL's limits: every message arrives, and
// nothing is posted that the rail can never take.
#include <gtest/gtest.h>

#include "pml/bfo/xfer/rails/limits.h"
#include "test/unit/failover_steps.h"
#include "test/unit/fake_world.h"
#include "test/unit/pattern.h"

namespace bfo::test {
namespace {

constexpr size_t kSizes[] = {0, 1, 26, 27, 50, 64, 88, 100, 1000, 1024, 4096, 5000, 40000};

struct Limits {
  size_t eager, rndv_eager, max_send;
};

/// Every size in both modes, with and without a receive that waits.
void everything_arrives(World& w, const char* what) {
  for (const size_t n : kSizes) {
    for (const auto mode : {xfer::SendMode::kStandard, xfer::SendMode::kSync}) {
      RecvReq* const early = w.irecv(1, 0, 1, n);
      SendReq* const first = w.isend(0, 1, 1, pattern(n, 1), mode);
      SendReq* const second = w.isend(0, 1, 2, pattern(n, 2), mode);
      ASSERT_TRUE(w.run()) << what << ", " << n << " bytes";
      RecvReq* const late = w.irecv(1, 0, 2, n);
      ASSERT_TRUE(w.run()) << what << ", " << n << " bytes";
      ASSERT_TRUE(first->done && second->done && early->done && late->done) << what << ", " << n << " bytes";
      ASSERT_EQ(early->data, pattern(n, 1));
      ASSERT_EQ(late->data, pattern(n, 2));
    }
  }
  for (auto& e : w.engines) EXPECT_EQ(e->unfinished(), 0u) << what;
}

std::vector<Limits> combinations() {
  std::vector<Limits> all;
  constexpr size_t sizes[] = {1, 38, 64, 88, 100, 1000, 5000, 400000};
  for (const size_t eager : sizes)
    for (const size_t rndv : sizes)
      for (const size_t send : sizes)
        if (xfer::post_limit(eager, send) >= xfer::kLeastPost) all.push_back({eager, rndv, send});
  return all;
}

std::string text(const Limits& l) {
  return "eager " + std::to_string(l.eager) + ", rendezvous " + std::to_string(l.rndv_eager) + ", max send " +
         std::to_string(l.max_send);
}

TEST(Limits, AnyCombination_EveryMessageArrives) {
  for (const Limits& l : combinations()) {
    for (const bool rdma : {false, true}) {
      World::Options o;
      o.eager = l.eager;
      o.rndv_eager = l.rndv_eager;
      o.max_send = l.max_send;
      o.get = o.put = rdma;
      World w(o);
      everything_arrives(w, text(l).c_str());
      if (HasFatalFailure()) return;
    }
  }
}

/// A rail that copies short messages only: longer ones are posted with a record at once, and sendi is not
/// asked in vain.
TEST(Limits, LongerThanInline_SendiIsNotAsked) {
  constexpr size_t header = sizeof(core::MatchHdr);
  World::Options o;
  o.rails = 1;
  o.eager = 4096;
  o.longest_inline = header + 100;
  World w(o);
  w.isend(0, 1, 1, pattern(100, 1));
  EXPECT_EQ(w.ports[0]->longest_offered_, header + 100);
  for (const size_t n : {size_t{101}, 4096 - header}) {
    const auto data = pattern(n, 2);
    FakePort::InlineSource source{data.data()};
    xfer::SendArgs<FakePort> args;
    args.comm = w.comms[0];
    args.dst = 1;
    args.length = n;
    EXPECT_FALSE(w.engines[0]->send_inline(args, source));
    w.isend(0, 1, 1, data);
    EXPECT_NE(w.flights.back().frag, nullptr);
  }
  EXPECT_EQ(w.ports[0]->longest_offered_, header + 100);
  World other(o);
  everything_arrives(other, "inline up to 100 bytes");
}

World::Options one_rail_with_long_blocking_sends() {
  World::Options o;
  o.rails = 1;
  o.eager = 1000;
  o.max_send = 4096;
  o.longest_blocking = 3000 + sizeof(core::MatchHdr);
  return o;
}

/// Does a send of `n` bytes of rank 0 to rank 1 end in its call?
bool send_inline(World& w, size_t n, bool blocking) {
  const auto data = pattern(n, 2);
  FakePort::InlineSource source{data.data()};
  xfer::SendArgs<FakePort> args;
  args.comm = w.comms[0];
  args.dst = args.tag = 1;
  args.length = n;
  args.blocking = blocking;
  return w.engines[0]->send_inline(args, source);
}

/// A blocking send offers longer messages to sendi than others do.
TEST(Limits, BlockingSend_OffersLongerMessages) {
  World w(one_rail_with_long_blocking_sends());
  for (const size_t n : {size_t{1001}, size_t{3000}}) {
    EXPECT_FALSE(send_inline(w, n, false)) << n;
    EXPECT_TRUE(send_inline(w, n, true)) << n;
    RecvReq* const r = w.irecv(1, 0, 1, n);
    ASSERT_TRUE(w.run());
    ASSERT_TRUE(r->done);
    EXPECT_EQ(r->data, pattern(n, 2));
  }
  EXPECT_FALSE(send_inline(w, 3001, true));
  EXPECT_EQ(w.ports[0]->longest_offered_, 3000 + sizeof(core::MatchHdr));
}

/// Of several rails one message in 128 is timed, and one in 251 would be if it were short; what is too long
/// for that is read now and then, and no more often.
TEST(Limits, BlockingSendsOverSeveralRails_AreCopiedButForOneIn128) {
  World::Options o = one_rail_with_long_blocking_sends();
  o.rails = 2;
  o.get = true;
  o.config.short_limit = 256;
  World w(o);
  constexpr int kMessages = 1000;
  int copied = 0;
  for (int i = 0; i < kMessages; ++i) {
    const auto data = pattern(3000, 2);
    if (send_inline(w, 3000, true))
      ++copied;
    else
      w.isend(0, 1, 1, data);
    RecvReq* const r = w.irecv(1, 0, 1, 3000);
    ASSERT_TRUE(w.run());
    ASSERT_TRUE(r->done);
    EXPECT_EQ(r->data, data);
  }
  EXPECT_GE(copied, kMessages - kMessages / 128 - 1 - kMessages / 251 - 1);
  EXPECT_LT(copied, kMessages) << "nothing would be known of the rails";
}

/// A caller that receives, too, has work while its message is read, and the peer may send at the same time.
TEST(Limits, BlockingSend_IsAsShortAsOthersWhileAReceiveIsPosted) {
  World w(one_rail_with_long_blocking_sends());
  for (const int32_t source : {int32_t{1}, xfer::kAnySource}) {
    EXPECT_TRUE(send_inline(w, 3000, true));
    RecvReq* const taken = w.irecv(0, source, 7, 10);
    RecvReq* const cancelled = w.irecv(0, source, 8, 10);
    EXPECT_FALSE(send_inline(w, 3000, true));
    EXPECT_TRUE(send_inline(w, 1000 - sizeof(core::MatchHdr), true));
    w.isend(1, 0, 7, pattern(10, 3));
    ASSERT_TRUE(w.run());
    EXPECT_TRUE(taken->done);
    EXPECT_FALSE(send_inline(w, 1001, true)) << "the other one is still posted";
    EXPECT_TRUE(w.engines[0]->cancel(cancelled));
  }
  EXPECT_TRUE(send_inline(w, 3000, true));
}

/// Such a message is sent again as it was when its rail is lost, so it is not longer than any rail takes.
TEST(Limits, BlockingSend_FitsTheOtherRailsToo) {
  World w(one_rail_with_long_blocking_sends());
  xfer::Peer<FakePort>* const p = w.peer(0, 1);
  EXPECT_EQ(p->rails[0].limits.blocking_limit, 3000 + sizeof(core::MatchHdr));
  xfer::RailLimits small;
  small.eager_limit = small.rndv_eager_limit = 1000;
  small.max_send_size = 2000;
  ASSERT_NE(w.engines[0]->rail_add(p, FakePort::RailHandle{1, 1}, small), nullptr);
  EXPECT_EQ(p->rails[0].limits.blocking_limit, 2000u);
  EXPECT_EQ(p->rails[1].limits.blocking_limit, 1000u);
}

/// It is at least what every send offers, and no more than the rail takes.
TEST(Limits, BlockingLimit_IsBounded) {
  xfer::RailLimits l;
  l.eager_limit = 1000;
  l.max_send_size = 5000;
  for (const auto& [asked, kept] :
       {std::pair<size_t, size_t>{0, 1000}, {999, 1000}, {4000, 4000}, {5001, 5000}}) {
    l.blocking_limit = asked;
    EXPECT_EQ(xfer::keepable(l).blocking_limit, kept) << asked;
  }
  l.inline_limit = 100;
  l.blocking_limit = 0;
  EXPECT_EQ(xfer::keepable(l).blocking_limit, 100u);
}

/// A limit smaller than the header must not keep every message from RDMA.
TEST(Limits, BeyondEager_AtLeastOneByte) {
  constexpr size_t header = sizeof(core::MatchHdr);
  for (const size_t eager : {size_t{0}, size_t{1}, header - 1, header})
    EXPECT_EQ(xfer::beyond_eager(eager), 1u) << eager;
  EXPECT_EQ(xfer::beyond_eager(header + 1), 2u);
  EXPECT_EQ(xfer::beyond_eager(4096), 4097 - header);
}

TEST(Limits, AnyCombination_ToItself) {
  for (const Limits& l : combinations()) {
    World::Options o;
    o.eager = l.eager;
    o.rndv_eager = l.rndv_eager;
    o.max_send = l.max_send;
    o.loopback = true;
    World w(o);
    everything_arrives(w, text(l).c_str());
    if (HasFatalFailure()) return;
  }
}

TEST(Limits, AnyCombination_ARailDiesInTheMiddle) {
  for (const Limits& l : combinations()) {
    if (l.rndv_eager > 100 && l.rndv_eager < 400000) continue;
    for (const bool put : {false, true}) {
      World::Options o;
      o.rails = 8;  // NOTIFY and RGET list them all when they may
      o.eager = l.eager;
      o.rndv_eager = l.rndv_eager;
      o.max_send = l.max_send;
      o.put = put;
      o.get = !put;
      World w(o);
      RecvReq* const r = w.irecv(1, 0, 1, 30000);
      SendReq* const s = w.isend(0, 1, 1, pattern(30000, 3));
      SendReq* const small = w.isend(0, 1, 2, pattern(40, 4));
      for (int i = 0; i < 20 && !w.flights.empty(); ++i) w.take();
      w.kill(0, 1, 1, [](const Flight& f) { return f.number % 2 == 0; });
      for (int i = 0; i < 20 && !w.flights.empty(); ++i) w.take();
      w.kill(0, 1, 2);
      RecvReq* const q = w.irecv(1, 0, 2, 40);
      ASSERT_TRUE(w.run()) << text(l);
      ASSERT_TRUE(r->done && s->done && q->done && small->done) << text(l);
      ASSERT_EQ(r->data, pattern(30000, 3));
    }
  }
}

TEST(Limits, SmallRdmaLimits_EveryMessageArrives) {
  for (const size_t limit : {1u, 255u, 256u, 1001u, 4096u}) {
    for (const bool put : {false, true}) {
      World::Options o;
      o.put = put;
      o.get = !put;
      o.rdma_limit = limit;
      World w(o);
      everything_arrives(w, "RDMA limit");
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Limits, AlignedGets_StayAligned) {
  xfer::RailLimits l;
  l.get_limit = 1001;
  l.get_alignment = 8;
  l.rdma_frag_size = 5;
  const xfer::RailLimits k = xfer::keepable(l);
  EXPECT_EQ(k.get_limit, 1000u);
  EXPECT_EQ(k.rdma_frag_size, 8u);
}

/// What one rail took without a record another one must take as it is.
TEST(Limits, EagerMessages_FitTheOtherRailsToo) {
  World::Options o;
  o.eager = 4096;
  World w(o);
  xfer::Peer<FakePort>* const p = w.peer(0, 1);
  xfer::RailLimits small;
  small.eager_limit = small.rndv_eager_limit = small.max_send_size = 300;
  xfer::Rail<FakePort>* const rail = w.engines[0]->rail_add(p, FakePort::RailHandle{1, 2}, small);
  ASSERT_NE(rail, nullptr);
  w.engines[0]->rail_begin(rail, RailState::kUp, RailName{77, 1});
  for (unsigned i = 0; i < p->n_rails; ++i) EXPECT_LE(p->rails[i].limits.eager_limit, 300u);
  EXPECT_EQ(p->eager_limit, 300u);
}

}  // namespace
}  // namespace bfo::test
