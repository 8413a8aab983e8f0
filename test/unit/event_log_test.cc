// SPDX-License-Identifier: BSD-3-Clause
//
// event_log_test.cc: the JSON lines of failover events.
#include "pml/bfo/glue/event_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "common/failover_btl.h"
#include "common/output_file.h"
#include "test/unit/event_samples.h"

namespace bfo::glue {
namespace {

EventFile origin(const char* host = "node1") {
  EventFile of;
  of.job = "4711";
  of.host = host;
  return of;
}

std::string format(const FailoverEvent& e, const EventNames& n, const char* host = "node1") {
  char line[4096];
  const size_t length = format_event(e, n, 1.5, 1.25, origin(host), line, sizeof line);
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
            "{\"schema\": 1, \"time\": 1.500000, \"what\": \"failover\", \"job\": \"4711\", \"host\": "
            "\"node1\", \"rank\": 0, "
            "\"peer\": 1, \"peer_host\": \"node2\", \"device\": \"softhca1\", \"port\": 1, \"peer_device\": "
            "\"softhca3\", \"peer_port\": 2, \"rail\": 1, \"lost_at\": 1.250000, \"epoch\": 3, \"cause\": "
            "\"RETRY_EXC_ERR\", "
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
  EXPECT_EQ(
      format(returned(), names()),
      "{\"schema\": 1, \"time\": 1.500000, \"what\": \"rail_up\", \"job\": \"4711\", \"host\": \"node1\", "
      "\"rank\": 0, "
      "\"peer\": 1, \"peer_host\": \"node2\", \"device\": \"softhca1\", \"port\": 1, \"peer_device\": "
      "\"softhca3\", \"peer_port\": 2, \"rail\": 1, \"lost_at\": 1.250000, \"epoch\": 4, \"lost_epoch\": 3, "
      "\"cause\": \"RETRY_EXC_ERR\", \"away_ms\": 412.000, \"rails_up\": 2}\n");
  char line[200];
  EXPECT_EQ(format_event(returned(), names(), 1.5, 1.25, origin(), line, sizeof line), 0u) << "too small";
}

TEST(FormatEvent, PortWithAnotherRate_SaysBothAndWhy) {
  char line[400];
  ASSERT_NE(format_speed(slower(), 1.5, origin(), line, sizeof line), 0u);
  EXPECT_STREQ(line,
               "{\"schema\": 1, \"time\": 1.500000, \"what\": \"port_speed\", \"job\": \"4711\", \"host\": "
               "\"node1\", \"rank\": 0, \"device\": \"softhca1\", \"port\": 1, \"mbit_before\": 100000, "
               "\"mbit\": 2500, \"cause\": \"IBV_EVENT_DEVICE_SPEED_CHANGE\", \"rails\": 7}\n");
  EXPECT_EQ(format_speed(slower(), 1.5, origin(), line, 100), 0u) << "too small";
}

TEST(FormatEvent, RailThatMovesTooLittle_SaysWhatShowsIt) {
  char line[4096];
  ASSERT_NE(format_degraded(slow(), names(), 1.5, origin(), line, sizeof line), 0u);
  EXPECT_STREQ(
      line,
      "{\"schema\": 1, \"time\": 1.500000, \"what\": \"degraded\", \"job\": \"4711\", \"host\": \"node1\", "
      "\"rank\": 0, \"peer\": 1, \"peer_host\": \"node2\", \"device\": \"softhca1\", \"port\": 1, "
      "\"peer_device\": \"softhca3\", \"peer_port\": 2, \"rail\": 1, \"epoch\": 3, \"direction\": \"in\", "
      "\"mbit\": 80, \"mbit_before\": 790, \"mbit_others\": 795, \"low_ms\": 1200.000, \"age_ms\": 12.500, "
      "\"side\": \"unknown\", \"rails_low\": 1, \"rails_judged\": 1}\n");
  DegradedEvent e = slow();
  e.degraded = e.in = false;
  e.before = 0;
  e.age_ns = 0;
  ASSERT_NE(format_degraded(e, names(), 1.5, origin(), line, sizeof line), 0u);
  const std::string well = line;
  for (const char* part :
       {"\"what\": \"recovered\"", "\"direction\": \"out\"", "\"mbit_before\": null", "\"age_ms\": null"})
    EXPECT_NE(well.find(part), std::string::npos) << part;
  EXPECT_EQ(format_degraded(e, names(), 1.5, origin(), line, 100), 0u) << "too small";
}

TEST(FormatEvent, PortThatLosesPackets_SaysHowManyAndWhichWay) {
  char line[1000];
  ASSERT_NE(format_loss(lossy(), 1.5, origin(), line, sizeof line), 0u);
  EXPECT_EQ(std::string(line),
            "{\"schema\": 1, \"time\": 1.500000, \"what\": \"packet_loss\", \"job\": \"4711\", \"host\": "
            "\"node1\", \"rank\": 0, \"device\": \"softhca1\", \"port\": 1, \"rail\": 1, \"direction\": "
            "\"in\", \"packets_lost\": 213, \"packets\": 20840, \"over_ms\": 3040.000}\n");
  PortLoss well = lossy();
  well.lossy = well.in = false;
  ASSERT_NE(format_loss(well, 1.5, origin(), line, sizeof line), 0u);
  EXPECT_NE(std::string(line).find("\"what\": \"packet_loss_over\""), std::string::npos);
  EXPECT_NE(std::string(line).find("\"direction\": \"out\""), std::string::npos);
  EXPECT_EQ(format_loss(well, 1.5, origin(), line, 100), 0u) << "too small";
}

TEST(FormatEvent, OtherRailsOverThePort_ShowWhichEndIsSlow) {
  DegradedEvent e = slow();
  e.rails_judged = 3;
  e.rails_low = 3;
  EXPECT_STREQ(slow_side(e), "here");
  e.rails_low = 1;
  EXPECT_STREQ(slow_side(e), "there");
  e.rails_low = 2;
  EXPECT_STREQ(slow_side(e), "unknown");
}

TEST(FormatEvent, LongestNames_LeaveALineThatIsComplete) {
  const std::string long_name(255, '"');
  EventNames n = names();
  n.device = n.peer_device = n.peer_host = long_name.c_str();
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
  EXPECT_EQ(format_event(sample(), names(), 1.5, 1.25, origin(), line, sizeof line), 0u);
}

/// A log, the page of its host, and a folder for its files.
class EventLogTest : public testing::Test {
 protected:
  void SetUp() override {
    printed = &warnings;
    ASSERT_NE(mkdtemp(folder_), nullptr);
    claims.open(nullptr, 0);
    to = origin();
    to.file = path();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name = "events") const { return std::string(folder_) + "/" + name; }
  bool warned(const char* of) const {
    return warnings.size() == 1 && warnings[0].find(of) != std::string::npos;
  }

