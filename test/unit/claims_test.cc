// SPDX-License-Identifier: BSD-3-Clause
//
// claims_test.cc: of the processes of a host one speaks, whatever is in their file before, and whichever of
// them has ended since.
#include "common/claims.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace bfo {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

class ClaimsTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const char* folder() const { return folder_; }
  std::string file() const { return std::string(folder_) + "/bfo-claims"; }
  /// In a process of its own, at `place`: what f() returns.
  template <class F>
  int elsewhere(unsigned place, F f) {
    const pid_t child = fork();
    if (child == 0) {
      Claims claims;
      claims.open(folder(), place);
      _exit(f(claims));
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WEXITSTATUS(status);
  }

 private:
  char folder_[32] = "/tmp/bfo-claims-XXXXXX";
};

TEST_F(ClaimsTest, OneHasItAndTheOthersAreCounted) {
  Claims a;
  Claims b;
  a.open(folder(), 0);
  b.open(folder(), 1);
  ASSERT_TRUE(a.shared() && b.shared());
  const uint64_t key = claim_key("lost", "mlx5_0", 1, "RETRY_EXC_ERR");
  EXPECT_EQ(claim_key("lost", "mlx5_0", 1, "RETRY_EXC_ERR"), key);
  EXPECT_NE(claim_key("lost", "mlx5_0", 2, "RETRY_EXC_ERR"), key);
  EXPECT_NE(claim_key("lostm", "lx5_0", 1, "RETRY_EXC_ERR"), key);
  EXPECT_TRUE(a.take(key, 5 * kSecond, kSecond).mine);
  EXPECT_FALSE(b.take(key, 5 * kSecond, kSecond).mine);
  EXPECT_FALSE(b.take(key, 5 * kSecond - 1000, kSecond).mine) << "its clock was read earlier";
  EXPECT_FALSE(a.take(key, 5 * kSecond + kSecond / 2, kSecond).mine);
  EXPECT_TRUE(b.take(key + 2, 5 * kSecond, kSecond).mine) << "something else";
  const Claims::Turn turn = b.take(key, 6 * kSecond, kSecond);
  EXPECT_TRUE(turn.mine);
  EXPECT_EQ(turn.counted, 3u);
}

TEST_F(ClaimsTest, TakenAgainAndAgain_QuietGrowsUpToItsBound) {
  Claims claims;
  claims.open(folder(), 0);
  std::vector<uint64_t> said;
  for (uint64_t s = 1; s <= 60; ++s)
    if (claims.take(7, s * kSecond, 2 * kSecond, 16 * kSecond).mine) said.push_back(s);
  EXPECT_EQ(said, (std::vector<uint64_t>{1, 3, 7, 15, 31, 47}));
}

TEST_F(ClaimsTest, WhatGoesOn_IsNotSaidAgain) {
  Claims a;
  Claims b;
  a.open(folder(), 0);
  b.open(folder(), 1);
  ASSERT_TRUE(a.take(7, 5 * kSecond, 10 * kSecond).mine);
  for (uint64_t s = 6; s <= 40; ++s) a.renew(7, s * kSecond);
  EXPECT_FALSE(b.take(7, 49 * kSecond, 10 * kSecond).mine);
  EXPECT_TRUE(b.take(7, 50 * kSecond, 10 * kSecond).mine);
}

TEST_F(ClaimsTest, Held_IsAnothersWhenItsHolderStaysAway) {
  using Hold = Claims::Hold;
  Claims claims;
  claims.open(folder(), 0);
  const auto elsewhere_at = [this](unsigned place, uint64_t s) {
    return static_cast<Hold>(elsewhere(place, [s](Claims& other) {
      return static_cast<int>(other.hold(7, s * kSecond, 3 * kSecond, 3 * kSecond));
    }));
  };
  EXPECT_EQ(claims.hold(7, 5 * kSecond, 3 * kSecond, 3 * kSecond), Hold::kTaken);
  EXPECT_EQ(claims.hold(7, 6 * kSecond, 3 * kSecond, 3 * kSecond), Hold::kKept);
  EXPECT_EQ(elsewhere_at(1, 6), Hold::kOthers);
  EXPECT_EQ(elsewhere_at(2, 8), Hold::kOthers) << "it may be late";
  EXPECT_EQ(claims.hold(7, 9 * kSecond, 3 * kSecond, 3 * kSecond), Hold::kKept) << "nobody else has asked";
  EXPECT_EQ(elsewhere_at(3, 12), Hold::kTaken);
  EXPECT_EQ(claims.hold(7, 13 * kSecond, 3 * kSecond, 3 * kSecond), Hold::kOthers);
  EXPECT_EQ(claims.hold(7, 15 * kSecond, 3 * kSecond, 3 * kSecond), Hold::kTaken) << "that one has ended";
  EXPECT_EQ(claims.hold(8, 15 * kSecond, 3 * kSecond, 3 * kSecond), Hold::kTaken) << "something else";
}

