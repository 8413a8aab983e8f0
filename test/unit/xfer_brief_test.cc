// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_brief_test.cc: the shortest way of a long message: RGET and FIN without a record of a fragment, one
// READ for all of it, and to oneself everything inside the call that sends it.
#include <gtest/gtest.h>

#include "test/unit/failover_steps.h"

namespace bfo::test {
namespace {

World::Options one_rail() {
  World::Options o = reads();
  o.rails = 1;
  o.rdma_frag = 1 << 20;
  return o;
}

bool next_is(const World& w, MsgType t) {
  return !w.flights.empty() && w.flights[0].tag == static_cast<uint8_t>(t);
}

TEST(Brief, LongMessageOverOneRail_TakesOneReadAndNoRecordOfItsHeaders) {
  World w(one_rail());
  const auto [s, r] = transfer(w, 50000);
  ASSERT_TRUE(next_is(w, MsgType::kRget));
  EXPECT_EQ(w.flights[0].frag, nullptr);
  w.take();
  ASSERT_EQ(w.flights.size(), 1u);
  EXPECT_EQ(w.flights[0].kind, Flight::Kind::kGet);
  EXPECT_EQ(w.flights[0].size, 50000u);
  w.take();
  EXPECT_TRUE(r->done);
  ASSERT_TRUE(next_is(w, MsgType::kFin));
  EXPECT_EQ(w.flights[0].frag, nullptr);
  EXPECT_FALSE(s->done);
  w.take();
  EXPECT_TRUE(s->done);
  EXPECT_EQ(r->data, s->data);
  expect_clean(w);
}

/// FakePort::get compares the handles. The last key is shorter on the wire when its handle is.
TEST(Brief, HandleOfAnySize_ArrivesWholeInAnRget) {
  for (const int rails : {1, 2}) {
    for (const uint8_t handle : {8, 9, 16}) {
      for (const size_t bytes : {50'000, 3'000'000}) {  // one READ, several
        World::Options o = reads();
        o.rails = rails;
        o.rdma_frag = 1 << 20;
        World w(o);
        w.ports[0]->handle_size_ = handle;
        const auto [s, r] = transfer(w, bytes);
        ASSERT_TRUE(next_is(w, MsgType::kRget));
        EXPECT_EQ(w.flights[0].bytes.size(), 48u + 32u * static_cast<unsigned>(rails));
        ASSERT_TRUE(w.run());
        EXPECT_TRUE(s->done && r->done);
        EXPECT_EQ(r->data, s->data);
        expect_clean(w);
      }
    }
  }
}

/// With another rail what follows the FIN could overtake it, so its end must be known. A rail that does not
/// tell what it has ended carries it in a fragment with a record.
TEST(Brief, FinOverOneOfTwoRails_HasARecordIfTheRailDoesNotCount) {
  for (const bool counts : {true, false}) {
    World w(reads());
    const auto [s, r] = transfer(w, 50000);
    for (const int rail : {0, 1}) w.rail(1, 0, rail)->limits.failover = counts;
    ASSERT_TRUE(until(w, MsgType::kFin));
    EXPECT_EQ(w.flights[0].frag == nullptr, counts);
    ASSERT_TRUE(w.run());
    EXPECT_TRUE(s->done && r->done);
  }
}

/// A short message is read over one of several rails. That READ is lost: it goes over the other one.
TEST(Brief, OnlyReadOverOneOfTwoRailsIsLost_IsReadOverTheOther) {
  World::Options o = reads();
  o.rdma_frag = 1 << 20;
  for (const bool arrived : {false, true}) {
    World w(o);
    const auto [s, r] = transfer(w, 50000);
    ASSERT_TRUE(until(w, kRdma));
    ASSERT_EQ(w.flights.size(), 1u);
    EXPECT_EQ(w.flights[0].size, 50000u);
    const int rail = w.flights[0].rail;
    w.kill(0, 1, rail, [&](const Flight&) { return arrived; });
    ASSERT_TRUE(w.run());
    ASSERT_TRUE(s->done && r->done) << arrived;
    EXPECT_EQ(r->data, s->data);
    EXPECT_EQ(w.engines[0]->counters().restarts, 0u);
    expect_clean(w);
  }
}

/// Whatever is under way when the only rail dies, arrived or not: it returns and both ends finish.
TEST(Brief, OnlyRailDies_EachHeaderIsSaidAgain) {
  for (const MsgType at : {MsgType::kRget, MsgType::kFin})
    for (const bool arrived : {false, true}) {
      World w(one_rail());
      w.late = true;
      const auto [s, r] = transfer(w, 50000);
      ASSERT_TRUE(until(w, at));
      w.kill(0, 1, 0, [&](const Flight&) { return arrived; });
      EXPECT_EQ(s->done, at == MsgType::kFin && arrived);
      w.revive(0, 1, 0);
      ASSERT_TRUE(w.run());
      ASSERT_TRUE(s->done && r->done) << static_cast<int>(at) << arrived;
      EXPECT_EQ(s->outcome, Outcome::kOk);
      EXPECT_EQ(r->data, pattern(50000, 1));
      EXPECT_EQ(w.engines[0]->counters().malformed + w.engines[1]->counters().malformed, 0u);
      expect_clean(w);
    }
}

TEST(Brief, LongMessageIsWritten_OneGrantForAllOfItAndNoRecordOfRndvAndFin) {
  World::Options o = writes();
  o.rails = 1;
  o.rdma_frag = 1 << 20;
  World w(o);
  const auto [s, r] = transfer(w, 50000);
  ASSERT_TRUE(next_is(w, MsgType::kRndv));
  EXPECT_EQ(w.flights[0].frag, nullptr);
  w.take();
  ASSERT_TRUE(next_is(w, MsgType::kPut));
  w.take();
  ASSERT_EQ(w.flights.size(), 1u);
  EXPECT_EQ(w.flights[0].kind, Flight::Kind::kPut);
  EXPECT_EQ(w.flights[0].size, 50000u);
  w.take();
  EXPECT_TRUE(s->done);
  EXPECT_FALSE(r->done);
  ASSERT_TRUE(next_is(w, MsgType::kFin));
  EXPECT_EQ(w.flights[0].frag, nullptr);
  w.take();
  EXPECT_TRUE(r->done);
  EXPECT_EQ(r->data, s->data);
  expect_clean(w);
}

/// The same of a message that is written, over one rail that comes back and over two of which one dies.
TEST(Brief, RailDiesWhileAMessageIsWritten_EachStepIsDoneAgain) {
  for (const uint8_t at : {static_cast<uint8_t>(MsgType::kRndv), static_cast<uint8_t>(MsgType::kPut), kRdma,
                           static_cast<uint8_t>(MsgType::kFin)})
    for (const int rails : {1, 2})
      for (const bool arrived : {false, true}) {
        World::Options o = writes();
        o.rails = rails;
        o.rdma_frag = 1 << 20;
        World w(o);
        w.late = true;
        const auto [s, r] = transfer(w, 50000);
        ASSERT_TRUE(until(w, at));
        const int rail = w.flights[0].rail;
        w.kill(0, 1, rail, [&](const Flight&) { return arrived; });
        if (rails == 1) w.revive(0, 1, rail);
        ASSERT_TRUE(w.run());
        ASSERT_TRUE(s->done && r->done) << int{at} << " " << rails << arrived;
        EXPECT_EQ(s->outcome, Outcome::kOk);
        EXPECT_EQ(r->data, pattern(50000, 1));
        EXPECT_EQ(w.engines[0]->counters().malformed + w.engines[1]->counters().malformed, 0u);
        expect_clean(w);
      }
}

/// The PUT of the only grant comes twice while its write is under way: it is written once.
TEST(Brief, GrantComesTwice_IsWrittenOnce) {
  World::Options o = writes();
  o.rails = 1;
  o.rdma_frag = 1 << 20;
  World w(o);
  const auto [s, r] = transfer(w, 50000);
  ASSERT_TRUE(until(w, MsgType::kPut));
  const Flight put = w.flights[0];
  w.take();
  ASSERT_EQ(w.flights.size(), 1u);
  w.engines[0]->on_message(w.rail(0, 1, 0), 0, put.tag, put.bytes.data(), put.bytes.size());
  EXPECT_EQ(w.flights.size(), 1u);
  EXPECT_EQ(w.engines[0]->counters().duplicates, 1u);
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(s->done && r->done);
  expect_clean(w);
}

/// The sender cannot use the only grant: nothing of it counts, and everything is granted to the other rail.
TEST(Brief, OnlyGrantIsRefused_TheOtherRailIsGranted) {
  World::Options o = writes();
  o.rdma_frag = 1 << 20;
  World w(o);
  const auto [s, r] = transfer(w, 50000);
  ASSERT_TRUE(until(w, MsgType::kPut));
  const Flight put = w.flights[0];
  core::PutHdr grant;
  std::memcpy(&grant, put.bytes.data(), sizeof grant);
  w.flights.erase(w.flights.begin());
  w.engines[1]->on_done(put.frag, Fate::kDelivered);
  const core::FinHdr refusal{
      static_cast<uint8_t>(MsgType::kFin), core::kFlagFail, 0, grant.sender, grant.receiver, grant.grant, 0};
  w.engines[1]->on_message(w.rail(1, 0, put.rail), 0, refusal.type, &refusal, sizeof refusal);
  EXPECT_FALSE(r->done);
  ASSERT_TRUE(next_is(w, MsgType::kPut));
  EXPECT_NE(w.flights[0].rail, put.rail);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->data, s->data);
  expect_clean(w);
}

/// The sender refuses the only grant, and no other rail could have one: the receiver asks for a new round.
/// What else there is to post does not wait for the answer, which would never come if both processes waited.
TEST(Brief, OnlyGrantIsRefusedOnTheOnlyRail_BothWays_BothGoOn) {
  World::Options o = writes();
  o.rails = 1;
  o.rdma_frag = 1 << 20;
  World w(o);
  const auto [s, r] = transfer(w, 50000);
  RecvReq* const back = w.irecv(0, 1, 2, 50000);
  SendReq* const answer = w.isend(1, 0, 2, pattern(50000, 2));
  const auto is_put = [](const Flight& f) { return f.tag == static_cast<uint8_t>(MsgType::kPut); };
  for (int refused = 0; refused < 2; ++refused) {
    while (!w.flights.empty() && !is_put(w.flights[0])) w.take();
    ASSERT_FALSE(w.flights.empty());
    const Flight put = w.flights[0];
    core::PutHdr grant;
    std::memcpy(&grant, put.bytes.data(), sizeof grant);
    w.flights.erase(w.flights.begin());
    w.engines[put.from]->on_done(put.frag, Fate::kDelivered);
    const core::FinHdr refusal{static_cast<uint8_t>(MsgType::kFin),
                               core::kFlagFail,
                               0,
                               grant.sender,
                               grant.receiver,
                               grant.grant,
                               0};
    w.engines[put.from]->on_message(w.rail(put.from, put.to, put.rail), 0, refusal.type, &refusal,
                                    sizeof refusal);
  }
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done && back->done && answer->done);
  EXPECT_EQ(r->data, s->data);
  EXPECT_EQ(back->data, answer->data);
  expect_clean(w);
}

/// The rail that has the keys is lost at any step of two messages that pass each other, and the device of the
/// other one registers nothing: neither receive keeps what else there is to post from being posted.
TEST(Brief, RailWithTheKeysIsLost_BothWays_BothGoOn) {
  for (const bool by_write : {true, false})
    for (int step = 0; step < 60; ++step) {
      World::Options o = by_write ? writes() : reads();
      o.rdma_frag = 4096;
      World w(o);
      for (const auto& port : w.ports) port->unregistered_ = 1;
      const auto [s, r] = transfer(w, 50000);
      RecvReq* const back = w.irecv(0, 1, 2, 50000);
      SendReq* const answer = w.isend(1, 0, 2, pattern(50000, 2));
      for (int i = 0; i < step && !w.flights.empty(); ++i) w.take();
      w.kill(0, 1, 0);
      ASSERT_TRUE(w.run()) << by_write << step;
      ASSERT_TRUE(s->done && r->done && back->done && answer->done) << by_write << step;
      EXPECT_EQ(r->data, s->data);
      EXPECT_EQ(back->data, answer->data);
      expect_clean(w);
    }
}

TEST(Brief, OnlyReadIsLost_IsReadAgainWithTheNextKeys) {
  World w(one_rail());
  const auto [s, r] = transfer(w, 50000);
  ASSERT_TRUE(until(w, kRdma));
  w.kill(0, 1, 0);
  EXPECT_FALSE(s->done || r->done);
  w.revive(0, 1, 0);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->data, s->data);
  expect_clean(w);
}

