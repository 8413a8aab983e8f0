// SPDX-License-Identifier: BSD-3-Clause
//
// host_page_test.cc: what a process leaves the others of its host read, whatever is in its file before.
#include "pml/bfo/glue/host_page.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace bfo::glue {
namespace {

class HostPageTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const char* folder() const { return folder_; }
  std::string file() const { return std::string(folder_) + "/bfo-page"; }

 private:
  char folder_[32] = "/tmp/bfo-page-XXXXXX";
};

TEST_F(HostPageTest, RecordOfAProcess_IsReadWholeByTheOthersAlsoWhenItIsGone) {
  HostPage reader;
  reader.open(folder(), 0, 3, 4096);
  const pid_t child = fork();
  if (child == 0) {
    HostPage writer;
    writer.open(folder(), 1, 3, 4096);
    std::vector<char> record(4096);
    for (int i = 0; i < 2000; ++i) {
      memset(record.data(), 'a' + i % 26, record.size());
      writer.leave(record.data());
      usleep(20);
    }
    _exit(0);
  }
  std::vector<char> seen(4096);
  int status = 0, reads = 0, torn = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (!reader.read(1, seen.data())) continue;
    ++reads;
    torn += seen != std::vector<char>(4096, seen[0]);
  }
  // A writer that is stopped in the middle is not waited for; that is rare.
  EXPECT_LE(torn, reads / 10);
  EXPECT_TRUE(reader.read(1, seen.data()));
  EXPECT_EQ(seen, std::vector<char>(4096, 'a' + 1999 % 26));
  EXPECT_FALSE(reader.read(2, seen.data())) << "nobody was there";
  EXPECT_FALSE(reader.read(3, seen.data())) << "no such place";
}

TEST_F(HostPageTest, WhoIsThrough) {
  HostPage a, b;
  a.open(folder(), 0, 3, 64);
  b.open(folder(), 2, 3, 64);
  EXPECT_FALSE(a.all_left());
  b.leave_last();
  EXPECT_FALSE(b.all_left());
  a.leave_last();
  EXPECT_TRUE(a.all_left() && b.all_left()) << "place 1 was never taken";
}

/// What a job left that ended badly, another build's page, a link, a FIFO, a full device: the process speaks
/// for itself.
TEST_F(HostPageTest, FileThatIsNotThisJobs_IsNotUsed) {
  const pid_t child = fork();
  if (child == 0) {
    HostPage old;
    old.open(folder(), 0, 1, 64);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  HostPage page;
  page.open(folder(), 0, 1, 64);
  EXPECT_FALSE(page.shared());
  for (const char* what : {"text", "size", "link", "fifo", "folder"}) {
    std::filesystem::remove_all(file());
    HostPage other;
    if (!strcmp(what, "text")) std::ofstream(file()) << "something else that is here";
    if (!strcmp(what, "size")) other.open(folder(), 1, 2, 128);
    if (!strcmp(what, "link")) {
      EXPECT_EQ(symlink("/etc/passwd", file().c_str()), 0);
    }
    if (!strcmp(what, "fifo")) {
      EXPECT_EQ(mkfifo(file().c_str(), 0600), 0);
    }
    if (!strcmp(what, "folder")) std::filesystem::create_directory(file());
    HostPage mine;
    mine.open(folder(), 0, 2, 64);
    EXPECT_FALSE(mine.shared()) << what;
    EXPECT_EQ(mine.places(), 1u);
    char record[64] = "x";
    mine.leave(record);
    EXPECT_TRUE(mine.read(0, record));
    mine.leave_last();
    EXPECT_TRUE(mine.all_left());
  }
}

TEST_F(HostPageTest, NewFile_IsForItsOwnerOnly) {
  HostPage page;
  page.open(folder(), 0, 1, 64);
  struct stat info {};
  ASSERT_EQ(stat(file().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(HostPage, NotOpened_SpeaksForItself) {
  HostPage page;
  EXPECT_TRUE(page.all_left());
}

}  // namespace
}  // namespace bfo::glue
