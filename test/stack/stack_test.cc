// SPDX-License-Identifier: BSD-3-Clause
//
// stack_test.cc: a fixed number of runs of every configuration, the corpus, and what the simulator promises
// of itself: a run depends on its seed alone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "test/stack/shrink.h"
#include "test/stack/world.h"

namespace bfo::stack {
namespace {

Result run(const std::string& config, uint64_t seed) {
  Scenario s;
  EXPECT_TRUE(generate(seed, config, s)) << config;
  World world(s);
  return world.run();
}

class Configuration : public testing::TestWithParam<std::string> {};

TEST_P(Configuration, NoRunBreaksAPromise) {
  for (uint64_t seed = 1; seed <= short_runs(GetParam()); ++seed) {
    const Result r = run(GetParam(), seed);
    EXPECT_FALSE(r.failed) << "bfo-stack --config " << GetParam() << " --seed " << seed
                           << " --trace: " << r.violation;
  }
}
INSTANTIATE_TEST_SUITE_P(All, Configuration, testing::ValuesIn(config_names()),
                         [](const auto& param) { return param.param; });

TEST(Stack, FirstMessageGoesThroughARealHandshake) {
  const Result r = run("first", 1);
  EXPECT_FALSE(r.failed) << r.violation;
  EXPECT_EQ(r.messages, 1u);
  EXPECT_GE(r.packets, 5u);  // REQ, REP, probe, READY and the message
}

TEST(Stack, OneSeedIsOneRun) {
  for (const char* const config : {"default", "datagrams", "control", "device"}) {
    const Result a = run(config, 5);
    const Result b = run(config, 5);
    EXPECT_EQ(a.trace_hash, b.trace_hash) << config;
    EXPECT_EQ(a.events, b.events) << config;
    EXPECT_NE(a.trace_hash, run(config, 6).trace_hash) << config;
  }
}

/// Runs of "streams" are other ones when no queue is left alone.
TEST(Stack, QueuesAreLeftAloneInStreams) {
  int others = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Scenario s;
    ASSERT_TRUE(generate(seed, "streams", s));
    const Result moderated = World(s).run();
    s.machine.poll_gap_ns = 0;
    others += moderated.trace_hash != World(s).run().trace_hash;
  }
  EXPECT_GE(others, 2);
}

/// Runs of "onekey" lose READs of messages that have one key: more messages begin another round.
TEST(Stack, MessagesWithOneKeyAreRestarted) {
  int more = 0, fewer = 0;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    Scenario s;
    ASSERT_TRUE(generate(seed, "onekey", s));
    const uint64_t with = World(s).run().restarts;
    s.machine.reads_in_time = 255;
    const uint64_t without = World(s).run().restarts;
    more += with > without;
    fewer += with < without;
  }
  EXPECT_GT(more, fewer + 5);
}

TEST(Stack, FaultsHappen) {
  uint64_t failovers = 0;
  uint64_t restarts = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const Result r = run("storm", seed);
    failovers += r.failovers;
    restarts += r.restarts;
  }
  EXPECT_GE(failovers, 20u);
  EXPECT_GE(restarts, 2u);
}

/// Lines "CONFIG SEED CUT # why": every run that once broke a promise, or that notices a change of the
/// product.
TEST(Stack, CorpusIsGood) {
  const char* const source = std::getenv("BFO_SRCDIR");
  ASSERT_NE(source, nullptr);
  std::ifstream file(std::string(source) + "/test/stack/corpus.txt");
  ASSERT_TRUE(file.good());
  std::string line;
  int runs = 0;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string config;
    uint64_t seed = 0;
    ASSERT_TRUE(words >> config >> seed) << line;
    Scenario s;
    ASSERT_TRUE(generate(seed, config, s)) << line;
    Cut c = whole(s);
    std::string option;
    std::string value;
    while (words >> option && option != "#")
      ASSERT_TRUE(words >> value && parse_option(option, value, c)) << line;
    const Scenario small = cut(s, c);
    World world(small);
    const Result r = world.run();
    EXPECT_FALSE(r.failed) << "bfo-stack --config " << config << " --seed " << seed << print(c)
                           << " --trace: " << r.violation;
    ++runs;
  }
  EXPECT_GE(runs, 1);
}

}  // namespace
}  // namespace bfo::stack