  std::vector<std::string> warnings;
  Claims claims;
  EventLog log{claims, print};
  EventFile to;

 private:
  char folder_[32] = "/tmp/bfo-events-XXXXXX";
};

TEST_F(EventLogTest, NothingAskedFor_NothingIsMade) {
  to.file.clear();
  log.open(to);
  log.write(sample(), names());
  EXPECT_FALSE(log.is_open());
  EXPECT_TRUE(warnings.empty());
  EXPECT_EQ(log.lost(), 0u);
}

TEST_F(EventLogTest, Placeholders_AreHostJobAndRank) {
  EventFile of = origin("n17.cluster/x");
  of.rank = 3;
  std::string result;
  of.file = "/var/log/%h-%j-%r-100%%.json";
  EXPECT_TRUE(event_path(of, &result));
  EXPECT_EQ(result, "/var/log/n17.cluster_x-4711-3-100%.json");
  of.file.clear();
  of.folder = "/var/log/bfo";
  EXPECT_TRUE(event_path(of, &result));
  EXPECT_EQ(result, "/var/log/bfo/bfo-events.n17.cluster_x.4711.jsonl");
  for (const char* wrong : {"a%xb", "a%"}) {
    of.file = wrong;
    EXPECT_FALSE(event_path(of, &result));
  }
  EXPECT_EQ(result, "%");
  of.file = "a%x";
  log.open(of);
  EXPECT_TRUE(warned("%x is no placeholder"));
}

TEST_F(EventLogTest, FileThatIsThere_IsAppendedTo) {
  for (int job = 0; job < 2; ++job) {
    log.open(to);
    log.write(sample(), names());
    log.close();
  }
  EXPECT_EQ(lines_of(path()).size(), 2u);
  EXPECT_TRUE(warnings.empty());
}

TEST_F(EventLogTest, FileThatCannotBeWritten_IsAWarningAndNoMore) {
  to.file = path("no/such/folder");
  log.open(to);
  log.write(sample(), names());
  EXPECT_FALSE(log.is_open());
  EXPECT_TRUE(warned("cannot be opened: No such file or directory; the job goes on"));
  EventLog other(claims, print);
  other.open(to);
  EXPECT_EQ(warnings.size(), 1u) << "one process of the host says it";
}

/// Of a whole site's jobs few lose a rail.
TEST_F(EventLogTest, Folder_HasAFileOnlyOfAJobWithALine) {
  to.file.clear();
  to.folder = path("");
  std::string file;
  ASSERT_TRUE(event_path(to, &file));
  log.open(to);
  log.close();
  EXPECT_FALSE(std::filesystem::exists(file));
  log.open(to);
  EventLog other(claims, print);
  other.open(to);
  log.write(sample(), names());
  other.write(sample(), names());
  EXPECT_EQ(lines_of(file).size(), 2u);
  EXPECT_TRUE(warnings.empty());
}

TEST_F(EventLogTest, FolderThatIsMissing_IsAWarningAtTheStart) {
  to.file.clear();
  to.folder = path("missing");
  log.open(to);
  EXPECT_TRUE(warned("cannot be opened: No such file or directory; the job goes on"));
}

TEST_F(EventLogTest, FolderThatGoes_LosesLinesAndSaysSo) {
  to.file.clear();
  to.folder = path("gone");
  std::filesystem::create_directory(to.folder);
  log.open(to);
  std::filesystem::remove(to.folder);
  log.write(sample(), names());
  log.write(sample(), names());
  EXPECT_TRUE(warned("cannot be written: No such file or directory; the job goes on"));
  EXPECT_EQ(log.lost(), 2u);
  std::filesystem::create_directory(to.folder);
  log.write(sample(), names());
  EXPECT_EQ(log.lost(), 2u) << "it is there again";
}

/// Who can write it is for the umask to say: the next user's job may be meant to.
TEST_F(EventLogTest, NewFile_HasTheModeOfTheUmask) {
  for (const mode_t mask : {mode_t{022}, mode_t{0}, mode_t{077}}) {
    const mode_t before = umask(mask);
    log.open(to);
    umask(before);
    struct stat info {};
    ASSERT_EQ(stat(path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0666u & ~mask);
    log.close();
    unlink(path().c_str());
  }
}

TEST_F(EventLogTest, Links_AreRefusedAndNothingIsTouched) {
  std::ofstream(path("precious")) << "kept\n";
  ASSERT_EQ(symlink(path("precious").c_str(), path("soft").c_str()), 0);
  ASSERT_EQ(link(path("precious").c_str(), path("hard").c_str()), 0);
  for (const char* name : {"soft", "hard"}) {
    warnings.clear();
    to.file = path(name);
    log.open(to);
    log.write(sample(), names());
    EXPECT_FALSE(log.is_open()) << name;
    EXPECT_TRUE(warned("link")) << name;
    EXPECT_EQ(open_output(path(name).c_str(), true), -1) << name;
  }
  EXPECT_EQ(lines_of(path("precious")), std::vector<std::string>{"kept"});
}

TEST_F(EventLogTest, Pipe_GetsLinesWhileSomebodyReads) {
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  alarm(60);  // opening a FIFO without a reader must not wait
  log.open(to);
  EXPECT_TRUE(warned("it is neither a file nor a pipe that somebody reads"));
  warnings.clear();
  const int reader = ::open(path().c_str(), O_RDONLY | O_NONBLOCK);
  log.open(to);
  ASSERT_TRUE(log.is_open());
  log.write(sample(), names());
  char line[4096];
  const ssize_t got = ::read(reader, line, sizeof line);
  ASSERT_GT(got, 0);
  EXPECT_EQ(line[got - 1], '\n');
  for (int i = 0; i < 1000; ++i) log.write(sample(), names());  // more than fits
  EXPECT_TRUE(warned("nobody reads the pipe fast enough"));
  EXPECT_GT(log.lost(), 100u);
  ::close(reader);
  const uint64_t lost = log.lost();
  log.write(sample(), names());  // the process lives on
  EXPECT_EQ(log.lost(), lost + 1);
  alarm(0);
}

TEST_F(EventLogTest, FullDisk_IsWarnedOfOnceAndLinesAreCounted) {
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);
  log.open(to);
  log.write(sample(), names());
  struct rlimit full = before;
  full.rlim_cur = std::filesystem::file_size(path()) + 100;  // the next line is cut
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  for (int i = 0; i < 5; ++i) log.write(sample(), names());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(log.lost(), 5u);
  EXPECT_TRUE(warned("cannot be written")) << warnings.size();
  log.write(sample(), names());
  const auto lines = lines_of(path());
  ASSERT_EQ(lines.size(), 3u) << "one of them was cut";
  EXPECT_EQ(lines[2].front(), '{');
  EXPECT_EQ(lines[2].back(), '}');
}

TEST_F(EventLogTest, Limit_EndsTheFileWithOneLineThatSaysSo) {
  to.limit = 2000;
  EventLog other(claims, print);
  log.open(to);
  other.open(to);
  for (int i = 0; i < 10; ++i) {
    log.write(sample(), names());
    other.write(sample(), names());
  }
  const auto lines = lines_of(path());
  EXPECT_LE(std::filesystem::file_size(path()), 2000u + 200);
  ASSERT_GE(lines.size(), 2u);
  for (size_t i = 0; i < lines.size(); ++i)
    EXPECT_EQ(lines[i].find("\"what\": \"limit\"") != std::string::npos, i + 1 == lines.size());
  EXPECT_EQ(log.lost() + other.lost() + lines.size() - 1, 20u);
  EXPECT_TRUE(warned("pml_bfo_event_limit (2000 bytes)"));
}

/// The line of a return may have waited for that of the loss.
TEST_F(EventLogTest, Times_AreThoseOfTheLossAndOfTheLine) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const uint64_t ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  log.open(to);
  FailoverEvent e = returned();
  e.up_ns = ns - 5'000'000'000;
  e.evidence_ns = e.down_ns = ns - 8'000'000'000;
  log.write(e, names());
  FailoverEvent loss = sample();
  loss.evidence_ns = loss.down_ns = ns - 8'000'000'000;
  log.write(loss, names());
  const auto lines = lines_of(path());
  ASSERT_EQ(lines.size(), 2u);
  double time[2], lost_at[2];
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(std::sscanf(std::strstr(lines[i].c_str(), "\"time\": "), "\"time\": %lf", &time[i]), 1);
    ASSERT_EQ(std::sscanf(std::strstr(lines[i].c_str(), "\"lost_at\": "), "\"lost_at\": %lf", &lost_at[i]),
              1);
  }
  EXPECT_NEAR(time[1] - time[0], 5.0, 1.0);
  EXPECT_NEAR(time[1] - lost_at[1], 8.0, 1.0);
  EXPECT_NEAR(lost_at[0], lost_at[1], 0.1);
}

