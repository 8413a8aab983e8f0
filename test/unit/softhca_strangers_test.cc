// SPDX-License-Identifier: BSD-3-Clause
//
// What the software HCA finds in places that others can write to, or that meant something else before: links
// and FIFOs instead of output files, a registry of another user, descriptors that were used again.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>

#include "contrib/softhca/fabric/fabric.h"
#include "contrib/softhca/fabric/registry.h"
#include "contrib/softhca/fabric/report.h"

namespace bfo::softhca {
namespace {

constexpr uid_t kNobody = 65534;

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class Strangers : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/softhca-strangers-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    alarm(60);  // opening a FIFO without a reader must not wait
  }
  void TearDown() override {
    alarm(0);
    unsetenv("SOFTHCA_DIR");
    const std::string command = "rm -rf '" + folder_ + "'";
    EXPECT_EQ(std::system(command.c_str()), 0);
  }
  std::string in_folder(const char* name) const { return folder_ + "/" + name; }
  static std::unique_ptr<Fabric> fabric() { return Fabric::anonymous(FabricConfig{}, 0); }

  std::string folder_;
};

TEST_F(Strangers, Counters_AreNotWrittenThroughALink) {
  const auto f = fabric();
  std::ofstream(in_folder("precious")) << "kept";
  ASSERT_EQ(symlink(in_folder("precious").c_str(), in_folder("counters").c_str()), 0);
  EXPECT_FALSE(dump_counters(f->header(), "f", in_folder("counters").c_str(), "exit", false));
  EXPECT_EQ(errno, ELOOP);
  EXPECT_EQ(text_of(in_folder("precious")), "kept");
}

