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
  EXPECT_TRUE(crowd.hub.port.idle() || crowd.fabric.packets.empty());
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

}  // namespace
}  // namespace bfo::test
