// SPDX-License-Identifier: BSD-3-Clause
//
// btl_given_back_test.cc: a process that lacks what a rail is made of gives back, and gets back, a second
// rail of a peer, so that each peer has one.
#include "btl/verbs/engine/connect/resource.h"
#include "btl/verbs/engine/drain/drain.h"
#include "btl/verbs/engine/drain/hold.h"
#include "btl/verbs/engine/progress/contract.h"
#include "test/unit/btl_rails_world.h"
#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

constexpr int kForEver = 1 << 30;

/// Of two peers of `a` one has a second rail, and the other none.
struct Needy {
  World w;
  Process third;
  engine::Endpoint end;  // a's, to the third

  Needy() {
    third.open(w.fabric, "third", 3, small_config());
    third.other_rail = false;
    third.meet(w.a, 1);
    end.peer.name = 3;
    end.peer.nonce = third.port.nonce();
    end.peer.key = third.port.key();
    end.peer.address = third.port.address();
    EXPECT_TRUE(w.a.port.add(end));
    w.a.alone.insert(&end);
    w.connect();
    engine::rail_attach(w.a.endpoint, this, nullptr);
  }
  ~Needy() {
    w.a.port.remove(end);
    third.port.remove(third.endpoint);
    third.port.close();
  }
  /// `a` cannot make queue pairs any more, and has something to send to the third.
  void lack() {
    TestFabric::Refusal refusal{"create_qp", 1, kForEver, ENOMEM};
    refusal.device = w.a.hca;
    w.fabric.refusals = {refusal};
    ASSERT_EQ(engine::send(end, w.frag("first")), engine::Accepted::kQueued);
  }
  void pass(uint64_t ms) {
    for (uint64_t i = 0; i < ms; ++i) {
      w.pass(1);
      third.poll();
    }
  }
};