/// A BTL reports a header as failed while the engine is inside a call of it: the header is kept until the
/// call is over, and is then sent again.
TEST(Brief, HeaderThatFailsInsideACallOfTheBtl_IsSentAgainAfterIt) {
  for (const MsgType lost : {MsgType::kRget, MsgType::kFin}) {
    World w(one_rail());
    const auto [s, r] = transfer(w, 50000);
    ASSERT_TRUE(until(w, lost));
    ASSERT_EQ(w.flights[0].frag, nullptr);
    const Flight failed = w.flights[0];
    w.ports[failed.from]->inside_ = [&] {
      w.flights.erase(w.flights.begin());
      w.engines[failed.from]->on_sendi_failed(w.rail(failed.from, failed.to, 0), failed.tag,
                                              failed.bytes.data(), failed.bytes.size(), Fate::kUnknown);
      EXPECT_TRUE(w.flights.empty());  // not inside the call
    };
    SendReq* const short_one = w.isend(failed.from, failed.to, 7, pattern(8, 2));
    RecvReq* const answer = w.irecv(failed.to, failed.from, 7, 8);
    EXPECT_EQ(w.engines[failed.from]->counters().deferred, 1u);
    ASSERT_TRUE(w.run());
    ASSERT_TRUE(s->done && r->done && short_one->done && answer->done) << static_cast<int>(lost);
    EXPECT_EQ(r->data, pattern(50000, 1));
    EXPECT_EQ(answer->data, short_one->data);
    expect_clean(w);
  }
}

