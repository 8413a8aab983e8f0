// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_flood_test.cc: a peer that sends more than an honest one would: what it makes this process keep is
// bounded, it is given up or its messages are dropped, and all others go on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "test/unit/failover_steps.h"

namespace bfo::test {
namespace {

/// A MATCH of `n` bytes as rank `src` of communicator `ctx` would send it.
std::vector<uint8_t> match(uint16_t ctx, int32_t src, uint16_t seq, size_t n) {
  core::MatchHdr h{};
  h.type = static_cast<uint8_t>(MsgType::kMatch);
  h.ctx = ctx;
  h.src = src;
  h.tag = 1;
  h.seq = seq;
  std::vector<uint8_t> bytes(sizeof h + n, 0x5a);
  std::memcpy(bytes.data(), &h, sizeof h);
  return bytes;
}

void hand_in(World& w, int at, xfer::Rail<FakePort>* rail, const std::vector<uint8_t>& bytes) {
  w.engines[at]->on_message(rail, 1, bytes[0], bytes.data(), bytes.size());
}

/// Nothing was sent to or received from rank 2 yet: who it is must be asked, not believed.
TEST(Forged, MatchInTheNameOfARankNotUsedYet_IsDropped) {
  World::Options o;
  o.ranks = 3;
  World w(o);
  hand_in(w, 1, w.rail(1, 0, 0), match(0, 2, 0, 16));
  EXPECT_EQ(w.engines[1]->counters().malformed, 1u);
  RecvReq* const r = w.irecv(1, 2, 1, 16);
  EXPECT_FALSE(r->done);
  w.isend(2, 1, 1, pattern(16, 7));
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(r->done);
  EXPECT_EQ(r->status.outcome, Outcome::kOk);
  EXPECT_EQ(r->data, pattern(16, 7));
}

/// As many as it likes, of each type with the tag of each other: nothing is kept, and nobody is given up.
TEST(Forged, MessagesOfAnotherTypeThanTheirTag_LeaveNothing) {
  World::Options o;
  o.ranks = 3;
  World w(o);
  meet(w);
  const size_t before = w.ports[1]->live_;
  uint64_t sent = 0;
  for (uint16_t turn = 0; turn < 100; ++turn)
    for (uint8_t tag : core::kAllTypes)
      for (uint8_t type : core::kAllTypes) {
        if (tag == type) continue;
        std::vector<uint8_t> bytes = match(turn % 3, 0, static_cast<uint16_t>(1 + turn), 300);
        bytes[0] = type;
        w.engines[1]->on_message(w.rail(1, 0, turn & 1), 1, tag, bytes.data(), bytes.size());
        ++sent;
      }
  EXPECT_EQ(w.engines[1]->counters().malformed, sent);
  EXPECT_EQ(w.ports[1]->live_, before);
  EXPECT_TRUE(w.ports[1]->losses_.empty());
  EXPECT_TRUE(w.flights.empty());
}

/// The same from the process that it names.
TEST(Forged, FirstMatchOfARankNotUsedYet_IsTaken) {
  World w({});
  hand_in(w, 1, w.rail(1, 0, 0), match(0, 0, 0, 16));
  EXPECT_EQ(w.engines[1]->counters().malformed, 0u);
  EXPECT_TRUE(w.irecv(1, 0, 1, 16)->done);
}

World::Options small_allowance() {
  World::Options o;
  o.ranks = 3;
  o.config.unknown_limit = 4096;
  return o;
}

TEST(UnknownCommunicator, MoreThanTheLimit_OnlyThatPeerIsGivenUp) {
  World w(small_allowance());
  meet(w);
  uint64_t kept = 0;
  w.ports[1]->refuse_ = [&kept](size_t n) {
    kept += n;
    return false;
  };
  for (uint16_t i = 0; i < 1000; ++i) hand_in(w, 1, w.rail(1, 0, 0), match(700 + i % 50, 0, i / 50, 100));
  EXPECT_LT(kept, 4096u + 2048) << "one record and the index of the queue may come on top";
  ASSERT_EQ(w.ports[1]->losses_.size(), 1u);
  EXPECT_EQ(w.ports[1]->losses_[0].first, 0);
  EXPECT_EQ(w.ports[1]->losses_[0].second.outcome, Outcome::kNoMemory);
  RecvReq* const other = w.irecv(1, 2, 1, 16);
  w.isend(2, 1, 1, pattern(16, 2));
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(other->done);
  EXPECT_EQ(other->data, pattern(16, 2));
}

void hand_in_anonymously(World& w, int at, const std::vector<uint8_t>& bytes) {
  w.engines[at]->on_message(nullptr, 0, bytes[0], bytes.data(), bytes.size());
}

/// Rank 2 floods rank 1, and nobody knows that it is rank 2. What rank 0 sends ahead of a communicator comes.
TEST(UnknownCommunicator, FloodOfNobody_EndsNobody) {
  World w(small_allowance());
  w.stock = true;
  meet(w);
  const size_t before = w.ports[1]->live_;
  for (uint16_t i = 0; i < 20'000; ++i) {
    hand_in_anonymously(w, 1, match(700 + i % 900, i / 900 % 3, i / 900, 100));
    if (i % 5000 == 0) hand_in_anonymously(w, 1, match(5 + i / 5000, 0, 0, 64));
    if (i % 5000 == 10) {
      auto* const made = w.add_comm(1, static_cast<uint16_t>(5 + i / 5000));
      RecvReq* const r = w.irecv(1, 0, xfer::kAnyTag, 64, made);
      ASSERT_TRUE(r->done) << i;
      EXPECT_EQ(r->status.outcome, Outcome::kOk);
    }
  }
  EXPECT_TRUE(w.ports[1]->losses_.empty());
  EXPECT_GT(w.engines[1]->counters().unknown_pushed_out, 19'000u);
  EXPECT_LT(w.ports[1]->live_ - before, size_t{200} << 10)
      << "records of three ranks in 900 contexts, and 4 KiB of messages";
}

/// What rank 0 had sent ahead is gone when the communicator is made: it is given up, and nobody else.
TEST(UnknownCommunicator, MessageThatAFloodPushedOut_EndsItsRankWhenTheCommunicatorIsMade) {
  for (const bool named_peer : {false, true}) {
    World w(small_allowance());
    w.stock = !named_peer;
    meet(w);
    hand_in_anonymously(w, 1, match(5, 0, 0, 64));
    for (uint16_t i = 0; i < 100; ++i) hand_in_anonymously(w, 1, match(700, 2, i, 100));
    EXPECT_TRUE(w.ports[1]->losses_.empty());
    auto* const made = w.add_comm(1, 5);
    RecvReq* const r = w.irecv(1, 0, xfer::kAnyTag, 64, made);
    if (named_peer) {
      EXPECT_TRUE(w.ports[1]->losses_.empty()) << "rank 0 cannot have sent that";
      EXPECT_FALSE(r->done);
      continue;
    }
    ASSERT_EQ(w.ports[1]->losses_.size(), 1u);
    EXPECT_EQ(w.ports[1]->losses_[0].first, 0);
    EXPECT_EQ(w.ports[1]->losses_[0].second.limit, xfer::PeerLoss::Limit::kPushedOut);
    ASSERT_TRUE(r->done);
    EXPECT_EQ(r->status.outcome, Outcome::kNoMemory);
  }
}

/// More ranks and contexts than are noted one by one: of a communicator whose messages had to go any rank may
/// have sent one, but not this one, and of another communicator none.
TEST(UnknownCommunicator, MoreIsPushedOutThanIsNoted_EndsTheCommunicatorsThatItNames) {
  World w(small_allowance());
  w.stock = true;
  meet(w);
  for (int32_t i = 0; i < 20'000; ++i)
    hand_in_anonymously(w, 1, match(static_cast<uint16_t>(700 + i % 100), 100 + i / 100, 0, 100));
  hand_in_anonymously(w, 1, match(5, 0, 0, 64));
  for (uint16_t i = 0; i < 100; ++i) hand_in_anonymously(w, 1, match(700, 2, i, 100));
  w.add_comm(1, 6);
  EXPECT_TRUE(w.ports[1]->losses_.empty());
  w.add_comm(1, 5);
  ASSERT_EQ(w.ports[1]->losses_.size(), 2u);
  EXPECT_EQ(w.ports[1]->losses_[0].first + w.ports[1]->losses_[1].first, 2) << "ranks 0 and 2";
}

TEST(UnknownCommunicator, MessageLongerThanTheAllowance_PushesNothingOut) {
  World w(small_allowance());
  w.stock = true;
  meet(w);
  hand_in_anonymously(w, 1, match(5, 0, 0, 64));
  hand_in_anonymously(w, 1, match(6, 2, 0, 5000));
  hand_in_anonymously(w, 1, match(6, -1, 0, 10));
  EXPECT_EQ(w.engines[1]->counters().unknown_pushed_out, 1u);
  EXPECT_EQ(w.engines[1]->counters().malformed, 1u);
  RecvReq* const r = w.irecv(1, 0, xfer::kAnyTag, 64, w.add_comm(1, 5));
  EXPECT_TRUE(r->done);
  EXPECT_TRUE(w.ports[1]->losses_.empty());
}

/// What a new communicator has taken counts no more: as much may follow for the next one.
TEST(UnknownCommunicator, WithinTheLimitAgainAndAgain_EverythingIsReceived) {
  World w(small_allowance());
  meet(w);
  for (uint16_t ctx = 5; ctx < 25; ++ctx) {
    auto* const ours = w.add_comm(0, ctx);
    for (int i = 0; i < 10; ++i) w.isend(0, 1, i, pattern(200, i), xfer::SendMode::kStandard, ours);
    ASSERT_TRUE(w.run());
    auto* const theirs = w.add_comm(1, ctx);
    for (int i = 0; i < 10; ++i) {
      RecvReq* const r = w.irecv(1, 0, i, 200, theirs);
      ASSERT_TRUE(r->done) << ctx;
      ASSERT_EQ(r->status.outcome, Outcome::kOk);
      ASSERT_EQ(r->data, pattern(200, i));
    }
  }
  EXPECT_TRUE(w.ports[1]->losses_.empty());
}

/// A message that comes again with another header is counted as it is kept.
TEST(UnknownCommunicator, RendezvousThatComesAgain_IsCountedOnce) {
  World w(small_allowance());
  meet(w);
  auto* const ours = w.add_comm(0, 5);
  SendReq* const s = w.isend(0, 1, 1, pattern(5000, 1), xfer::SendMode::kStandard, ours);
  ASSERT_TRUE(until(w, MsgType::kRndv));
  const std::vector<uint8_t> header = w.flights[0].bytes;
  const uint64_t& held = w.peer(1, 0)->unknown_held;
  for (int i = 0; i < 1000; ++i) {
    hand_in(w, 1, w.rail(1, 0, i % 2), header);
    ASSERT_EQ(held, sizeof(xfer::Unexpected<FakePort>) + header.size()) << "after " << i;
  }
  EXPECT_TRUE(w.ports[1]->losses_.empty());
  auto* const theirs = w.add_comm(1, 5);
  EXPECT_EQ(held, 0u);
  RecvReq* const r = w.irecv(1, 0, 1, 5000, theirs);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->data, s->data);
}

/// An RNDV of a long message of rank `src` with `n` first bytes.
std::vector<uint8_t> rndv(uint16_t ctx, int32_t src, uint16_t seq, size_t n) {
  core::RndvHdr h{};
  h.match = {static_cast<uint8_t>(MsgType::kRndv), 0, ctx, src, 1, seq};
  h.length = 1u << 20;
  h.sender = Name(seq, 1, 0).value;
  std::vector<uint8_t> bytes(sizeof h + n, 0x5a);
  std::memcpy(bytes.data(), &h, sizeof h);
  return bytes;
}

/// First as short as can be, then the same again with bytes, then shorter and longer in turn.
TEST(UnknownCommunicator, HeadersThatGrow_AreCountedAsTheyAreKept) {
  World w(small_allowance());
  meet(w);
  const size_t before = w.ports[1]->live_;
  for (const size_t n : {0, 1000, 10, 2000, 500, 1000})
    for (uint16_t i = 0; i < 12; ++i) {
      hand_in(w, 1, w.rail(1, 0, 0), rndv(700, 0, i, n));
      ASSERT_LT(w.ports[1]->live_ - before, 4096u + 1024) << "the malloc of the test rounds up";
    }
  ASSERT_EQ(w.ports[1]->losses_.size(), 1u);
  EXPECT_EQ(w.ports[1]->losses_[0].first, 0);
  RecvReq* const other = w.irecv(1, 2, 1, 16);
  w.isend(2, 1, 1, pattern(16, 2));
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(other->done);
}

/// Anybody may put any rank into a header: what another process says neither replaces a message nor makes it
/// one that came before.
TEST(UnknownCommunicator, TheSameHeaderOfAnotherProcess_ReplacesNothing) {
  for (const bool first : {true, false})
    for (const size_t n : {100, 5000}) {
      SCOPED_TRACE(n);
      World::Options o;
      o.ranks = 3;
      World w(o);
      meet(w);
      auto* const ours = w.add_comm(0, 5);
      SendReq* const s = w.isend(0, 1, 1, pattern(n, 1), xfer::SendMode::kStandard, ours);
      const std::vector<uint8_t> real = w.flights[0].bytes;
      std::vector<uint8_t> forged = real;
      forged.back() ^= 0xff;
      if (first) hand_in(w, 1, w.rail(1, 2, 0), forged);
      w.take(0);
      if (!first) hand_in(w, 1, w.rail(1, 2, 0), forged);
      auto* const theirs = w.add_comm(1, 5);
      EXPECT_EQ(w.engines[1]->counters().malformed, 1u);
      RecvReq* const r = w.irecv(1, 0, 1, n, theirs);
      ASSERT_TRUE(w.run());
      ASSERT_TRUE(s->done && r->done);
      EXPECT_EQ(r->data, s->data);
    }
}

struct OpenPut {
  SendReq* s;
  RecvReq* r;
  core::PutHdr put;
};
/// A message whose first PUT is on its way to its sender, rank 0.
OpenPut open_put(World& w, size_t n) {
  const auto [s, r] = transfer(w, n);
  EXPECT_TRUE(until(w, MsgType::kPut));
  core::PutHdr h{};
  EXPECT_TRUE(core::decode_put(core::Bytes{w.flights[0].bytes.data(), w.flights[0].bytes.size()}, h));
  return {s, r, h};
}

uint64_t forge_puts(World& w, const core::PutHdr& real, uint32_t number, uint32_t step, int n) {
  uint64_t kept = 0;
  w.ports[0]->refuse_ = [&kept](size_t size) {
    kept += size;
    return false;
  };
  w.options.capacity = 0;  // no write gets away
  for (int i = 0; i < n; ++i, number += step) {
    core::PutHdr h = real;
    h.grant = number;
    w.engines[0]->on_message(w.rail(0, 1, 0), 1, h.type, &h, sizeof h);
  }
  w.ports[0]->refuse_ = nullptr;
  return kept;
}

TEST(Grants, MoreThanAnHonestReceiverGives_AreDropped) {
  World w(writes());
  const OpenPut open = open_put(w, 40000);
  const uint64_t kept = forge_puts(w, open.put, 1, 1, 20000);
  EXPECT_GT(w.engines[0]->counters().malformed, 10000u);
  EXPECT_LT(kept, 9000u * sizeof(xfer::Grant<FakePort>));
}

TEST(Grants, NumbersFarApart_AreDropped) {
  World w(writes());
  const OpenPut open = open_put(w, 40000);
  forge_puts(w, open.put, 2, 1000, 20000);
  EXPECT_GT(w.engines[0]->counters().malformed, 19900u);
}

/// From a process that has no record here yet, about connections that nobody has.
TEST(PeerLost, OfManyConnections_IsKeptForSomeAndTheOthersAreDropped) {
  World w({});
  const size_t before = w.ports[1]->live_;
  core::RailHdr h{};
  h.type = static_cast<uint8_t>(MsgType::kPeerLost);
  constexpr uint64_t kMany = 20'000;
  for (uint64_t i = 1; i <= kMany; ++i) {
    h.conn = i << 32;
    w.engines[1]->on_message(nullptr, 1, h.type, &h, sizeof h);
  }
  EXPECT_LT(w.ports[1]->live_ - before, 400u * 1024);
  EXPECT_GT(w.engines[1]->counters().malformed, kMany / 2);
  const auto [s, r] = transfer(w, 3000);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->data, s->data);
}

/// One byte of every two, of a message as long as it likes.
TEST(Fragments, WithMoreGapsThanAnHonestSenderLeaves_ThePeerIsGivenUp) {
  World::Options o;
  o.ranks = 3;
  World w(o);
  meet(w);
  const size_t n = 4 * RangeSet::kMaxCount;
  const auto [s, r] = transfer(w, n);
  ASSERT_TRUE(until(w, MsgType::kFrag));
  core::FragHdr h{};
  std::memcpy(&h, w.flights[0].bytes.data(), sizeof h);
  std::vector<uint8_t> bytes(sizeof h + 1, 1);
  // From the end, so that each is a range of its own in front of the others.
  for (uint64_t at = n - 1; at > n / 4 && w.ports[1]->losses_.empty(); at -= 2) {
    h.offset = at;
    std::memcpy(bytes.data(), &h, sizeof h);
    hand_in(w, 1, w.rail(1, 0, 0), bytes);
  }
  ASSERT_EQ(w.ports[1]->losses_.size(), 1u);
  EXPECT_EQ(w.ports[1]->losses_[0].first, 0);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(r->done);
  EXPECT_NE(r->status.outcome, Outcome::kOk);
  RecvReq* const other = w.irecv(1, 2, 1, 16);
  w.isend(2, 1, 1, pattern(16, 2));
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(other->done);
}

/// Processor time of f(), in ns: the best of a few tries.
template <class F>
uint64_t cost(F f) {
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < 5; ++i) {
    timespec begin;
    timespec end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    f();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    best = std::min(best, static_cast<uint64_t>((end.tv_sec - begin.tv_sec) * 1'000'000'000 + end.tv_nsec -
                                                begin.tv_nsec));
  }
  return best;
}

/// An RNDV of rank 0 that its sender knows to be here.
std::vector<uint8_t> doubled(uint16_t seq) {
  std::vector<uint8_t> bytes = rndv(0, 0, seq, 0);
  core::RndvHdr h;
  std::memcpy(&h, bytes.data(), sizeof h);
  h.match.flags = core::kFlagKnown;
  std::memcpy(bytes.data(), &h, sizeof h);
  return bytes;
}

/// `n` messages whose headers came, and the last of them 200 times more: what one of those costs.
enum class Where { kUnexpected, kHeldByProbes, kReceived };
uint64_t cost_of_doubled(Where where, uint16_t n) {
  World w({});
  auto* const rail = w.rail(1, 0, 0);
  xfer::Unexpected<FakePort>* held = nullptr;
  for (uint16_t i = 0; i < n; ++i) {
    if (where == Where::kReceived) w.irecv(1, 0, 1, 16);
    hand_in(w, 1, rail, rndv(0, 0, i, 0));
    xfer::ProbeResult found;
    if (where == Where::kHeldByProbes) held = w.engines[1]->improbe(w.comms[1], 0, 1, found);
  }
  EXPECT_EQ(held != nullptr, where == Where::kHeldByProbes);
  const uint64_t before = w.engines[1]->counters().duplicates;
  const std::vector<uint8_t> last = doubled(static_cast<uint16_t>(n - 1));
  const uint64_t ns = cost([&] {
    for (int i = 0; i < 200; ++i) hand_in(w, 1, rail, last);
  });
  EXPECT_EQ(w.engines[1]->counters().duplicates - before, 1000u);
  EXPECT_EQ(w.engines[1]->counters().malformed, 0u);
  for (const auto& flight : w.flights) {
    EXPECT_NE(flight.bytes[0], static_cast<uint8_t>(MsgType::kRestartNack)) << "it is over, says the answer";
  }
  return ns / 200;
}

TEST(Doubled, RendezvousAmongMany_CostsAsMuchAsAmongFew) {
  for (const Where where : {Where::kUnexpected, Where::kHeldByProbes, Where::kReceived}) {
    SCOPED_TRACE(static_cast<int>(where));
    const uint64_t few = cost_of_doubled(where, 100);
    const uint64_t many = cost_of_doubled(where, 20'000);
    RecordProperty("few", static_cast<int>(few));
    RecordProperty("many", static_cast<int>(many));
    EXPECT_LT(many, 20 * few + 1'000);
  }
}

/// Those found by the index are the right ones, while others come and go.
TEST(Doubled, EachIsFoundWhateverHasBeenReceivedSince) {
  World w({});
  auto* const rail = w.rail(1, 0, 0);
  constexpr uint16_t kMany = 600;
  uint16_t came = 0;
  const auto come = [&](uint16_t n) {
    for (; n != 0 && came < kMany; --n) hand_in(w, 1, rail, rndv(0, 0, came++, 0));
  };
  come(100);
  std::vector<xfer::Unexpected<FakePort>*> held;
  uint16_t received = 0;
  uint16_t first = 0;
  while (first < kMany) {
    for (uint16_t i = 0; i < came; ++i) hand_in(w, 1, rail, doubled(i));
    come(30);
    // The oldest: by a receive, or by a probe first.
    for (int k = 0; k < 20 && first < came; ++k, ++first) {
      xfer::ProbeResult found;
      if (k % 2 == 0) {
        w.irecv(1, 0, 1, 16);
        ++received;
      } else {
        held.push_back(w.engines[1]->improbe(w.comms[1], 0, 1, found));
        ASSERT_NE(held.back(), nullptr);
      }
    }
  }
  EXPECT_EQ(w.engines[1]->counters().malformed, 0u);
  EXPECT_EQ(xfer::length_of(w.peer(1, 0)->live_recvs), received);
  for (auto* const m : held) {
    w.recvs.push_back(std::make_unique<RecvReq>());
    w.recvs.back()->data.assign(16, 0);
    w.engines[1]->imrecv(m, w.recvs.back().get(), 16);
  }
  for (uint16_t i = 0; i < kMany; ++i) hand_in(w, 1, rail, doubled(i));
  EXPECT_EQ(xfer::length_of(w.peer(1, 0)->live_recvs), kMany);
  EXPECT_EQ(w.engines[1]->counters().malformed, 0u);
  for (const auto& flight : w.flights)
    ASSERT_NE(flight.bytes[0], static_cast<uint8_t>(MsgType::kRestartNack));
}

}  // namespace
}  // namespace bfo::test
