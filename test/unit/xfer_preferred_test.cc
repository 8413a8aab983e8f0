// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_preferred_test.cc: which rail an eager message takes: short ones the pair's preferred rail while it
// has room, longer ones all rails when the sender is ahead; that a rail that dies is left at once; and that a
// message is read over one rail while that keeps up with the processor.
//
// P1..P8: contrib/doc/design.md
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "test/unit/fake_world.h"

namespace bfo::test {
namespace {

World::Options with_home() {
  World::Options o;
  o.rails = 3;
  o.eager = 4096;
  o.config.short_limit = 256;
  o.preferred_key = 4;  // the second of three rails
  return o;
}

std::vector<uint8_t> bytes(size_t n) {
  return std::vector<uint8_t>(n, 7);
}

/// The rails of all messages under way, in the order in which they were posted; forgets nothing.
std::vector<int> rails(const World& w) {
  std::vector<int> r;
  for (const Flight& f : w.flights) r.push_back(f.rail);
  return r;
}

using Rails = std::vector<int>;

TEST(Preferred, ShortMessages_StayOnOneRailInBothDirections) {
  World w(with_home());
  for (int i = 0; i < 100; ++i) {
    w.isend(0, 1, 1, bytes(255));
    w.isend(1, 0, 1, bytes(0));
  }
  const Rails all = rails(w);
  EXPECT_EQ(all.size(), 200u);
  EXPECT_GE(std::count(all.begin(), all.end(), 1), 196) << "each side tries the two others once";
}

TEST(Preferred, SendInline_TakesItToo) {
  World w(with_home());
  const auto data = bytes(8);
  FakePort::InlineSource source{data.data()};
  xfer::SendArgs<FakePort> args;
  args.comm = w.comms[0];
  args.dst = 1;
  args.length = data.size();
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(w.engines[0]->send_inline(args, source));
  EXPECT_FALSE(w.engines[0]->send_inline(args, source)) << "the next one is timed";
  w.isend(0, 1, 1, bytes(8));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(w.engines[0]->send_inline(args, source));
  EXPECT_FALSE(w.engines[0]->send_inline(args, source)) << "and more of them soon";
  EXPECT_EQ(rails(w), Rails(19, 1));
}

TEST(Preferred, LongerEagerMessagesOfASenderThatIsAhead_Spread) {
  World w(with_home());
  for (int i = 0; i < 40; ++i) w.isend(0, 1, 1, bytes(4000));
  const Rails all = rails(w);
  ASSERT_EQ(all.size(), 40u);
  EXPECT_EQ(Rails(all.begin(), all.begin() + 4), Rails(4, 1)) << "a few may be unanswered";
  int changes = 0;
  for (size_t i = 1; i < all.size(); ++i) changes += all[i] != all[i - 1];
  EXPECT_EQ(std::set<int>(all.begin(), all.end()), (std::set<int>{0, 1, 2}));
  EXPECT_LE(changes, 1 + 40 * 4000 / 16384 + 2 * 40 / 8)
      << "a rail carries a run of messages; one of 8 is timed";
}

/// How many of `all` are not on rail 1.
int64_t elsewhere(const Rails& all) {
  return std::count_if(all.begin(), all.end(), [](int rail) { return rail != 1; });
}

/// 100 Gbit/s move 125,000 bytes in 10 us: a window that is shorter is over before another rail would help.
/// One of 128 messages is timed, and more on a rail that was not measured yet.
TEST(Preferred, SenderIsAheadByLessThanTheRailMovesInTenMicroseconds_StaysOnIt) {
  World w(with_home());
  w.rail(0, 1, 1)->limits.weight = 100000;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 122; ++i) w.isend(0, 1, 1, bytes(1024));
    EXPECT_EQ(rails(w).size(), 122u);
    EXPECT_LE(elsewhere(rails(w)), 10) << round;
    ASSERT_TRUE(w.run());
    w.isend(1, 0, 1, bytes(0));  // the answer
    ASSERT_TRUE(w.run());
  }
  for (int i = 0; i < 200; ++i) w.isend(0, 1, 1, bytes(1024));
  const Rails all = rails(w);
  EXPECT_LE(elsewhere(Rails(all.begin(), all.begin() + 122)), 10);
  EXPECT_EQ(std::set<int>(all.begin() + 122, all.end()), (std::set<int>{0, 1, 2}));
}

/// Two rails that read, the second is preferred.
World::Options with_reads() {
  World::Options o;
  o.get = true;
  o.rdma_frag = o.rdma_limit = 2 << 20;
  o.preferred_key = 1;
  return o;
}

