// SPDX-License-Identifier: BSD-3-Clause
//
// btl_resource_test.cc: every object that a rail is made of is missing once, for a while or for good, at the
// start or when a rail reconnects. Everything ends in delivery or in an error with a sentence, never in a
// wait without end.
#include "btl/verbs/engine/resource.h"

#include "btl/verbs/engine/drain.h"
#include "test/unit/btl_rails_world.h"

namespace bfo::test {
namespace {

constexpr int kForEver = 1 << 30;
constexpr int kOrdinals = 50;

/// A case: which call fails, where, and for how long.
struct Shortage {
  const char* verb;
  int first;
  bool for_good;
  bool one_device;  // of two rails, only that of the left process' first one
  size_t rails;
};

std::string name_of(const Shortage& shortage) {
  return std::string(shortage.verb) + " fails at call " + std::to_string(shortage.first) +
         (shortage.for_good ? " and after" : "") + (shortage.one_device ? " on one device" : "") + ", " +
         std::to_string(shortage.rails) + " rails";
}

void impose(RailsWorld& w, const Shortage& shortage) {
  FakeFabric::Refusal refusal{shortage.verb, shortage.first, shortage.for_good ? kForEver : shortage.first,
                              ENOMEM};
  refusal.device = shortage.one_device ? w.left.rails[0].fake : nullptr;
  w.fabric.refusals = {refusal};
}

/// No wait without end, no silence: what was not delivered ended with words about it.
void expect_decision(RailsWorld& w, bool in_time, const std::string& what) {
  EXPECT_TRUE(in_time) << what << ": left " << (w.left.finished() ? "done" : "waits") << ", right "
                       << (w.right.finished() ? "done" : "waits");
  for (Node* node : {&w.left, &w.right}) {
    const Node& other = node == &w.left ? w.right : w.left;
    for (const Letter& letter : node->letters) {
      EXPECT_TRUE(!letter.done || other.received.count(letter.text) != 0) << what << ": " << letter.text;
    }
    if (node->finished()) continue;
    EXPECT_GT(node->error.size(), strlen("no rail left; ")) << what;
  }
}

class EveryObject : public testing::TestWithParam<std::tuple<const char*, bool, int>> {
 protected:
  /// All ordinals of one verb, as far as a run has so many calls: `run` says whether one was refused.
  template <class Run>
  void each(Run&& run) {
    const auto [verb, for_good, topology] = GetParam();
    bool refused = true;
    for (int n = 1; n <= kOrdinals && refused && !HasFailure(); ++n) {
      refused = run(Shortage{verb, n, for_good, topology == 2, topology == 0 ? size_t{1} : size_t{2}});
    }
  }
};

TEST_P(EveryObject, MissingAtTheStart_EndsInDeliveryOrInASentence) {
  each([](const Shortage& shortage) {
    RailsWorld w(shortage.rails);
    impose(w, shortage);
    w.open();
    bool joined = false;
    for (const Node* node : {&w.left, &w.right}) {
      for (size_t i = 0; i < shortage.rails; ++i) {
        const NodeRail& rail = node->rails[i];
        joined = joined || rail.joined;
        EXPECT_TRUE(rail.open || rail.failure.find(strerror(ENOMEM)) != std::string::npos) << rail.failure;
      }
    }
    if (!joined) return true;  // refused at the start, with a sentence
    w.left.write("question");
    w.right.write("answer");
    const bool in_time = w.run(20'000);
    expect_decision(w, in_time, name_of(shortage));
    // What was missing for a moment, or on one of two rails, costs no message.
    if (!shortage.for_good || shortage.one_device) {
      EXPECT_TRUE(w.left.finished() && w.right.finished()) << name_of(shortage);
    }
    return w.fabric.refusals[0].refused != 0;
  });
}

TEST_P(EveryObject, MissingWhenRailsReconnect_EndsInDeliveryOrInASentence) {
  each([](const Shortage& shortage) {
    RailsWorld w(shortage.rails);
    w.open();
    w.left.write("first");
    w.right.write("second");
    EXPECT_TRUE(w.run(1'000));
    for (int i = 0; i < 20; ++i) w.step(1'000'000);
    impose(w, shortage);
    for (NodeRail& rail : w.left.rails) {
      if (rail.joined) engine::close_order(rail.endpoint, rail.endpoint.epoch, BFO_CAUSE_FENCE, 0, 0);
    }
    w.step(100'000);
    w.left.write("question");
    w.right.write("answer");
    const bool in_time = w.run(20'000);
    expect_decision(w, in_time, name_of(shortage));
    if (!shortage.for_good || shortage.one_device) {
      EXPECT_TRUE(w.left.finished() && w.right.finished()) << name_of(shortage);
    }
    return w.fabric.refusals[0].refused != 0;
  });
}

std::string case_name(const testing::TestParamInfo<EveryObject::ParamType>& info) {
  const auto [verb, for_good, topology] = info.param;
  const char* const where[] = {"_OneRail", "_TwoRails", "_OneOfTwoRails"};
  return std::string(verb) + (for_good ? "_ForGood" : "_Once") + where[topology];
}

INSTANTIATE_TEST_SUITE_P(Verbs, EveryObject,
                         testing::Combine(testing::Values("open_device", "query_device", "query_port",
                                                          "alloc_pd", "reg_mr", "create_cq", "create_srq",
                                                          "create_qp", "modify_qp", "create_ah"),
                                          testing::Bool(), testing::Values(0, 1, 2)),
                         case_name);

/// What a test looks at besides the end.
void no_queue_pairs_at_the_left(RailsWorld& w, size_t rails) {
  for (size_t i = 0; i < rails; ++i) {
    w.fabric.refusals.push_back({"create_qp", 1, kForEver, ENOMEM, w.left.rails[i].fake});
  }
}

TEST(Resource, NoQueuePairAtOneSide_BothSidesSayWhat) {
  for (const bool left_sends : {true, false}) {
    RailsWorld w(1);
    w.open();
    no_queue_pairs_at_the_left(w, 1);
    (left_sends ? w.left : w.right).write("x");
    ASSERT_TRUE(w.run(10'000)) << (left_sends ? "initiator" : "responder") << " waits";
    const Node& sender = left_sends ? w.left : w.right;
    const std::string text =
        left_sends ? "cannot make a queue pair: ENOMEM" : "the peer cannot make a queue pair: ENOMEM";
    EXPECT_EQ(sender.error, "no rail left; " + text + "; ");
    for (int i = 0; i < 500; ++i) w.step(1'000'000);  // the other side decides a little later
    ASSERT_EQ(w.left.rails[0].said.size(), 1u);
    EXPECT_NE(w.left.rails[0].said[0].find("max_qp"), std::string::npos) << w.left.rails[0].said[0];
    EXPECT_EQ(w.right.rails[0].said.size(), left_sends ? 0u : 1u) << "it wants nothing when it sends nothing";
    EXPECT_EQ(w.left.rails[0].port.resources().rails_missing, 1u);
    EXPECT_GE(w.left.rails[0].port.resources().failures[static_cast<size_t>(engine::Object::kQueuePair)], 4u);
    EXPECT_GE(w.right.rails[0].port.resources().refused_by_peers, 4u);
    EXPECT_FALSE(w.right.rails[0].answers) << "a peer that refuses is not busy";
  }
}

TEST(Resource, NoQueuePairAtTheResponder_TheInitiatorLearns) {
  RailsWorld w(1);
  w.open();
  w.fabric.refusals = {{"create_qp", 1, kForEver, ENOMEM, w.right.rails[0].fake}};
  w.left.write("x");
  ASSERT_TRUE(w.run(10'000));
  EXPECT_EQ(w.left.error, "no rail left; the peer cannot make a queue pair: ENOMEM; ");
}

TEST(Resource, SecondRailMissing_TheJobRunsOnTheFirstAndItIsSaid) {
  RailsWorld w(2);
  w.open();
  w.fabric.refusals = {{"create_qp", 1, kForEver, EAGAIN, w.left.rails[1].fake}};
  w.left.write("x");
  ASSERT_TRUE(w.run(1'000));
  for (int i = 0; i < 2'000; ++i) w.step(1'000'000);
  for (const Node* node : {&w.left, &w.right}) {
    ASSERT_EQ(node->rails[1].said.size(), 1u) << "once, at both ends";
    EXPECT_EQ(node->rails[1].state, NodeRail::State::kDown);
    EXPECT_TRUE(node->rails[0].said.empty());
  }
  EXPECT_EQ(w.left.rails[1].down_text, "cannot make a queue pair: EAGAIN");
  EXPECT_EQ(w.right.rails[1].down_text, "the peer cannot make a queue pair: EAGAIN");
}

TEST(Resource, RoomAgain_TheRailJoins) {
  RailsWorld w(2);
  w.open();
  no_queue_pairs_at_the_left(w, 2);
  w.left.write("x");
  for (int i = 0; i < 1'000; ++i) w.step(1'000'000);
  EXPECT_FALSE(w.left.any_up());
  w.fabric.refusals.clear();
  w.left.error.clear();
  w.left.alone_since_ns = 0;
  ASSERT_TRUE(w.run(1'000));
  EXPECT_TRUE(w.left.finished());
  EXPECT_EQ(w.left.rails[0].endpoint.lack.tries, 0u);
}

TEST(Resource, AnyHostMemoryMissing_IsSaidWithItsLimit) {
  engine::Lack lack;
  lack.object = engine::Object::kMemory;
  lack.error = ENOMEM;
  char text[400];
  engine::resource_remedy(lack, 64 * 1024, text, sizeof text);
  EXPECT_NE(std::string(text).find("(ulimit -l) is 64 KiB: raise it"), std::string::npos) << text;
  engine::resource_remedy(lack, UINT64_MAX, text, sizeof text);
  EXPECT_NE(std::string(text).find("not limited"), std::string::npos) << text;
  lack.error = 12345;
  engine::resource_text(lack, text, sizeof text);
  EXPECT_STREQ(text, "cannot register memory: errno 12345");
}

/// The arena asks for less before it gives up.
TEST(Resource, LittleLockedMemory_SmallerChunks) {
  FakeFabric fabric;
  FakeDevice& fake = fabric.add_device("dev");
  engine::Device device;
  ASSERT_TRUE(device.open(fake_verbs(), &fake));
  fabric.refusals = {{"reg_mr", 1, 5, ENOMEM}};
  const engine::Region region = device.arena().take(10'000);
  ASSERT_NE(region.address, nullptr);
  EXPECT_EQ(device.arena().pinned(), 16384u) << "512 KiB halved five times";
  fabric.refusals = {{"reg_mr", 1, kForEver, ENOMEM}};
  EXPECT_NE(device.arena().take(4096).address, nullptr) << "room is left in the chunk";
  errno = 0;
  EXPECT_EQ(device.arena().take(10'000).address, nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_TRUE(device.close());
  EXPECT_TRUE(fabric.mrs.empty());
}

// ---- receive buffers

engine::Config large_buffers() {
  engine::Config config = RailsWorld::config();
  config.receive_bytes = 65536;
  config.receive_depth = 512;
  config.send_depth = 128;
  return config;
}

/// Two rails of an idle process, as the parameters have them: what was 69.6 MB.
TEST(Pinned, IdleProcess_AtMostEightMegabytes) {
  RailsWorld w(2);
  engine::Config config = large_buffers();
  config.send_depth = 128;
  w.open(config);
  size_t pinned = 0;
  for (NodeRail& rail : w.left.rails) pinned += rail.device.arena().pinned();
  EXPECT_LE(pinned, 8'000'000u);
  EXPECT_GT(pinned, 1'000'000u) << "it is counted";
}

/// The ring of a connection; what all connections share grows with use, not with peers.
TEST(Pinned, ConnectedPeer_AtMost64KiBPerRail) {
  RailsWorld w(1);
  const engine::Config config = large_buffers();
  w.open(config);
  EXPECT_LE(size_t{config.send_depth} * config.slot_bytes, 65536u);
  w.left.write("x");
  const size_t before = w.left.rails[0].device.arena().pinned();
  ASSERT_TRUE(w.run(1'000));
  EXPECT_LE(w.left.rails[0].device.arena().pinned() - before, 65536u);
}

/// A burst that leaves fewer than a quarter of the buffers: the device says so, and there are twice as many.
TEST(Receives, LimitReached_BuffersDouble) {
  RailsWorld w(1);
  w.open(large_buffers());
  engine::Srq& srq = w.right.rails[0].port.srq();
  const uint32_t first = srq.made();
  EXPECT_LT(first, 40u);
  w.left.write("hello");
  ASSERT_TRUE(w.run(1'000));
  EXPECT_EQ(srq.made(), first) << "a message now and then needs no more";
  for (uint32_t burst = 0; burst < 2; ++burst) {
    for (uint32_t i = 0; i < 2 * first; ++i) w.left.write("burst");
    w.left.pump();
    w.fabric.run();
    ASSERT_TRUE(w.run(1'000));
  }
  EXPECT_GE(srq.made(), 2 * first);
  EXPECT_EQ(w.right.received.size(), 1 + 4 * first);
}

/// Time passes in both processes; control threads serve everything but more receive buffers.
void live_without_growth(RailsWorld& w) {
  for (int i = 0; i < 2'000; ++i) {
    fake_now() += 100'000;
    for (Node* node : {&w.left, &w.right}) {
      node->pump();
      engine::Port& port = node->rails[0].port;
      while (port.addresses().lane().run_one() || port.upkeep().run_one() || port.setups().run_one() ||
             port.stops().run_one() || port.queue_pairs().run_one()) {
      }
    }
    w.fabric.run();
    w.left.poll();
    w.right.poll();
  }
}

/// Megabytes are zeroed and pinned: the progress function waits for none of it, and messages go on meanwhile.
TEST(Receives, LimitReached_AControlThreadRegistersMore) {
  RailsWorld w(1);
  engine::Config config = large_buffers();
  config.control = engine::ControlMode::kDeferred;
  w.open(config);
  engine::Port& port = w.right.rails[0].port;
  const uint32_t first = port.srq().made();
  w.left.write("hello");
  live_without_growth(w);
  const size_t pinned = w.right.rails[0].device.arena().pinned();
  for (uint32_t i = 0; i < 8 * first; ++i) w.left.write("burst");
  live_without_growth(w);
  EXPECT_EQ(w.right.received.size(), 1 + 8 * first);
  EXPECT_EQ(w.right.rails[0].device.arena().pinned(), pinned);
  EXPECT_EQ(port.srq().made(), first);
  EXPECT_EQ(port.registrations().pending(), 1u) << "one at a time";
  ASSERT_TRUE(port.registrations().run_one());
  live_without_growth(w);
  EXPECT_EQ(port.srq().made(), 2 * first);
  EXPECT_GT(w.right.rails[0].device.arena().pinned(), pinned);
}

/// A port that closes meanwhile loses nothing: what was registered is deregistered with the rest.
TEST(Receives, PortClosesWhileMoreAreRegistered_NothingIsLeft) {
  for (const bool registered : {false, true}) {
    RailsWorld w(1);
    engine::Config config = large_buffers();
    config.control = engine::ControlMode::kDeferred;
    w.open(config);
    engine::Port& port = w.right.rails[0].port;
    for (uint32_t i = 0; i < 8 * port.srq().made(); ++i) w.left.write("burst");
    live_without_growth(w);
    ASSERT_EQ(port.registrations().pending(), 1u);
    EXPECT_TRUE(!registered || port.registrations().run_one());
    w.right.close();
    w.right.rails[0].open = w.right.rails[0].joined = false;
    EXPECT_TRUE(w.right.rails[0].device.close());
  }
}

TEST(Receives, NoMemoryForMore_MessagesGoOnWithTheFew) {
  RailsWorld w(1);
  w.open(large_buffers());
  w.left.write("hello");
  ASSERT_TRUE(w.run(1'000));
  engine::Srq& srq = w.right.rails[0].port.srq();
  w.fabric.refusals = {{"reg_mr", 1, kForEver, ENOMEM}};
  const uint32_t first = srq.made();
  for (uint32_t i = 0; i < 8 * first; ++i) w.left.write("burst");
  ASSERT_TRUE(w.run(10'000));
  EXPECT_EQ(w.right.received.size(), 1 + 8 * first);
  EXPECT_GE(w.right.rails[0].port.resources().failures[static_cast<size_t>(engine::Object::kMemory)], 1u);
  EXPECT_TRUE(w.left.error.empty());
}

/// All of them may be used, and each is its own.
TEST(Receives, GrownToTheEnd_BuffersAreDisjoint) {
  RailsWorld w(1);
  w.open(large_buffers());
  engine::Srq& srq = w.left.rails[0].port.srq();
  for (engine::SrqGrowth growth; srq.plan(growth);) {
    growth.run(growth);
    ASSERT_NE(growth.chunk, nullptr);
    srq.grown(growth);
  }
  EXPECT_EQ(srq.made(), srq.depth());
  std::set<char*> starts;
  for (uint32_t i = 0; i < srq.depth(); ++i) starts.insert(srq.buffer(i));
  ASSERT_EQ(starts.size(), srq.depth());
  const char* before = nullptr;
  for (const char* start : starts) {
    EXPECT_TRUE(before == nullptr || start - before >= 65536);
    before = start;
  }
}

/// A sender that does not wait for ever for a buffer finds all of them.
TEST(Receives, BoundedRetries_AllBuffersFromTheStart) {
  RailsWorld w(1);
  engine::Config config = large_buffers();
  config.qp.rnr_retry = 3;
  w.open(config);
  EXPECT_EQ(w.left.rails[0].port.srq().made(), 512u);
}

}  // namespace
}  // namespace bfo::test
