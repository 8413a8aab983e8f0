// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_names_test.cc: no name is left for a request: a send waits for one, a receive fails alone and its
// sender is told, whatever overtakes the answer. And whose request a name is that came over a BTL which does
// not say from whom.
#include <gtest/gtest.h>

#include <set>

#include "pml/bfo/xfer/rails/stock_name.h"
#include "test/unit/failover_steps.h"

namespace bfo::test {
namespace {

TEST(Memory, NamesRunOut_SendsWaitAndAReceiveFailsAlone) {
  World::Options o;
  o.config.max_named = 2;
  World w(o);
  meet(w);
  std::vector<SendReq*> sends;
  for (int i = 0; i < 6; ++i)
    sends.push_back(
        w.isend(0, 1, i, pattern(600, i), i == 5 ? xfer::SendMode::kSync : xfer::SendMode::kStandard));
  ASSERT_TRUE(w.run());
  for (int i = 0; i < 6; ++i) {
    RecvReq* r = w.irecv(1, 0, i, 600);
    ASSERT_TRUE(w.run());
    ASSERT_TRUE(r->done && sends[i]->done) << i;
    EXPECT_EQ(r->data, pattern(600, i));
  }
}

/// Each rank has one name. Rank 1's is taken by the message of rank 0, and the header of rank 2's is on its
/// way.
struct OneName {
  explicit OneName(int rails = 2) : w(options(rails)) {
    meet(w);
    first = w.irecv(1, 0, 1, 600);
    second = w.irecv(1, 2, 1, 600);
    a = w.isend(0, 1, 1, pattern(600, 1));
    w.take();
    b = w.isend(2, 1, 1, pattern(600, 2));
  }
  static World::Options options(int rails) {
    World::Options o;
    o.ranks = 3;
    o.rails = rails;
    o.config.max_named = 1;
    return o;
  }
  void expect_first_is_well() {
    ASSERT_TRUE(a->done && first->done);
    EXPECT_EQ(first->data, pattern(600, 1));
  }

  World w;
  RecvReq *first, *second;
  SendReq *a, *b;
};

TEST(Memory, ReceiverWithoutNames_OneMessageFailsAlone) {
  OneName n;
  n.w.take(n.w.flights.size() - 1);
  EXPECT_TRUE(n.second->done);
  EXPECT_FALSE(n.first->done);
  ASSERT_TRUE(n.w.run());
  EXPECT_EQ(n.second->status.outcome, Outcome::kNoMemory);
  ASSERT_TRUE(n.b->done);
  EXPECT_NE(n.b->outcome, Outcome::kOk);
  n.expect_first_is_well();
  EXPECT_EQ(n.w.ports[1]->peers_failed_, 0);
}

/// The header of a message that found no name comes again, and the answer to the copy arrives first: the
/// older one may be lost with its rail and go again.
TEST(Memory, ReceiverWithoutNamesIsAskedAgain_TheAnswerIsTheSame) {
  OneName n(4);
  World& w = n.w;
  w.kill(1, 2, w.flights.back().rail, all);  // delivered, and sent again
  ASSERT_TRUE(n.second->done);
  EXPECT_EQ(n.second->status.outcome, Outcome::kNoMemory);
  w.engines[2]->progress(w.now += 1000);
  ASSERT_LT(w.find(2, 1, MsgType::kRndv), w.flights.size());
  w.take(w.find(2, 1, MsgType::kRndv));
  const size_t older = w.find(1, 2, MsgType::kRestartNack);
  const size_t newer = w.find(1, 2, MsgType::kRestartNack, older + 1);
  ASSERT_LT(newer, w.flights.size());
  w.take(newer);
  ASSERT_TRUE(n.b->done);
  EXPECT_NE(n.b->outcome, Outcome::kOk) << "its receive failed";
  ASSERT_TRUE(w.run());
  n.expect_first_is_well();
  EXPECT_EQ(w.ports[1]->peers_failed_, 0);
  EXPECT_EQ(w.engines[1]->unfinished(), 0u);
}

/// There is no memory to remember it either: its sender must not take the receive for finished.
TEST(Memory, FailedReceiveCannotBeRemembered_ItsSenderIsGivenUp) {
  OneName n;
  n.w.ports[1]->refuse_ = [](size_t) { return true; };
  n.w.take(n.w.flights.size() - 1);
  ASSERT_TRUE(n.w.run());
  ASSERT_TRUE(n.second->done && n.b->done);
  EXPECT_NE(n.second->status.outcome, Outcome::kOk);
  EXPECT_NE(n.b->outcome, Outcome::kOk);
  EXPECT_EQ(n.w.ports[1]->peers_failed_, 1);
  n.expect_first_is_well();
}

/// A receive of rank 1 from rank 2 and a send of it to rank 0 are the first ones of their kind. Rank 2 has
/// been told the name of the receive.
struct TwoDirections {
  explicit TwoDirections(uint64_t random) : w(options(random)) {
    meet(w);
    w.irecv(1, 2, 1, 600);
    w.isend(2, 1, 1, pattern(600, 1));
    w.take(w.find(2, 1, MsgType::kRndv));
    core::AckHdr answer{};
    const std::vector<uint8_t>& bytes = w.flights[w.find(1, 2, MsgType::kAck)].bytes;
    EXPECT_TRUE(core::decode(MsgType::kAck, core::Bytes{bytes.data(), bytes.size()}, answer));
    told = answer.receiver;
    received = w.irecv(0, 1, 1, 3000);
    sent = w.isend(1, 0, 1, pattern(3000, 2));
  }
  static World::Options options(uint64_t random) {
    World::Options o;
    o.ranks = 3;
    o.config.begin_names(random);
    return o;
  }
  /// An ACK that names nobody's request as the one that answers.
  void acknowledge(uint64_t sender) {
    core::AckHdr h{};
    h.type = static_cast<uint8_t>(MsgType::kAck);
    h.sender = sender;
    h.receiver = Name(77, 1, 1).value;
    w.engines[1]->on_message(nullptr, 0, h.type, &h, sizeof h);
  }

