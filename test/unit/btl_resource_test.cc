// SPDX-License-Identifier: BSD-3-Clause
//
// btl_resource_test.cc: every object that a rail is made of is missing once, for a while or for good, at the
// start or when a rail reconnects. Everything ends in delivery or in an error with a sentence, never in a
// wait without end.
#include "btl/verbs/engine/connect/resource.h"

#include "btl/verbs/engine/drain/drain.h"
#include "btl/verbs/engine/progress/contract.h"
#include "btl/verbs/engine/rail/evidence.h"
#include "test/unit/btl_rails_world.h"
#include "test/unit/btl_world.h"

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
  TestFabric::Refusal refusal{shortage.verb, shortage.first, shortage.for_good ? kForEver : shortage.first,
                              ENOMEM};
  refusal.device = shortage.one_device ? w.left.rails[0].hca : nullptr;
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
    w.fabric.refusals.push_back({"create_qp", 1, kForEver, ENOMEM, w.left.rails[i].hca});
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
  w.fabric.refusals = {{"create_qp", 1, kForEver, ENOMEM, w.right.rails[0].hca}};
  w.left.write("x");
  ASSERT_TRUE(w.run(10'000));
  EXPECT_EQ(w.left.error, "no rail left; the peer cannot make a queue pair: ENOMEM; ");
}

TEST(Resource, SecondRailMissing_TheJobRunsOnTheFirstAndItIsSaid) {
  RailsWorld w(2);
  w.open();
  w.fabric.refusals = {{"create_qp", 1, kForEver, EAGAIN, w.left.rails[1].hca}};
  w.left.write("x");
  ASSERT_TRUE(w.run(1'000));
  for (int i = 0; i < 2'000; ++i) w.step(1'000'000);
  for (const Node* node : {&w.left, &w.right}) {
    ASSERT_EQ(node->rails[1].said.size(), 1u) << "once, at both ends";
    EXPECT_EQ(node->rails[1].state, NodeRail::State::kDown);
    EXPECT_TRUE(node->rails[0].said.empty());
  }
  // What waited has gone over the first one: no loss. At the end of the job it is told as never up.
  for (const Node* node : {&w.left, &w.right}) {
    EXPECT_EQ(node->rails[1].down_text.compare(0, 5, "late:"), 0) << node->rails[1].down_text;
  }
  char why[96];
  EXPECT_NE(engine::never_up(w.left.rails[1].endpoint, why, sizeof why), 0u);
  EXPECT_STREQ(why, "cannot make a queue pair: EAGAIN");
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
  for (const NodeRail& rail : w.left.rails) {
    if (rail.state == NodeRail::State::kUp) {
      EXPECT_EQ(rail.endpoint.shortage().tries, 0u);
    }
  }
  EXPECT_TRUE(w.left.any_up());
}

TEST(Resource, AnyHostMemoryMissing_IsSaidWithItsLimit) {
  engine::Shortage shortage;
  shortage.object = engine::Object::kMemory;
  shortage.error = ENOMEM;
  char text[400];
  engine::resource_remedy(shortage, 64 * 1024, text, sizeof text);
  EXPECT_NE(std::string(text).find("(ulimit -l) is 64 KiB: raise it"), std::string::npos) << text;
  engine::resource_remedy(shortage, UINT64_MAX, text, sizeof text);
  EXPECT_NE(std::string(text).find("not limited"), std::string::npos) << text;
  shortage.error = 12345;
  engine::resource_text(shortage, text, sizeof text);
  EXPECT_STREQ(text, "cannot register memory: errno 12345");
}

/// The arena asks for less before it gives up.
TEST(Resource, LittleLockedMemory_SmallerChunks) {
  TestFabric fabric;
  stack::Device& hca = fabric.add_device("dev");
  engine::Device device;
  ASSERT_TRUE(device.open(test_verbs(), &hca));
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
  EXPECT_EQ(fabric.keys_live, 0u);
}

}  // namespace
}  // namespace bfo::test
