// SPDX-License-Identifier: BSD-3-Clause
//
// summary_test.cc: the line at the end of a job: silent when all was well, added up over the processes of a
// host, and unmoved by records that are not theirs.
#include "pml/bfo/glue/summary.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
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

/// One process of a host: its page and what it has seen.
struct Process {
  Process(const char* folder, unsigned place, unsigned places) {
    page.open(folder, place, places, sizeof(Facts));
    claims.open(folder, place);
    s.open(page, static_cast<int>(place));
  }
  HostPage page;
  Claims claims;
  Summary s{keep, claims};
};

/// A folder that the processes of a host share.
class SummaryTest : public testing::Test {
 protected:
  void SetUp() override {
    lines.clear();
    ASSERT_NE(mkdtemp(folder_), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const char* folder() const { return folder_; }
  /// The next processes are those of another job.
  void forget() const {
    for (const char* const file : {"/bfo-page", "/bfo-claims"})
      std::filesystem::remove(std::string(folder()) + file);
  }

 private:
  char folder_[32] = "/tmp/bfo-summary-XXXXXX";
};

TEST_F(SummaryTest, NothingHappened_NothingIsSaid) {
  Process first(folder(), 0, 2);
  Process second(folder(), 1, 2);
  second.s.collect(0, 0, 5 * kMs);
  first.s.collect(0, 0, 5 * kMs);
  second.s.finish("n");
  first.s.finish("n");
  EXPECT_TRUE(lines.empty());
}

TEST_F(SummaryTest, FewerRailsThanExpected_AreInTheLine) {
  Process first(folder(), 0, 2);
  Process second(folder(), 1, 2);
  second.s.closed(rail("a"), "PORT_ERR", false);
  second.s.down(rail("a"), "PORT_ERR", Away::kNo, true, 1 * kMs);
  second.s.rails(1, 2);
  first.s.rails(2, 2);
  second.s.collect(0, 0, 5 * kMs);
  first.s.collect(0, 0, 5 * kMs);
  first.s.finish("n");
  EXPECT_TRUE(has("; 1 of 2 rails was up at the end; a rail was missing for"));
}

TEST_F(SummaryTest, NothingHappenedToFewRails_NothingIsSaid) {
  Process process(folder(), 0, 1);
  Summary& s = process.s;
  s.rails(1, 2);
  s.collect(0, 0, 5 * kMs);
  s.finish("n");
  EXPECT_TRUE(lines.empty()) << "the line at the start has said it";
}

TEST_F(SummaryTest, PeersThatLeaveInOrder_AreNoLoss) {
  Process process(folder(), 0, 1);
  Summary& s = process.s;
  EXPECT_EQ(s.left(rail("a0"), Away::kNo, 1 * kMs), Away::kNo);
  s.collect(0, 0, 5 * kMs);
  s.finish("n");
  EXPECT_TRUE(lines.empty());
}

TEST_F(SummaryTest, NotOpened_IsSilent) {
  Claims claims;
  Summary s(keep, claims);
  s.down(rail("a0"), "x", Away::kNo, true, kMs);
  s.collect(0, 0, 5 * kMs);
  s.finish("n");
  EXPECT_TRUE(lines.empty());
}

TEST_F(SummaryTest, RailLostAndBack_TimeBytesAndFinalCause) {
  Process process(folder(), 0, 1);
  Summary& s = process.s;
  Away away = s.down(rail("a1"), "WR_FLUSH_ERR", Away::kNo, true, 100 * kMs);
  EXPECT_EQ(away, Away::kLost);
  s.closed(rail("a1"), "RETRY_EXC_ERR", false);
  away = s.down(rail("a1"), "cannot make a queue pair: ENOMEM", away, true, 150 * kMs);  // in vain
  away = s.up(rail("a1"), away, 350 * kMs);
  EXPECT_EQ(away, Away::kNo);
  EXPECT_EQ(s.up(rail("a1"), away, 400 * kMs), Away::kNo);  // it was suspect meanwhile
  s.collect(77, 0, 900 * kMs);
  s.finish("host3");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0],
            "bfo: summary of host host3: 1 connection lost over 1 port (a1 port 1: RETRY_EXC_ERR), 1 came up "
            "later; a rail was missing for 0.250 s, 77 bytes were sent again (seen by 1 process)");
}