TEST_F(Strangers, Counters_DoNotWaitForAFifo) {
  const auto f = fabric();
  ASSERT_EQ(mkfifo(in_folder("counters").c_str(), 0600), 0);
  EXPECT_FALSE(dump_counters(f->header(), "f", in_folder("counters").c_str(), "exit", false));
  EXPECT_EQ(errno, ENXIO) << "nobody reads it";
  const int reader = open(in_folder("counters").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  EXPECT_FALSE(dump_counters(f->header(), "f", in_folder("counters").c_str(), "exit", false));
  EXPECT_EQ(errno, ENXIO) << "somebody reads it";
  close(reader);
}

TEST_F(Strangers, Counters_OfANewFileAreForItsOwnerOnly) {
  const auto f = fabric();
  EXPECT_TRUE(dump_counters(f->header(), "f", in_folder("counters").c_str(), "exit", false));
  struct stat info {};
  ASSERT_EQ(stat(in_folder("counters").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(Strangers, Registry_IsWhereTheUserSays) {
  setenv("SOFTHCA_DIR", in_folder("own").c_str(), 1);
  std::string error;
  EXPECT_EQ(registry_directory(error), in_folder("own")) << error;
  struct stat info {};
  ASSERT_EQ(stat(in_folder("own").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  const auto f = Fabric::open("one", FabricConfig{}, 0, error);
  ASSERT_NE(f, nullptr) << error;
  EXPECT_EQ(access(in_folder("own/one").c_str(), F_OK), 0);
}

TEST_F(Strangers, Registry_OfAnotherUserIsRefusedByName) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a directory of another user";
  ASSERT_EQ(mkdir(in_folder("squatted").c_str(), 0700), 0);
  ASSERT_EQ(chown(in_folder("squatted").c_str(), kNobody, kNobody), 0);
  setenv("SOFTHCA_DIR", in_folder("squatted").c_str(), 1);
  std::string error;
  EXPECT_EQ(registry_directory(error), "");
  EXPECT_NE(error.find("nobody (uid 65534)"), std::string::npos) << error;
  EXPECT_NE(error.find("SOFTHCA_DIR"), std::string::npos) << error;
}

TEST_F(Strangers, Registry_OpenToOthersOrALinkIsRefused) {
  std::string error;
  ASSERT_EQ(mkdir(in_folder("open").c_str(), 0700), 0);
  ASSERT_EQ(chmod(in_folder("open").c_str(), 0777), 0);
  setenv("SOFTHCA_DIR", in_folder("open").c_str(), 1);
  EXPECT_EQ(registry_directory(error), "");
  EXPECT_NE(error.find("chmod 700"), std::string::npos) << error;
  ASSERT_EQ(chmod(in_folder("open").c_str(), 0700), 0);
  ASSERT_EQ(symlink(in_folder("open").c_str(), in_folder("link").c_str()), 0);
  setenv("SOFTHCA_DIR", in_folder("link").c_str(), 1);
  EXPECT_EQ(registry_directory(error), "");
  EXPECT_NE(error.find("not a directory"), std::string::npos) << error;
  setenv("SOFTHCA_DIR", "relative", 1);
  EXPECT_EQ(registry_directory(error), "");
  EXPECT_NE(error.find("absolute"), std::string::npos) << error;
}

/// The bytes that wake() put where the descriptor of a pipe that is gone leads now.
TEST_F(Strangers, Wake_WritesToNothingThatTookTheDescriptor) {
  const auto waker = fabric();
  const auto sleeper = Fabric::share(*waker, 1);
  int ends[2], others[2];
  ASSERT_EQ(pipe(ends), 0);
  const WakeName name = sleeper->wake_name(ends[0]);
  const int file = open(in_folder("file").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(dup2(file, ends[0]), ends[0]);
  waker->wake(sleeper->process(), name);
  EXPECT_EQ(text_of(in_folder("file")), "") << "a file has the descriptor now";
  ASSERT_EQ(pipe2(others, O_NONBLOCK), 0);
  ASSERT_EQ(dup2(others[0], ends[0]), ends[0]);
  waker->wake(sleeper->process(), name);
  char byte;
  EXPECT_EQ(read(others[0], &byte, 1), -1) << "another pipe has it now";
  waker->wake(sleeper->process(), sleeper->wake_name(ends[0]));
  EXPECT_EQ(read(others[0], &byte, 1), 1) << "its own name reaches it";
  for (int fd : {file, ends[0], ends[1], others[0], others[1]}) close(fd);
}

/// Descriptors that this process has open.
long open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

/// The first event of a process costs no more than the next one.
TEST_F(Strangers, WakeName_OpensThePipeOnceAndForgettingClosesIt) {
  const auto f = fabric();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  const long before = open_descriptors();
  const WakeName name = f->wake_name(ends[0]);
  EXPECT_EQ(open_descriptors(), before + 1);
  EXPECT_EQ(f->wake_name(ends[0]), name);
  f->wake(f->process(), name);
  EXPECT_EQ(open_descriptors(), before + 1) << "it has it already";
  f->forget_wake(name);
  f->forget_wake(name);
  EXPECT_EQ(open_descriptors(), before);
  f->wake(f->process(), name);
  char bytes[3];
  EXPECT_EQ(read(ends[0], bytes, 3), 2) << "a pipe that is there is reached all the same";
  close(ends[0]);
  close(ends[1]);
}

TEST_F(Strangers, WakeName_WithoutAFreeDescriptorItIsOpenedByTheFirstEvent) {
  const auto f = fabric();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit none{0, usual.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const WakeName name = f->wake_name(ends[0]);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_NE(name, 0u);
  f->wake(f->process(), name);
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), 1);
  close(ends[0]);
  close(ends[1]);
}

/// More pipes than are kept open: each is reached.
TEST_F(Strangers, Wake_ManyPipesTakeABoundedNumberOfDescriptors) {
  const auto f = fabric();
  int ends[300][2];
  WakeName names[300];
  const long before = open_descriptors();
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(pipe2(ends[i], O_NONBLOCK), 0);
    names[i] = f->wake_name(ends[i][0]);
  }
  for (const WakeName name : names) f->wake(f->process(), name);
  EXPECT_LE(open_descriptors(), before + 600 + 256);
  for (const auto& pipe : ends) {
    char bytes[2];
    EXPECT_EQ(read(pipe[0], bytes, 2), 1);
    close(pipe[0]);
    close(pipe[1]);
  }
}

/// A dead process's slot must not count as alive because its process id is in use again, here.
TEST_F(Strangers, SameProcessId_IsTheSameProcessOnlyWithTheSameStart) {
  const auto f = fabric();
  const auto same = Fabric::share(*f, 1);
  EXPECT_TRUE(f->is_here(same->process()));
  same->self().start_time.fetch_add(1);
  EXPECT_FALSE(f->is_here(same->process()));
  EXPECT_FALSE(f->alive(same->process(), true)) << "nobody holds the lock of that slot";
}

TEST_F(Strangers, FabricOfAnotherPidNameSpace_IsNotJoinedWhileInUse) {
  setenv("SOFTHCA_DIR", in_folder("own").c_str(), 1);
  std::string error;
  auto f = Fabric::open("one", FabricConfig{}, 0, error);
  ASSERT_NE(f, nullptr) << error;
  ++f->header().pid_space;
  EXPECT_EQ(Fabric::open("one", FabricConfig{}, 1, error), nullptr);
  EXPECT_NE(error.find("'one' belongs to processes of another PID name space"), std::string::npos) << error;
  EXPECT_EQ(Fabric::observe("one", error), nullptr);
  EXPECT_NE(error.find("another PID name space"), std::string::npos) << error;
}

}  // namespace
}  // namespace bfo::softhca