/// Where and how a message of `n` bytes is read: the rail of each READ, in ascending order. `turns` go by
/// while READs are under way.
Rails reads_of(World& w, size_t n, int turns = 0) {
  w.isend(0, 1, 1, bytes(n));
  RecvReq* const r = w.irecv(1, 0, 1, n);
  Rails used;
  while (!r->done) {
    if (w.flights.empty()) {
      ADD_FAILURE() << "nothing is under way";
      return {};
    }
    if (w.flights[0].kind == Flight::Kind::kGet) {
      used.push_back(w.flights[0].rail);
      for (int i = 0; i < turns; ++i) w.engines[1]->turn();
    }
    w.take();
  }
  EXPECT_TRUE(w.run());
  std::sort(used.begin(), used.end());
  return used;
}

/// Messages until one is read in one piece.
int cut_messages(World& w) {
  for (int n = 0; n < 100; ++n)
    if (reads_of(w, 100000).size() == 1) return n;
  return 100;
}

TEST(Pace, RailThatKeepsUp_ReadsAMessageWhole) {
  World w(with_reads());
  EXPECT_GT(cut_messages(w), 2) << "it is not known at first";
  EXPECT_EQ(reads_of(w, 65536), Rails{1});
  EXPECT_EQ(reads_of(w, 1 << 20), Rails{1});
  const Rails longer = reads_of(w, (1 << 20) + 4096);
  EXPECT_EQ(std::set<int>(longer.begin(), longer.end()), (std::set<int>{0, 1}))
      << "P4: more would be at risk";
}

/// The bytes of the READs under way of a message of 4 MiB, by rail.
std::array<std::vector<size_t>, 2> reads_under_way(World& w) {
  w.isend(0, 1, 1, bytes(4 << 20));
  w.irecv(1, 0, 1, 4 << 20);
  while (!w.flights.empty() && w.flights[0].kind == Flight::Kind::kSend) w.take();
  std::array<std::vector<size_t>, 2> all;
  for (const Flight& f : w.flights)
    if (f.kind == Flight::Kind::kGet) all[static_cast<unsigned>(f.rail)].push_back(f.size);
  EXPECT_TRUE(w.run());
  return all;
}

