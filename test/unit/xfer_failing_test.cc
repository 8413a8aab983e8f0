// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_failing_test.cc: who is to be declared failed, because there was no memory, or because it said so
// before it was known.
#include "pml/bfo/xfer/base/failing.h"

#include <gtest/gtest.h>

#include "pml/bfo/xfer/comm_state.h"
#include "test/unit/tiny_port.h"

namespace bfo::xfer {
namespace {

using test::TinyPeer;
using test::TinyPort;

struct Fixture {
  Fixture() {
    peers.add(contract.peer);
    peers.add(other.peer);
  }
  bool is_failing(TinyPeer& p, size_t bytes) {
    return p.peer.standing.failing() && p.peer.standing.loss().outcome == Outcome::kNoMemory &&
           p.peer.standing.loss().bytes == bytes && !p.peer.standing.declared_by_peer();
  }
  Arrival<TinyPort> message(Rail<TinyPort>* rail, uint32_t epoch, size_t size) { return {rail, epoch, size}; }
  TinyPort port;
  Peers<TinyPort> peers;
  ExitWork<TinyPort> work;
  Failing<TinyPort> failing{port, peers, work};
  TinyPeer contract{1};      ///< its rail has the failover contract
  TinyPeer other{1, false};  ///< its BTL does not name senders
};

TEST(Failing, PeerIsNotedForWhenTheEngineIsLeft) {
  Fixture t;
  EXPECT_FALSE(t.work.any());
  t.failing.no_memory(t.contract.peer, 7);
  EXPECT_TRUE(t.is_failing(t.contract, 7));
  EXPECT_FALSE(t.contract.peer.standing.failed());
  EXPECT_TRUE(t.work.has_failure());
  t.failing.no_memory(t.contract.peer, 8);
  EXPECT_TRUE(t.is_failing(t.contract, 7)) << "the first reason counts";
}

TEST(Failing, PeerThatHasFailedStaysAsItIs) {
  Fixture t;
  t.contract.peer.standing.set_failed(1);
  t.failing.no_memory(t.contract.peer, 7);
  EXPECT_FALSE(t.work.any());
}

TEST(Failing, MessageOverARailIsFromItsPeer) {
  Fixture t;
  t.failing.no_memory(&t.contract.rails[0], 1, 7);
  EXPECT_TRUE(t.is_failing(t.contract, 7));
  EXPECT_FALSE(t.other.peer.standing.failing());
}

TEST(Failing, MessageOfAnUnnamedSenderIsFromAnyPeerOfSuchABtl) {
  Fixture t;
  t.failing.no_memory(nullptr, 0, 7);
  EXPECT_FALSE(t.contract.peer.standing.failing());
  EXPECT_TRUE(t.is_failing(t.other, 7));
  TinyPeer later(1, false);
  TinyPeer later_contract(1);
  t.failing.met(later.rails[0]);
  t.failing.met(later_contract.rails[0]);
  EXPECT_TRUE(t.is_failing(later, 7));
  EXPECT_FALSE(later_contract.peer.standing.failing());
}

TEST(Failing, MessageOfAPeerWithoutARecordTakesEffectWhenThatIsMade) {
  Fixture t;
  t.failing.no_memory(nullptr, 3, 7);
  EXPECT_FALSE(t.work.any());
  TinyPeer later(1);
  t.failing.met(later.rails[0]);
  EXPECT_TRUE(t.is_failing(later, 7));
}

TEST(Failing, RankOfAMessageNamesItsPeer) {
  Fixture t;
  Comm<TinyPort> comm;
  t.failing.no_memory(comm, 0, t.message(nullptr, 1, 7));
  EXPECT_FALSE(t.work.any()) << "nobody knows who that is";
  TinyPeer later(1);
  t.failing.met(later.rails[0]);
  EXPECT_TRUE(t.is_failing(later, 7));
  t.port.resolved = &t.other.peer;
  t.failing.no_memory(comm, 0, t.message(nullptr, 0, 9));
  EXPECT_TRUE(t.is_failing(t.other, 9));
  t.failing.no_memory(comm, 0, t.message(&t.contract.rails[0], 1, 5));
  EXPECT_TRUE(t.is_failing(t.contract, 5)) << "the rail says it";
}

TEST(Failing, OfAnybodyConcernsWhoeverIsMet) {
  Fixture t;
  t.failing.no_memory_for_any(4);
  t.failing.met(t.contract.rails[0]);
  t.failing.met(t.other.rails[0]);
  EXPECT_TRUE(t.is_failing(t.contract, 4));
  EXPECT_TRUE(t.is_failing(t.other, 4));
}

TEST(Failing, LossThatAStrangerReportedTakesEffectWhenItIsMet) {
  Fixture t;
  EXPECT_TRUE(t.failing.keep(1, 555, PeerLoss{Outcome::kMessageLost}));
  t.failing.met(t.contract.rails[0]);
  EXPECT_FALSE(t.work.any());
  t.contract.rails[0].name.conn = 555;
  t.failing.met(t.contract.rails[0]);
  EXPECT_TRUE(t.contract.peer.standing.failing());
  EXPECT_TRUE(t.contract.peer.standing.declared_by_peer());
  EXPECT_EQ(t.contract.peer.standing.loss().outcome, Outcome::kMessageLost);
  EXPECT_EQ(t.port.live, 0) << "it is told once";
}

TEST(Failing, LossesOfStrangersAreBoundedAndFreed) {
  Fixture t;
  t.port.allocs_left = 1 << 20;
  uint64_t conn = 0;
  while (t.failing.keep(1, ++conn, PeerLoss{})) ASSERT_LE(conn, EarlyLosses::kMost);
  EXPECT_GT(t.port.live, 0);
  t.failing.free_all();
  EXPECT_EQ(t.port.live, 0);
}

TEST(Failing, WithoutMemoryForALossItsPeerIsStillDeclaredFailed) {
  Fixture t;
  t.port.allocs_left = 0;
  EXPECT_TRUE(t.failing.keep(1, 555, PeerLoss{Outcome::kMessageLost}));
  t.failing.met(t.contract.rails[0]);
  EXPECT_TRUE(t.is_failing(t.contract, EarlyLosses::record_size()));
}

}  // namespace
}  // namespace bfo::xfer