  World w;
  uint64_t told = 0;
  RecvReq* received;
  SendReq* sent;
};

TEST(Anonymous, NameOfAReceiveComesAsThatOfASend_ItIsNoSendToAnother) {
  for (const uint64_t random : {uint64_t{0}, uint64_t{0xffffff}, uint64_t{0x123456789abcdef0}}) {
    TwoDirections t(random);
    ASSERT_NE(t.told, 0u);
    const uint64_t malformed = t.w.engines[1]->counters().malformed;
    t.acknowledge(t.told);
    EXPECT_EQ(t.w.engines[1]->counters().malformed, malformed + 1);
    ASSERT_TRUE(t.w.run());
    ASSERT_TRUE(t.sent->done && t.received->done) << random;
    EXPECT_EQ(t.received->data, pattern(3000, 2));
  }
}

/// A report names a connection, and may come without a rail: it is about one peer.
TEST(Anonymous, RailsOfStockBtls_EachPairOfProcessesHasANameOfItsOwn) {
  constexpr uint64_t kJob = uint64_t{0x2f1a0001} << 32;
  std::set<uint64_t> names;
  for (uint64_t a = 0; a < 40; ++a)
    for (uint64_t b = 0; b <= a; ++b) {
      const RailName name = xfer::stock_name("tcp", kJob | a, kJob | b);
      EXPECT_EQ(name, xfer::stock_name("tcp", kJob | b, kJob | a)) << "both ends say the same";
      EXPECT_NE(name.conn, xfer::stock_name("vader", kJob | a, kJob | b).conn);
      EXPECT_NE(name.conn, 0u);
      EXPECT_TRUE(names.insert(name.conn).second) << a << " " << b;
    }
}

/// Whoever guesses takes the first slot of the first generation.
TEST(Anonymous, NamesBeginAnywhere_AGuessedOneIsNobodys) {
  TwoDirections t(0x123456789abcdef0);
  for (uint32_t slot = 0; slot < 64; ++slot)
    for (uint32_t gen = 1; gen < 16; ++gen) t.acknowledge(Name(slot, gen, 1).value);
  ASSERT_TRUE(t.w.run());
  ASSERT_TRUE(t.sent->done && t.received->done);
  EXPECT_EQ(t.received->data, pattern(3000, 2));
}

}  // namespace
}  // namespace bfo::test