/// Pieces were measured on both rails, so that they are as long as usual.
void measure_rails(World& w) {
  for (int i = 0; i < 2 * xfer::Goodput::kYoung; ++i) w.rail(1, 0, i % 2)->goodput.told(10'000, w.now);
}

/// P4: at most 1 MiB is in flight on a rail, in one READ where no queue is needed, else in several.
TEST(Pace, LongerMessage_HasOneLongReadOrSeveralShorterOnesOnEachRail) {
  World w(with_reads());
  using Reads = std::vector<size_t>;
  const Reads first(4, 16 << 10);
  for (const Reads& rail : reads_under_way(w)) EXPECT_EQ(rail, first) << "nothing is known";
  ASSERT_LT(cut_messages(w), 100);
  for (const Reads& rail : reads_under_way(w)) EXPECT_EQ(rail, Reads(1, 1 << 20));
  measure_rails(w);
  reads_of(w, 100000, 2);
  for (const Reads& rail : reads_under_way(w)) EXPECT_EQ(rail, Reads(4, 256 << 10)) << "a READ was late";
}

/// What the READ of the first flight leaves behind: it ends after `turns`.
void end_first_read(World& w, int turns) {
  for (int i = 0; i < turns; ++i) w.engines[1]->turn();
  w.take();
}

std::array<size_t, 2> bytes_on_rails(const World& w) {
  std::array<size_t, 2> n{};
  for (const Flight& f : w.flights)
    if (f.kind == Flight::Kind::kGet) n[static_cast<unsigned>(f.rail)] += f.size;
  return n;
}

/// Shorter ones are queued where no long one is under way: both together would be more than P4 allows.
TEST(Pace, LongReadIsLate_ShorterOnesAreQueuedBesideIt) {
  World w(with_reads());
  ASSERT_LT(cut_messages(w), 100);
  while (reads_under_way(w)[0] != std::vector<size_t>(1, 1 << 20)) ASSERT_LT(w.now, ~0ull);
  measure_rails(w);
  w.isend(0, 1, 1, bytes(8 << 20));
  RecvReq* const r = w.irecv(1, 0, 1, 8 << 20);
  while (w.flights[0].kind == Flight::Kind::kSend) w.take();
  ASSERT_EQ(w.flights.size(), 2u);
  end_first_read(w, 2);
  EXPECT_EQ(w.flights.size(), 1u + 4u);
  size_t most = 0, queued = 0;
  while (!r->done) {
    for (const size_t n : bytes_on_rails(w)) most = std::max(most, n);
    queued = std::max(queued, w.flights.size());
    ASSERT_FALSE(w.flights.empty());
    w.take();
  }
  EXPECT_LE(most, size_t{1} << 20);
  EXPECT_GT(queued, 2u);
  EXPECT_TRUE(w.run());
}

TEST(Pace, OneOfTheRailsIsLate_AllHaveAQueue) {
  World w(with_reads());
  ASSERT_LT(cut_messages(w), 100);
  while (reads_under_way(w)[0].size() != 1) ASSERT_LT(w.now, ~0ull);
  measure_rails(w);
  w.rail(1, 0, 0)->late = 1;
  for (const auto& rail : reads_under_way(w)) EXPECT_EQ(rail.size(), 4u);
}

/// If the rail wants READs no longer than queued ones, as many of them may be under way.
TEST(Pace, RailWantsShortReads_TheyAreQueued) {
  for (const size_t wish : {size_t{65536}, size_t{131072}, size_t{262144}}) {
    World::Options o = with_reads();
    o.rdma_frag = wish;
    World w(o);
    for (int i = 0; i < 30; ++i) reads_under_way(w);
    for (const int rail : {0, 1}) ASSERT_EQ(w.rail(1, 0, rail)->late, 0);
    for (const auto& rail : reads_under_way(w)) EXPECT_EQ(rail, std::vector<size_t>(4, wish));
  }
}

TEST(Pace, RailWithALongReadDies_AtMostAMebibyteIsReadAgain) {
  World w(with_reads());
  ASSERT_LT(cut_messages(w), 100);
  while (reads_under_way(w)[0].size() != 1) ASSERT_LT(w.now, ~0ull);
  const auto sent = bytes(8 << 20);
  w.isend(0, 1, 1, sent);
  RecvReq* const r = w.irecv(1, 0, 1, 8 << 20);
  while (w.flights[0].kind == Flight::Kind::kSend) w.take();
  w.take();
  w.kill(0, 1, 1);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(r->done);
  EXPECT_EQ(r->data, sent);
  EXPECT_LE(w.engines[1]->counters().bytes_resent, 1u << 20);
}

TEST(Pace, RailThatKeepsUp_ReadsAWindow) {
  World w(with_reads());
  ASSERT_LT(cut_messages(w), 100);
  for (int i = 0; i < 8; ++i) {
    w.isend(0, 1, 1, bytes(50000));
    w.irecv(1, 0, 1, 50000);
  }
  while (!w.flights.empty() && w.flights[0].kind == Flight::Kind::kSend) w.take();
  EXPECT_EQ(rails(w), Rails(8, 1));
  ASSERT_TRUE(w.run());
}

TEST(Pace, ReadsAreLate_AllRailsShareThem) {
  World w(with_reads());
  ASSERT_LT(cut_messages(w), 100);
  EXPECT_EQ(reads_of(w, 100000, 1), Rails{1}) << "one turn may fall between by chance";
  EXPECT_EQ(reads_of(w, 100000, 2), Rails{1}) << "it is seen afterwards";
  EXPECT_GT(reads_of(w, 100000, 2).size(), 1u);
  for (int i = 0; i < 8; ++i) {
    w.isend(0, 1, 1, bytes(50000));
    w.irecv(1, 0, 1, 50000);
  }
  while (!w.flights.empty() && w.flights[0].kind == Flight::Kind::kSend) w.take();
  const Rails all = rails(w);
  EXPECT_EQ(std::count(all.begin(), all.end(), 0), 4);
  EXPECT_EQ(std::count(all.begin(), all.end(), 1), 4);
  ASSERT_TRUE(w.run());
  const int cut = cut_messages(w);
  EXPECT_GT(cut, 4) << "a late READ counts for a while";
  EXPECT_LT(cut, 100);
}

/// A process that waited for a processor finds everything ended, whatever the rail's speed. Pieces of 46,752
/// and 53,248 bytes take 4 us at 100 Gbit/s: up to 35 us are soon, 38 are not.
TEST(Pace, ProcessWasAway_NothingIsKnown) {
  for (const uint64_t ns : {34'000u, 38'000u}) {
    World w(with_reads());
    for (const int rail : {0, 1}) w.rail(1, 0, rail)->limits.weight = 100000;
    size_t reads = 0;
    for (int i = 0; i < 50; ++i) {
      w.isend(0, 1, 1, bytes(100000));
      w.irecv(1, 0, 1, 100000);
      w.take();
      reads = w.flights.size();
      w.now += ns;
      ASSERT_TRUE(w.run());
    }
    EXPECT_EQ(reads == 1, ns == 34'000u) << reads;
  }
}

TEST(Pace, RailComesBack_ItIsNotKnownAgain) {
  World w(with_reads());
  ASSERT_LT(cut_messages(w), 100);
  w.kill(0, 1, 1);
  ASSERT_TRUE(w.run());
  w.revive(0, 1, 1);
  ASSERT_TRUE(w.run());
  EXPECT_GT(cut_messages(w), 2);
}

TEST(Preferred, LongerEagerMessagesThatAreAnswered_StayOnOneRail) {
  World w(with_home());
  int away = 0;
  for (int i = 0; i < 20; ++i) {
    for (int from = 0; from < 2; ++from) {
      w.isend(from, 1 - from, 1, bytes(4000));
      away += w.flights.back().rail != 1;
      ASSERT_TRUE(w.run());
    }
  }
  EXPECT_LE(away, 2 * 2) << "each side times one over each of the others";
}

TEST(Preferred, WithoutALimit_ShortOnesSpreadAsWell) {
  World::Options o = with_home();
  o.config.short_limit = 0;
  World w(o);
  for (int i = 0; i < 4; ++i) w.isend(0, 1, 1, bytes(0));
  EXPECT_EQ(rails(w), (Rails{0, 1, 2, 0}));
}

TEST(Preferred, RailDies_TheNextMessageIsElsewhereAndNoneIsLost) {
  World w(with_home());
  for (int i = 0; i < 3; ++i) w.isend(0, 1, 1, bytes(8));
  w.hold_close = true;
  w.kill(0, 1, 1);
  for (int i = 0; i < 3; ++i) w.isend(0, 1, 1, bytes(8));
  ASSERT_GE(w.flights.size(), 3u);
  for (const int rail : rails(w)) EXPECT_NE(rail, 1);
  w.hold_close = false;
  ASSERT_TRUE(w.run());
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(w.irecv(1, 0, 1, 8)->done) << i;
}

TEST(Preferred, BothSides_AgreeAgainAfterALossAndAReturn) {
  World w(with_home());
  w.isend(0, 1, 1, bytes(8));
  w.isend(1, 0, 1, bytes(8));
  w.kill(0, 1, 1);
  ASSERT_TRUE(w.run());
  w.isend(0, 1, 1, bytes(8));
  w.isend(1, 0, 1, bytes(8));
  ASSERT_EQ(w.flights.size(), 2u);
  EXPECT_EQ(w.flights[0].rail, w.flights[1].rail);
  w.revive(0, 1, 1);
  ASSERT_TRUE(w.run());
  w.isend(0, 1, 1, bytes(8));
  w.isend(1, 0, 1, bytes(8));
  EXPECT_EQ(rails(w), (Rails{1, 1}));
}

TEST(Preferred, Crowded_OthersTakeOverAndThenItIsHomeAgain) {
  World::Options o = with_home();
  o.capacity = 2;
  World w(o);
  for (int i = 0; i < 6; ++i) w.isend(0, 1, 1, bytes(8));
  const Rails all = rails(w);
  ASSERT_EQ(all.size(), 6u) << "a rail with room was not used";
  EXPECT_EQ(Rails(all.begin(), all.begin() + 2), (Rails{1, 1}));
  ASSERT_TRUE(w.run());
  // Home is tried again after a while, not never.
  for (int i = 0; i < 200; ++i) {
    w.isend(0, 1, 1, bytes(8));
    ASSERT_TRUE(w.run());
  }
  w.isend(0, 1, 1, bytes(8));
  w.isend(0, 1, 1, bytes(8));
  EXPECT_EQ(rails(w), (Rails{1, 1}));
}

TEST(Preferred, CrowdedAndDead_IsNotReturnedTo) {
  World::Options o = with_home();
  o.capacity = 1;
  World w(o);
  for (int i = 0; i < 2; ++i) w.isend(0, 1, 1, bytes(8));
  w.kill(0, 1, 1);
  ASSERT_TRUE(w.run());
  for (int i = 0; i < 200; ++i) {
    w.isend(0, 1, 1, bytes(8));
    for (const int rail : rails(w)) ASSERT_NE(rail, 1);
    ASSERT_TRUE(w.run());
  }
}

}  // namespace
}  // namespace bfo::test