/// Another copy of the header was answered, so the send is over when its rail gives this one back: it is not
/// sent again, and may be delivered all the same until its epoch is closed at the receiver.
TEST(Brief, HeaderThatComesBackWhenItsSendIsOver_HoldsTheWindow) {
  for (const bool get : {true, false}) {
    SCOPED_TRACE(get ? "RGET without a record" : "RNDV with one");
    World::Options o = one_rail();
    o.get = get;
    World w(o);
    const auto [s, r] = transfer(w, 50000);
    ASSERT_TRUE(next_is(w, get ? MsgType::kRget : MsgType::kRndv));
    const Flight header = w.flights[0];
    ASSERT_EQ(header.frag == nullptr, get);
    w.flights.erase(w.flights.begin());
    w.arrive(header);
    ASSERT_TRUE(w.run());
    ASSERT_TRUE(s->done && r->done);
    xfer::Proc<FakePort>& numbers = *w.comms[0]->procs[1];
    EXPECT_FALSE(numbers.resent);
    w.end(header, Fate::kUnknown);
    EXPECT_TRUE(numbers.resent);
    EXPECT_EQ(numbers.resent_from, 0) << "the number of the header";
    EXPECT_TRUE(w.flights.empty()) << "it is not sent again";
    expect_clean(w);
  }
}

