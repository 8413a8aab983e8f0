// SPDX-License-Identifier: BSD-3-Clause
//
// btl_control_test.cc: the lanes of control verbs: who runs a command, in which order, and what becomes of it
// when its lane closes.
#include <gtest/gtest.h>
#include <semaphore.h>

#include <string>
#include <thread>
#include <vector>

#include "btl/verbs/engine/device/control.h"

namespace bfo::test {
namespace {

using engine::Command;
using engine::ControlLane;
using engine::ControlMode;
using engine::ControlThreads;
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

constexpr uint64_t kShort = 20'000'000;

bool becomes(const ControlThreads& threads, uint32_t count) {
  for (int round = 0; round < 5000 && threads.count() != count; ++round)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return threads.count() == count;
}

TEST_F(Lane, ThreadWithoutWork_EndsAndIsMadeAgain) {
  ControlThreads threads;
  ASSERT_TRUE(threads.open(4, kShort));
  lane.open(ControlMode::kThread, 1, &service_needed, &threads);
  EXPECT_EQ(threads.count(), 0u) << "it is made when there is something to do";
  for (int times = 0; times < 3; ++times) {
    Note a("a");
    lane.submit(a, Urgency::kNormal);
    finish_all();
    EXPECT_TRUE(becomes(threads, 0));
  }
  EXPECT_EQ(log(), (std::vector<std::string>{"a", "a", "a"}));
  EXPECT_TRUE(lane.close(kLong));
}

TEST_F(Lane, KeptThread_IsThereBeforeTheFirstCommandAndStays) {
  ControlThreads threads;
  threads.keep(1);  // not open
  ASSERT_TRUE(threads.open(4, kShort));
  lane.open(ControlMode::kThread, 2, &service_needed, &threads);
  threads.keep(1);
  EXPECT_EQ(threads.count(), 1u);
  Blocked one("one"), two("two");
  lane.submit(one, Urgency::kNormal);
  lane.submit(two, Urgency::kNormal);
  one.wait_begun();
  two.wait_begun();
  EXPECT_TRUE(becomes(threads, 3)) << "one stays free";
  sem_post(&one.go);
  sem_post(&two.go);
  finish_all();
  EXPECT_TRUE(becomes(threads, 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_EQ(threads.count(), 1u);
  EXPECT_TRUE(lane.close(kLong));
  threads.close();
  EXPECT_EQ(threads.count(), 0u);
}

/// It comes again and again: a thread that is made for the while would be made each time.
TEST_F(Lane, BriefCommand_HasTheKeptThread_AndWhoComesMeanwhileItsOwn) {
  ControlThreads threads;
  ASSERT_TRUE(threads.open(4, kShort));
  lane.open(ControlMode::kThread, 2, &service_needed, &threads);
  threads.keep(1);
  Blocked brief("brief"), other("other");
  brief.brief = true;
  lane.submit(brief, Urgency::kLast);
  brief.wait_begun();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(threads.count(), 1u);
  lane.submit(other, Urgency::kNormal);
  other.wait_begun();
  EXPECT_TRUE(becomes(threads, 3)) << "one stays free, as always";
  sem_post(&brief.go);
  sem_post(&other.go);
  finish_all();
  EXPECT_TRUE(becomes(threads, 1));
  EXPECT_TRUE(lane.close(kLong));
}

struct Shared : Lane {
  ControlThreads threads;
  ControlLane urgent;
  ControlLane other;
  void open(uint32_t most) {
    ASSERT_TRUE(threads.open(most, kShort));
    urgent.open(ControlMode::kThread, 1, &service_needed, &threads, true);
    lane.open(ControlMode::kThread, ControlLane::kMaxWidth, &service_needed, &threads);
    other.open(ControlMode::kThread, 1, &service_needed, &threads);
  }
  static bool ends(ControlLane& of, int milliseconds) {
    for (int round = 0; round < milliseconds && of.pending() != 0; ++round) {
      of.finish();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return of.pending() == 0;
  }
};

TEST_F(Shared, BlockedCommands_LeaveEachOtherLaneAThread) {
  open(3);
  Blocked one("one"), two("two");
  lane.submit(one, Urgency::kNormal);
  lane.submit(two, Urgency::kNormal);
  one.wait_begun();
  Note a("a"), b("b");
  other.submit(a, Urgency::kNormal);
  urgent.submit(b, Urgency::kFirst);
  EXPECT_TRUE(ends(other, 5000));
  EXPECT_TRUE(ends(urgent, 5000));
  EXPECT_NE(sem_trywait(&two.begun), 0) << "it takes the room of another lane's first command";
  EXPECT_LE(threads.count(), 3u);
  sem_post(&one.go);
  sem_post(&two.go);
  EXPECT_TRUE(lane.close(kLong));
  EXPECT_TRUE(other.close(kLong));
  EXPECT_TRUE(urgent.close(kLong));
}

TEST_F(Shared, TooFewThreads_TheUrgentLaneHasTheLast) {
  open(2);
  Blocked blocked("blocked");
  lane.submit(blocked, Urgency::kNormal);
  blocked.wait_begun();
  Note a("a"), b("b");
  other.submit(a, Urgency::kNormal);
  EXPECT_FALSE(ends(other, 30));
  urgent.submit(b, Urgency::kFirst);
  EXPECT_TRUE(ends(urgent, 5000));
  EXPECT_EQ(other.pending(), 1u);
  sem_post(&blocked.go);
  EXPECT_TRUE(ends(other, 5000));
  EXPECT_TRUE(lane.close(kLong));
  EXPECT_TRUE(other.close(kLong));
  EXPECT_TRUE(urgent.close(kLong));
}

TEST_F(Shared, OneThread_RunsAllInTurn_AndBlocksNoOtherPort) {
  open(1);
  ControlThreads of_another_port;
  ASSERT_TRUE(of_another_port.open(1, kShort));
  ControlLane elsewhere;
  elsewhere.open(ControlMode::kThread, 1, &service_needed, &of_another_port);
  Blocked blocked("blocked");
  lane.submit(blocked, Urgency::kNormal);
  blocked.wait_begun();
  Note a("a"), b("b");
  urgent.submit(a, Urgency::kFirst);
  elsewhere.submit(b, Urgency::kNormal);
  EXPECT_TRUE(ends(elsewhere, 5000));
  EXPECT_FALSE(ends(urgent, 30));
  EXPECT_EQ(threads.count(), 1u);
  sem_post(&blocked.go);
  EXPECT_TRUE(ends(urgent, 5000));
  EXPECT_TRUE(lane.close(kLong));
  EXPECT_TRUE(other.close(kLong));
  EXPECT_TRUE(urgent.close(kLong));
  EXPECT_TRUE(elsewhere.close(kLong));
}

TEST_F(Shared, StuckCommand_OthersCloseWithoutWaitingForIt) {
  open(1);
  static Blocked blocked("blocked");  // the thread returns to it when this test is over
  static Note waiting("waiting");
  waiting.droppable = true;
  lane.submit(blocked, Urgency::kNormal);
  blocked.wait_begun();
  other.submit(waiting, Urgency::kNormal);
  EXPECT_FALSE(lane.close(1'000'000));
  const auto before = std::chrono::steady_clock::now();
  EXPECT_FALSE(other.close(kLong)) << "its command was not run";
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(30));
  EXPECT_TRUE(urgent.close(kLong));
  threads.close();
  sem_post(&blocked.go);
}

TEST_F(Lane, Threads_EndAndBeginWhileCommandsCome) {
  ControlThreads threads;
  ASSERT_TRUE(threads.open(3, 1000));
  lane.open(ControlMode::kThread, ControlLane::kMaxWidth, &service_needed, &threads);
  ControlLane second;
  second.open(ControlMode::kThread, 1, &service_needed, &threads);
  std::vector<Note> notes(600, Note("x"));
  for (size_t i = 0; i < notes.size(); ++i) {
    (i % 3 == 0 ? second : lane).submit(notes[i], Urgency::kNormal);
    if (i % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(i % 200));
    lane.finish();
    second.finish();
  }
  EXPECT_TRUE(lane.close(kLong));
  EXPECT_TRUE(second.close(kLong));
  EXPECT_EQ(log().size(), notes.size());
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

/// What a thread does after its last command, when it gives its memory back.
std::atomic<int> ended_entirely{0};
struct LateEnd {
  int begun = 0;
  ~LateEnd() {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ++ended_entirely;
  }
};
thread_local LateEnd late_end;

TEST_F(Lane, Close_ThreadsHaveEndedEntirely) {
  ControlThreads threads;
  ASSERT_TRUE(threads.open(3, 1000));
  lane.open(ControlMode::kThread, 3, &service_needed, &threads);
  ended_entirely = 0;
  Note notes[] = {Note("a"), Note("b"), Note("c"), Note("d")};
  std::atomic<int> begun{0};
  static std::atomic<int>* count;
  count = &begun;
  for (Note& note : notes) {
    note.run = [](Command&) {
      if (late_end.begun++ == 0) ++*count;
    };
    lane.submit(note, Urgency::kNormal);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // some end before the lane closes
  }
  EXPECT_TRUE(lane.close(kLong));
  threads.close();
  EXPECT_GE(begun, 1);
  EXPECT_EQ(ended_entirely, begun);
}

TEST_F(Lane, CommandNeverEnds_OthersWaitBehindIt_KeptThreadsEnd) {
  ControlThreads threads;
  ASSERT_TRUE(threads.open(4));
  threads.keep(1);
  ControlLane narrow;
  narrow.open(ControlMode::kThread, 1, &service_needed, &threads);
  static Blocked blocked("blocked");  // the thread returns to them when this test is over
  static Note behind("behind");
  narrow.submit(blocked, Urgency::kNormal);
  narrow.submit(behind, Urgency::kNormal);
  blocked.wait_begun();
  EXPECT_FALSE(narrow.close(1'000'000));
  threads.close();
  sem_post(&blocked.go);
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
