// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_accounting_test.cc: the sums balance (P8): what rails carry for a process is what its counters say
// it sent, read and needed for the protocol; and what all sent and read is what the applications sent, and
// what went again.
//
// P1..P8: contrib/doc/design.md
#include <gtest/gtest.h>

#include "test/unit/accounting.h"

namespace bfo::test {
namespace {

/// What went again is in the records of the failovers, each byte in one.
void expect_told(World& w) {
  for (size_t i = 0; i < w.engines.size(); ++i) {
    w.engines[i]->progress(w.now += 2'000'000);
    uint64_t bytes = 0;
    uint64_t messages = 0;
    for (const FailoverEvent& e : w.ports[i]->events_) {
      bytes += e.bytes_resent;
      messages += e.messages_resent;
      EXPECT_EQ(e.bytes_waiting + e.messages_waiting, 0u) << "rank " << i;
    }
    EXPECT_EQ(bytes, w.engines[i]->counters().bytes_resent) << "rank " << i;
    EXPECT_EQ(messages, w.engines[i]->counters().messages_resent) << "rank " << i;
  }
}

TEST(Accounting, WithoutAFault_RailsCarryApplicationAndProtocol) {
  for (Way way : kWays) {
    World w(options(way));
    Traffic t(w, way);
    ASSERT_TRUE(w.run());
    t.expect_done();
    const Sums s(w);
    EXPECT_EQ(s.moved, t.application) << static_cast<int>(way);
    EXPECT_EQ(s.read, way == Way::kGet ? t.application : 0);
    EXPECT_EQ(s.again, 0u);
    expect_rails_carried(w);
  }
}

/// A rail dies after any number of steps: every byte that goes again is known as such.
TEST(Accounting, ARailDies_WhatGoesAgainIsTheRest) {
  for (Way way : kWays) {
    bool any = false;
    for (int when = 0; when < 120; ++when) {
      World w(options(way));
      Traffic t(w, way);
      for (int i = 0; i < when && !w.flights.empty(); ++i) w.take();
      w.kill(0, 1, 0);
      ASSERT_TRUE(w.run());
      t.expect_done();
      const Sums s(w);
      any = any || s.again != 0;
      EXPECT_EQ(s.moved, t.application + s.again) << static_cast<int>(way) << " at " << when;
      expect_rails_carried(w);
    }
    EXPECT_TRUE(any) << static_cast<int>(way);
  }
}

/// Another one dies at any time after it: before what was planned has gone again, in the middle, or when the
/// same bytes are lost a second time. And every byte that went again is in one record of a failover.
TEST(Accounting, WhyARailDied_IsWhatIsKnownWhenItIsClosed) {
  World w({});
  w.now = 1000;
  w.isend(0, 1, 1, pattern(100, 1));
  w.hold_close = true;
  w.kill(0, 1, w.flights[0].rail);
  ASSERT_EQ(w.pending_close.size(), 1u);
  w.pending_close[0].ev.cause = 2;
  w.pending_close[0].ev.text = "known by now";
  w.hold_close = false;
  ASSERT_TRUE(w.run());
  w.engines[0]->progress(w.now += 2'000'000);
  ASSERT_EQ(w.ports[0]->events_.size(), 1u);
  EXPECT_STREQ(w.ports[0]->events_[0].text, "known by now");
  EXPECT_EQ(w.ports[0]->events_[0].cause, 2);
}

TEST(Accounting, AnotherRailDiesMeanwhile_WhatHasNotGoneAgainDoesNotCount) {
  for (Way way : kWays) {
    for (int when = 0; when < 120; when += 7)
      for (int later : {0, 1, 2, 3, 4, 6, 8, 11, 15, 20, 40}) {
        World::Options o = options(way);
        o.rails = 3;
        World w(o);
        w.now = 1000;
        Traffic t(w, way);
        for (int i = 0; i < when && !w.flights.empty(); ++i) w.take();
        w.kill(0, 1, 0);
        w.closures();
        for (int i = 0; i < later && !w.flights.empty(); ++i) w.take();
        w.kill(0, 1, 1);
        ASSERT_TRUE(w.run());
        t.expect_done();
        const Sums s(w);
        EXPECT_EQ(s.moved, t.application + s.again)
            << static_cast<int>(way) << " at " << when << " and " << later;
        expect_rails_carried(w);
        expect_told(w);
      }
  }
}

/// Every fragment of a rail arrives, and its end is not known.
TEST(Accounting, ErrorsButDelivered_WhatIsNotSentAgainDoesNotCount) {
  for (Way way : kWays)
    for (int when = 0; when < 120; when += 3) {
      World w(options(way));
      w.now = 1000;
      Traffic t(w, way);
      for (int i = 0; i < when && !w.flights.empty(); ++i) w.take();
      w.kill(0, 1, 0, [](const Flight&) { return true; });
      ASSERT_TRUE(w.run());
      t.expect_done();
      const Sums s(w);
      EXPECT_EQ(s.moved, t.application + s.again) << static_cast<int>(way) << " at " << when;
      expect_told(w);
    }
}

/// Only rail 0 can read; what was read there in vain is sent over rail 1.
TEST(Accounting, ReadInVainThenSent_CountsAtTheReceiver) {
  bool any = false;
  for (int when = 1; when < 60; ++when) {
    World w(options(Way::kGet));
    w.now = 1000;
    for (int me : {0, 1}) w.rail(me, 1 - me, 1)->limits.get_limit = 0;
    RecvReq* const r = w.irecv(1, 0, 0, 30000);
    SendReq* const s = w.isend(0, 1, 0, pattern(30000, 1));
    for (int i = 0; i < when && !w.flights.empty(); ++i) w.take();
    w.kill(0, 1, 0);
    ASSERT_TRUE(w.run());
    ASSERT_TRUE(s->done && r->done);
    EXPECT_EQ(r->data, s->data);
    const Sums sums(w);
    EXPECT_EQ(sums.moved, 30000 + sums.again) << when;
    any = any || w.engines[1]->counters().bytes_resent != 0;
    expect_told(w);
  }
  EXPECT_TRUE(any);
}

/// The other way round: rail 0 comes back while rail 1 carries the message by copy, and dies.
TEST(Accounting, SentInVainThenRead_CountsAtTheSender) {
  bool any = false;
  for (int when = 1; when < 60; ++when) {
    World w(options(Way::kGet));
    w.now = 1000;
    for (int me : {0, 1}) w.rail(me, 1 - me, 1)->limits.get_limit = 0;
    w.kill(0, 1, 0);
    RecvReq* const r = w.irecv(1, 0, 0, 30000);
    SendReq* const s = w.isend(0, 1, 0, pattern(30000, 1));
    for (int i = 0; i < when && !w.flights.empty(); ++i) w.take();
    w.revive(0, 1, 0);
    w.kill(0, 1, 1);
    ASSERT_TRUE(w.run());
    ASSERT_TRUE(s->done && r->done);
    EXPECT_EQ(r->data, s->data);
    const Sums sums(w);
    EXPECT_EQ(sums.moved, 30000 + sums.again) << when;
    any = any || (sums.read != 0 && w.engines[0]->counters().bytes_resent != 0);
    expect_told(w);
  }
  EXPECT_TRUE(any);
}

/// The rail that is left takes shorter messages only: an eager one becomes a rendezvous. When it had arrived
/// after all, no more than the header and its first bytes went again.
TEST(Accounting, EagerMessageGoesAgainAsRendezvous_CountsWhatWent) {
  for (bool arrived : {false, true}) {
    World w(options(Way::kFragment));
    w.now = 1000;
    for (int me : {0, 1})
      w.rail(me, 1 - me, 1)->limits.eager_limit = w.rail(me, 1 - me, 1)->limits.rndv_eager_limit = 100;
    RecvReq* const r = w.irecv(1, 0, 0, 200);
    SendReq* const s = w.isend(0, 1, 0, pattern(200, 1));
    ASSERT_EQ(w.flights.size(), 1u);
    ASSERT_EQ(w.flights[0].rail, 0);
    w.kill(0, 1, 0, [arrived](const Flight&) { return arrived; });
    ASSERT_TRUE(w.run());
    ASSERT_TRUE(s->done && r->done);
    EXPECT_EQ(r->data, s->data);
    const xfer::Counters& c = w.engines[0]->counters();
    EXPECT_EQ(c.bytes_resent, arrived ? 100 - sizeof(core::RndvHdr) : 200u);
    EXPECT_EQ(c.bytes_sent, 200 + c.bytes_resent);
    EXPECT_EQ(c.messages_resent, 1u);
    expect_told(w);
  }
}

/// What waits for a rail has not gone again; the record says that it waits.
TEST(Accounting, NoRailLeft_CountsWhenOneReturns) {
  for (Way way : {Way::kSendi, Way::kFragment}) {
    World w(options(way));
    w.now = 1000;
    RecvReq* const r = w.irecv(1, 0, 0, 100);
    SendReq* const s = w.isend(0, 1, 0, pattern(100, 1));
    w.kill(0, 1, 1);
    w.kill(0, 1, 0);
    w.closures();
    w.engines[0]->progress(w.now += 2'000'000);
    EXPECT_EQ(w.engines[0]->counters().bytes_resent, 0u);
    EXPECT_EQ(w.engines[0]->counters().messages_resent, 0u);
    ASSERT_EQ(w.ports[0]->events_.size(), 2u);
    EXPECT_EQ(w.ports[0]->events_[0].bytes_resent, 0u);
    EXPECT_EQ(w.ports[0]->events_[0].bytes_waiting, 100u);
    EXPECT_EQ(w.ports[0]->events_[0].messages_waiting, 1u);
    w.revive(0, 1, 1);
    ASSERT_TRUE(w.run());
    EXPECT_TRUE(s->done && r->done);
    EXPECT_EQ(w.engines[0]->counters().bytes_resent, 100u);
    EXPECT_EQ(w.engines[0]->counters().messages_resent, 1u);
  }
}

/// Both sides say at once that the last rail is lost, whatever their transfers were doing: without a rail
/// nothing of it goes on. Each record has what was left at the moment of its loss.
TEST(Accounting, NoRailLeftAmidstATransfer_BothSidesTellItAtOnce) {
  for (Way way : kWays) {
    bool waited = false;
    for (int when = 0; when < 120; ++when) {
      World w(options(way));
      w.now = 1000;
      Traffic t(w, way);
      for (int i = 0; i < when && !w.flights.empty(); ++i) w.take();
      const uint64_t lost = w.now;
      w.kill(0, 1, 0);
      for (int i = 0; i < 3 && !w.flights.empty(); ++i) w.take();
      w.kill(0, 1, 1);
      w.closures();
      w.now += 2'000'000;
      for (int rank : {0, 1}) {
        w.engines[rank]->progress(w.now);
        const auto& told = w.ports[rank]->events_;
        ASSERT_EQ(told.size(), 2u) << static_cast<int>(way) << " at " << when << ", rank " << rank;
        for (const FailoverEvent& e : told) {
          EXPECT_EQ(e.rails_left, e.rail == 0 ? 1u : 0u) << "of the moment of the loss";
          EXPECT_EQ(e.down_ns, lost);
          waited = waited || e.bytes_waiting != 0;
        }
      }
      w.revive(0, 1, 1);
      ASSERT_TRUE(w.run());
      t.expect_done();
      const Sums s(w);
      EXPECT_EQ(s.moved, t.application + s.again) << static_cast<int>(way) << " at " << when;
      expect_rails_carried(w);
    }
    EXPECT_TRUE(waited) << "no record says what waits; way " << static_cast<int>(way);
  }
}

/// A device can take long to be fenced. Without a rail nobody waits for that in silence.
TEST(Accounting, NoRailLeftAndNoFence_IsToldWithinASecond) {
  World w(options(Way::kCopy));
  w.now = 1000;
  w.irecv(1, 0, 0, 30000);
  w.isend(0, 1, 0, pattern(30000, 1));
  w.hold_close = true;
  w.kill(0, 1, 1);
  w.kill(0, 1, 0);
  for (int i = 0; i < 2; ++i) w.engines[0]->progress(w.now += 1'000'000);
  EXPECT_TRUE(w.ports[0]->events_.empty());
  w.engines[0]->progress(w.now += 1'000'000'000);
  ASSERT_GE(w.ports[0]->events_.size(), 2u);
  EXPECT_EQ(w.ports[0]->events_[0].closed_ns, 0u);
}

TEST(Accounting, ProcessThatFinalizes_TellsWhatItHasNotToldYet) {
  World w(options(Way::kFragment));
  w.now = 1000;
  w.isend(0, 1, 0, pattern(100, 1));
  w.hold_close = true;
  w.kill(0, 1, w.flights.at(0).rail);
  ASSERT_TRUE(w.ports[0]->events_.empty());
  EXPECT_TRUE(w.engines[0]->losses_open());
  w.engines[0]->tell_losses(w.peer(0, 1));
  EXPECT_EQ(w.ports[0]->events_.size(), 1u);
  EXPECT_FALSE(w.engines[0]->losses_open());
}

/// The peer leaves in order over the other rail before the lost one is closed: that one was lost all the
/// same.
TEST(Accounting, PeerLeavesBeforeALostRailIsClosed_TheLossIsTold) {
  World w(options(Way::kFragment));
  w.now = 1000;
  w.isend(0, 1, 0, pattern(100, 1));
  const int lost = w.flights.at(0).rail;
  w.hold_close = true;
  w.kill(0, 1, lost);
  ASSERT_EQ(w.pending_close.size(), 1u);
  const int cause = w.rail(0, 1, lost)->event->cause;
  xfer::RailEvent bye;
  bye.name = w.name(0, 1, 1 - lost);
  bye.left = true;
  bye.cause = BFO_CAUSE_SHUTDOWN;
  w.engines[0]->on_rail_down(w.rail(0, 1, 1 - lost), bye);
  w.pending_close[0].ev.text = "closed";
  w.hold_close = false;
  ASSERT_TRUE(w.run());
  w.engines[0]->progress(w.now += 2'000'000);
  int told = 0;
  for (const auto& event : w.ports[0]->events_) {
    if (event.rail != lost) continue;
    ++told;
    EXPECT_EQ(event.cause, cause) << "not that of the peer's end";
  }
  EXPECT_EQ(told, 1);
}

TEST(Accounting, ARailDiesTwiceBetweenTwoLooks_BothRecordsAreTold) {
  World w(options(Way::kFragment));
  w.now = 1000;
  w.irecv(1, 0, 0, 100);
  w.isend(0, 1, 0, pattern(100, 1));
  w.kill(0, 1, 0);
  w.revive(0, 1, 0);
  w.kill(0, 1, 0);
  ASSERT_TRUE(w.run());
  w.engines[0]->progress(w.now += 2'000'000);
  ASSERT_EQ(w.ports[0]->events_.size(), 3u);
  EXPECT_EQ(w.ports[0]->events_[0].epoch, 1u);
  EXPECT_EQ(w.ports[0]->events_[0].bytes_resent, 100u);
  EXPECT_STREQ(w.ports[0]->events_[1].what, "rail_up") << "between them";
  EXPECT_EQ(w.ports[0]->events_[2].epoch, 2u);
  EXPECT_EQ(w.ports[0]->events_[2].bytes_resent, 0u);
}

TEST(Accounting, ARailComesBack_BothSidesTellItAfterTheLoss) {
  World w(options(Way::kFragment));
  w.now = 1'000'000;
  w.irecv(1, 0, 0, 100);
  w.isend(0, 1, 0, pattern(100, 1));
  const uint64_t lost = w.now;
  w.kill(0, 1, 0);
  ASSERT_TRUE(w.run());
  const uint64_t back = w.now += 2'000'000;
  for (auto& engine : w.engines) engine->progress(back);
  w.revive(0, 1, 0);
  ASSERT_TRUE(w.run());
  for (const auto& port : w.ports) {
    ASSERT_EQ(port->events_.size(), 2u);
    EXPECT_STREQ(port->events_[0].what, "failover");
    EXPECT_STREQ(port->events_[1].what, "rail_up");
    EXPECT_EQ(port->events_[1].rail, 0);
    EXPECT_EQ(port->events_[1].epoch, 1u);
    EXPECT_EQ(port->events_[1].up_epoch, 2u);
    EXPECT_EQ(port->events_[1].down_ns, lost);
    EXPECT_EQ(port->events_[1].up_ns, back);
    EXPECT_EQ(port->events_[1].rails_up, 2u);
  }
}

}  // namespace
}  // namespace bfo::test