TEST_F(SummaryTest, RailThatNeverCameUp_IsNamedWithItsReason_UnlessItCameAfterAll) {
  for (const bool late : {false, true}) {
    lines.clear();
    Process process(nullptr, 0, 1);
    Summary& s = process.s;
    Away away = s.down(rail("a0"), "cannot make a queue pair: ENOMEM", Away::kNo, false, 100 * kMs);
    EXPECT_EQ(away, Away::kNever);
    away = s.down(rail("a0"), "cannot make a queue pair: ENOMEM", away, false, 200 * kMs);
    if (late) away = s.up(rail("a0"), away, 600 * kMs);
    s.collect(0, 0, 1100 * kMs);
    s.finish("n");
    EXPECT_EQ(has("1 connection never came up over 1 port (a0 port 1: cannot make a queue pair: ENOMEM);"),
              !late);
    EXPECT_EQ(has(": 1 came up later; a rail was missing for 0.500 s"), late);
    EXPECT_EQ(has("missing for 1.000 s"), !late);
  }
}

/// A port dies while the connection over it is made: its event says that it was lost, and so does this line,
/// whatever was tried before in vain.
TEST_F(SummaryTest, LostWhileItWasNotUpYet_CountsAsLost) {
  Process process(nullptr, 0, 1);
  Summary& s = process.s;
  Away away = s.down(rail("a0"), "the peer does not answer over it", Away::kNo, false, 100 * kMs);
  away = s.down(rail("a0"), "IBV_EVENT_PORT_ERR", away, true, 200 * kMs);
  EXPECT_EQ(away, Away::kLost);
  away = s.down(rail("a0"), "the peer does not answer over it", away, false, 300 * kMs);
  EXPECT_EQ(away, Away::kLost);
  s.up(rail("a0"), away, 400 * kMs);
  s.collect(0, 0, 900 * kMs);
  s.finish("n");
  EXPECT_TRUE(has("summary of host n: 1 connection lost over 1 port (a0 port 1: ")) << lines[0];
  EXPECT_TRUE(has("), 1 came up later; a rail was missing for 0.300 s"));
  EXPECT_FALSE(has("never"));
}

/// A cable that is cut ends the connections of many ranks. They lead to one port there, if that one is sick.
TEST_F(SummaryTest, OtherEnds_OneIsNamedAndSeveralAreNot) {
  for (const bool several : {false, true}) {
    lines.clear();
    Process first(folder(), 0, 2);
    Process second(folder(), 1, 2);
    EventNames names = rail("a1");
    names.peer_host = "n5";
    names.peer_device = "b1";
    names.peer_port = 2;
    for (Process* process : {&first, &second})
      for (int i = 0; i < 4; ++i) process->s.down(names, "RETRY_EXC_ERR", Away::kNo, true, 100 * kMs);
    if (several) {
      names.peer_host = "n6";
      second.s.down(names, "RETRY_EXC_ERR", Away::kNo, true, 100 * kMs);
    }
    for (Process* process : {&first, &second}) process->s.collect(0, 0, 200 * kMs);
    for (Process* process : {&first, &second}) process->s.finish("n");
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_TRUE(has(several ? "9 connections lost over 1 port (a1 port 1: RETRY_EXC_ERR, to several ports);"
                            : "8 connections lost over 1 port (a1 port 1: RETRY_EXC_ERR, to n5 b1 port 2);"))
        << lines[0];
    forget();
  }
}

TEST_F(SummaryTest, TwoRailsMissing_TimeIsThatWithAnyOfThem) {
  Process process(folder(), 0, 1);
  Summary& s = process.s;
  const Away one = s.down(rail("a0"), "x", Away::kNo, true, 100 * kMs);
  const Away two = s.down(rail("a1"), "y", Away::kNo, true, 200 * kMs);
  s.up(rail("a0"), one, 300 * kMs);
  s.left(rail("a1"), two, 400 * kMs);
  s.collect(0, 0, 900 * kMs);
  s.finish("n");
  EXPECT_TRUE(has("missing for 0.300 s"));
  EXPECT_TRUE(has("2 connections lost over 2 ports (a0 port 1: x; a1 port 1: y)"));
}

