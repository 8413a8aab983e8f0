// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_stray_test.cc: messages nobody waits for: notices of an epoch that is not up or from a peer not met
// yet, garbage, and names that are another peer's.
#include <gtest/gtest.h>

#include "test/unit/failover_steps.h"

namespace bfo::test {
namespace {

/// The peer's notices may overtake the first message of an epoch that is not up here yet. They count: said
/// once, they are not said again.
TEST(Notices, AboutAnEpochThatIsNotUpHereYet_Count) {
  World w({});
  xfer::Rail<FakePort>* const rail = w.rail(1, 0, 0);
  const RailName next{w.name(0, 1, 0).conn, 2};
  for (const auto type : {core::MsgType::kRailDown, core::MsgType::kEpochClosed}) {
    const core::RailHdr h{static_cast<uint8_t>(type), 0, 0, next.conn, next.epoch, 1, 0};
    w.engines[1]->on_message(w.rail(1, 0, 1), 1, h.type, &h, sizeof h);
  }
  ASSERT_EQ(w.ports[1]->peer_downs_.size(), 1u);
  EXPECT_EQ(w.ports[1]->peer_downs_[0].epoch, 2u);
  EXPECT_EQ(rail->peer_closed_epoch, 2u);
}

/// A rail can come up and die before this process has a record of the peer. Both notices are sent only once:
/// dropped, messages would be given to a queue pair whose other half is gone.
TEST(Notices, OfAPeerNotMetYet_CountWhenItIsMet) {
  World w({});
  for (const auto type : {core::MsgType::kRailDown, core::MsgType::kEpochClosed}) {
    core::RailHdr h{static_cast<uint8_t>(type), 0, 0, w.name(0, 1, 0).conn, 1, 5, 3};
    w.engines[1]->on_message(nullptr, 1, h.type, &h, sizeof h);
    h.epoch = 0;  // an older one, late
    w.engines[1]->on_message(nullptr, 1, h.type, &h, sizeof h);
  }
  EXPECT_TRUE(w.ports[1]->peer_downs_.empty());
  w.irecv(1, 0, 1, 10);
  ASSERT_EQ(w.ports[1]->peer_downs_.size(), 1u);
  EXPECT_EQ(w.ports[1]->peer_downs_[0].conn, w.name(0, 1, 0).conn);
  EXPECT_EQ(w.ports[1]->peer_downs_[0].epoch, 1u);
  EXPECT_EQ(w.rail(1, 0, 0)->peer_closed_epoch, 1u);
  EXPECT_EQ(w.rail(1, 0, 1)->peer_closed_epoch, 0u);
}

/// Whoever makes up connections fills no memory, and what is dropped is counted.
TEST(Notices, OfConnectionsThatNobodyHas_AreBounded) {
  World w({});
  const size_t before = w.ports[1]->live_;
  for (unsigned i = 0; i < 2 * xfer::EarlyNotices::kMost; ++i) {
    const core::RailHdr h{static_cast<uint8_t>(MsgType::kRailDown), 0, 0, 50'000 + i, 1, 0, 0};
    w.engines[1]->on_message(nullptr, 1, h.type, &h, sizeof h);
  }
  EXPECT_LT(w.ports[1]->live_ - before, xfer::EarlyNotices::kMost * 128);
  EXPECT_EQ(w.engines[1]->counters().stale, xfer::EarlyNotices::kMost);
  w.ports[1]->refuse_ = [](size_t) { return true; };
  const core::RailHdr h{static_cast<uint8_t>(MsgType::kRailDown), 0, 0, 7, 1, 0, 0};
  w.engines[1]->on_message(nullptr, 1, h.type, &h, sizeof h);
  EXPECT_EQ(w.engines[1]->counters().stale, xfer::EarlyNotices::kMost + 1);
  w.ports[1]->refuse_ = nullptr;
}

/// A process that only receives from anybody gets to know a peer late. Its BTL has closed an epoch by then,
/// the peer waits for EPOCHCLOSED, and its window of numbers closes otherwise 2^14 messages later, for good.
TEST(Notices, EpochClosedBeforeThePeerWasMet_IsReportedStill) {
  World w({});
  w.up[w.key(0, 1, 0)] = false;
  ASSERT_NE(w.peer(1, 0), nullptr);
  ASSERT_EQ(w.ports[1]->closings_asked_.size(), 1u);
  EXPECT_EQ(w.ports[1]->closings_asked_[0], (std::pair<int, uint32_t>{0, 0}));
  xfer::RailEvent ev;  // the BTL says it again
  ev.name = w.name(1, 0, 0);
  w.engines[1]->on_rail_closed(w.rail(1, 0, 0), ev, FenceResult::kFenced, 7);
  w.engines[1]->progress(0);
  ASSERT_EQ(w.flights.size(), 1u);
  core::RailHdr h;
  ASSERT_TRUE(core::decode(core::MsgType::kEpochClosed,
                           core::Bytes{w.flights[0].bytes.data(), w.flights[0].bytes.size()}, h));
  EXPECT_EQ(uint32_t{h.epoch}, 1u);
  EXPECT_EQ(uint64_t{h.delivered}, 7u);
}

/// It is said once: dropped, the receive would wait for ever.
TEST(PeerLost, OfAPeerNotMetYet_CountsWhenItIsMet) {
  for (bool no_memory : {false, true}) {
    World w({});
    core::RailHdr h{static_cast<uint8_t>(MsgType::kPeerLost), 0, 0, w.name(0, 1, 1).conn, 1, 0, 0};
    if (no_memory) {
      h.cause = core::kCauseNoMemory;
      h.delivered = 77;
    }
    for (int twice = 0; twice < 2; ++twice) w.engines[1]->on_message(nullptr, 1, h.type, &h, sizeof h);
    EXPECT_EQ(w.ports[1]->peers_failed_, 0);
    RecvReq* r = w.irecv(1, 0, 1, 10);
    ASSERT_TRUE(r->done);
    EXPECT_EQ(r->status.outcome, no_memory ? Outcome::kNoMemory : Outcome::kMessageLost);
    EXPECT_EQ(w.isend(1, 0, 1, pattern(10, 1))->outcome, r->status.outcome);
    ASSERT_EQ(w.ports[1]->losses_.size(), 1u);
    EXPECT_EQ(w.ports[1]->losses_[0].second.there, no_memory);
    ASSERT_TRUE(w.run());
    EXPECT_EQ(count(w, MsgType::kPeerLost), 0u) << "who gave us up needs not be told";
    expect_clean(w);
  }
}

/// Nobody has that connection, or the sender is known and has another one.
TEST(PeerLost, ForgedName_NobodyIsGivenUp) {
  World w({});
  core::RailHdr h{static_cast<uint8_t>(MsgType::kPeerLost), 0, 0, 5555, 1, 0, 0};
  w.engines[1]->on_message(nullptr, 1, h.type, &h, sizeof h);
  RecvReq* r = w.irecv(1, 0, 1, 10);
  w.engines[1]->on_message(w.rail(1, 0, 0), 1, h.type, &h, sizeof h);
  EXPECT_FALSE(r->done);
  EXPECT_EQ(w.engines[1]->counters().malformed, 1u);
}

/// Nothing can be kept of what it said, not even its name: it must not be forgotten either.
TEST(PeerLost, WithoutMemoryForIt_ThePeerIsGivenUpAllTheSame) {
  World w({});
  const core::RailHdr h{static_cast<uint8_t>(MsgType::kPeerLost), 0, 0, w.name(0, 1, 1).conn, 1, 0, 0};
  w.ports[1]->refuse_ = [](size_t) { return true; };
  w.engines[1]->on_message(nullptr, 1, h.type, &h, sizeof h);
  w.ports[1]->refuse_ = nullptr;
  RecvReq* r = w.irecv(1, 0, 1, 10);
  ASSERT_TRUE(r->done);
  EXPECT_EQ(r->status.outcome, Outcome::kNoMemory);
}

TEST(Wire, GarbageIsDroppedAndCounted) {
  World w({});
  const auto [s, r] = transfer(w, 9000);
  ASSERT_TRUE(until(w, MsgType::kFrag));
  auto* rail = w.rail(1, 0, 0);
  for (int tag = 0; tag < 256; ++tag)
    for (size_t n : {0u, 1u, 13u, 14u, 20u, 38u, 48u, 100u}) {
      std::vector<uint8_t> junk(n, 0xff);
      if (n) junk[0] = static_cast<uint8_t>(tag);
      w.engines[1]->on_message(rail, 1, static_cast<uint8_t>(tag), junk.data(), n);
    }
  EXPECT_GT(w.engines[1]->counters().malformed, 1000u);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->data, s->data);
}

TEST(Wire, AnotherPeersName_IsRefused) {
  World::Options o;
  o.ranks = 3;
  World w(o);
  RecvReq* r = w.irecv(1, 0, 1, 9000);
  w.isend(0, 1, 1, pattern(9000, 1));
  ASSERT_TRUE(until(w, MsgType::kFrag));
  // rank 2 replays rank 0's FRAG with other bytes
  std::vector<uint8_t> forged = w.flights[0].bytes;
  std::fill(forged.begin() + sizeof(core::FragHdr), forged.end(), 0x66);
  w.engines[1]->on_message(w.rail(1, 2, 0), 1, static_cast<uint8_t>(MsgType::kFrag), forged.data(),
                           forged.size());
  EXPECT_EQ(w.engines[1]->counters().malformed, 1u);
  ASSERT_TRUE(w.run());
  EXPECT_EQ(r->data, pattern(9000, 1));
}

}  // namespace
}  // namespace bfo::test
