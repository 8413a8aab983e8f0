// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_peer_parts_test.cc: the parts of the engine that keep something for a peer and its rails: the records
// of failovers, ledgers, receives from any source.
#include <gtest/gtest.h>

#include "pml/bfo/xfer/engine.h"
#include "test/unit/failover_steps.h"
#include "test/unit/fake_port.h"
#include "test/unit/fake_world.h"

namespace bfo::xfer {
namespace {

using test::FakePort;

/// A peer with one rail, and a port: what the parts below need of an engine.
struct OnePeer {
  OnePeer() {
    peer.rails.at[0] = &rail;
    peer.n_rails = 1;
    rail.peer = &peer;
    rail.name = {5, 1};
    rail.state = RailState::kUp;
    rail.limits.failover = true;
    rail.limits.weight = 1;
    peer.choice.rebuild(peer.rails, 1);
  }
  test::World world{test::World::Options{}};
  FakePort port{world, 0};
  Counters counters;
  ExitWork<FakePort> work;
  Peer<FakePort> peer;
  Rail<FakePort> rail;
};

/// Messages that wait to be sent again, and no request in a rendezvous.
struct Queued {
  Owed owed(const Peer<FakePort>& p, bool /*all*/) const { return {.waiting = p.backlog.again}; }
};
constexpr Queued queued;

TEST(FailoverRecords, OneThatWaitsForAMessageIsLookedAtWhenItWasSentAgain) {
  OnePeer o;
  FailoverRecords<FakePort> records(o.port, o.counters, o.work);
  RailEvent down;
  down.name = {5, 1};
  records.open(o.rail, down);
  records.report(o.peer, false, queued);
  EXPECT_TRUE(o.port.events_.empty()) << "its epoch is not closed";
  EXPECT_TRUE(records.needs_clock(o.rail));
  test::SendReq send;
  send.xfer.sent_before = true;
  send.xfer.length = 9;
  o.peer.backlog.ready_sends.push_back(&send);
  o.peer.backlog.again.add(9);
  records.close(o.rail, down);
  o.rail.event->closed_ns = 1;
  records.report(o.peer, false, queued);
  EXPECT_TRUE(!records.any_due() && o.port.events_.empty());
  EXPECT_FALSE(o.work.any());
  records.note_resent(o.peer, 0, false);
  EXPECT_TRUE(records.any_due()) << "no request had to be looked at, so a look costs nothing";
  records.report_due(&o.peer, queued);
  EXPECT_TRUE(!records.any_due() && o.port.events_.empty());
  o.peer.backlog.ready_sends.remove(&send);
  o.peer.backlog.again.remove(9);
  records.note_resent(o.peer, 9, true);
  EXPECT_TRUE(o.work.any()) << "the engine looks at it when it is left";
  records.report_due(&o.peer, queued);
  ASSERT_EQ(o.port.events_.size(), 1u);
  EXPECT_EQ(o.port.events_[0].bytes_resent, 9u);
  EXPECT_EQ(o.port.events_[0].messages_resent, 1u);
  EXPECT_EQ(o.port.events_[0].bytes_waiting, 0u);
  EXPECT_FALSE(records.any_due());
  EXPECT_EQ(o.counters.bytes_resent, 9u);
  records.free(o.rail);
  EXPECT_EQ(o.port.live_, 0u);
}

TEST(FailoverRecords, WithoutMemoryALossHasNone) {
  OnePeer o;
  FailoverRecords<FakePort> records(o.port, o.counters, o.work);
  o.port.refuse_ = [](size_t) { return true; };
  records.open(o.rail, RailEvent{});
  records.note_resent(o.peer, 9, false);
  records.report(o.peer, true, queued);
  EXPECT_TRUE(o.port.events_.empty());
  EXPECT_EQ(o.counters.bytes_resent, 9u);
}

RailEvent event_of(uint32_t epoch, const char* text = "") {
  RailEvent ev;
  ev.name = {5, epoch};
  ev.text = text;
  return ev;
}

TEST(RailReturns, AreToldAfterTheLossTheyEnd) {
  OnePeer o;
  FailoverRecords<FakePort> records(o.port, o.counters, o.work);
  records.up(o.rail, event_of(1));
  EXPECT_TRUE(o.port.events_.empty()) << "it was not lost";
  o.world.now = 1000;
  records.open(o.rail, event_of(1));
  o.world.now = 5000;
  records.up(o.rail, event_of(2));
  EXPECT_TRUE(o.port.events_.empty()) << "the record of the loss is open";
  o.world.now = 9000;
  records.close(o.rail, event_of(1, "known by now"));
  records.report(o.peer, false, queued);
  ASSERT_EQ(o.port.events_.size(), 2u);
  EXPECT_STREQ(o.port.events_[0].what, "failover");
  const FailoverEvent& up = o.port.events_[1];
  EXPECT_STREQ(up.what, "rail_up");
  EXPECT_STREQ(up.text, "known by now");
  EXPECT_EQ(up.peer, &o.peer.handle);
  EXPECT_EQ(up.rail_handle, &o.rail.handle);
  EXPECT_EQ(up.epoch, 1u);
  EXPECT_EQ(up.up_epoch, 2u);
  EXPECT_EQ(up.down_ns, 1000u);
  EXPECT_EQ(up.up_ns, 5000u) << "not when it could be told";
  EXPECT_EQ(up.rails_up, 1u);
  records.up(o.rail, event_of(2));
  records.report(o.peer, true, queued);
  EXPECT_EQ(o.port.events_.size(), 2u) << "each is told once";
  records.free(o.rail);
  EXPECT_EQ(o.port.live_, 0u);
}

/// Attempts to connect it that fail are reported as losses of epochs that never were up.
TEST(RailReturns, TellHowLongTheRailWasAwayInAll) {
  OnePeer o;
  FailoverRecords<FakePort> records(o.port, o.counters, o.work);
  for (uint32_t epoch = 1; epoch <= 3; ++epoch) {
    o.world.now = 1000 * epoch;
    records.open(o.rail, event_of(epoch, epoch == 1 ? "the cable" : "no answer"));
    records.close(o.rail, event_of(epoch));
    records.report(o.peer, false, queued);
  }
  o.world.now = 9000;
  records.up(o.rail, event_of(4));
  ASSERT_EQ(o.port.events_.size(), 4u);
  EXPECT_STREQ(o.port.events_[3].what, "rail_up");
  EXPECT_STREQ(o.port.events_[3].text, "the cable");
  EXPECT_EQ(o.port.events_[3].epoch, 1u);
  EXPECT_EQ(o.port.events_[3].down_ns, 1000u);
  EXPECT_EQ(o.port.events_[3].up_ns, 9000u);
  records.free(o.rail);
  EXPECT_EQ(o.port.live_, 0u);
}

TEST(RailReturns, OfAPortThatWasDownAtTheStartOrOfAPeerThatLeft_AreNone) {
  OnePeer o;
  FailoverRecords<FakePort> records(o.port, o.counters, o.work);
  for (bool RailEvent::*no_failure : {&RailEvent::late, &RailEvent::left}) {
    RailEvent down = event_of(1);
    down.*no_failure = true;
    records.open(o.rail, down);
    records.up(o.rail, event_of(2));
    records.report(o.peer, true, queued);
  }
  for (const FailoverEvent& e : o.port.events_) EXPECT_STREQ(e.what, "failover");
  records.free(o.rail);
}

TEST(RailReturns, WithoutMemoryAreNotTold) {
  OnePeer o;
  FailoverRecords<FakePort> records(o.port, o.counters, o.work);
  records.open(o.rail, event_of(1));
  records.report(o.peer, true, queued);
  records.up(o.rail, event_of(2));
  EXPECT_EQ(o.port.events_.size(), 2u);
  o.port.refuse_ = [](size_t) { return true; };
  records.open(o.rail, event_of(2));
  records.report(o.peer, true, queued);
  records.up(o.rail, event_of(3));
  EXPECT_EQ(o.port.events_.size(), 3u) << "the loss is told, its record has its memory";
  records.free(o.rail);
  EXPECT_EQ(o.port.live_, 0u);
}

TEST(Ledgers, LoadLeavesWithItsEntry) {
  OnePeer o;
  Agenda<FakePort> agenda;
  Ledgers<FakePort> ledgers(o.port, o.counters, agenda);
  LedgerEntry<FakePort>* head = nullptr;
  auto* const a = ledgers.add(head, o.rail, 1, 0, 10);
  auto* const b = ledgers.add(head, o.rail, 1, 10, 30);
  ASSERT_TRUE(a && b);
  a->loaded = b->loaded = true;
  o.rail.inflight_bytes = 30;
  ledgers.remove(head, a);
  EXPECT_EQ(head, b);
  EXPECT_EQ(o.rail.inflight_bytes, 20u);
  ledgers.remove(head, a);
  EXPECT_EQ(o.rail.inflight_bytes, 20u) << "it was not in the ledger";
  ledgers.remove_all(head);
  EXPECT_EQ(o.rail.inflight_bytes, 0u);
  ledgers.free_all();
  EXPECT_EQ(o.port.live_, 0u);
}

TEST(Ledgers, GrantIsOverWhenItWasNotSentOrItsEpochIsClosed) {
  OnePeer o;
  LedgerEntry<FakePort> read;
  read.rail = &o.rail;
  read.epoch = 1;
  LedgerEntry<FakePort> grant = read;
  grant.grant = 1;
  EXPECT_FALSE(Ledgers<FakePort>::grant_over(read)) << "a READ is no grant";
  EXPECT_TRUE(Ledgers<FakePort>::grant_over(grant));
  grant.puts = 1;
  EXPECT_FALSE(Ledgers<FakePort>::grant_over(grant));
  o.rail.closed_epoch = 1;
  EXPECT_TRUE(Ledgers<FakePort>::grant_over(grant));
}

TEST(Wildcards, FailureOfAMemberEndsThoseOfItsCommunicatorUnlessOthersAreLeft) {
  for (const AnySource rule : {AnySource::kError, AnySource::kWait}) {
    OnePeer o;
    Base<FakePort> base(o.port, {});
    Matching<FakePort> matching(base);
    Wildcards<FakePort> wildcards(o.port, rule, matching);
    o.world.peers.assign(1, std::vector<Peer<FakePort>*>(3, nullptr));
    Comm<FakePort>* const comm = matching.comm_add({.ctx = 7, .size = 3});
    ASSERT_NE(comm, nullptr);
    matching.proc_at(*comm, 1)->peer = &o.peer;
    test::RecvReq recv;
    EXPECT_EQ(matching.post(recv, {.comm = comm}), nullptr);
    EXPECT_FALSE(comm->wildcards_end);
    o.peer.standing.set_failed(1);
    wildcards.peer_failed(o.peer);
    const bool ends = rule == AnySource::kError;
    EXPECT_EQ(comm->wildcards_end, ends);
    EXPECT_EQ(base.exit_work.take_completed().recvs.pop_front(), ends ? &recv : nullptr);
    EXPECT_EQ(comm->n_posted, ends ? 0u : 1u);
    if (ends) {
      EXPECT_EQ(recv.xfer.status.source, 1);
    } else {
      EXPECT_TRUE(matching.cancel(recv));
    }
    Comm<FakePort>* const later = matching.comm_add({.ctx = 8, .size = 3});
    matching.proc_at(*later, 1)->peer = &o.peer;
    wildcards.comm_made(*later);
    EXPECT_EQ(later->n_lost, 1);
    EXPECT_EQ(matching.post(recv, {.comm = later}), nullptr);
    EXPECT_EQ(base.exit_work.take_completed().recvs.pop_front(), ends ? &recv : nullptr)
        << "posted afterwards";
    if (!ends) {
      EXPECT_TRUE(matching.cancel(recv));
    }
    matching.free_all();
  }
}

// ---- what is known of a rail, when it or its peer goes

constexpr uint64_t kMs = 1'000'000;

/// Measured, and then degraded.
void make_degraded(FakePort& port, Rail<FakePort>& rail) {
  rail.goodput.told(80, kMs);
  rail.late = kLate;
  rail.degraded = ::new (port.alloc(sizeof(Degraded))) Degraded;
  for (uint64_t from = 1000 * kMs; !rail.degraded->degraded(); from += 250 * kMs) {
    for (int i = 0; i < 2; ++i) rail.degraded->moved({1 << 20, 100 * kMs, 0, 0, false, true}, true);
    rail.degraded->end_term(8000, false, {from, from + 250 * kMs, 1000 * kMs});
  }
}

TEST(KnownRail, SuspectAndThenUpAgain_IsWhatItWas) {
  test::World w(test::World::Options{});
  test::meet(w);
  Rail<FakePort>& rail = *w.rail(0, 1, 1);
  make_degraded(*w.ports[0], rail);
  RailEvent ev;
  ev.name = rail.name;
  w.engines[0]->on_rail_suspect(&rail, ev);
  ASSERT_EQ(rail.state, RailState::kSuspect);
  w.engines[0]->on_rail_up(&rail, ev);
  EXPECT_EQ(rail.state, RailState::kUp);
  EXPECT_TRUE(rail.goodput.known());
  EXPECT_TRUE(rail.degraded->degraded()) << "nobody was told that it recovered";
  EXPECT_EQ(rail.late, kLate);
  ++ev.name.epoch;
  w.engines[0]->on_rail_up(&rail, ev);
  EXPECT_FALSE(rail.goodput.known()) << "another connection";
  EXPECT_FALSE(rail.degraded->degraded());
  EXPECT_EQ(rail.late, kUnsure);
}

/// What keeps up is not timed: while a suspect rail stands still, its age counts from the suspicion on.
TEST(KnownRail, KeptUpUntilItWasSuspected_IsTimedFromThenOn) {
  test::World w(test::World::Options{});
  test::meet(w);
  Rail<FakePort>& rail = *w.rail(0, 1, 1);
  rail.goodput.posted(1000, kMs, true);
  rail.late = 0;
  w.now = 5000 * kMs;
  RailEvent ev;
  ev.name = rail.name;
  w.engines[0]->on_rail_suspect(&rail, ev);
  EXPECT_LE(rail.goodput.age_ns(5001 * kMs), kMs);
}

TEST(KnownRail, PeerIsDeclaredFailed_CountsNoMore) {
  test::World w(test::World::Options{});
  test::meet(w);
  Rail<FakePort>& rail = *w.rail(0, 1, 1);
  make_degraded(*w.ports[0], rail);
  Engine<FakePort>& engine = *w.engines[0];
  const auto all = [](const FakePort::RailHandle&) { return true; };
  const auto before = engine.counters().rails_degraded;
  EXPECT_EQ(engine.judged_rails(all).judged, 1u);
  EXPECT_EQ(engine.on_port_speed(all, 5), 2u);
  RailEvent ev;
  ev.name = w.rail(0, 1, 0)->name;
  engine.on_rail_broken(w.rail(0, 1, 0), ev, true);  // the other rail is not reported as down
  ASSERT_TRUE(rail.peer->standing.failed());
  EXPECT_EQ(engine.counters().rails_degraded, before - 1);
  EXPECT_EQ(rail.degraded, nullptr);
  EXPECT_EQ(engine.judged_rails(all).judged, 0u);
  EXPECT_EQ(engine.on_port_speed(all, 7), 0u);
}

/// A FIN that its rail handed back comes over another one.
TEST(KnownRail, RateInAFin_IsThatOfTheGrantedRail) {
  for (const bool granted : {true, false}) {
    test::World w(test::writes());
    test::meet(w);
    const test::Transfer t = test::transfer(w, 2000);
    ASSERT_TRUE(test::until(w, core::MsgType::kFin));
    test::Flight& fin = w.flights[0];
    core::FinHdr h;
    ASSERT_EQ(fin.bytes.size(), sizeof h);
    std::memcpy(&h, fin.bytes.data(), sizeof h);
    h.rate = core::rate_code(800);
    std::memcpy(fin.bytes.data(), &h, sizeof h);
    const int own = fin.rail;
    if (!granted) {
      test::Flight over_other = fin;
      over_other.rail = 1 - own;
      w.arrive(over_other);
    } else {
      w.arrive(fin);
    }
    EXPECT_EQ(w.rail(1, 0, own)->goodput.known(), granted);
    EXPECT_FALSE(w.rail(1, 0, 1 - own)->goodput.known());
    static_cast<void>(t);
  }
}

/// A message in one READ, and one in many.
TEST(KnownRail, SuspectOneIsNotRead_WhileAnotherHasAKey) {
  for (const size_t n : {2000u, 100'000u}) {
    test::World::Options options = test::reads();
    test::World w(options);
    test::meet(w);
    RailEvent ev;
    ev.name = w.rail(1, 0, 0)->name;
    w.engines[1]->on_rail_suspect(w.rail(1, 0, 0), ev);
    for (int message = 0; message < 4; ++message) {
      const test::Transfer t = test::transfer(w, n);
      while (!t.r->done && !w.flights.empty()) {
        for (const test::Flight& f : w.flights) {
          if (f.kind == test::Flight::Kind::kGet) {
            EXPECT_EQ(f.rail, 1);
          }
        }
        w.take();
      }
      EXPECT_TRUE(t.r->done);
    }
    ev.name = w.rail(1, 0, 1)->name;
    w.engines[1]->on_rail_suspect(w.rail(1, 0, 1), ev);
    const test::Transfer last = test::transfer(w, n);
    ASSERT_TRUE(w.run());
    EXPECT_TRUE(last.r->done) << "with no other left it is used";
  }
}

}  // namespace
}  // namespace bfo::xfer
