// SPDX-License-Identifier: BSD-3-Clause
//
// btl_crowd_test.cc: a port with two hundred peers: how many handshakes are under way at a time, and which
// come first.
#include "test/unit/btl_crowd.h"

namespace bfo::test {
namespace {

using engine::kHandshakes;
using engine::Phase;

class CrowdRoles : public testing::TestWithParam<uint64_t> {};

TEST_P(CrowdRoles, FirstMessagesToAll_FewHandshakesAtATime) {
  Crowd crowd(GetParam());
  for (size_t i = 0; i < kPeers; ++i) ASSERT_TRUE(crowd.send(i));
  crowd.until_all_up(4000);
  EXPECT_EQ(crowd.most, size_t{kHandshakes});
  EXPECT_LE(crowd.answered, size_t{kHandshakes});
  crowd.turns(20);
  EXPECT_EQ(crowd.hub.count("done m"), static_cast<int>(kPeers));
  EXPECT_EQ(crowd.hub.down, 0);
}

TEST_P(CrowdRoles, PortGoesDownAndUp_FewAtATimeAndMessagesFirst) {
  constexpr size_t kUrgent = 40;
  Crowd crowd(GetParam());
  for (size_t i = 0; i < kPeers; ++i) ASSERT_TRUE(crowd.send(i));
  crowd.until_all_up(4000);
  crowd.flap();
  // Those that were met first are the last ones in the port's list.
  for (size_t i = 0; i < kUrgent; ++i) {
    if (i % 2 == 0) {
      engine::rail_connect(*crowd.ends[i]);
    } else {
      crowd.hub.alone.insert(crowd.ends[i].get());
    }
  }
  crowd.come_back();
  size_t urgent = 0;
  for (int i = 0; i < 4000 && urgent < kUrgent; ++i) {
    crowd.turns(1);
    urgent = 0;
    size_t unhurried = 0;
    for (size_t k = 0; k < kPeers; ++k) {
      const bool begun = crowd.ends[k]->phase != Phase::kClosed;
      (k < kUrgent ? urgent : unhurried) += begun;
    }
    if (urgent < kUrgent) {
      ASSERT_EQ(unhurried, 0u) << urgent;
    }
  }
  ASSERT_EQ(urgent, kUrgent);
  crowd.until_all_up(8000);
  EXPECT_LE(crowd.most, size_t{kHandshakes});
  EXPECT_LE(crowd.answered, size_t{kHandshakes});
}

INSTANTIATE_TEST_SUITE_P(Role, CrowdRoles, testing::Values(uint64_t{1}, uint64_t{5000}),
                         [](const auto& which) { return which.param == 1 ? "Initiator" : "Responder"; });

TEST(Crowd, NothingIsSent_NothingIsConnected) {
  Crowd crowd(1);
  crowd.turns(50);
  EXPECT_EQ(crowd.most, 0u);
  EXPECT_TRUE(crowd.hub.port.idle() || crowd.fabric.datagrams.empty());
}

TEST(Crowd, DeadPeers_DoNotKeepThePlaces) {
  Crowd crowd(1);
  crowd.hub.other_rail = false;  // none is given up
  // Those that were met last are the first ones in the port's list.
  for (size_t i = 100; i < kPeers; ++i) crowd.fabric.deaf.insert(crowd.peers[i]->port.cm_qp().number());
  for (size_t i = 0; i < kPeers; ++i) ASSERT_TRUE(crowd.send(i));
  for (int i = 0; i < 9000 && crowd.up() < kPeers - 100; ++i) crowd.turns(1);
  EXPECT_EQ(crowd.up(), kPeers - 100);
}

TEST(Crowd, PeersBeginAllAtOnce_FewAreAnsweredAtATime) {
  Crowd crowd(5000);
  for (auto& peer : crowd.peers) engine::cm_connect(peer->endpoint);
  crowd.until_all_up(8000);
  EXPECT_EQ(crowd.answered, size_t{kHandshakes});
  EXPECT_EQ(crowd.most, 0u);
}

/// A turn of the peer's event thread and of the threads it waits for.
void serve_heartbeat(Process& p) {
  p.port.heartbeat().serve();
  while (p.port.heartbeat().lane().run_one()) p.port.heartbeat().serve();
}

TEST(Crowd, ProcessComesBySeldom_NobodyIsTakenForDead) {
  for (const uint64_t hub : {1, 5000}) {
    Crowd crowd(hub);
    crowd.hub.other_rail = false;  // what waits has no other way
    for (size_t i = 0; i < kPeers; ++i) ASSERT_TRUE(crowd.send(i));
    // All of them compute.
    for (int turn = 0; turn < 200; ++turn) {
      test_now() += 400'000'000;
      for (int k = 0; k < 33; ++k) crowd.hub.poll();
      Crowd::serve(crowd.hub);
      for (auto& peer : crowd.peers) serve_heartbeat(*peer);
    }
    EXPECT_EQ(crowd.hub.down, 0);
    EXPECT_EQ(crowd.hub.count("peer answers"), static_cast<int>(kPeers));
  }
}

TEST(Crowd, EventThreadComesBySeldom_AllWhoAskAreAnswered) {
  constexpr size_t kAsking = 100;  // no more than there are receive buffers
  Crowd crowd(5000);
  for (size_t i = 0; i < kAsking; ++i) {
    crowd.peers[i]->other_rail = false;
    crowd.payloads.push_back("x");
    engine::Frag& frag = crowd.frags.emplace_back();
    frag.data = crowd.payloads.back().data();
    frag.length = 1;
    frag.signaled = true;
    ASSERT_EQ(engine::send(crowd.peers[i]->endpoint, &frag), engine::Accepted::kQueued);
  }
  for (int turn = 0; turn < 60; ++turn) {
    test_now() += 1'000'000'000;
    for (size_t i = 0; i < kAsking; ++i) {
      for (int k = 0; k < 33; ++k) crowd.peers[i]->poll();
      Crowd::serve(*crowd.peers[i]);
    }
    for (int k = 0; k < 3; ++k) serve_heartbeat(crowd.hub);
  }
  for (size_t i = 0; i < kAsking; ++i) EXPECT_EQ(crowd.peers[i]->down, 0) << i;
}

}  // namespace
}  // namespace bfo::test
