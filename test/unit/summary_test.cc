// SPDX-License-Identifier: BSD-3-Clause
//
// summary_test.cc: the line at the end of a job: silent when all was well, added up over the processes of a
// node, and unmoved by files that are not theirs.
#include "pml/bfo/glue/summary.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "contrib/softhca/fault/fuzz_corpus.h"
#include "test/unit/fuzz_facts.h"

namespace bfo::glue {
namespace {

using test::facts_of_random;
using test::read_and_print;

constexpr uint64_t kMs = 1'000'000;
std::vector<std::string> lines;

void keep(const char* line) {
  lines.emplace_back(line);
}

bool has(const std::string& text) {
  return lines.size() == 1 && lines[0].find(text) != std::string::npos;
}

EventNames rail(const char* device) {
  EventNames names;
  names.device = device;
  names.port = 1;
  return names;
}

/// A folder that the processes of a node share.
class SummaryTest : public testing::Test {
 protected:
  void SetUp() override {
    lines.clear();
    ASSERT_NE(mkdtemp(folder_), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const char* folder() const { return folder_; }

 private:
  char folder_[32] = "/tmp/bfo-summary-XXXXXX";
};

TEST_F(SummaryTest, NothingHappened_NothingIsSaidOrWritten) {
  Summary first(keep);
  Summary second(keep);
  first.open(folder(), 0, true);
  second.open(folder(), 1, false);
  second.collect(0, 0, 5 * kMs);
  first.collect(0, 0, 5 * kMs);
  second.finish("n");
  first.finish("n");
  EXPECT_TRUE(lines.empty());
  EXPECT_TRUE(std::filesystem::is_empty(folder()));
}

TEST_F(SummaryTest, FewerRailsThanExpected_AreInTheLine) {
  Summary first(keep);
  Summary second(keep);
  first.open(folder(), 0, true);
  second.open(folder(), 1, false);
  second.closed(rail("a"), "PORT_ERR", false, 1 * kMs);
  second.down(rail("a"), "PORT_ERR", Away::kNo, true, 1 * kMs);
  second.rails(1, 2);
  first.rails(2, 2);
  second.collect(0, 0, 5 * kMs);
  first.collect(0, 0, 5 * kMs);
  first.finish("n");
  EXPECT_TRUE(has("; 1 of 2 rails was up at the end; a rail was missing for"));
}

TEST_F(SummaryTest, NothingHappenedToFewRails_NothingIsSaid) {
  Summary s(keep);
  s.open(folder(), 0, true);
  s.rails(1, 2);
  s.collect(0, 0, 5 * kMs);
  s.finish("n");
  EXPECT_TRUE(lines.empty()) << "the line at the start has said it";
}

TEST_F(SummaryTest, PeersThatLeaveInOrder_AreNoLoss) {
  Summary s(keep);
  s.open(folder(), 0, true);
  EXPECT_EQ(s.left(Away::kNo, 1 * kMs), Away::kNo);
  s.collect(0, 0, 5 * kMs);
  s.finish("n");
  EXPECT_TRUE(lines.empty());
}

TEST_F(SummaryTest, NotOpened_IsSilent) {
  Summary s(keep);
  s.down(rail("a0"), "x", Away::kNo, true, kMs);
  s.collect(0, 0, 5 * kMs);
  s.finish("n");
  EXPECT_TRUE(lines.empty());
}

TEST_F(SummaryTest, RailLostAndBack_TimeBytesAndFinalCause) {
  Summary s(keep);
  s.open(folder(), 0, true);
  Away away = s.down(rail("a1"), "WR_FLUSH_ERR", Away::kNo, true, 100 * kMs);
  EXPECT_EQ(away, Away::kLost);
  s.closed(rail("a1"), "RETRY_EXC_ERR", false, 101 * kMs);
  away = s.down(rail("a1"), "cannot make a queue pair: ENOMEM", away, true, 150 * kMs);  // in vain
  away = s.up(rail("a1"), away, 350 * kMs);
  EXPECT_EQ(away, Away::kNo);
  EXPECT_EQ(s.up(rail("a1"), away, 400 * kMs), Away::kNo);  // it was suspect meanwhile
  s.collect(77, 0, 900 * kMs);
  s.finish("host3");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0],
            "bfo: summary of host host3: 1 rail lost (a1 port 1: RETRY_EXC_ERR), 1 came up later; a rail was "
            "missing for 0.250 s, 77 bytes were sent again (seen by 1 process)");
}

TEST_F(SummaryTest, RailThatNeverCameUp_IsNamedWithItsReason_UnlessItCameAfterAll) {
  for (const bool late : {false, true}) {
    lines.clear();
    Summary s(keep);
    s.open(folder(), 0, true);
    Away away = s.down(rail("a0"), "cannot make a queue pair: ENOMEM", Away::kNo, false, 100 * kMs);
    EXPECT_EQ(away, Away::kNever);
    away = s.down(rail("a0"), "cannot make a queue pair: ENOMEM", away, false, 200 * kMs);
    if (late) away = s.up(rail("a0"), away, 600 * kMs);
    s.collect(0, 0, 1100 * kMs);
    s.finish("n");
    EXPECT_EQ(has("1 rail never came up (a0 port 1: cannot make a queue pair: ENOMEM);"), !late);
    EXPECT_EQ(has(": 1 came up later; a rail was missing for 0.500 s"), late);
    EXPECT_EQ(has("missing for 1.000 s"), !late);
  }
}

TEST_F(SummaryTest, TwoRailsMissing_TimeIsThatWithAnyOfThem) {
  Summary s(keep);
  s.open(folder(), 0, true);
  const Away one = s.down(rail("a0"), "x", Away::kNo, true, 100 * kMs);
  const Away two = s.down(rail("a1"), "y", Away::kNo, true, 200 * kMs);
  s.up(rail("a0"), one, 300 * kMs);
  s.left(two, 400 * kMs);
  s.collect(0, 0, 900 * kMs);
  s.finish("n");
  EXPECT_TRUE(has("missing for 0.300 s"));
  EXPECT_TRUE(has("2 rails lost (a0 port 1: x; a1 port 1: y)"));
}

TEST_F(SummaryTest, ProcessesOfANode_AreAddedUpByTheFirst) {
  Summary first(keep);
  Summary second(keep);
  first.open(folder(), 0, true);
  second.open(folder(), 3, false);
  first.down(rail("a1"), "the peer reported the rail down", Away::kNo, true, 100 * kMs);
  first.closed(rail("a1"), "the peer reported the rail down", true, 101 * kMs);
  second.down(rail("a1"), "IBV_EVENT_PORT_ERR", Away::kNo, true, 90 * kMs);
  second.closed(rail("a1"), "IBV_EVENT_PORT_ERR", false, 91 * kMs);
  second.collect(1000, 1, 190 * kMs);
  first.collect(24, 0, 190 * kMs);
  second.finish("n");
  EXPECT_TRUE(lines.empty());
  first.finish("n");
  EXPECT_TRUE(
      has("2 rails lost (a1 port 1: IBV_EVENT_PORT_ERR), 1 peer given up; a rail was missing for 0.100 s, "
          "1024 bytes were sent again (seen by 2 processes)"))
      << lines[0];
}

TEST_F(SummaryTest, ProcessThatIsGoneWithItsFile_CountsWithWhatWasReadBefore) {
  Summary first(keep);
  first.open(folder(), 0, true);
  {
    Summary second(keep);
    second.open(folder(), 1, false);
    second.down(rail("a1"), "x", Away::kNo, true, 100 * kMs);
    second.collect(5, 0, 190 * kMs);
  }
  first.collect(0, 0, 200 * kMs);
  std::filesystem::remove(std::string(folder()) + "/bfo-facts.1");
  first.collect(0, 0, 200 * kMs);
  first.finish("n");
  EXPECT_TRUE(has("1 rail lost"));
}

TEST_F(SummaryTest, NoFolder_EachProcessSpeaksForItself) {
  for (const char* where : {static_cast<const char*>(nullptr), "/nowhere/at/all"}) {
    lines.clear();
    Summary s(keep);
    s.open(where, 4, false);
    s.down(rail("a1"), "x", Away::kNo, true, 100 * kMs);
    s.collect(0, 0, 200 * kMs);
    s.finish("n");
    EXPECT_TRUE(has("1 rail lost"));
  }
}

TEST_F(SummaryTest, ForeignFiles_AreNotBelieved) {
  const std::string base = std::string(folder()) + "/bfo-facts.";
  std::ofstream(base + "7") << "short";
  std::ofstream(base + "8") << std::string(sizeof(Facts), 'x');
  Facts facts{};
  facts.magic = Facts::kMagic;
  facts.rank = 9;
  facts.lost = 1;
  facts.n_ports = 1000;
  std::ofstream(base + "9").write(reinterpret_cast<const char*>(&facts), sizeof(facts));
  ASSERT_EQ(mkfifo((base + "10").c_str(), 0600), 0);
  ASSERT_EQ(symlink("/dev/zero", (base + "11").c_str()), 0);
  facts.n_ports = 1;
  memset(facts.ports, 'y', sizeof(facts.ports));
  std::ofstream(base + "12").write(reinterpret_cast<const char*>(&facts), sizeof(facts));
  Summary s(keep);
  s.open(folder(), 0, true);
  s.collect(0, 0, 200 * kMs);
  s.finish("n");
  EXPECT_TRUE(has("1 rail lost"));
}

TEST_F(SummaryTest, ManyPorts_AreCutAndCounted) {
  Summary s(keep);
  s.open(folder(), 0, true);
  for (int i = 0; i < 20; ++i)
    s.down(rail(("device" + std::to_string(i)).c_str()), "x", Away::kNo, true, kMs);
  s.collect(0, 0, 200 * kMs);
  s.finish(std::string(2000, 'h').c_str());
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_LT(lines[0].size(), 1024u);
  lines.clear();
  char line[1024];
  format_summary({s.facts()}, "n", 0, line, sizeof(line));
  EXPECT_NE(
      std::string(line).find("20 rails lost (device0 port 1: x; device1 port 1: x; device2 port 1: x; and 5 "
                             "more ports)"),
      std::string::npos)
      << line;
}

TEST(Facts, NamesOfOtherProcesses_ArePrintable) {
  Facts facts{};
  facts.magic = Facts::kMagic;
  facts.n_ports = 1;
  facts.lost = facts.ports[0].lost = 1;
  strcpy(facts.ports[0].device, "a\x1b[2Jb\n");
  memset(facts.ports[0].cause, '\xff', sizeof(facts.ports[0].cause));
  Facts read;
  ASSERT_TRUE(read_facts(&facts, sizeof(facts), &read));
  EXPECT_STREQ(read.ports[0].device, "a?[2Jb?");
  EXPECT_EQ(std::string(read.ports[0].cause), std::string(sizeof(facts.ports[0].cause) - 1, '?'));
  EXPECT_FALSE(read_facts(&facts, sizeof(facts) - 1, &read));
}

TEST(Facts, DamagedBytesFromFixedSeeds_MakeOneLine) {
  std::mt19937 rng(1);
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::uint8_t> bytes = facts_of_random(rng);
    for (unsigned n = rng() % 4; n != 0; --n) bytes[rng() % bytes.size()] = static_cast<std::uint8_t>(rng());
    if (rng() % 8 == 0) bytes.resize(rng() % bytes.size());
    read += read_and_print(bytes.data(), bytes.size());
  }
  EXPECT_GT(read, 10'000);
}

TEST(Facts, Corpus_HasNoEffectThatIsWrong) {
  const auto inputs = test::corpus("facts");
  EXPECT_GT(inputs.size(), 15u);
  int read = 0;
  for (const auto& input : inputs) read += read_and_print(input.data(), input.size());
  EXPECT_GT(read, 10);
}

}  // namespace
}  // namespace bfo::glue