/// Who computes for long comes back; who has ended does not.
TEST_F(ClaimsTest, Held_ByOneThatHasEnded_IsAnothersSooner) {
  using Hold = Claims::Hold;
  Claims claims;
  claims.open(folder(), 0);
  const auto hold = [](Claims& by, uint64_t s) { return by.hold(7, s * kSecond, 30 * kSecond, 3 * kSecond); };
  const auto elsewhere_at = [&](unsigned place, uint64_t s) {
    return static_cast<Hold>(
        elsewhere(place, [&](Claims& other) { return static_cast<int>(hold(other, s)); }));
  };
  EXPECT_EQ(hold(claims, 5), Hold::kTaken);
  EXPECT_EQ(elsewhere_at(1, 34), Hold::kOthers) << "this one has not ended";
  EXPECT_EQ(elsewhere_at(2, 35), Hold::kTaken);
  EXPECT_EQ(hold(claims, 37), Hold::kOthers) << "it may be late";
  EXPECT_EQ(hold(claims, 38), Hold::kTaken);
}

TEST_F(ClaimsTest, WhatLasts_IsEndedByOneProcess) {
  Claims a;
  a.open(folder(), 0);
  EXPECT_FALSE(a.lasts(7));
  EXPECT_EQ(elsewhere(1, [](Claims& b) { return b.begin(7), 0; }), 0);
  EXPECT_TRUE(a.lasts(7));
  EXPECT_FALSE(a.lasts(9));
  EXPECT_EQ(elsewhere(2, [](Claims& c) { return c.lasts(7) && c.end(7) ? 1 : 0; }), 1);
  EXPECT_FALSE(a.lasts(7));
  EXPECT_FALSE(a.end(7)) << "it has said so";
}

TEST_F(ClaimsTest, ManyThreadsAtOnce_OneHasIt) {
  std::atomic<int> told{0};
  std::atomic<int> counted{0};
  std::vector<std::thread> threads;
  std::vector<Claims> all(4);
  for (unsigned i = 0; i < 4; ++i) all[i].open(folder(), i);
  for (Claims& claims : all)
    threads.emplace_back([&] {
      for (unsigned i = 1; i <= 100; ++i) {
        const Claims::Turn turn = claims.take(i, kSecond, kSecond);
        told += turn.mine;
        counted += !turn.mine;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(told, 100);
  EXPECT_EQ(counted, 300);
}

TEST_F(ClaimsTest, ManyProcessesAtOnce_OneHasIt) {
  std::vector<pid_t> children;
  for (unsigned i = 0; i < 16; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      Claims claims;
      claims.open(folder(), i);
      _exit(claims.take_once(claim_key("it")) ? 1 : 0);
    }
    children.push_back(child);
  }
  int mine = 0;
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    mine += WEXITSTATUS(status);
  }
  EXPECT_EQ(mine, 1);
}

TEST_F(ClaimsTest, Once_IsOnceInAJob) {
  Claims a;
  a.open(folder(), 0);
  EXPECT_TRUE(a.take_once(claim_key("what", "here"), false)) << "shared: whoever comes first";
  EXPECT_FALSE(a.take_once(claim_key("what", "here")));
  EXPECT_TRUE(a.take_once(claim_key("what", "there")));
  EXPECT_EQ(elsewhere(1, [](Claims& b) { return b.take_once(claim_key("what", "here")) ? 1 : 0; }), 0);
  EXPECT_EQ(elsewhere(2, [](Claims& b) { return b.take_once(claim_key("why", "here")) ? 1 : 0; }), 1);
  EXPECT_FALSE(a.take_once(claim_key("why", "here"))) << "whoever said it has ended since";
}

/// The two components of a process have one table.
TEST_F(ClaimsTest, OpenedTwiceByOneProcess_IsOne) {
  Claims pml;
  Claims btl;
  pml.open(folder(), 3);
  btl.open(folder(), 3);
  ASSERT_TRUE(pml.shared() && btl.shared());
  EXPECT_TRUE(pml.take_once(7));
  EXPECT_FALSE(btl.take_once(7));
}

/// A process that ends removes the folder.
TEST_F(ClaimsTest, FolderThatWasRemovedMeanwhile_IsStillClaimedOnce) {
  Claims a;
  Claims b;
  a.open(folder(), 0);
  b.open(folder(), 1);
  EXPECT_TRUE(a.take_once(7));
  std::filesystem::remove_all(folder());
  EXPECT_FALSE(b.take_once(7));
  EXPECT_TRUE(b.take_once(9));
  EXPECT_FALSE(a.take_once(9));
}

TEST_F(ClaimsTest, MoreKeysThanRoom_AreToldRatherThanNot) {
  Claims claims;
  claims.open(folder(), 0);
  for (uint64_t i = 1; i < 2000; ++i) EXPECT_TRUE(claims.take(2 * i + 1, kSecond, kSecond).mine);
}

TEST_F(ClaimsTest, WaitForIt_EndsWhenItIsSaidOrTheTimeIsOver) {
  Claims first;
  Claims second;
  first.open(folder(), 0);
  second.open(folder(), 1);
  ASSERT_TRUE(first.take_once(7));
  ASSERT_FALSE(second.take_once(7));
  const auto begun = std::chrono::steady_clock::now();
  second.wait(7, 5);  // not said yet
  EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(5));
  first.said(7);
  second.wait(7, 1 << 30);
}

