// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_peers_test.cc: all peers of a process, and which rail a message is about.
#include "pml/bfo/xfer/base/peers.h"

#include <gtest/gtest.h>

#include "test/unit/tiny_port.h"

namespace bfo::xfer {
namespace {

using test::TinyPeer;
using test::TinyPort;

struct TwoPeers {
  TwoPeers() {
    b.rails[0].name.conn = 200;
    b.rails[1].name.conn = 0;
    b.rails[1].dead.conn = 300;
    peers.add(a.peer);
    peers.add(b.peer);
  }
  TinyPeer a{2};  ///< its rails have connections 100 and 101
  TinyPeer b{2};
  Peers<TinyPort> peers;
};

TEST(Peers, NewestFirst) {
  TwoPeers t;
  EXPECT_EQ(t.peers.front(), &t.b.peer);
  EXPECT_EQ(t.b.peer.next, &t.a.peer);
  EXPECT_EQ(t.peers.pop_front(), &t.b.peer);
  EXPECT_EQ(t.peers.pop_front(), &t.a.peer);
  EXPECT_EQ(t.peers.pop_front(), nullptr);
}

TEST(Peers, RailOfAConnectionThatLivesOrIsDead) {
  TwoPeers t;
  EXPECT_EQ(t.peers.rail_of(nullptr, 101), &t.a.rails[1]);
  EXPECT_EQ(t.peers.rail_of(nullptr, 200), &t.b.rails[0]);
  EXPECT_EQ(t.peers.rail_of(nullptr, 300), &t.b.rails[1]);
  EXPECT_EQ(t.peers.rail_of(nullptr, 999), nullptr);
  EXPECT_EQ(t.peers.rail_of(nullptr, 0), nullptr) << "a rail without a connection has no name";
}

TEST(Peers, APeerNamesOnlyItsOwnRails) {
  TwoPeers t;
  EXPECT_EQ(t.peers.rail_of(&t.a.rails[0], 101), &t.a.rails[1]);
  EXPECT_EQ(t.peers.rail_of(&t.a.rails[0], 200), nullptr);
}

TEST(Peers, AbsenceIsCreditedToEach) {
  TwoPeers t;
  for (TinyPeer* p : {&t.a, &t.b}) p->peer.standing.set_unreachable(1);
  const uint64_t now = 100'000'000'000;
  t.peers.credit_absence(now, 30'000'000'000);
  for (TinyPeer* p : {&t.a, &t.b}) {
    EXPECT_FALSE(p->peer.standing.park_time_over(now, 30'000'000'000));
    EXPECT_TRUE(p->peer.standing.park_time_over(now + 1'000'000'000, 30'000'000'000));
  }
}

}  // namespace
}  // namespace bfo::xfer