TEST_F(EventLogTest, ManyProcesses_AppendWholeLines) {
  std::vector<pid_t> children;
  for (int child = 0; child < 4; ++child) {
    const pid_t pid = fork();
    if (pid == 0) {
      EventLog mine(claims, print);
      mine.open(to);
      for (int i = 0; i < 200; ++i) mine.write(sample(), names());
      _exit(mine.lost() != 0);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  const auto lines = lines_of(path());
  EXPECT_EQ(lines.size(), 800u);
  for (const auto& line : lines) {
    ASSERT_EQ(line.front(), '{');
    ASSERT_EQ(line.back(), '}');
  }
}

/// The names in `"name": ` of a line.
void add_fields(const std::string& line, std::set<std::string>* fields) {
  for (size_t at = 0; (at = line.find("\": ", at)) != std::string::npos; at += 3) {
    const size_t begin = line.rfind('"', at - 1);
    fields->insert(line.substr(begin + 1, at - begin - 1));
  }
}

TEST(EventFields, AreThoseOfTheDocumentation) {
  std::set<std::string> written;
  FailoverEvent wait = sample();
  wait.what = "no_rail";
  for (const FailoverEvent& e : {sample(), returned(), wait}) add_fields(format(e, names()), &written);
  char line[1000];
  ASSERT_NE(format_limit(1.5, origin(), line, sizeof line), 0u);
  add_fields(line, &written);
  ASSERT_NE(format_speed(slower(), 1.5, origin(), line, sizeof line), 0u);
  add_fields(line, &written);
  ASSERT_NE(format_degraded(slow(), names(), 1.5, origin(), line, sizeof line), 0u);
  add_fields(line, &written);
  ASSERT_NE(format_loss(lossy(), 1.5, origin(), line, sizeof line), 0u);
  add_fields(line, &written);

  const char* const root = std::getenv("BFO_SRCDIR");
  ASSERT_NE(root, nullptr) << "set BFO_SRCDIR to the source tree";
  std::set<std::string> documented;
  bool here = false;
  for (const std::string& row : lines_of(std::string(root) + "/contrib/doc/debugging.md")) {
    if (row.starts_with("## ")) here = row == "## Event file";
    if (!here || !row.starts_with("| `")) continue;
    const std::string names_of_row = row.substr(0, row.find('|', 1));
    for (size_t at = 0; (at = names_of_row.find('`', at)) != std::string::npos;) {
      const size_t end = names_of_row.find('`', at + 1);
      documented.insert(names_of_row.substr(at + 1, end - at - 1));
      at = end + 1;
    }
  }
  EXPECT_EQ(written, documented);
}

}  // namespace
}  // namespace bfo::glue
