// SPDX-License-Identifier: BSD-3-Clause
//
// event_log_test.cc: the JSON lines of failover events, and the human ones.
#include "pml/bfo/glue/event_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "common/failover_btl.h"
#include "common/output_file.h"
#include "pml/bfo/glue/console.h"

namespace bfo::glue {
namespace {

FailoverEvent sample() {
  FailoverEvent e;
  e.rail = 1;
  e.epoch = 3;
  std::snprintf(e.text, sizeof e.text, "RETRY_EXC_ERR");
  e.evidence_ns = 1'000'000'000;
  e.down_ns = 1'000'500'000;
  e.closed_ns = 1'002'500'000;
  e.resumed_ns = 1'000'750'000;
  e.bytes_resent = 4096;
  e.messages_resent = 2;
  e.duplicates_dropped = 1;
  e.restarts = 1;
  e.rails_left = 1;
  return e;
}

EventNames names() {
  EventNames n;
  n.rank = 0;
  n.peer = 1;
  n.device = "softhca1";
  n.port = 1;
  return n;
}

std::string format(const FailoverEvent& e, const EventNames& n, const char* host = "node1") {
  char line[2048];
  const size_t length = format_event(e, n, 1.5, host, line, sizeof line);
  EXPECT_EQ(length, std::strlen(line));
  return std::string(line, length);
}

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(FormatEvent, CompleteEvent_NamesEverythingInMilliseconds) {
  EXPECT_EQ(format(sample(), names()),
            "{\"time\": 1.500000, \"what\": \"failover\", \"host\": \"node1\", \"rank\": 0, \"peer\": 1, "
            "\"device\": "
            "\"softhca1\", \"port\": 1, \"rail\": 1, \"epoch\": 3, \"cause\": \"RETRY_EXC_ERR\", "
            "\"detect_ms\": 0.500, "
            "\"fence_ms\": 2.000, \"resume_ms\": 0.750, \"bytes_resent\": 4096, \"messages_resent\": 2, "
            "\"bytes_waiting\": 0, \"messages_waiting\": 0, "
            "\"duplicates_dropped\": 1, \"restarts\": 1, \"rails_left\": 1}\n");
}

FailoverEvent returned() {
  FailoverEvent e = sample();
  e.what = "rail_up";
  e.up_ns = e.down_ns + 412'000'000;
  e.up_epoch = 4;
  e.rails_up = 2;
  return e;
}

TEST(FormatEvent, RailThatCameBack_SaysHowLongItWasAwayAndWhyItWent) {
  EXPECT_EQ(format(returned(), names()),
            "{\"time\": 1.500000, \"what\": \"rail_up\", \"host\": \"node1\", \"rank\": 0, \"peer\": 1, "
            "\"device\": \"softhca1\", \"port\": 1, \"rail\": 1, \"epoch\": 4, \"lost_epoch\": 3, "
            "\"cause\": \"RETRY_EXC_ERR\", \"away_ms\": 412.000, \"rails_up\": 2}\n");
  char line[200];
  EXPECT_EQ(format_event(returned(), names(), 1.5, "node1", line, sizeof line), 0u) << "too small";
}

TEST(FormatEvent, LongestNames_LeaveALineThatIsComplete) {
  const std::string long_name(255, '"');
  EventNames n = names();
  n.device = long_name.c_str();
  for (FailoverEvent e : {sample(), returned()}) {
    std::snprintf(e.text, sizeof e.text, "%s", long_name.c_str());
    const std::string line = format(e, n, long_name.c_str());
    ASSERT_FALSE(line.empty());
    EXPECT_EQ(line.substr(line.size() - 2), "}\n");
  }
}

TEST(FormatEvent, ThingsThatDidNotHappen_AreNull) {
  FailoverEvent e = sample();
  e.closed_ns = 0;
  e.resumed_ns = 0;
  const std::string line = format(e, names());
  EXPECT_NE(line.find("\"fence_ms\": null"), std::string::npos);
  EXPECT_NE(line.find("\"resume_ms\": null"), std::string::npos);
}

TEST(FormatEvent, QuotesAndControlCharacters_CannotBreakTheLine) {
  FailoverEvent e = sample();
  std::snprintf(e.text, sizeof e.text, "a\"b\\c\nd");
  const std::string line = format(e, names(), "h\"\n");
  EXPECT_NE(line.find("\"cause\": \"a\\\"b\\\\cd\""), std::string::npos);
  EXPECT_NE(line.find("\"host\": \"h\\\"\""), std::string::npos);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(FormatEvent, TooSmallBuffer_GivesNothing) {
  char line[40];
  EXPECT_EQ(format_event(sample(), names(), 1.5, "node1", line, sizeof line), 0u);
}

TEST(EventLog, UnwritablePath_GivesTheErrno) {
  EventLog log;
  EXPECT_EQ(log.open("/nonexistent/dir/file", true), ENOENT);
  log.write(sample(), names());  // no file: nothing happens
}

/// The line of a return may have waited for that of the loss.
TEST(EventLog, RailThatCameBack_HasTheTimeWhenItDid) {
  const std::string path = testing::TempDir() + "/bfo-returns-" + std::to_string(getpid());
  EventLog log;
  ASSERT_EQ(log.open(path.c_str(), true), 0);
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  FailoverEvent e = returned();
  e.up_ns =
      static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec) - 5'000'000'000;
  log.write(e, names());
  log.write(sample(), names());
  log.close();
  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 2u);
  double up = 0, later = 0;
  ASSERT_EQ(std::sscanf(lines[0].c_str(), "{\"time\": %lf", &up), 1);
  ASSERT_EQ(std::sscanf(lines[1].c_str(), "{\"time\": %lf", &later), 1);
  EXPECT_NEAR(later - up, 5.0, 1.0);
  unlink(path.c_str());
}

TEST(EventLog, ManyProcesses_AppendWholeLines) {
  const std::string path = testing::TempDir() + "/bfo-events-" + std::to_string(getpid());
  {
    EventLog first;
    ASSERT_EQ(first.open(path.c_str(), true), 0);
  }
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    const pid_t pid = fork();
    if (pid == 0) {
      EventLog log;
      if (log.open(path.c_str(), false) != 0) _exit(1);
      for (int i = 0; i < 200; ++i) log.write(sample(), names());
      _exit(0);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  const auto lines = lines_of(path);
  EXPECT_EQ(lines.size(), 800u);
  for (const auto& line : lines) {
    ASSERT_EQ(line.front(), '{');
    ASSERT_EQ(line.back(), '}');
  }
  EventLog again;
  ASSERT_EQ(again.open(path.c_str(), true), 0);
  EXPECT_TRUE(lines_of(path).empty());
  unlink(path.c_str());
}

std::vector<std::string>* printed = nullptr;
void print(const char* line) {
  printed->push_back(line);
}

TEST(Console, FirstLoss_IsToldAtOnce) {
  std::vector<std::string> lines;
  printed = &lines;
  Console console(print);
  console.tell(sample(), names(), 5'000'000'000);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0],
            "bfo: rank 0 lost rail 1 (softhca1 port 1) to rank 1: RETRY_EXC_ERR; resumed after 0.750 ms, "
            "4096 bytes "
            "sent again, 1 rail left");
}

/// Nothing broke: this process or its peer could not make the rail.
TEST(Console, RailWithoutAResource_IsNotCalledLost) {
  std::vector<std::string> lines;
  printed = &lines;
  Console console(print);
  FailoverEvent e = sample();
  e.cause = BFO_CAUSE_RESOURCE;
  std::snprintf(e.text, sizeof e.text, "cannot make a queue pair: ENOMEM");
  e.resumed_ns = 0;
  e.bytes_resent = e.messages_resent = 0;
  console.tell(e, names(), 5'000'000'000);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0],
            "bfo: rank 0 goes on without rail 1 (softhca1 port 1) to rank 1: cannot make a queue pair: "
            "ENOMEM; nothing "
            "had to be sent again, 1 rail left (btl/verbs says what helps)");
}

TEST(Console, LossOfTheLastRail_SaysWhatWaits) {
  std::vector<std::string> lines;
  printed = &lines;
  Console console(print);
  FailoverEvent e = sample();
  e.resumed_ns = 0;
  e.bytes_resent = e.messages_resent = 0;
  e.bytes_waiting = 4096;
  e.messages_waiting = 2;
  e.rails_left = 0;
  console.tell(e, names(), 5'000'000'000);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("RETRY_EXC_ERR; 4096 bytes wait for a rail, 0 rails left"), std::string::npos);
}

TEST(Console, LossOfTheLastRailAmidstIt_SaysWhatWentAndWhatWaits) {
  std::vector<std::string> lines;
  printed = &lines;
  Console console(print);
  FailoverEvent e = sample();
  e.bytes_waiting = 100;
  e.rails_left = 0;
  console.tell(e, names(), 5'000'000'000);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(
      lines[0].find("; resumed after 0.750 ms, 4096 bytes sent again, 100 bytes wait for a rail, 0 rails"),
      std::string::npos);
}

TEST(Console, LossesOfOnePortWithinASecond_AreCountedAndToldWithTheNext) {
  std::vector<std::string> lines;
  printed = &lines;
  Console console(print);
  for (uint64_t i = 0; i < 10; ++i) console.tell(sample(), names(), 5'000'000'000 + i);
  EventNames other = names();
  other.device = "softhca0";
  console.tell(sample(), other, 5'000'000'100);  // another port has its own line
  EXPECT_EQ(lines.size(), 2u);
  console.tell(sample(), names(), 7'000'000'000);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[2].find("(and 9 times since the last line)"), std::string::npos);
  console.finish(0);
  EXPECT_EQ(lines.size(), 3u);
}

TEST(Console, CountedLosses_AreToldAtTheEnd) {
  std::vector<std::string> lines;
  printed = &lines;
  Console console(print);
  for (int i = 0; i < 3; ++i) console.tell(sample(), names(), 5'000'000'000);
  console.finish(4);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1], "bfo: rank 4 lost softhca1 port 1 2 more times");
}

TEST(EventLog, LinkOrFifo_IsRefusedAndNothingIsTouched) {
  char folder[] = "/tmp/event-log-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string precious = std::string(folder) + "/precious";
  const std::string link = std::string(folder) + "/link";
  const std::string fifo = std::string(folder) + "/fifo";
  std::ofstream(precious) << "kept\n";
  ASSERT_EQ(symlink(precious.c_str(), link.c_str()), 0);
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  alarm(60);  // opening a FIFO without a reader must not wait
  EventLog log;
  EXPECT_EQ(log.open(link.c_str(), true), ELOOP);
  EXPECT_EQ(lines_of(precious), std::vector<std::string>{"kept"});
  EXPECT_EQ(log.open(fifo.c_str(), true), ENXIO);
  const int reader = ::open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_EQ(log.open(fifo.c_str(), true), ENXIO) << "with a reader";
  EXPECT_STREQ(output_problem(ENXIO), "it is not a regular file");
  alarm(0);
  ::close(reader);
  for (const std::string& path : {precious, link, fifo}) EXPECT_EQ(unlink(path.c_str()), 0);
  EXPECT_EQ(rmdir(folder), 0);
}

TEST(EventLog, NewFile_IsForItsOwnerOnly) {
  char folder[] = "/tmp/event-log-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/events";
  EventLog log;
  EXPECT_EQ(log.open(path.c_str(), true), 0);
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  log.close();
  EXPECT_EQ(unlink(path.c_str()), 0);
  EXPECT_EQ(rmdir(folder), 0);
}

}  // namespace
}  // namespace bfo::glue
