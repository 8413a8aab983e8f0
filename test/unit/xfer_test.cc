// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_test.cc: the engine over a Port in memory: the MPI entry points without faults.
#include <gtest/gtest.h>

#include "test/unit/fake_world.h"
#include "test/unit/pattern.h"

namespace bfo::test {
namespace {

TEST(Eager, PostedReceive_GetsMessage) {
  World w({});
  RecvReq* r = w.irecv(1, 0, 5, 100);
  SendReq* s = w.isend(0, 1, 5, pattern(50, 1));
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(s->done);
  ASSERT_TRUE(r->done);
  EXPECT_EQ(r->status.source, 0);
  EXPECT_EQ(r->status.tag, 5);
  EXPECT_EQ(r->status.length, 50u);
  r->data.resize(50);
  EXPECT_EQ(r->data, pattern(50, 1));
}

TEST(Eager, WithoutSendi_RequestEndsWithFragment) {
  World::Options o;
  o.sendi = false;
  World w(o);
  SendReq* s = w.isend(0, 1, 5, pattern(50, 1));
  EXPECT_FALSE(s->done);
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(s->done);
  RecvReq* r = w.irecv(1, xfer::kAnySource, xfer::kAnyTag, 50);
  EXPECT_TRUE(r->done);
  EXPECT_EQ(r->data, pattern(50, 1));
}

TEST(Eager, RailsReorder_MpiOrderHolds) {
  World w({});
  for (int i = 0; i < 6; ++i) w.isend(0, 1, 9, pattern(8, i));
  while (!w.flights.empty()) w.take(w.flights.size() - 1);  // last first
  for (int i = 0; i < 6; ++i) {
    RecvReq* r = w.irecv(1, 0, 9, 8);
    ASSERT_TRUE(r->done);
    EXPECT_EQ(r->data, pattern(8, i)) << i;
  }
}

TEST(Eager, DuplicateIsDropped) {
  World w({});
  w.isend(0, 1, 9, pattern(8, 1));
  w.arrive(w.flights[0]);
  ASSERT_TRUE(w.run());
  EXPECT_EQ(w.engines[1]->counters().duplicates, 1u);
  EXPECT_TRUE(w.irecv(1, 0, 9, 8)->done);
  EXPECT_FALSE(w.irecv(1, 0, 9, 8)->done);
}

TEST(Match, WildcardAndSpecific_OldestWins) {
  World w({});
  RecvReq* a = w.irecv(1, xfer::kAnySource, 4, 8);
  RecvReq* b = w.irecv(1, 0, 4, 8);
  RecvReq* c = w.irecv(1, 0, xfer::kAnyTag, 8);
  for (int i = 0; i < 3; ++i) w.isend(0, 1, 4, pattern(8, i));
  ASSERT_TRUE(w.run());
  EXPECT_EQ(a->data, pattern(8, 0));
  EXPECT_EQ(b->data, pattern(8, 1));
  EXPECT_EQ(c->data, pattern(8, 2));
}

TEST(Match, AnyTag_IgnoresNegativeTags) {
  World w({});
  RecvReq* r = w.irecv(1, 0, xfer::kAnyTag, 8);
  w.isend(0, 1, -17, pattern(8, 0));
  ASSERT_TRUE(w.run());
  EXPECT_FALSE(r->done);
  EXPECT_TRUE(w.irecv(1, 0, -17, 8)->done);
}

TEST(Match, ProbeThenReceive) {
  World w({});
  xfer::ProbeResult p;
  EXPECT_FALSE(w.engines[1]->iprobe(w.comms[1], 0, 3, p));
  w.isend(0, 1, 3, pattern(20, 0));
  w.isend(0, 1, 3, pattern(5000, 1));
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(w.engines[1]->iprobe(w.comms[1], xfer::kAnySource, xfer::kAnyTag, p));
  EXPECT_EQ(p.length, 20u);
  auto* m1 = w.engines[1]->improbe(w.comms[1], 0, 3, p);
  auto* m2 = w.engines[1]->improbe(w.comms[1], 0, 3, p);
  ASSERT_NE(m1, nullptr);
  ASSERT_NE(m2, nullptr);
  EXPECT_EQ(p.length, 5000u);
  EXPECT_FALSE(w.engines[1]->iprobe(w.comms[1], 0, 3, p));
  RecvReq r2;
  r2.data.resize(5000);
  w.engines[1]->imrecv(m2, &r2, 5000);
  RecvReq r1;
  r1.data.resize(20);
  w.engines[1]->imrecv(m1, &r1, 20);
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(r1.done);
  EXPECT_TRUE(r2.done);
  EXPECT_EQ(r2.data, pattern(5000, 1));
}

TEST(Match, CancelUnmatched_Forgets) {
  World w({});
  RecvReq* r = w.irecv(1, 0, 3, 8);
  RecvReq* x = w.irecv(1, xfer::kAnySource, 3, 8);
  EXPECT_TRUE(w.engines[1]->cancel(r));
  EXPECT_TRUE(w.engines[1]->cancel(x));
  EXPECT_FALSE(w.engines[1]->cancel(x));
  w.isend(0, 1, 3, pattern(8, 0));
  ASSERT_TRUE(w.run());
  EXPECT_FALSE(r->done);
  EXPECT_FALSE(x->done);
}

TEST(Match, MessageBeforeCommunicator_IsKept) {
  World w({});
  auto* c0 = w.add_comm(0, 77);
  w.isend(0, 1, 3, pattern(8, 0), xfer::SendMode::kStandard, c0);
  w.isend(0, 1, 3, pattern(3000, 1), xfer::SendMode::kStandard, c0);
  ASSERT_TRUE(w.run());
  auto* c1 = w.add_comm(1, 77);
  RecvReq* a = w.irecv(1, 0, 3, 8, c1);
  RecvReq* b = w.irecv(1, 0, 3, 3000, c1);
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(a->done);
  EXPECT_TRUE(b->done);
  EXPECT_EQ(b->data, pattern(3000, 1));
}

TEST(Match, Truncation_KeepsWhatFits) {
  World w({});
  for (size_t n : {20u, 5000u}) {
    RecvReq* r = w.irecv(1, 0, 3, 10);
    SendReq* s = w.isend(0, 1, 3, pattern(n, 0));
    ASSERT_TRUE(w.run());
    EXPECT_TRUE(s->done);
    ASSERT_TRUE(r->done);
    EXPECT_EQ(r->status.outcome, Outcome::kTruncated);
    EXPECT_EQ(r->status.length, 10u);
  }
  EXPECT_EQ(w.engines[0]->unfinished(), 0u);
  EXPECT_EQ(w.engines[1]->unfinished(), 0u);
}

TEST(Sync, CompletesOnlyWhenMatched) {
  World w({});
  SendReq* s = w.isend(0, 1, 3, pattern(8, 0), xfer::SendMode::kSync);
  ASSERT_TRUE(w.run());
  EXPECT_FALSE(s->done);
  RecvReq* r = w.irecv(1, 0, 3, 8);
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(r->done);
  EXPECT_TRUE(s->done);
}

TEST(Inline, SendWithoutRequest) {
  World w({});
  const auto d = pattern(100, 3);
  FakePort::InlineSource src{d.data()};
  xfer::SendArgs<FakePort> a;
  a.comm = w.comms[0];
  a.dst = 1;
  a.tag = 1;
  a.length = 100;
  EXPECT_TRUE(w.engines[0]->send_inline(a, src));
  a.length = 100000;
  EXPECT_FALSE(w.engines[0]->send_inline(a, src));
  ASSERT_TRUE(w.run());
  RecvReq* r = w.irecv(1, 0, 1, 100);
  EXPECT_TRUE(r->done);
  EXPECT_EQ(r->data, d);
}

TEST(Rendezvous, EverySizeAroundTheLimits) {
  for (bool get : {false, true})
    for (bool put : {false, true})
      for (bool posted : {false, true}) {
        World::Options o;
        o.get = get;
        o.put = put;
        World w(o);
        for (size_t n :
             {0u, 1u, 241u, 242u, 243u, 255u, 256u, 257u, 1003u, 1004u, 1005u, 2048u, 4096u, 70000u}) {
          RecvReq* r = posted ? w.irecv(1, 0, 1, n) : nullptr;
          SendReq* s = w.isend(0, 1, 1, pattern(n, 2));
          ASSERT_TRUE(w.run());
          if (!posted) r = w.irecv(1, 0, 1, n);
          ASSERT_TRUE(w.run());
          ASSERT_TRUE(s->done) << n;
          ASSERT_TRUE(r->done) << n;
          EXPECT_EQ(r->data, pattern(n, 2));
        }
        EXPECT_EQ(w.engines[0]->unfinished(), 0u);
        EXPECT_EQ(w.engines[1]->unfinished(), 0u);
        EXPECT_EQ(w.ports[0]->frags_, 0);
        EXPECT_EQ(w.ports[1]->frags_, 0);
        EXPECT_EQ(w.ports[0]->registrations_, 0);
        EXPECT_EQ(w.ports[1]->registrations_, 0);
      }
}

TEST(Rendezvous, StripesOverAllRails) {
  World w({});
  w.irecv(1, 0, 1, 200000);
  w.isend(0, 1, 1, pattern(200000, 2));
  uint64_t bytes[2] = {0, 0};
  while (!w.flights.empty()) {
    bytes[w.flights[0].rail] += w.flights[0].bytes.size();
    w.take();
  }
  EXPECT_GT(bytes[0], 80000u);
  EXPECT_GT(bytes[1], 80000u);
}

TEST(Rendezvous, OneRdmaMessage_UsesEveryRail) {
  for (bool get : {true, false}) {
    World::Options o;
    o.get = get;
    o.put = !get;
    o.rdma_frag = 1 << 20;
    World w(o);
    w.irecv(1, 0, 1, 200000);
    w.isend(0, 1, 1, pattern(200000, 2));
    uint64_t bytes[2] = {0, 0};
    while (!w.flights.empty()) {
      if (w.flights[0].kind != Flight::Kind::kSend) bytes[w.flights[0].rail] += w.flights[0].size;
      w.take();
    }
    EXPECT_GT(bytes[0], 80000u);
    EXPECT_GT(bytes[1], 80000u);
  }
}
TEST(Rendezvous, NoResource_ResumesFromProgress) {
  World::Options o;
  o.capacity = 1;
  o.sendi = false;
  World w(o);
  RecvReq* r[4];
  SendReq* s[4];
  for (int i = 0; i < 4; ++i) s[i] = w.isend(0, 1, i, pattern(i % 2 ? 20000 : 100, i));
  for (int i = 0; i < 4; ++i) r[i] = w.irecv(1, 0, i, s[i]->data.size());
  ASSERT_TRUE(w.run());
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(s[i]->done) << i;
    ASSERT_TRUE(r[i]->done) << i;
    EXPECT_EQ(r[i]->data, s[i]->data);
  }
}

TEST(Reentrance, LoopbackDelivery_IsDeferred) {
  World::Options o;
  o.loopback = true;
  o.ranks = 1;
  World w(o);
  RecvReq* r = w.irecv(0, 0, 1, 50000);
  SendReq* s = w.isend(0, 0, 1, pattern(50000, 4));
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(s->done);
  EXPECT_TRUE(r->done);
  EXPECT_EQ(r->data, s->data);
  EXPECT_GT(w.engines[0]->counters().deferred, 0u);
}

/// A rail may deliver inside the call that posts: what comes there waits until the engine is left.
TEST(Reentrance, ShortMessageThatComesInsideTheCall_IsTakenAfterIt) {
  for (const bool sendi : {true, false}) {
    World::Options o;
    o.loopback = true;
    o.ranks = 1;
    o.sendi = sendi;
    World w(o);
    w.stock = true;  // such a BTL has no epochs
    RecvReq* posted = w.irecv(0, 0, 1, 100);
    SendReq* first = w.isend(0, 0, 1, pattern(100, 4));
    SendReq* second = w.isend(0, 0, 2, pattern(80, 5));  // nobody waits for it yet
    const auto deferred = w.engines[0]->counters().deferred;
    RecvReq* late = w.irecv(0, 0, 2, 80);
    ASSERT_TRUE(w.run());
    EXPECT_TRUE(first->done && second->done && posted->done && late->done);
    EXPECT_EQ(posted->data, first->data);
    EXPECT_EQ(late->data, second->data);
    EXPECT_EQ(deferred, sendi ? 2u : 4u) << "the messages, and the ends of their fragments";
  }
}

TEST(Reentrance, CompletionStartsNewSends) {
  World w({});
  int left = 20;
  SendReq s;
  s.data = pattern(3000, 1);
  s.then = [&] {
    if (--left > 0) w.restart_send(&s, 0, 1, 1);
  };
  w.restart_send(&s, 0, 1, 1);
  int got = 0;
  RecvReq r;
  r.data.resize(3000);
  auto post = [&] {
    r.done = false;
    xfer::RecvArgs<FakePort> a;
    a.comm = w.comms[1];
    a.src = 0;
    a.tag = 1;
    a.capacity = 3000;
    w.engines[1]->irecv(&r, a);
  };
  r.then = [&] {
    if (++got < 20) post();
  };
  post();
  ASSERT_TRUE(w.run());
  EXPECT_EQ(left, 0);
  EXPECT_EQ(got, 20);
}

TEST(Window, ManyMessages_NeverLeavesTheWindow) {
  World w({});
  std::vector<uint8_t> d(4);
  for (int i = 0; i < 40000; ++i) w.isend(0, 1, 1, d);
  // Nothing was delivered: the sender stopped inside the window.
  EXPECT_LE(w.flights.size(), static_cast<size_t>(kSeqWindow) + 8);
  while (!w.flights.empty() || w.engines[0]->needs_progress()) {
    if (!w.flights.empty())
      w.take();
    else
      w.engines[0]->progress(w.now += 2'000'000);
  }
  for (const auto& s : w.sends) ASSERT_TRUE(s->done);
  EXPECT_EQ(w.engines[1]->counters().malformed, 0u);
  EXPECT_EQ(w.engines[1]->counters().duplicates, 0u);
}

/// A rail that never came up carried nothing: that the peer does not close it must not stop the sender, whose
/// window waits for the closing of every rail on which a message may still be.
TEST(Window, RailThatNeverCameUp_IsNotWaitedFor) {
  World::Options o;
  o.rails = 3;
  World w(o);
  w.up[w.key(0, 1, 2)] = false;
  xfer::Rail<FakePort>* const never = w.rail(0, 1, 2);
  xfer::RailEvent ev;
  ev.name = RailName{w.name(0, 1, 2).conn, 3};  // attempts one to three led nowhere
  w.engines[0]->on_rail_down(never, ev);
  w.engines[0]->on_rail_closed(never, ev, FenceResult::kFenced, 0);
  std::vector<uint8_t> d(4);
  w.isend(0, 1, 1, d);
  w.kill(0, 1, w.flights[0].rail);  // sent twice
  ASSERT_TRUE(w.run());
  w.revive(0, 1, 0);
  w.revive(0, 1, 1);
  for (int i = 0; i < 3 * kSeqWindow; ++i) {
    w.isend(0, 1, 1, d);
    while (!w.flights.empty()) w.take();
  }
  for (int i = 0; i < 100 && w.engines[0]->needs_progress(); ++i) {
    w.engines[0]->progress(w.now += 2'000'000);
    while (!w.flights.empty()) w.take();
  }
  for (const auto& s : w.sends) ASSERT_TRUE(s->done);
}

}  // namespace
}  // namespace bfo::test
