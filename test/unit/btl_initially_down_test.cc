// SPDX-License-Identifier: BSD-3-Clause
//
// btl_initially_down_test.cc: ports that are not active when their process starts, and join later.
#include "btl/verbs/engine/connect/cm.h"

#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Phase;

void activate(World& w, Process& p) {
  p.hca->port.state = IBV_PORT_ACTIVE;
  w.fabric.raise(*p.hca, IBV_EVENT_PORT_ACTIVE, 1);
}

TEST(InitiallyDown, ItsOwnFirstSend_ComesBackAndTheRailJoinsWhenThePortIsUp) {
  World w(small_config(), true, false);
  ASSERT_EQ(w.a.port.state(), engine::PortState::kDown);
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  w.pass(1);
  EXPECT_EQ(w.a.log, (Log{"down 0", "done x -12", "closed 0"}));
  EXPECT_EQ(w.a.last_event.cause, BFO_CAUSE_HANDSHAKE);
  EXPECT_EQ(w.a.last_event.code, ENETDOWN);
  activate(w, w.a);
  w.pass(600);
  EXPECT_EQ(w.a.up, 1);
  EXPECT_EQ(w.b.up, 1);
}

TEST(InitiallyDown, PeersFirstSend_DoesNotWaitForIt) {
  World w(small_config(), true, false);
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("x")), engine::Accepted::kQueued);
  w.pass(1);
  EXPECT_EQ(w.b.log, (Log{"down 0", "done x -12", "closed 0"}));
  EXPECT_EQ(w.b.last_event.cause, BFO_CAUSE_HANDSHAKE);
  EXPECT_EQ(w.b.last_event.code, ENETDOWN);
  EXPECT_NE(std::string(w.b.last_event.text).find("not active"), std::string::npos);
  activate(w, w.a);
  w.pass(600);
  EXPECT_EQ(w.a.up, 1);
  EXPECT_EQ(w.b.up, 1);
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("y")), engine::Accepted::kPosted);
  w.pass(1);
  EXPECT_EQ(w.a.count("recv 65 y"), 1);
}

TEST(InitiallyDown, AnotherRailIsUp_NobodySolicitsAndThePortComesToRest) {
  World w(small_config(), true, false);
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("x")), engine::Accepted::kQueued);
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  w.pass(6000);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kIdle);
  EXPECT_TRUE(w.a.port.idle());
  EXPECT_TRUE(w.b.port.idle());
  w.b.other_rail = false;  // then every way is tried
  w.pass(1100);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kSoliciting);
}

TEST(InitiallyDown, EventWasLost_ThePortIsAskedNowAndThen) {
  World w(small_config(), true, false);
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  w.pass(1);
  w.a.hca->port.state = IBV_PORT_ACTIVE;
  w.pass(1000);
  EXPECT_EQ(w.a.up, 1);
}

TEST(InitiallyDown, AddressComesWithThePort_ThePeerLearnsIt) {
  World w(small_config(), true, false);
  w.b.endpoint.peer.address.lid = 0;  // what was published
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  w.pass(1);
  activate(w, w.a);
  w.pass(600);
  EXPECT_EQ(w.b.up, 1);
  EXPECT_EQ(w.b.endpoint.peer.address.lid, w.a.port.address().lid);
  EXPECT_NE(w.b.endpoint.peer.address.lid, 0);
}

TEST(InitiallyDown, BothEnds_JoinWhenTheSecondIsUp) {
  World w(small_config(), true, true);
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  ASSERT_EQ(engine::send(w.b.endpoint, w.frag("y")), engine::Accepted::kQueued);
  w.pass(1);
  EXPECT_EQ(w.a.count("done x -12"), 1);
  EXPECT_EQ(w.b.count("done y -12"), 1);
  activate(w, w.b);
  w.pass(300);
  EXPECT_EQ(w.a.up + w.b.up, 0);
  activate(w, w.a);
  w.pass(600);
  EXPECT_EQ(w.a.up, 1);
  EXPECT_EQ(w.b.up, 1);
}

TEST(InitiallyDown, UpBeforeAnythingWasSent_IsARailLikeAnyOther) {
  World w(small_config(), true, false);
  w.a.other_rail = false;
  activate(w, w.a);
  w.pass(1);
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  w.pass(5);
  EXPECT_EQ(w.b.count("recv 65 x"), 1);
  EXPECT_EQ(w.a.down + w.b.down, 0);
}

TEST(InitiallyDown, NobodyUsedIt_ItLeavesInSilence) {
  World w(small_config(), true, true);
  w.pass(20);
  EXPECT_EQ(w.a.log, Log{});
  EXPECT_EQ(w.b.log, Log{});
}

}  // namespace
}  // namespace bfo::test
