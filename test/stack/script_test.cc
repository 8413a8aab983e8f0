// SPDX-License-Identifier: BSD-3-Clause
//
// script_test.cc: runs as text, and those that are kept in `scripts`: each of them once broke a promise, or
// notices a change of a cell of the PML's tables (cell_catches.txt).
#include "test/stack/script.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "test/stack/world.h"

namespace bfo::stack {
namespace {

TEST(Script, WrittenAndReadBack_SameTrace) {
  for (const std::string& config : config_names()) {
    if (short_runs(config) < 4) continue;  // they take long
    Scenario s;
    ASSERT_TRUE(generate(5, config, s));
    if (!s.machine.rates.empty()) continue;  // a script has none
    Scenario back;
    std::string error;
    ASSERT_TRUE(parse_script(script_of(s), back, error)) << config << ": " << error;
    EXPECT_EQ(script_of(back), script_of(s)) << config;
    const uint64_t generated = World(s).run().trace_hash;
    EXPECT_EQ(World(back).run().trace_hash, generated) << config;
  }
}

TEST(Script, UnknownWord_NamesTheLine) {
  Scenario s;
  std::string error;
  EXPECT_FALSE(parse_script("config x\nmachine procs=2\nfault explode t=1\n", s, error));
  EXPECT_EQ(error, "line 3: unknown fault \"explode\"");
  EXPECT_FALSE(parse_script("machine procs=2 colour=1\n", s, error));
  EXPECT_EQ(error, "line 1: unknown word \"colour\"");
}

TEST(Script, NamesOutsideTheMachine_AreRefused) {
  Scenario s;
  std::string error;
  EXPECT_FALSE(parse_script("machine procs=2\ncomm ctx=0\npair src=0 dst=2\n", s, error));
  EXPECT_FALSE(parse_script("machine procs=2\ncomm ctx=0 after=1\n", s, error));
  EXPECT_FALSE(parse_script("machine procs=2 rails=9\n", s, error));
  EXPECT_FALSE(parse_script("machine procs=two\n", s, error));
  EXPECT_FALSE(parse_script("machine procs=2\nfault break p=0 q=2\n", s, error));
  EXPECT_TRUE(parse_script("machine procs=2\ncomm ctx=0\npair src=0 dst=1\n", s, error)) << error;
}

TEST(Script, EveryOneThatIsKept_IsGood) {
  const char* const source = std::getenv("BFO_SRCDIR");
  ASSERT_NE(source, nullptr);
  int n = 0;
  for (const auto& file : std::filesystem::directory_iterator(std::string(source) + "/test/stack/scripts")) {
    if (file.path().extension() != ".script") continue;
    std::ifstream in(file.path());
    std::stringstream text;
    text << in.rdbuf();
    Scenario s;
    std::string error;
    ASSERT_TRUE(parse_script(text.str(), s, error)) << file.path() << ": " << error;
    const Result r = World(s).run();
    EXPECT_FALSE(r.failed) << "bfo-stack --script " << file.path() << " --trace: " << r.violation;
    ++n;
  }
  EXPECT_GE(n, 20);
}

}  // namespace
}  // namespace bfo::stack