TEST_F(SummaryTest, PortThatFlaps_HasItsLossesAndItsTime) {
  Process process(folder(), 0, 1);
  Summary& s = process.s;
  for (uint64_t i = 0; i < 1000; ++i) {
    // Two rails go together; the second one is back 5 ms after the first.
    const Away one = s.down(rail("a1"), "IBV_EVENT_PORT_ERR", Away::kNo, true, (100 * i + 100) * kMs);
    const Away two = s.down(rail("a1"), "IBV_EVENT_PORT_ERR", Away::kNo, true, (100 * i + 100) * kMs);
    s.up(rail("a1"), one, (100 * i + 120) * kMs);
    s.up(rail("a1"), two, (100 * i + 125) * kMs);
  }
  s.down(rail("a0"), "x", Away::kNo, true, 200'000 * kMs);
  s.collect(0, 0, 200'100 * kMs);
  s.finish("n");
  EXPECT_TRUE(
      has("2001 connections lost over 2 ports (a1 port 1: IBV_EVENT_PORT_ERR, 1000 times, for 25.000 s "
          "together; a0 port 1: x)"))
      << lines[0];
}

/// A process of the host that has lost a rail and sent `bytes` again.
void lose(Process& process, uint64_t bytes) {
  process.s.down(rail("a1"), "IBV_EVENT_PORT_ERR", Away::kNo, true, 100 * kMs);
  process.s.closed(rail("a1"), "IBV_EVENT_PORT_ERR", false);
  process.s.resent(bytes, 0);
}

TEST_F(SummaryTest, ProcessesOfAHost_AreAddedUp) {
  Process first(folder(), 0, 2);
  Process second(folder(), 1, 2);
  first.s.down(rail("a1"), "the peer reported the rail down", Away::kNo, true, 100 * kMs);
  first.s.closed(rail("a1"), "the peer reported the rail down", true);
  second.s.down(rail("a1"), "IBV_EVENT_PORT_ERR", Away::kNo, true, 90 * kMs);
  second.s.closed(rail("a1"), "IBV_EVENT_PORT_ERR", false);
  second.s.collect(1000, 1, 190 * kMs);
  first.s.collect(24, 0, 190 * kMs);
  second.s.finish("n");
  EXPECT_EQ(lines.size(), 1u) << "by whoever is through first";
  first.s.finish("n");
  EXPECT_TRUE(has(
      "2 connections lost over 1 port (a1 port 1: IBV_EVENT_PORT_ERR), 1 peer given up; a rail was missing "
      "for 0.100 s, 1024 bytes were sent again (seen by 2 processes)"))
      << lines[0];
}

TEST_F(SummaryTest, OwnEvidence_IsTheCauseWhoeverComesFirst) {
  for (const bool peer_first : {false, true}) {
    lines.clear();
    Process first(folder(), 0, 2);
    Process second(folder(), 1, 2);
    const char* const own = "cannot make a queue pair: ENOMEM";
    const char* const peers = "the peer cannot make a queue pair: ENOMEM";
    first.s.down(rail("a1"), peer_first ? peers : own, Away::kNo, false, 100 * kMs);
    second.s.down(rail("a1"), peer_first ? own : peers, Away::kNo, false, 100 * kMs);
    first.s.closed(rail("a1"), peer_first ? peers : own, false);
    second.s.closed(rail("a1"), peer_first ? own : peers, false);
    for (Process* process : {&first, &second}) process->s.collect(0, 0, 200 * kMs);
    for (Process* process : {&first, &second}) process->s.finish("n");
    EXPECT_TRUE(has("2 connections never came up over 1 port (a1 port 1: cannot make a queue pair: ENOMEM)"));
    forget();
  }
}

/// Who finalizes first removes the session directory.
TEST_F(SummaryTest, ProcessesThatLeaveEarlyOrLate_AllCount) {
  for (const bool first_is_late : {false, true}) {
    lines.clear();
    Process first(folder(), 0, 3);
    auto second = std::make_unique<Process>(folder(), 1, 3);
    auto third = std::make_unique<Process>(folder(), 2, 3);
    lose(first, 1);
    lose(*second, 20);
    lose(*third, 300);
    if (!first_is_late) {
      first.s.collect(1, 0, 200 * kMs);
      first.s.finish("n");
      EXPECT_TRUE(lines.empty()) << "others are not through";
    }
    for (auto* process : {&second, &third}) {
      (*process)->s.collect((*process)->s.facts().bytes_resent, 0, 200 * kMs);
      (*process)->s.finish("n");
      process->reset();
      std::filesystem::remove_all(folder());
    }
    first.s.collect(1, 0, 200 * kMs);
    first.s.finish("n");
    EXPECT_TRUE(has("3 connections lost over 1 port") &&
                has("321 bytes were sent again (seen by 3 processes)"));
    std::filesystem::create_directory(folder());
  }
}

/// Without a barrier between the two the last one speaks; with one, whoever is through first.
TEST_F(SummaryTest, SixtyFourProcessesInAnyOrder_OneLineWithAll) {
  std::mt19937 rng(1);
  for (const bool barrier : {false, true}) {
    lines.clear();
    std::vector<std::unique_ptr<Process>> all;
    for (unsigned i = 0; i < 64; ++i) all.push_back(std::make_unique<Process>(folder(), i, 64));
    for (auto& process : all) lose(*process, 1000);
    std::shuffle(all.begin(), all.end(), rng);
    for (auto& process : all) {
      process->s.collect(1000, 0, 200 * kMs);
      if (!barrier) process->s.finish("n");
      EXPECT_EQ(lines.size(), process == all.back() && !barrier ? 1u : 0u);
    }
    for (auto& process : all) process->s.finish("n");
    EXPECT_TRUE(has("64 connections lost over 1 port") &&
                has("64000 bytes were sent again (seen by 64 processes)"));
    forget();
  }
}

TEST_F(SummaryTest, ProcessThatDied_CountsAndIsNotWaitedFor) {
  Process first(folder(), 0, 2);
  const pid_t child = fork();
  if (child == 0) {
    Process second(folder(), 1, 2);
    lose(second, 77);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  first.s.collect(0, 0, 200 * kMs);
  first.s.finish("n");
  EXPECT_TRUE(has("1 connection lost over 1 port") && has("77 bytes were sent again (seen by 1 process)"));
}

TEST_F(SummaryTest, NoFolder_EachProcessSpeaksForItself) {
  for (const char* where : {static_cast<const char*>(nullptr), "/nowhere/at/all"}) {
    lines.clear();
    Process process(where, 4, 8);
    EXPECT_FALSE(process.page.shared());
    lose(process, 0);
    process.s.collect(0, 0, 200 * kMs);
    process.s.finish("n");
    EXPECT_TRUE(has("1 connection lost over 1 port"));
  }
}

TEST_F(SummaryTest, ForeignRecords_AreNotBelieved) {
  Facts facts{};
  facts.magic = Facts::kMagic;
  facts.lost = 1;
  facts.n_ports = 1;
  memset(facts.ports, 'y', sizeof(facts.ports));
  HostPage pages[4];
  for (unsigned i = 0; i < 4; ++i) pages[i].open(folder(), i + 1, 5, sizeof(Facts));
  pages[0].leave(&facts);
  facts.n_ports = 1000;
  pages[1].leave(&facts);
  facts = {};
  pages[2].leave(&facts);
  memset(static_cast<void*>(&facts), 'x', sizeof(facts));
  pages[3].leave(&facts);
  for (HostPage& page : pages) page.leave_last();
  Process process(folder(), 0, 5);
  process.s.collect(0, 0, 200 * kMs);
  process.s.finish("n");
  EXPECT_TRUE(has("1 connection lost over 1 port"));
}

TEST_F(SummaryTest, ManyPorts_AreCutAndCounted) {
  Process process(folder(), 0, 1);
  Summary& s = process.s;
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
      std::string(line).find(
          "20 connections lost over 8 ports (device0 port 1: x; device1 port 1: x; device2 port 1: x; and 5 "
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

TEST_F(SummaryTest, RailThatWasSlow_IsToldWithItsPort) {
  EventNames slow = rail("a1");
  slow.peer_host = "n2";
  slow.peer_device = "b1";
  slow.peer_port = 1;
  {
    Process one(folder(), 0, 1);
    one.s.degraded(slow);
    one.s.degraded(slow);
    one.s.collect(0, 0, 0);
    one.s.finish("n1");
  }
  EXPECT_TRUE(
      has("bfo: summary of host n1: 2 times a rail was degraded over 1 port (a1 port 1, to n2 b1 port 1) "
          "(seen by 1 process)"))
      << lines[0];
}

TEST_F(SummaryTest, PortThatLostPackets_IsTold) {
  PortLoss loss;
  loss.device = "a1";
  loss.port = 1;
  {
    Process one(folder(), 0, 1);
    one.s.lossy(loss);
    one.s.collect(0, 0, 0);
    one.s.finish("n1");
  }
  EXPECT_TRUE(
      has("bfo: summary of host n1: 1 time packets were lost over 1 port (a1 port 1) (seen by 1 process)"))
      << lines[0];
}

TEST(Facts, DamagedBytesFromFixedSeeds_MakeOneLine) {
  std::mt19937 rng(1);
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<uint8_t> bytes = facts_of_random(rng);
    for (unsigned n = rng() % 4; n != 0; --n) bytes[rng() % bytes.size()] = static_cast<uint8_t>(rng());
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