TEST(Brief, RailWithoutRoomForTheRead_IsAskedAgain) {
  World::Options o = one_rail();
  o.capacity = 1;
  World w(o);
  const auto [s, r] = transfer(w, 50000);
  w.isend(1, 0, 7, pattern(8, 2));  // takes the room of the READ
  w.irecv(0, 1, 7, 8);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_EQ(r->data, s->data);
  expect_clean(w);
}

TEST(Brief, SentAsCopyFirstThenRead_IsCountedAsSentAgain) {
  World::Options o = reads();
  World w(o);
  for (int me : {0, 1}) w.rail(me, 1 - me, 1)->limits.get_limit = 0;
  w.kill(0, 1, 0);
  const auto [s, r] = transfer(w, 30000);  // RNDV with the first bytes, over rail 1
  ASSERT_TRUE(until(w, MsgType::kRndv));
  w.revive(0, 1, 0);
  w.kill(0, 1, 1);
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(s->done && r->done);
  EXPECT_GT(w.engines[0]->counters().bytes_resent, 0u);
}

/// A rail may deliver a message inside the call that posts it: it is handled when that call is over.
TEST(Brief, LongMessageThatComesInsideTheCall_IsReadAfterIt) {
  for (const bool rdma_now : {true, false})
    for (const bool receive_first : {true, false}) {
      World::Options o = one_rail();
      o.ranks = 1;
      o.loopback = true;
      o.rdma_now = rdma_now;
      World w(o);
      w.stock = true;  // such a BTL has no epochs
      RecvReq* r = receive_first ? w.irecv(0, 0, 1, 50000) : nullptr;
      SendReq* s = w.isend(0, 0, 1, pattern(50000, 4));
      if (!r) {
        EXPECT_FALSE(s->done);
        r = w.irecv(0, 0, 1, 50000);
      }
      ASSERT_TRUE(w.run());
      EXPECT_TRUE(s->done && r->done);
      EXPECT_EQ(r->data, s->data);
      EXPECT_GT(w.engines[0]->counters().deferred, 0u);
      expect_clean(w);
    }
}

/// A completed message to oneself may start the next one: calls do not nest deeper and deeper.
TEST(Brief, MessagesToOneselfThatStartEachOther_AllEnd) {
  World::Options o = one_rail();
  o.ranks = 1;
  o.loopback = true;
  World w(o);
  w.stock = true;
  int left = 50;
  for (int i = 0; i < left; ++i) w.irecv(0, 0, 1, 5000);
  SendReq s;
  s.data = pattern(5000, 1);
  s.then = [&] {
    if (--left > 0) w.restart_send(&s, 0, 0, 1);
  };
  w.restart_send(&s, 0, 0, 1);
  ASSERT_TRUE(w.run());
  EXPECT_EQ(left, 0);
  expect_clean(w);
}

}  // namespace
}  // namespace bfo::test
