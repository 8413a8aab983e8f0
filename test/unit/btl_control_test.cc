// SPDX-License-Identifier: BSD-3-Clause
//
// btl_control_test.cc: the lanes of control verbs: who runs a command, in which order, and what becomes of it
// when its lane closes.
#include <gtest/gtest.h>
#include <semaphore.h>

#include <string>
#include <thread>
#include <vector>

#include "btl/verbs/engine/control.h"

namespace bfo::test {
namespace {

using engine::Command;
using engine::ControlLane;
using engine::ControlMode;
using engine::Urgency;

std::vector<std::string>& log() {
  static std::vector<std::string> lines;
  return lines;
}

/// Notes that it ran, and that it was finished.
struct Note : Command {
  std::string name;
  std::thread::id ran_on;
  explicit Note(const char* what) : name(what) {
    run = [](Command& self) { static_cast<Note&>(self).ran_on = std::this_thread::get_id(); };
    done = [](Command& self) {
      log().push_back(static_cast<Note&>(self).name + (self.dropped ? " dropped" : ""));
    };
  }
};

/// Runs until it is let go.
struct Blocked : Note {
  sem_t begun;
  sem_t go;
  explicit Blocked(const char* what) : Note(what) {
    sem_init(&begun, 0, 0);
    sem_init(&go, 0, 0);
    run = [](Command& self) {
      auto& command = static_cast<Blocked&>(self);
      sem_post(&command.begun);
      while (sem_wait(&command.go) != 0) {
      }
    };
  }
  void wait_begun() {
    while (sem_wait(&begun) != 0) {
    }
  }
};

constexpr uint64_t kLong = 60'000'000'000;

struct Lane : ::testing::Test {
  std::atomic<bool> service_needed{false};
  ControlLane lane;
  void SetUp() override { log().clear(); }
  void finish_all() {
    while (lane.pending() != 0) {
      lane.finish();
      std::this_thread::yield();
    }
  }
};

TEST_F(Lane, Inline_RunsAndFinishesInSubmit) {
  lane.open(ControlMode::kInline, 1, &service_needed);
  Note note("a");
  lane.submit(note, Urgency::kNormal);
  EXPECT_EQ(log(), std::vector<std::string>{"a"});
  EXPECT_EQ(lane.pending(), 0u);
  EXPECT_TRUE(lane.close(0));
}

TEST_F(Lane, Deferred_UrgentFirst_ThenInOrder) {
  lane.open(ControlMode::kDeferred, 1, &service_needed);
  Note a("a"), b("b"), c("c"), d("d");
  lane.submit(a, Urgency::kLast);
  lane.submit(b, Urgency::kNormal);
  lane.submit(c, Urgency::kNormal);
  lane.submit(d, Urgency::kFirst);
  EXPECT_FALSE(service_needed);
  while (lane.run_one()) {
  }
  EXPECT_TRUE(service_needed);
  EXPECT_TRUE(log().empty()) << "results are taken by finish() only";
  lane.finish();
  EXPECT_EQ(log(), (std::vector<std::string>{"d", "b", "c", "a"}));
}

TEST_F(Lane, Thread_RunsElsewhere_FinishesHere) {
  lane.open(ControlMode::kThread, 1, &service_needed);
  Note a("a"), b("b");
  lane.submit(a, Urgency::kNormal);
  lane.submit(b, Urgency::kNormal);
  finish_all();
  EXPECT_TRUE(service_needed);
  EXPECT_NE(a.ran_on, std::this_thread::get_id());
  EXPECT_EQ(a.ran_on, b.ran_on);
  EXPECT_EQ(log(), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(lane.close(kLong));
}

TEST_F(Lane, Thread_ThatWaits_IsWokenByEachUrgency) {
  lane.open(ControlMode::kThread, 1, &service_needed);
  Note first("first");
  lane.submit(first, Urgency::kNormal);
  finish_all();
  for (const Urgency urgency : {Urgency::kFirst, Urgency::kNormal, Urgency::kLast}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it has nothing to do and waits
    Note next("next");
    lane.submit(next, urgency);
    for (int round = 0; round < 5000 && lane.pending() != 0; ++round) {
      lane.finish();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(lane.pending(), 0u) << "urgency " << static_cast<int>(urgency);
    if (lane.pending() != 0) break;
  }
  EXPECT_TRUE(lane.close(kLong));
}

TEST_F(Lane, Start_TheFirstCommandFindsItsThread) {
  lane.open(ControlMode::kThread, 1, &service_needed);
  EXPECT_EQ(lane.threads(), 0u) << "without start() it is made when there is something to do";
  lane.start();
  EXPECT_EQ(lane.threads(), 1u);
  lane.start();
  Note a("a");
  lane.submit(a, Urgency::kNormal);
  finish_all();
  EXPECT_EQ(lane.threads(), 1u);
  EXPECT_NE(a.ran_on, std::this_thread::get_id());
  EXPECT_TRUE(lane.close(kLong));
}

TEST_F(Lane, Start_AfterTheCloseOrWithoutThreads_IsNothing) {
  lane.start();
  EXPECT_EQ(lane.threads(), 0u);
  lane.open(ControlMode::kDeferred, 1, &service_needed);
  lane.start();
  EXPECT_EQ(lane.threads(), 0u);
  Note a("a");
  lane.submit(a, Urgency::kNormal);
  EXPECT_EQ(a.ran_on, std::thread::id{}) << "still when the test says so";
  EXPECT_TRUE(lane.close(kLong));
  lane.open(ControlMode::kThread, 1, &service_needed);
  EXPECT_TRUE(lane.close(kLong));
  lane.start();
  EXPECT_EQ(lane.threads(), 0u);
}

TEST_F(Lane, OneCommandBlocks_OthersOfAWideLaneGoOn) {
  lane.open(ControlMode::kThread, 2, &service_needed);
  Blocked blocked("blocked");
  lane.submit(blocked, Urgency::kNormal);
  blocked.wait_begun();
  Note a("a"), b("b");
  lane.submit(a, Urgency::kNormal);
  lane.submit(b, Urgency::kNormal);
  while (lane.pending() != 1) lane.finish();
  EXPECT_EQ(log(), (std::vector<std::string>{"a", "b"}));
  sem_post(&blocked.go);
  EXPECT_TRUE(lane.close(kLong));
  EXPECT_EQ(log().back(), "blocked");
}

TEST_F(Lane, Close_RunsWhatMust_DropsTheRest) {
  lane.open(ControlMode::kDeferred, 1, &service_needed);
  Note needed("needed"), useless("useless");
  useless.droppable = true;
  lane.submit(useless, Urgency::kNormal);
  lane.submit(needed, Urgency::kNormal);
  EXPECT_TRUE(lane.close(0));
  EXPECT_EQ(lane.pending(), 0u);
  EXPECT_EQ(log(), (std::vector<std::string>{"useless dropped", "needed"}));
  EXPECT_EQ(useless.ran_on, std::thread::id{});
}

TEST_F(Lane, Close_WaitsForTheThread) {
  lane.open(ControlMode::kThread, 1, &service_needed);
  Blocked blocked("blocked");
  lane.submit(blocked, Urgency::kNormal);
  blocked.wait_begun();
  Note needed("needed");
  lane.submit(needed, Urgency::kNormal);
  std::thread later([&] { sem_post(&blocked.go); });
  EXPECT_TRUE(lane.close(kLong));
  later.join();
  EXPECT_EQ(log(), (std::vector<std::string>{"blocked", "needed"}));
}

TEST_F(Lane, CommandNeverEnds_CloseGivesUpAndLeavesTheThread) {
  lane.open(ControlMode::kThread, 2, &service_needed);
  static Blocked blocked("blocked");  // the thread returns to it when this test is over
  lane.submit(blocked, Urgency::kNormal);
  blocked.wait_begun();
  EXPECT_FALSE(lane.close(1'000'000));
  EXPECT_TRUE(log().empty());
  service_needed = false;
  sem_post(&blocked.go);  // the thread ends by itself; it touches neither the lane nor the flag any more
  EXPECT_TRUE(lane.close(0));
}

TEST_F(Lane, ManyCommandsOfManyThreads_EachFinishesOnce) {
  lane.open(ControlMode::kThread, ControlLane::kMaxWidth, &service_needed);
  std::vector<Note> notes(2000, Note("x"));
  for (size_t i = 0; i < notes.size(); ++i) {
    lane.submit(notes[i], static_cast<Urgency>(i % 3));
    if (i % 7 == 0) lane.finish();
  }
  EXPECT_TRUE(lane.close(kLong));
  EXPECT_EQ(log().size(), notes.size());
}

}  // namespace
}  // namespace bfo::test
