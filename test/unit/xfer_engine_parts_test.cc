// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_engine_parts_test.cc: the parts of the engine, each alone: records that are used again, whom
// progress() looks at, what has to be done when the engine is left, losses of peers that are not known yet,
// completions behind other messages, grants of a sender.
#include <gtest/gtest.h>

#include <list>
#include <map>
#include <random>
#include <vector>

#include "pml/bfo/xfer/base/agenda.h"
#include "pml/bfo/xfer/rails/backlog.h"
#include "pml/bfo/xfer/base/by_key.h"
#include "pml/bfo/xfer/base/early_losses.h"
#include "pml/bfo/xfer/base/exit_work.h"
#include "pml/bfo/xfer/base/pool.h"
#include "test/unit/counted_memory.h"
#include "test/unit/fake_port.h"
#include "test/unit/fake_world.h"

namespace bfo::xfer {
namespace {

using Memory = test::CountedMemory;
using test::FakePort;

struct Record {
  Record* next = nullptr;
  int value = 7;
};

TEST(Pool, GivesTheLastOneFirst_AsItWas) {
  Memory memory;
  Pool<Record, &Record::next> pool;
  Record* const a = pool.take(memory);
  Record* const b = pool.take(memory);
  EXPECT_EQ(a->value, 7);
  a->value = 8;
  pool.give(b);
  pool.give(a);
  memory.left = 0;
  EXPECT_EQ(pool.take(memory), a);
  EXPECT_EQ(a->value, 8);
  EXPECT_EQ(pool.take(memory), b);
  EXPECT_EQ(pool.take(memory), nullptr) << "no memory";
  pool.give(a);
  pool.give(b);
  pool.free_all(memory);
  EXPECT_EQ(memory.live, 0);
}

TEST(Agenda, PeersThatWait) {
  Agenda<FakePort> agenda;
  Peer<FakePort> a;
  Peer<FakePort> b;
  EXPECT_TRUE(agenda.empty());
  agenda.activate(a);
  agenda.activate(b);
  agenda.activate(a);
  std::vector<Peer<FakePort>*> seen;
  agenda.each_active([&](Peer<FakePort>& p) {
    seen.push_back(&p);
    agenda.deactivate(p);
  });
  EXPECT_EQ(seen, (std::vector<Peer<FakePort>*>{&a, &b}));
  EXPECT_TRUE(agenda.empty());
  agenda.deactivate(a);
  EXPECT_TRUE(agenda.empty());
}

TEST(Agenda, TimersAreSetAgain) {
  Agenda<FakePort> agenda;
  Peer<FakePort> a;
  EXPECT_FALSE(agenda.due(1)) << "nobody waits";
  agenda.set_timer(a);
  agenda.set_timer(a);
  EXPECT_TRUE(agenda.due(1));
  int looks = 0;
  agenda.each_timed([&](Peer<FakePort>& p) {
    ++looks;
    agenda.set_timer(p);
  });
  EXPECT_EQ(looks, 1);
  EXPECT_FALSE(agenda.empty());
  agenda.each_timed([&](Peer<FakePort>&) { ++looks; });
  EXPECT_EQ(looks, 2);
  EXPECT_TRUE(agenda.empty());
}

TEST(Agenda, LooksOnceAMillisecond_AndNoticesAnAbsence) {
  Agenda<FakePort> agenda;
  Peer<FakePort> a;
  agenda.set_timer(a);
  constexpr uint64_t kStart = 5'000'000'000;
  EXPECT_TRUE(agenda.begin_look(kStart)) << "the first one";
  EXPECT_FALSE(agenda.due(kStart + 999'999));
  EXPECT_TRUE(agenda.due(kStart + 1'000'000));
  EXPECT_FALSE(agenda.begin_look(kStart + 1'000'000));
  EXPECT_FALSE(agenda.begin_look(kStart + 2'002'000'000));
  EXPECT_TRUE(agenda.begin_look(kStart + 4'003'000'001));
}

TEST(Agenda, RanksStayWhileTheirSendsAreStalled) {
  Agenda<FakePort> agenda;
  Proc<FakePort> p[3];
  test::FakePort::SendRequest send[3];
  for (int i = 0; i < 3; ++i) {
    p[i].stalled.push_back(&send[i]);
    agenda.add_stalled(p[i]);
    agenda.add_stalled(p[i]);
  }
  agenda.remove_stalled(p[1]);
  std::vector<Proc<FakePort>*> seen;
  agenda.each_stalled([&](Proc<FakePort>& q) {
    seen.push_back(&q);
    if (&q == &p[0]) q.stalled.remove(&send[0]);
  });
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_FALSE(p[0].in_stalled);
  EXPECT_TRUE(p[2].in_stalled);
  agenda.each_stalled([&](Proc<FakePort>& q) { q.stalled.remove(&send[2]); });
  EXPECT_TRUE(agenda.empty());
}

TEST(ExitWork, CallbacksInOrder_ThenCompletions) {
  Memory memory;
  ExitWork<FakePort> work;
  EXPECT_FALSE(work.any());
  const char bytes[] = "abc";
  EXPECT_TRUE(work.add_message(memory, nullptr, 3, 65, bytes, sizeof bytes, false));
  EXPECT_TRUE(work.add_message(memory, nullptr, 4, 66, bytes, 1, true));
  memory.left = 0;
  EXPECT_FALSE(work.add_message(memory, nullptr, 5, 67, bytes, 1, true)) << "no memory";
  EXPECT_TRUE(work.any() && work.has_message());
  auto* m = work.take_message();
  EXPECT_EQ(m->epoch, 3u);
  EXPECT_STREQ(reinterpret_cast<const char*>(m->bytes()), "abc");
  memory.free(m);
  m = work.take_message();
  EXPECT_TRUE(m->failed);
  memory.free(m);
  EXPECT_EQ(work.take_message(), nullptr);
  FakePort::SendRequest send[3];
  FakePort::RecvRequest recv;
  for (auto& s : send) work.add_complete(s);
  work.add_complete(recv);
  EXPECT_FALSE(work.has_deferred()) << "nothing but completions";
  auto done = work.take_completed();
  EXPECT_FALSE(work.any());
  for (auto& s : send) {
    EXPECT_EQ(done.sends.pop_front(), &s);
    s.xfer.next = &send[0];  // its owner has it again, in another list
  }
  EXPECT_EQ(done.sends.pop_front(), nullptr);
  EXPECT_EQ(done.recvs.pop_front(), &recv);
  EXPECT_EQ(done.recvs.pop_front(), nullptr);
  EXPECT_EQ(work.take_completed().sends.pop_front(), nullptr);
  work.add_failure();
  EXPECT_TRUE(work.any() && work.has_failure());
  EXPECT_EQ(memory.live, 0);
}

TEST(ExitWork, WokenHasSomethingToDo) {
  ExitWork<FakePort> work;
  work.wake();
  EXPECT_TRUE(work.any());
}

struct Keyed {
  uint64_t key = 0;
  struct Key {
    static uint64_t of(const Keyed* k) { return k->key; }
  };
};

/// Against a map, with keys that share their places.
TEST(ByKey, FindsWhatIsThere) {
  Memory memory;
  ByKey<Keyed, Keyed::Key> table;
  std::map<uint64_t, Keyed*> model;
  std::list<Keyed> all;
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t key = (random() % 300) << (random() % 2 * 40);
    const auto known = model.find(key);
    ASSERT_EQ(table.find(key), known == model.end() ? nullptr : known->second);
    if (random() % 2 == 0) {
      Keyed* const k = &all.emplace_back(Keyed{key});
      ASSERT_TRUE(table.add(memory, k));
      model.emplace(key, k);
    } else if (known != model.end()) {
      Keyed other{key};
      table.remove(&other);  // another one with its key
      ASSERT_EQ(table.find(key), known->second);
      table.remove(known->second);
      model.erase(known);
    }
    ASSERT_EQ(table.size(), model.size());
  }
  size_t seen = 0;
  for (uint32_t next = 0; const Keyed* const k = table.each(next); ++seen) EXPECT_EQ(model.at(k->key), k);
  EXPECT_EQ(seen, model.size());
  table.drop(memory);
  EXPECT_EQ(memory.live, 0);
}

TEST(ByKey, WithoutMemory_NothingHasChanged) {
  Memory memory;
  memory.left = 1;
  ByKey<Keyed, Keyed::Key> table;
  std::list<Keyed> all;
  uint64_t added = 0;
  while (table.add(memory, &all.emplace_back(Keyed{added + 1}))) ++added;
  EXPECT_GT(added, 8u);
  EXPECT_EQ(table.size(), added);
  for (uint64_t key = 1; key <= added; ++key) EXPECT_NE(table.find(key), nullptr);
  EXPECT_EQ(table.find(added + 1), nullptr);
  table.drop(memory);
  EXPECT_EQ(memory.live, 0);
}

TEST(EarlyLosses, FirstOneOfAConnectionCounts) {
  Memory memory;
  EarlyLosses losses;
  EXPECT_EQ(losses.keep(memory, 7, PeerLoss{Outcome::kNoMemory, 100, true}), EarlyLosses::Kept::kYes);
  EXPECT_EQ(losses.keep(memory, 7, PeerLoss{Outcome::kMessageLost}), EarlyLosses::Kept::kYes);
  EXPECT_EQ(losses.keep(memory, 8, PeerLoss{Outcome::kMessageLost}), EarlyLosses::Kept::kYes);
  EXPECT_EQ(memory.live, 3) << "two records and their table";
  PeerLoss loss;
  EXPECT_FALSE(losses.take(memory, 9, loss));
  EXPECT_TRUE(losses.take(memory, 7, loss));
  EXPECT_EQ(loss.outcome, Outcome::kNoMemory);
  EXPECT_EQ(loss.bytes, 100u);
  EXPECT_FALSE(losses.take(memory, 7, loss));
  losses.free_all(memory);
  EXPECT_TRUE(losses.empty());
  EXPECT_EQ(memory.live, 0);
}

TEST(EarlyLosses, AreBounded) {
  Memory memory;
  memory.left = 3;
  EarlyLosses losses;
  losses.keep(memory, 1, {});
  losses.keep(memory, 2, {});
  EXPECT_EQ(losses.keep(memory, 3, {}), EarlyLosses::Kept::kNoMemory);
  memory.left = EarlyLosses::kMost + 16;
  for (uint64_t conn = 3; conn <= EarlyLosses::kMost; ++conn)
    ASSERT_EQ(losses.keep(memory, conn, {}), EarlyLosses::Kept::kYes);
  EXPECT_EQ(losses.keep(memory, EarlyLosses::kMost + 1, {}), EarlyLosses::Kept::kFull);
  losses.free_all(memory);
  EXPECT_EQ(memory.live, 0);
}

Grant<FakePort>* grant(Memory& memory, GrantPool<FakePort>& pool, uint32_t number) {
  Grant<FakePort>* const g = pool.take(memory);
  ::new (g) Grant<FakePort>;
  g->number = number;
  return g;
}

TEST(Backlog, FindsACompletionBehindOthers) {
  Backlog<FakePort> backlog;
  EXPECT_TRUE(backlog.nothing_stored());
  FakePort::Frag frag[2];
  for (auto& f : frag) {
    f.xfer.buffer = nullptr;
    f.xfer.stored_len = sizeof(core::FinHdr);
  }
  frag[0].xfer.stored[0] = static_cast<uint8_t>(core::MsgType::kMatch);
  frag[1].xfer.stored[0] = static_cast<uint8_t>(core::MsgType::kAck);
  Memory memory;
  backlog.store(&frag[0]);
  EXPECT_FALSE(backlog.nothing_stored());
  EXPECT_FALSE(backlog.completion_waits());
  EXPECT_EQ(backlog.answers(), 0u);
  struct {
    Unrecorded<FakePort> record;
    uint8_t bytes[32] = {static_cast<uint8_t>(core::MsgType::kRestartNack)};
  } late;
  late.record.size = sizeof late.bytes;
  backlog.store(memory, &late.record);
  EXPECT_TRUE(backlog.completion_waits()) << "also without a fragment record";
  EXPECT_EQ(backlog.answers(), 1u);
  backlog.remove(memory, &late.record);
  EXPECT_FALSE(backlog.completion_waits());
  backlog.store(&frag[1]);
  EXPECT_TRUE(backlog.completion_waits());
  size_t n = 0;
  backlog.each_stored([&](const void*, size_t size) { n += size; });
  EXPECT_EQ(n, 2 * sizeof(core::FinHdr));
  EXPECT_EQ(backlog.take_stored(), &frag[0]);
  EXPECT_TRUE(backlog.completion_waits());
  EXPECT_EQ(backlog.take_stored(), &frag[1]);
  EXPECT_FALSE(backlog.completion_waits());
  EXPECT_TRUE(backlog.nothing_stored());
}

TEST(Grants, AreWrittenInOrderOfArrival_OrWaitOn) {
  Memory memory;
  GrantPool<FakePort> pool;
  Grants<FakePort> grants;
  for (const uint32_t n : {3u, 1u, 2u}) {
    EXPECT_EQ(grants.arrive(n), Grants<FakePort>::Arrival::kNew);
    grants.push_back(grant(memory, pool, n));
  }
  std::vector<uint32_t> seen;
  grants.each(pool, [&](Grant<FakePort>& g) {
    seen.push_back(g.number);
    return g.number != 3;
  });
  EXPECT_EQ(seen, (std::vector<uint32_t>{3, 1, 2}));
  grants.push_back(grant(memory, pool, 4));
  EXPECT_EQ(memory.live, 3) << "the record of 3 is used again";
  seen.clear();
  grants.each(pool, [&](Grant<FakePort>& g) {
    seen.push_back(g.number);
    return g.number == 1;
  });
  EXPECT_EQ(seen, (std::vector<uint32_t>{1, 2, 4}));
  EXPECT_FALSE(grants.empty());
  grants.clear(pool);
  EXPECT_TRUE(grants.empty());
  pool.free_all(memory);
  EXPECT_EQ(memory.live, 0);
}

TEST(Grants, DuplicatesAndForgedNumbersAreNoticed) {
  using Arrival = Grants<FakePort>::Arrival;
  Grants<FakePort> grants;
  EXPECT_EQ(grants.arrive(1), Arrival::kNew);
  EXPECT_EQ(grants.arrive(1), Arrival::kDuplicate);
  EXPECT_EQ(grants.arrive(2 + Grants<FakePort>::kMost), Arrival::kForged) << "the first missing one is 2";
  EXPECT_EQ(grants.arrive(1 + Grants<FakePort>::kMost), Arrival::kNew);
  grants.forget_arrivals();
  EXPECT_EQ(grants.arrive(1), Arrival::kNew) << "of another round";
}

}  // namespace
}  // namespace bfo::xfer