/// What a job left that ended badly must not silence the next one, whose processes have its places.
TEST_F(ClaimsTest, FileOfAnEarlierJob_SilencesNobody) {
  EXPECT_EQ(elsewhere(0, [](Claims& old) { return old.take_once(7) ? 1 : 0; }), 1);
  Claims claims;
  claims.open(folder(), 0);
  EXPECT_FALSE(claims.shared());
  EXPECT_TRUE(claims.take_once(7));
  EXPECT_FALSE(claims.take_once(7));
}

/// Another build's table, a link, a FIFO, a folder, no place: the process speaks for itself, or leaves it.
TEST_F(ClaimsTest, FileThatIsNotThisJobs_IsNotUsed) {
  for (const std::string what : {"text", "link", "fifo", "folder", "place"}) {
    std::filesystem::remove_all(file());
    if (what == "text") std::ofstream(file()) << "something else that is here";
    if (what == "link") {
      EXPECT_EQ(symlink("/etc/passwd", file().c_str()), 0);
    }
    if (what == "fifo") {
      EXPECT_EQ(mkfifo(file().c_str(), 0600), 0);
    }
    if (what == "folder") std::filesystem::create_directory(file());
    Claims claims;
    claims.open(folder(), what == "place" ? 1u << 20 : 0);
    EXPECT_FALSE(claims.shared()) << what;
    EXPECT_TRUE(claims.take(7, 1, kSecond).mine);
    EXPECT_FALSE(claims.take(7, 2, kSecond).mine);
    EXPECT_FALSE(claims.take_once(9, false));
  }
}

TEST_F(ClaimsTest, WithoutAFolder_IsWhatTheCallerSays) {
  for (const bool otherwise : {false, true}) {
    for (const char* const none : {static_cast<const char*>(nullptr), "", "/there/is/no/such/folder"}) {
      Claims claims;
      claims.open(none, 0);
      EXPECT_EQ(claims.take_once(7, otherwise), otherwise);
      claims.wait(7, 1 << 30);  // nobody else says it
    }
  }
}

TEST_F(ClaimsTest, NewFile_IsForItsOwnerOnly) {
  Claims claims;
  claims.open(folder(), 0);
  struct stat info {};
  ASSERT_EQ(stat(file().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(Claims, NotOpened_SpeaksForItself) {
  Claims claims;
  EXPECT_TRUE(claims.take(7, 1, 1).mine);
  EXPECT_TRUE(claims.take(7, 1, 1).mine);
  EXPECT_TRUE(claims.take_once(7));
  EXPECT_FALSE(claims.take_once(7, false));
  claims.begin(7);
  EXPECT_FALSE(claims.lasts(7));
  EXPECT_TRUE(claims.end(7));
}

}  // namespace
}  // namespace bfo
