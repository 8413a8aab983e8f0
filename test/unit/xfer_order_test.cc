// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_order_test.cc: what ends a send of the peer is not overtaken by what the user sends later: whoever
// knows from a message that his send was received finds it complete.
#include <gtest/gtest.h>

#include <random>

#include "test/unit/failover_steps.h"
#include "test/unit/fake_world.h"
#include "test/unit/pattern.h"

namespace bfo::test {
namespace {

constexpr size_t kLong = 20000;

World::Options three_rails() {
  World::Options o;
  o.rails = 3;
  o.eager = 4096;
  o.get = true;
  o.config.short_limit = 256;
  o.preferred_key = 4;  // the second of three rails
  return o;
}

/// Rank 0 has sent, rank 1 has received: what tells rank 0 so is under way.
SendReq* received_here(World& w, size_t n, xfer::SendMode mode = xfer::SendMode::kStandard) {
  RecvReq* const r = w.irecv(1, 0, 1, n);
  SendReq* const s = w.isend(0, 1, 1, pattern(n, 1), mode);
  while (!r->done && !w.flights.empty()) w.take();
  EXPECT_TRUE(r->done);
  EXPECT_FALSE(s->done);
  return s;
}

/// The rails of what rank 1 sends to rank 0, oldest first.
std::vector<int> rails_back(const World& w) {
  std::vector<int> rails;
  for (const Flight& f : w.flights)
    if (f.from == 1) rails.push_back(f.rail);
  return rails;
}

/// Rank 1 finds that a rail moves a hundredth of the others, or that it is far.
void slow_down(World& w, int slow, bool far = false) {
  auto& peer = *w.rail(1, 0, slow)->peer;
  for (const int rail : {0, 1, 2}) w.rail(1, 0, rail)->goodput.told(rail == slow ? 100 : 10'000, w.now);
  if (far) w.rail(1, 0, slow)->goodput.guess({10'000, 2'000'000}, w.now);
  for (int i = 0; i < 3; ++i) peer.choice.weigh();
  ASSERT_TRUE(peer.choice.uneven());
  xfer::settle_preferred(peer);
}

/// Takes the oldest of what is under way but messages to rank 0: READs of rank 1 and messages to it. False:
/// there is nothing.
bool take_none_back(World& w) {
  for (size_t i = 0; i < w.flights.size(); ++i) {
    if (w.flights[i].from == 1 && w.flights[i].kind == Flight::Kind::kSend) continue;
    w.take(i);
    return true;
  }
  return false;
}

void every_size_follows(World& w, SendReq* ended) {
  ASSERT_EQ(rails_back(w).size(), 1u);
  const int rail = rails_back(w).front();
  for (const size_t n : {0u, 8u, 255u, 256u, 1000u, 4000u, 5000u, 30000u})
    for (int k = 0; k < 3; ++k) w.isend(1, 0, 2, pattern(n, 2));
  EXPECT_EQ(rails_back(w), std::vector<int>(25, rail));
  w.take(w.first_of(1, 0, rail));
  EXPECT_TRUE(ended->done);
}

TEST(Order, EndOfAGet_EverySizeFollowsIt) {
  World w(three_rails());
  every_size_follows(w, received_here(w, kLong));
}

TEST(Order, EndOfASynchronousSend_EverySizeFollowsIt) {
  World::Options o = three_rails();
  o.get = false;  // an ACK, not a FIN
  World w(o);
  every_size_follows(w, received_here(w, 100, xfer::SendMode::kSync));
}

TEST(Order, EndOfATruncatedSend_EverySizeFollowsIt) {
  World::Options o = three_rails();
  o.get = false;
  World w(o);
  RecvReq* const r = w.irecv(1, 0, 1, 10);
  SendReq* const s = w.isend(0, 1, 1, pattern(kLong, 1));
  while (!r->done && !w.flights.empty()) w.take();
  ASSERT_TRUE(r->done);
  every_size_follows(w, s);
}

TEST(Order, WhenItHasEnded_MessagesSpreadAgain) {
  World w(three_rails());
  received_here(w, kLong);
  ASSERT_TRUE(w.run());
  for (int i = 0; i < 60; ++i) w.isend(1, 0, 2, pattern(1000, 2));
  const std::vector<int> rails = rails_back(w);
  ASSERT_EQ(rails.size(), 60u);
  for (const int rail : {0, 1, 2}) EXPECT_GT(std::count(rails.begin(), rails.end(), rail), 0) << rail;
  w.isend(1, 0, 2, pattern(8, 2));
  EXPECT_EQ(rails_back(w).back(), 1);
}

/// The end has no record, so its rail is asked for all work that it had at the first question: the message
/// that asked is not part of that, those before it are.
TEST(Order, OthersFollowItsRail_MessagesSpreadAgainWhenTheyHaveEnded) {
  World w(three_rails());
  SendReq* const s = received_here(w, kLong);
  w.isend(1, 0, 2, pattern(8, 2));
  w.isend(1, 0, 2, pattern(1000, 2));  // asks
  EXPECT_EQ(rails_back(w), (std::vector<int>{1, 1, 1}));
  w.take(w.first_of(1, 0, 1));
  EXPECT_TRUE(s->done);
  for (int i = 0; i < 40; ++i) w.isend(1, 0, 2, pattern(1000, 2));
  EXPECT_EQ(rails_back(w), std::vector<int>(42, 1)) << "the first 8 bytes are under way";
  w.take(w.first_of(1, 0, 1));
  for (int i = 0; i < 40; ++i) w.isend(1, 0, 2, pattern(1000, 2));
  std::vector<int> rails = rails_back(w);
  EXPECT_GT(std::count(rails.begin() + 60, rails.end(), 0), 0);
  EXPECT_GT(std::count(rails.begin() + 60, rails.end(), 2), 0);
}

/// Rank 1 only receives, so no message of its user asks whether the end before has ended.
TEST(Order, ItsRailTurnsOutSlow_TheNextOneTakesAnother) {
  World w(three_rails());
  received_here(w, kLong);
  ASSERT_EQ(rails_back(w), std::vector<int>{1});
  ASSERT_TRUE(w.run());
  slow_down(w, 1);
  received_here(w, kLong);
  const std::vector<int> rails = rails_back(w);
  ASSERT_EQ(rails.size(), 1u);
  EXPECT_NE(rails.front(), 1);
}

/// There is always one under way: over a rail that is far each of many takes longer than it takes to read the
/// next message.
TEST(Order, ItsRailTurnsOutFar_WhileOneIsUnderWay_TheNextOnesWaitForIt) {
  World w(three_rails());
  SendReq* const first = received_here(w, kLong);
  ASSERT_EQ(rails_back(w), std::vector<int>{1});
  slow_down(w, 1, true);
  std::vector<SendReq*> sends;
  for (int i = 0; i < 3; ++i) {
    RecvReq* const r = w.irecv(1, 0, 1, kLong);
    sends.push_back(w.isend(0, 1, 1, pattern(kLong, 1)));
    while (!r->done && take_none_back(w)) continue;
    ASSERT_TRUE(r->done);
  }
  w.isend(1, 0, 2, pattern(8, 2));
  for (int i = 0; i < 100; ++i) w.engines[1]->progress(w.now += 1000);
  EXPECT_EQ(rails_back(w), std::vector<int>{1}) << "nor does a message of the user overtake them";
  w.take(w.first_of(1, 0, 1));
  EXPECT_TRUE(first->done);
  for (int i = 0; i < 100; ++i) w.engines[1]->progress(w.now += 1000);
  const std::vector<int> rails = rails_back(w);
  ASSERT_EQ(rails.size(), 4u);
  for (const int rail : rails) EXPECT_NE(rail, 1);
  ASSERT_TRUE(w.run());
  for (const SendReq* s : sends) EXPECT_TRUE(s->done);
}

/// They are behind READs there, and end when these have: much later than they arrive.
TEST(Order, ItsRailMovesLess_WhileOneIsUnderWay_TheNextOneFollowsIt) {
  World w(three_rails());
  SendReq* const first = received_here(w, kLong);
  slow_down(w, 1);
  constexpr uint64_t kReads = 1 << 20;
  w.rail(1, 0, 1)->inflight_bytes += kReads;
  RecvReq* const r = w.irecv(1, 0, 1, kLong);
  SendReq* const next = w.isend(0, 1, 1, pattern(kLong, 1));
  while (!r->done && take_none_back(w)) continue;
  ASSERT_TRUE(r->done);
  EXPECT_EQ(rails_back(w), (std::vector<int>{1, 1}));
  w.rail(1, 0, 1)->inflight_bytes -= kReads;
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(first->done && next->done);
}

/// The rail over which they are under way dies: nothing waits for it.
TEST(Order, ItsFarRailDies_TheNextOnesGoOn) {
  World w(three_rails());
  SendReq* const first = received_here(w, kLong);
  slow_down(w, 1, true);
  RecvReq* const r = w.irecv(1, 0, 1, kLong);
  SendReq* const next = w.isend(0, 1, 1, pattern(kLong, 1));
  while (!r->done && take_none_back(w)) continue;
  ASSERT_TRUE(r->done);
  EXPECT_EQ(rails_back(w), std::vector<int>{1});
  w.kill(0, 1, 1);
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(first->done);
  EXPECT_TRUE(next->done);
}

/// Who receives copies measures nothing: its ACK takes the rail that the sender has chosen for the header.
TEST(Order, AckOfCopies_GoesBackOverTheRailOfTheHeader) {
  World::Options o = three_rails();
  o.get = false;
  World w(o);
  std::vector<int> rails;
  for (int i = 0; i < 7; ++i) {
    w.rail(0, 1, 0)->peer->choice.prefer(nullptr);  // in turn
    w.rail(1, 0, 0)->peer->choice.next();           // another turn here
    RecvReq* const r = w.irecv(1, 0, 1, kLong);
    SendReq* const s = w.isend(0, 1, 1, pattern(kLong, 1));
    ASSERT_EQ(w.flights.size(), 1u);
    rails.push_back(w.flights.front().rail);
    w.take();
    EXPECT_EQ(rails_back(w), std::vector<int>{rails.back()});
    ASSERT_TRUE(w.run());
    EXPECT_TRUE(s->done && r->done);
  }
  for (const int rail : {0, 1, 2}) EXPECT_NE(std::count(rails.begin(), rails.end(), rail), 0) << rail;
}

TEST(Order, ItHasNoRoom_WhatTheUserSendsWaitsBehindIt) {
  World::Options o = three_rails();
  o.rails = 1;
  o.preferred_key = 0;
  o.rdma_frag = kLong;  // one READ
  World w(o);
  RecvReq* const r = w.irecv(1, 0, 1, kLong);
  SendReq* const s = w.isend(0, 1, 1, pattern(kLong, 1));
  w.take();  // RGET
  w.options.capacity = 0;
  while (!r->done && !w.flights.empty()) w.take();
  ASSERT_TRUE(r->done);
  ASSERT_TRUE(w.flights.empty()) << "there is no room for the FIN";
  w.options.capacity = 100;
  RecvReq* const word = w.irecv(0, 1, 2, 8);
  w.isend(1, 0, 2, pattern(8, 2));
  while (!word->done) {
    if (w.flights.empty()) {
      ASSERT_GT(w.engines[1]->progress(w.now += 1000), 0);
      continue;
    }
    w.take();
  }
  EXPECT_TRUE(s->done);
}

TEST(Order, ItsRailDies_NothingWaitsForIt) {
  World w(three_rails());
  SendReq* const s = received_here(w, kLong);
  const int rail = rails_back(w).front();
  w.hold_close = true;
  w.kill(0, 1, rail);
  RecvReq* const word = w.irecv(0, 1, 2, 8);
  w.isend(1, 0, 2, pattern(8, 2));
  while (!word->done && !w.flights.empty()) w.take();
  EXPECT_TRUE(word->done);
  w.hold_close = false;
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(s->done);
}

/// Rails deliver in any order among each other, some have little room, others come and go. Rank 1 answers
/// each message it has received with one of any size; when rank 0 has the answer, its send is complete.
TEST(Order, AnyOrderOfRails_AnAnswerComesAfterTheEnd) {
  for (unsigned seed = 1; seed <= 400; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&random](unsigned n) { return random() % n; };
    World::Options o = three_rails();
    o.get = below(3) != 0;
    o.put = below(2) != 0;
    o.sendi = below(4) != 0;
    o.capacity = below(2) ? 1 + static_cast<int>(below(4)) : 1 << 30;
    o.preferred_key = below(3);
    World w(o);
    struct Exchange {
      SendReq* message;
      RecvReq* received;
      SendReq* answer;
      RecvReq* answered;
      bool seen;
    };
    std::vector<Exchange> all;
    constexpr size_t sizes[] = {0, 8, 255, 256, 3000, 5000, 20000};
    int dead = -1;
    for (int step = 0; step < 3000; ++step) {
      if (all.size() < 12 && below(8) == 0) {
        // Only what ends by a message of the receiver: kSync, or read.
        const int tag = static_cast<int>(all.size());
        const size_t n = sizes[below(7)];
        const bool reads = o.get && n > 4096;
        all.push_back({});
        Exchange& x = all.back();
        x.received = w.irecv(1, 0, tag, reads ? n : std::min<size_t>(n, 3000));
        x.message = w.isend(0, 1, tag, pattern(reads ? n : std::min<size_t>(n, 3000), 1),
                            reads ? xfer::SendMode::kStandard : xfer::SendMode::kSync);
      }
      for (size_t i = 0; i < all.size(); ++i) {
        Exchange& x = all[i];
        if (x.received->done && x.answer == nullptr) {
          const size_t n = sizes[below(7)];
          x.answered = w.irecv(0, 1, 100 + static_cast<int>(i), n);
          x.answer = w.isend(1, 0, 100 + static_cast<int>(i), pattern(n, 2));
        }
        if (x.answered != nullptr && x.answered->done && !x.seen) {
          x.seen = true;
          ASSERT_TRUE(x.message->done) << "seed " << seed << ", exchange " << i;
        }
      }
      const int rail = static_cast<int>(below(3));
      const int from = static_cast<int>(below(2));
      const size_t at = w.first_of(from, 1 - from, rail);
      if (at != static_cast<size_t>(-1))
        w.take(at);
      else
        for (auto& e : w.engines) e->progress(w.now += 1000);
      // A rail that is quiet goes, or comes back.
      if (below(40) == 0 && dead < 0 && w.first_of(1, 0, rail) == static_cast<size_t>(-1)) {
        w.kill(0, 1, dead = rail);
        w.closures();
      } else if (below(40) == 0 && dead >= 0) {
        w.revive(0, 1, std::exchange(dead, -1));
      }
    }
    w.options.capacity = 1 << 30;
    ASSERT_TRUE(w.run()) << "seed " << seed;
    for (const Exchange& x : all) ASSERT_TRUE(x.message->done && x.received->done) << "seed " << seed;
  }
}

// ---- writes over rails that are not equal

constexpr size_t kWritten = 512 * 1024;

World::Options written() {
  World::Options o = writes();
  o.rdma_frag = 65536;
  return o;
}

/// Rank 0 takes rail 1 to move `mbits` Mbit/s, and rail 0 ten thousand. Eight messages are granted.
std::vector<Transfer> granted(World& w, uint64_t mbits) {
  meet(w);
  auto& peer = *w.rail(0, 1, 0)->peer;
  w.rail(0, 1, 0)->goodput.told(10'000, w.now);
  w.rail(0, 1, 1)->goodput.told(mbits, w.now);
  // Grants are as long as usual.
  for (int i = 0; i < 2 * xfer::Goodput::kYoung; ++i) w.rail(1, 0, i % 2)->goodput.grant_ended();
  for (int i = 0; i < 3; ++i) peer.choice.weigh();
  EXPECT_EQ(peer.choice.uneven(), mbits != 10'000);
  std::vector<Transfer> all;
  for (int i = 0; i < 8; ++i) all.push_back(transfer(w, kWritten));
  const auto header = [](const Flight& f) { return f.kind == Flight::Kind::kSend; };
  for (;;) {
    const auto f = std::find_if(w.flights.begin(), w.flights.end(), header);
    if (f == w.flights.end()) return all;
    w.take(static_cast<size_t>(f - w.flights.begin()));
  }
}

uint64_t bytes_over(const World& w, int rail) {
  uint64_t n = 0;
  for (const Flight& f : w.flights) n += f.rail == rail ? f.size : 0;
  return n;
}

void expect_written(World& w, const std::vector<Transfer>& all) {
  ASSERT_TRUE(w.run());
  for (const Transfer& t : all) {
    ASSERT_TRUE(t.s->done && t.r->done);
    EXPECT_EQ(t.r->data, t.s->data);
  }
  expect_clean(w);
}

/// FIN of the first and PUTs for what rank 1 sends would come behind all that is in the queue of a rail.
TEST(Order, WritesOverUnevenRails_WaitForThoseBefore) {
  World w(written());
  const auto all = granted(w, 1000);
  EXPECT_EQ(bytes_over(w, 0), xfer::WriteAhead::kAlways);
  EXPECT_EQ(bytes_over(w, 1), 65536u) << "one is always under way";
  expect_written(w, all);
}

TEST(Order, WritesOverEvenRails_AreAllPosted) {
  World w(written());
  ASSERT_TRUE((transfer(w, kWritten), w.run())) << "no piece is short any more";
  const auto all = granted(w, 10'000);
  EXPECT_EQ(bytes_over(w, 0) + bytes_over(w, 1), 8 * kWritten);
  expect_written(w, all);
}

/// They are refused when those under way have ended, and are granted again over the other rail.
TEST(Order, RailDiesWhileWritesWaitForIt) {
  for (const int rail : {0, 1}) {
    World w(written());
    const auto all = granted(w, 1000);
    w.kill(0, 1, rail);
    expect_written(w, all);
  }
}

/// The sends that go on first may end, or begin a new round, before they have written anything.
TEST(Order, NothingIsUnderWayOverTheRail_AllThatWaitForItGoOn) {
  World w(written());
  const auto all = granted(w, 1000);
  const size_t write = w.first_of(0, 1, 1);
  ASSERT_NE(write, SIZE_MAX);
  w.options.capacity = 0;
  const Flight only = w.flights[write];
  w.flights.erase(w.flights.begin() + static_cast<ptrdiff_t>(write));
  w.arrive(only);
  w.end(only, Fate::kDelivered);
  unsigned waiting = 0;
  for (const Transfer& t : all) {
    const auto& x = t.s->xfer;
    if (!x.rndv->grants.any_over(*w.rail(0, 1, 1))) continue;
    ++waiting;
    EXPECT_TRUE(x.pending & xfer::kPendingData) << waiting;
  }
  EXPECT_GT(waiting, xfer::Writes<FakePort>::kGoOn);
  w.options.capacity = 1 << 30;
  expect_written(w, all);
}

/// Those that wait when rails are even again go on as well.
TEST(Order, RailsAreEvenAgainWhileWritesWait) {
  World w(written());
  const auto all = granted(w, 1000);
  auto& peer = *w.rail(0, 1, 0)->peer;
  w.rail(0, 1, 1)->goodput.told(10'000, w.now);
  for (int i = 0; i < 3; ++i) peer.choice.weigh();
  ASSERT_FALSE(peer.choice.uneven());
  expect_written(w, all);
}

}  // namespace
}  // namespace bfo::test