TEST(Shortage, PeerWithoutAnyRail_GetsWhatASecondRailGivesBack) {
  for (const bool here : {true, false}) {
    Needy n;
    TestFabric::Refusal refusal{"create_qp", 1, kForEver, ENOMEM};
    refusal.device = here ? n.w.a.hca : n.third.hca;
    n.w.fabric.refusals = {refusal};
    ASSERT_EQ(engine::send(n.end, n.w.frag("first")), engine::Accepted::kQueued);
    n.pass(20);
    EXPECT_EQ(n.w.a.last_event.cause, BFO_CAUSE_GIVEN_BACK) << here;
    EXPECT_NE(n.w.a.endpoint.phase, engine::Phase::kUp);
    n.w.fabric.refusals.clear();
    n.pass(500);
    EXPECT_EQ(n.third.count("recv 65 first"), 1) << here;
    EXPECT_NE(n.w.a.endpoint.phase, engine::Phase::kUp) << "it would take the place of others";
    test_now() += 2 * engine::kShortNs;
    n.pass(3'000);
    EXPECT_EQ(n.w.a.endpoint.phase, engine::Phase::kUp) << "there is room again";
  }
}

/// It goes on trying, to say what is lacking. When it can make its part its peer, which is short, too, does
/// not answer: kept queue pairs would be lacking for others.
TEST(Shortage, SecondRailIsMadeHalfAndThePeerIsShort_TheHalfIsGivenBack) {
  World w;
  TestFabric::Refusal refusal{"create_qp", 1, kForEver, ENOMEM};
  refusal.device = w.a.hca;
  w.fabric.refusals = {refusal};
  ASSERT_EQ(engine::send(w.a.endpoint, w.frag("x")), engine::Accepted::kQueued);
  w.pass(20);
  ASSERT_NE(w.a.endpoint.shortage().tries, 0u);
  ASSERT_EQ(w.a.port.resources().speaker, w.a.endpoint.peer.name);
  w.b.port.resources().short_until_ns = w.a.port.resources().short_until_ns;
  w.b.port.resources().speaker = 9;  // another one there
  w.fabric.refusals.clear();
  w.pass(100);
  EXPECT_EQ(w.a.port.resources().given_back, 0u) << "an answer may come";
  w.pass(w.a.port.config().connect_timeout_ns / 1'000'000);
  EXPECT_GT(w.a.port.resources().given_back, 0u);
  EXPECT_FALSE(w.a.endpoint.qps().data.exists());
  test_now() += 2 * engine::kShortNs;
  w.pass(3'000);
  EXPECT_EQ(w.a.endpoint.phase, engine::Phase::kUp) << "there is room again";
}

/// The process that has no queue pairs has no second rail itself.
TEST(Shortage, PeerWithoutAnyRail_GetsWhatAnotherProcessGivesBack) {
  Needy n;
  ASSERT_EQ(engine::send(n.end, n.w.frag("first")), engine::Accepted::kQueued);
  n.pass(50);
  ASSERT_EQ(n.end.phase, engine::Phase::kUp);
  engine::Endpoint wanted;  // of the third process, which begins
  wanted.peer.name = 9;
  wanted.peer.nonce = n.w.b.port.nonce();
  wanted.peer.key = n.w.b.port.key();
  wanted.peer.address = n.w.b.port.address();
  ASSERT_TRUE(n.third.port.add(wanted));
  TestFabric::Refusal refusal{"create_qp", 1, kForEver, ENOMEM};
  refusal.device = n.third.hca;
  n.w.fabric.refusals = {refusal};
  ASSERT_EQ(engine::send(wanted, n.w.frag("x")), engine::Accepted::kQueued);
  n.pass(20);
  EXPECT_EQ(n.w.a.last_event.cause, BFO_CAUSE_GIVEN_BACK);
  EXPECT_NE(n.w.a.endpoint.phase, engine::Phase::kUp);
  EXPECT_EQ(n.end.phase, engine::Phase::kUp) << "its only one";
  n.w.fabric.refusals.clear();
  n.third.port.remove(wanted);
}

/// A port of a node lacks a queue pair for a peer that it has no rail to.
struct Lacking {
  engine::Endpoint end;
  Node& node;
  NodeRail& rail;

  Lacking(Node& at, size_t number) : node(at), rail(at.rails[number]) {
    end.peer.name = 9;
    end.peer.address = rail.endpoint.peer.address;
    EXPECT_TRUE(rail.port.add(end));
    EXPECT_TRUE(end.make_resources());
    node.alone.insert(&end);
  }
  ~Lacking() { rail.port.remove(end); }
  void fail() { engine::resource_failed(end, engine::Object::kQueuePair, ENOMEM); }
};

bool one_up_at_both_ends(const RailsWorld& w) {
  for (size_t i = 0; i < w.left.count; ++i) {
    if (w.left.rails[i].state == NodeRail::State::kUp && w.right.rails[i].state == NodeRail::State::kUp)
      return true;
  }
  return false;
}

TEST(Shortage, BothSidesLackQueuePairs_TheyDoNotGiveBackBothRails) {
  RailsWorld w(2);
  w.open();
  w.left.write("first");
  w.right.write("second");
  ASSERT_TRUE(w.run(1'000));
  for (int i = 0; i < 50; ++i) w.step(1'000'000);
  ASSERT_TRUE(w.left.rails[1].state == NodeRail::State::kUp &&
              w.right.rails[1].state == NodeRail::State::kUp);
  for (NodeRail& rail : w.left.rails) engine::rail_attach(rail.endpoint, &rail, nullptr);
  for (NodeRail& rail : w.right.rails) engine::rail_attach(rail.endpoint, &rail, nullptr);
  Lacking here(w.left, 0);
  Lacking there(w.right, 1);
  for (int turn = 0; turn < 5; ++turn) {
    here.fail();
    there.fail();
    for (int i = 0; i < 50; ++i) {
      w.step(100'000);
      ASSERT_TRUE(one_up_at_both_ends(w)) << turn << ", step " << i;
    }
  }
  EXPECT_EQ(w.left.rails[0].state, NodeRail::State::kDown);
  EXPECT_EQ(w.left.rails[1].endpoint.epoch, 1u);
}

TEST(Shortage, NobodyAboveKnowsTheRailYet_ItIsNotGivenBack) {
  Needy n;
  engine::rail_attach(n.w.a.endpoint, nullptr, nullptr);
  n.lack();
  n.pass(20);
  EXPECT_EQ(n.w.a.count("down"), 0) << "its peer would not hear of it";
}

/// The peer does not hear at once that a rail is given back: what it sends meanwhile arrives, and comes back
/// as delivered.
TEST(Shortage, RailIsGivenBack_WorkOfThePeerEndsInPeace) {
  Needy n;
  n.lack();
  n.pass(20);
  ASSERT_EQ(n.w.a.last_event.cause, BFO_CAUSE_GIVEN_BACK);
  ASSERT_EQ(n.w.a.count("closed"), 0) << "its peer has not heard of it";
  ASSERT_TRUE(n.w.sendi(n.w.b, "late"));
  n.pass(20);
  EXPECT_EQ(n.w.a.count("recv 65 late"), 1);
  EXPECT_EQ(n.w.b.count("down"), 0);
  n.w.fabric.hold = true;
  ASSERT_TRUE(n.w.sendi(n.w.b, "last"));
  n.w.fabric.drop_datagrams = 1 << 30;  // a SOLICIT would say the same as what the PML says
  const bfo_rail_name_t name = n.w.a.last_event.info.name;
  engine::rail_peer_down(n.w.b.endpoint, name, BFO_CAUSE_GIVEN_BACK);
  n.pass(20);
  EXPECT_EQ(n.w.b.count("down"), 1);
  EXPECT_EQ(n.w.b.count("closed"), 0) << "something is under way";
  n.w.fabric.hold = false;
  n.pass(20);
  EXPECT_EQ(n.w.b.count("closed"), 1);
  EXPECT_EQ(n.w.b.count("payload"), 0) << "nothing has to be sent again";
  EXPECT_EQ(n.w.a.count("recv 65 last"), 1);
  EXPECT_EQ(n.w.a.count("closed"), 0);
  engine::rail_peer_closed(n.w.a.endpoint, name, n.w.b.last_delivered);
  n.pass(20);
  EXPECT_EQ(n.w.a.count("closed"), 1);
  EXPECT_EQ(n.w.a.last_result, BFO_FENCED);
}

/// The PML's word may be lost with the rail that carried it.
TEST(Shortage, RailIsGivenBackAndNobodySaysSo_ThePeerIsTold) {
  Needy n;
  n.lack();
  n.pass(20);
  ASSERT_EQ(n.w.a.count("down"), 1);
  EXPECT_EQ(n.w.b.count("down"), 0);
  n.pass(500);
  EXPECT_EQ(n.w.b.count("down"), 1);
  EXPECT_EQ(n.w.b.last_event.cause, BFO_CAUSE_PEER_DOWN);
  EXPECT_EQ(n.w.b.last_event.code, BFO_CAUSE_GIVEN_BACK) << "it is no loss";
}

TEST(Shortage, RailIsGivenBackAndThePeerIsSilent_ItEndsAllTheSame) {
  Needy n;
  n.lack();
  n.pass(20);
  ASSERT_EQ(n.w.a.count("closed"), 0);
  n.w.fabric.drop_datagrams = 1 << 30;
  test_now() += engine::kHeldMostNs;
  n.pass(20);
  EXPECT_GE(n.w.a.count("closed 1"), 1);
  EXPECT_EQ(n.w.a.endpoint.phase, engine::Phase::kClosed);
}

TEST(Shortage, PeerCouldNotMakeItsPartForLong_AndThenCan_ItIsNotGivenUp) {
  RailsWorld w(1);
  w.open();
  w.fabric.refusals = {{"create_qp", 1, kForEver, ENOMEM, w.left.rails[0].hca}};
  w.right.write("x");
  engine::Endpoint& rail = w.right.rails[0].endpoint;
  for (int i = 0; i < 350; ++i) w.step(1'000'000);
  ASSERT_GE(rail.shortage().tries, engine::kResourceTries);
  ASSERT_TRUE(engine::resource_stops(rail));
  w.fabric.refusals.clear();
  for (int i = 0; i < 1'000 && rail.phase != engine::Phase::kReplied; ++i) {
    test_now() += 100'000;
    w.fabric.run();
    w.left.poll();
    w.right.poll();
  }
  ASSERT_EQ(rail.phase, engine::Phase::kReplied);
  EXPECT_FALSE(engine::resource_stops(rail));
  ASSERT_TRUE(w.run(1'000));
  EXPECT_EQ(w.right.error, "");
}

TEST(Shortage, RailThatWorksOrIsTheOnlyOne_GivesNothingBack) {
  for (const bool only : {true, false}) {
    Needy n;
    if (only) n.w.a.alone.insert(&n.w.a.endpoint);
    n.w.fabric.hold = !only;
    ASSERT_TRUE(n.w.sendi(n.w.a, "work"));
    TestFabric::Refusal refusal{"create_qp", 1, kForEver, ENOMEM};
    refusal.device = n.w.a.hca;
    n.w.fabric.refusals = {refusal};
    if (only) n.pass(2);
    ASSERT_EQ(engine::send(n.end, n.w.frag("first")), engine::Accepted::kQueued);
    n.pass(5);
    EXPECT_EQ(n.w.a.count("down"), 0) << only;
    EXPECT_NE(n.w.a.port.resources().short_until_ns, 0u);
    n.w.fabric.hold = false;
    n.pass(5);
  }
}

}  // namespace
}  // namespace bfo::test
