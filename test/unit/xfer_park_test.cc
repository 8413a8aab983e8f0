// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_park_test.cc: when a peer is given up and when not, what ends then, and who is told (peer_failure.h).
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "test/unit/failover_steps.h"

namespace bfo::test {
namespace {

TEST(Park, NoRail_ErrorAfterTheParkTimeNotBefore) {
  World w(impatient(writes()));
  RecvReq* r = w.irecv(1, 0, 1, 50000);
  RecvReq* posted = w.irecv(0, 1, 7, 10);
  SendReq* s = w.isend(0, 1, 1, pattern(50000, 1));
  ASSERT_TRUE(until(w, kRdma));
  w.kill(0, 1, 0);
  w.kill(0, 1, 1);
  SendReq* e = w.isend(0, 1, 2, pattern(10, 1));
  ASSERT_TRUE(w.run());
  const uint64_t t0 = w.now;
  for (auto& x : w.engines) x->progress(t0 + 900'000'000);
  EXPECT_FALSE(s->done || r->done || e->done || posted->done);
  w.now = t0 + 1'100'000'000;
  for (auto& x : w.engines) x->progress(w.now);
  EXPECT_TRUE(s->done && r->done && e->done && posted->done);
  EXPECT_EQ(s->outcome, Outcome::kPeerLost);
  EXPECT_EQ(e->outcome, Outcome::kPeerLost);
  EXPECT_EQ(r->status.outcome, Outcome::kPeerLost);
  EXPECT_EQ(posted->status.outcome, Outcome::kPeerLost);
  EXPECT_EQ(w.ports[0]->peers_failed_, 1);
  EXPECT_EQ(w.isend(0, 1, 2, pattern(10, 1))->outcome, Outcome::kPeerLost);
  EXPECT_EQ(w.irecv(0, 1, 2, 10)->status.outcome, Outcome::kPeerLost);
  w.revive(0, 1, 1);
  for (const FailoverEvent& event : w.ports[0]->events_)
    EXPECT_STRNE(event.what, "rail_up") << "it is not used";
}

std::vector<const FailoverEvent*> words(World& w, int rank) {
  std::vector<const FailoverEvent*> found;
  for (const FailoverEvent& e : w.ports[rank]->events_)
    if (std::strcmp(e.what, "no_rail") == 0) found.push_back(&e);
  return found;
}

/// Steps of a tenth of a second, at each of which the process makes progress.
void wait_seconds(World& w, int rank, int seconds) {
  for (int i = 0; i < 10 * seconds; ++i) w.engines[rank]->progress(w.now += 100'000'000);
}

TEST(Park, NoRailWhileMessagesWait_IsToldAfterASecondAndThenEveryTen) {
  World::Options o = writes();
  o.config.park_timeout_ns = 35'000'000'000;
  World w(o);
  w.now = 1000;
  w.irecv(1, 0, 1, 50000);
  w.irecv(0, 1, 7, 10);
  w.isend(0, 1, 1, pattern(50000, 1));
  ASSERT_TRUE(until(w, kRdma));
  w.kill(0, 1, 0);
  w.kill(0, 1, 1);
  w.isend(0, 1, 2, pattern(10, 1));
  w.closures();
  const uint64_t lost = w.now;
  for (int rank : {0, 1}) {
    w.now = lost;
    wait_seconds(w, rank, 34);
    const auto told = words(w, rank);
    ASSERT_EQ(told.size(), 4u) << "rank " << rank;
    const uint64_t seconds[] = {1, 10, 20, 30};
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(told[i]->waited_ns / 1'000'000'000, seconds[i]) << "rank " << rank;
      EXPECT_EQ(told[i]->down_ns, lost);
      EXPECT_EQ(told[i]->messages_waiting, rank == 0 ? 3u : 1u) << "rank " << rank;
    }
  }
  w.engines[0]->progress(w.now = lost + 36'000'000'000);
  EXPECT_EQ(w.ports[0]->peers_failed_, 1);
  EXPECT_EQ(words(w, 0).size(), 4u) << "that it is over has its own word";
}

TEST(Park, NoRailButNothingWaits_OrARailReturns_NothingIsToldAgain) {
  World::Options o;
  o.config.park_timeout_ns = 35'000'000'000;
  World w(o);
  w.now = 1000;
  w.isend(0, 1, 1, pattern(10, 1));
  ASSERT_TRUE(w.run());
  w.kill(0, 1, 0);
  w.kill(0, 1, 1);
  w.closures();
  wait_seconds(w, 0, 15);
  EXPECT_TRUE(words(w, 0).empty()) << "nothing waits for it";
  w.irecv(0, 1, 7, 10);
  wait_seconds(w, 0, 1);
  EXPECT_EQ(words(w, 0).size(), 1u);
  w.engines[0]->on_peer_alive(w.rail(0, 1, 0), true);
  wait_seconds(w, 0, 15);
  EXPECT_EQ(words(w, 0).size(), 1u) << "the peer is only busy";
  w.revive(0, 1, 0);
  wait_seconds(w, 0, 15);
  EXPECT_EQ(words(w, 0).size(), 1u);
}

/// What a rail that is still being connected said of the peer before the other one was lost proves nothing
/// after it. The park time waits for the rail to take it back; the word does not.
TEST(Park, SignOfLifeBeforeTheLoss_SilencesNobody) {
  World::Options o;
  o.config.park_timeout_ns = 35'000'000'000;
  World w(o);
  w.now = 1000;
  w.irecv(0, 1, 7, 10);
  w.rail(0, 1, 1)->state = RailState::kConnecting;
  w.rail(0, 1, 1)->up_epoch = 0;
  w.engines[0]->on_peer_alive(w.rail(0, 1, 1), true);
  w.kill(0, 1, 0);
  w.closures();
  const uint64_t lost = w.now;
  wait_seconds(w, 0, 5);
  EXPECT_EQ(words(w, 0).size(), 1u);
  w.engines[0]->on_peer_alive(w.rail(0, 1, 1), false);
  wait_seconds(w, 0, 6);
  ASSERT_EQ(words(w, 0).size(), 2u);
  EXPECT_EQ(words(w, 0)[1]->waited_ns, 10'000'000'000u);
  EXPECT_EQ(words(w, 0)[1]->down_ns, lost);
  w.engines[0]->on_peer_alive(w.rail(0, 1, 1), true);
  wait_seconds(w, 0, 30);
  EXPECT_EQ(words(w, 0).size(), 2u) << "it lives, and only computes";
  EXPECT_EQ(w.ports[0]->peers_failed_, 0);
}

/// Another thread may hear of the loss between the look at the clock and the turn of progress.
TEST(Park, RailLostAfterTheClockWasRead_IsNoLongWait) {
  World w(impatient());
  w.isend(0, 1, 1, pattern(10, 1));
  ASSERT_TRUE(w.run());
  w.now += 10'000'000;
  const uint64_t looked = w.now;
  w.now += 1000;
  w.kill(0, 1, 0);
  w.kill(0, 1, 1);
  SendReq* s = w.isend(0, 1, 2, pattern(10, 1));
  w.engines[0]->progress(looked);
  EXPECT_FALSE(s->done);
  EXPECT_EQ(w.ports[0]->peers_failed_, 0);
}

/// The process of rank 1 leaves, as rank 0 hears it over one rail: what had come is delivered, and what rank
/// 1 has not acknowledged comes back.
void leave(World& w, int r) {
  xfer::RailEvent ev;
  ev.name = w.name(0, 1, r);
  ev.left = true;
  w.up[w.key(0, 1, r)] = false;
  w.engines[0]->on_rail_down(w.rail(0, 1, r), ev);
  w.engines[0]->progress(w.now += 1'000'000);
  for (size_t i; (i = w.first_of(1, 0, r)) != static_cast<size_t>(-1);) w.take(i);
  for (size_t i; (i = w.first_of(0, 1, r)) != static_cast<size_t>(-1);) {
    const Flight f = w.flights[i];
    w.flights.erase(w.flights.begin() + static_cast<ptrdiff_t>(i));
    w.end(f, Fate::kUnknown);
  }
  w.engines[0]->on_rail_closed(w.rail(0, 1, r), ev, FenceResult::kFenced, 0);
  w.engines[0]->progress(w.now += 1'000'000);
}

/// Nothing is pending for a process that has left, and nobody is given up.
void expect_forgotten(World& w, uint64_t said) {
  EXPECT_EQ(w.engines[0]->counters().control_sent, said);
  EXPECT_EQ(w.engines[0]->unfinished(), 0u);
  EXPECT_EQ(w.ports[0]->frags_, 0);
  w.engines[0]->progress(w.now += 2'000'000'000);
  EXPECT_EQ(w.ports[0]->peers_failed_, 0);
}

TEST(Park, PeerLeaves_OwesItNothing) {
  World w(impatient());
  w.isend(0, 1, 1, pattern(10, 1));
  ASSERT_TRUE(w.run());
  const uint64_t said = w.engines[0]->counters().control_sent;
  leave(w, 0);
  leave(w, 1);
  expect_forgotten(w, said);
}

/// BYE is lost over one of the rails, whose queue pair is gone then.
TEST(Park, RailEndsAfterThePeerLeftOverAnother_IsNoLoss) {
  World w(impatient());
  w.isend(0, 1, 1, pattern(10, 1));
  ASSERT_TRUE(w.run());
  leave(w, 0);
  xfer::RailEvent ev;
  ev.name = w.name(0, 1, 1);
  ev.cause = BFO_CAUSE_WC_ERROR;
  ev.text = "RETRY_EXC_ERR";
  w.up[w.key(0, 1, 1)] = false;
  w.engines[0]->on_rail_down(w.rail(0, 1, 1), ev);
  w.engines[0]->on_rail_closed(w.rail(0, 1, 1), ev, FenceResult::kFenced, 0);
  w.engines[0]->progress(w.now += 1'000'000);
  EXPECT_EQ(w.engines[0]->counters().rails_lost, 0u);
  for (const FailoverEvent& event : w.ports[0]->events_) {
    if (event.rail != 1) continue;
    EXPECT_EQ(event.cause, BFO_CAUSE_SHUTDOWN) << "others are printed";
  }
  EXPECT_EQ(w.engines[0]->unfinished(), 0u);
}

/// A first handshake that takes long goes on, and the rail comes up in the epoch that was late.
TEST(Park, RailThatIsLate_IsNoLossAndIsUsedWhenItComes) {
  World w(impatient());
  w.isend(0, 1, 1, pattern(10, 1));
  ASSERT_TRUE(w.run());
  xfer::RailEvent ev;
  ev.name = w.name(0, 1, 1);
  ev.late = true;
  auto* const rail = w.rail(0, 1, 1);
  const xfer::Counters before = w.engines[0]->counters();
  w.engines[0]->on_rail_down(rail, ev);
  w.engines[0]->progress(w.now += 1'000'000);
  EXPECT_EQ(w.engines[0]->counters().rails_lost, before.rails_lost);
  EXPECT_EQ(w.engines[0]->counters().control_sent, before.control_sent) << "the peer is told nothing";
  EXPECT_TRUE(w.ports[0]->events_.empty());
  EXPECT_FALSE(rail->usable(ev.name.epoch));
  ev.late = false;
  w.engines[0]->on_rail_up(rail, ev);
  EXPECT_TRUE(rail->usable(ev.name.epoch));
  EXPECT_TRUE(w.ports[0]->events_.empty());
}

/// It needs the answer no more, or it would have waited for it. Nor is the answer given over a rail that has
/// not said yet that it goes too.
TEST(Park, PeerLeavesWithoutAnAnswer_ItIsForgotten) {
  World w(impatient());
  w.irecv(0, 1, 1, 10);
  w.isend(1, 0, 1, pattern(10, 1), xfer::SendMode::kSync);
  ASSERT_TRUE(until(w, MsgType::kAck));
  const uint64_t said = w.engines[0]->counters().control_sent;
  const int first = w.flights[0].rail;
  leave(w, first);
  EXPECT_EQ(w.engines[0]->unfinished(), 0u);
  leave(w, 1 - first);
  expect_forgotten(w, said);
}

TEST(Park, PeerLeavesAndItsLastMessageAsksForAnAnswer_NoneIsGiven) {
  World w(impatient());
  RecvReq* r = w.irecv(0, 1, 1, 10);
  w.isend(0, 1, 2, pattern(10, 1));
  ASSERT_TRUE(w.run());
  w.isend(1, 0, 1, pattern(10, 1), xfer::SendMode::kSync);
  const uint64_t said = w.engines[0]->counters().control_sent;
  const int first = w.flights.at(0).rail;
  leave(w, first);
  EXPECT_TRUE(r->done);
  leave(w, 1 - first);
  expect_forgotten(w, said);
}

/// Not acknowledged is not lost: it was received, or nobody ever asked for it.
TEST(Park, PeerLeavesWithoutAcknowledgingAMessage_ItIsNotSentAgain) {
  World w(impatient());
  w.isend(0, 1, 1, pattern(10, 1));
  const uint64_t said = w.engines[0]->counters().control_sent;
  ASSERT_EQ(w.flights.size(), 1u);
  ASSERT_EQ(w.flights[0].frag, nullptr) << "sent without a record: its bytes come back";
  leave(w, 0);
  leave(w, 1);
  expect_forgotten(w, said);
  EXPECT_EQ(w.engines[0]->counters().bytes_resent, 0u);
}

/// Who still waits for a process that has left waits for the park time, and has nobody to tell that.
TEST(Park, PeerLeavesWhileAReceiveWaits_ErrorAfterTheParkTime) {
  World w(impatient());
  w.isend(0, 1, 1, pattern(10, 1));
  ASSERT_TRUE(w.run());
  RecvReq* r = w.irecv(0, 1, 1, 10);
  leave(w, 0);
  leave(w, 1);
  EXPECT_FALSE(r->done);
  w.engines[0]->progress(w.now += 2'000'000'000);
  EXPECT_EQ(r->status.outcome, Outcome::kPeerLost);
  EXPECT_FALSE(w.peer(0, 1)->standing.notice_pending());
}

/// A probe is as good a reason to give a peer up as a posted receive, and ends like one.
TEST(Park, OnlyProbed_ProbesEndAfterTheParkTime) {
  World w(impatient());
  auto& engine = *w.engines[0];
  xfer::ProbeResult p;
  w.isend(1, 0, 5, pattern(10, 1));
  ASSERT_TRUE(w.run());
  w.kill(0, 1, 0);
  w.kill(0, 1, 1);
  ASSERT_TRUE(w.run());
  const uint64_t t0 = w.now;
  EXPECT_FALSE(engine.iprobe(w.comms[0], 1, 7, p));
  EXPECT_EQ(p.outcome, Outcome::kOk) << "it may come still";
  engine.progress(t0 + 900'000'000);
  EXPECT_EQ(w.ports[0]->peers_failed_, 0);
  w.now = t0 + 1'100'000'000;
  engine.progress(w.now);
  EXPECT_EQ(w.ports[0]->peers_failed_, 1);
  EXPECT_FALSE(engine.iprobe(w.comms[0], 1, 7, p));
  EXPECT_EQ(p.outcome, Outcome::kPeerLost);
  EXPECT_EQ(engine.improbe(w.comms[0], 1, 7, p), nullptr);
  EXPECT_EQ(p.outcome, Outcome::kPeerLost);
  EXPECT_FALSE(engine.iprobe(w.comms[0], xfer::kAnySource, 7, p));
  EXPECT_EQ(p.outcome, Outcome::kPeerLost) << "it may have waited for rank 1";
  // What had come before is still found, also by its tag alone.
  ASSERT_TRUE(engine.iprobe(w.comms[0], 1, xfer::kAnyTag, p));
  EXPECT_EQ(p.outcome, Outcome::kOk);
  EXPECT_EQ(p.length, 10u);
  RecvReq r;
  r.data.resize(10);
  auto* const m = engine.improbe(w.comms[0], 1, 5, p);
  ASSERT_NE(m, nullptr);
  engine.imrecv(m, &r, 10);
  ASSERT_TRUE(r.done);
  EXPECT_EQ(r.data, pattern(10, 1));
}

/// Who looked for a message once, before, and asks for nothing since then does not lose the peer for it.
TEST(Park, ProbedBeforeOnly_NobodyIsGivenUp) {
  World w(impatient());
  xfer::ProbeResult p;
  w.isend(0, 1, 1, pattern(10, 1));
  ASSERT_TRUE(w.run());
  EXPECT_FALSE(w.engines[0]->iprobe(w.comms[0], 1, 7, p));
  w.kill(0, 1, 0);
  w.kill(0, 1, 1);
  ASSERT_TRUE(w.run());
  w.now += 2'000'000'000;
  w.engines[0]->progress(w.now);
  EXPECT_EQ(w.ports[0]->peers_failed_, 0);
}

/// The peer of a process that only probes has a message for it to send: its death must be noticed. No
/// message, no death.
TEST(Park, OnlyProbed_PeerIsAskedWhetherItLives) {
  World w({});
  xfer::ProbeResult p;
  w.engines[0]->keep_alive();
  EXPECT_TRUE(w.flights.empty());
  EXPECT_FALSE(w.engines[0]->iprobe(w.comms[0], 1, 7, p));
  w.engines[0]->keep_alive();
  EXPECT_EQ(w.flights.size(), 2u) << "one over each rail";
  ASSERT_TRUE(w.run());
  w.engines[0]->keep_alive();
  EXPECT_TRUE(w.flights.empty()) << "nobody has probed since";
}

/// Both rails of a peer die at once. The side that only waits knows it as soon as one retransmission timeout
/// is over, not one after the other.
TEST(Park, WaitsOnly_EachRailIsAskedAtOnce) {
  World::Options o;
  o.rails = 3;
  World w(o);
  w.irecv(0, 1, 7, 10);
  w.engines[0]->keep_alive();
  for (int rail : {0, 1, 2}) EXPECT_NE(w.first_of(0, 1, rail), std::string::npos) << rail;
  EXPECT_EQ(w.flights.size(), 3u);
  w.engines[0]->keep_alive();
  EXPECT_EQ(w.flights.size(), 3u) << "these are under way";
  w.take(w.first_of(0, 1, 1));
  ASSERT_EQ(w.flights.size(), 3u) << "the answer";
  w.kill(0, 1, 0);
  ASSERT_TRUE(w.run());
  w.engines[0]->keep_alive();
  EXPECT_EQ(w.flights.size(), 2u) << "over the two that are left";
}

/// The first rail is lost while the second one has not been up yet, and will not be: its peer is as gone. The
/// record says that none is left, and who waits is told of it.
TEST(Park, SecondRailIsStillBeingConnected_CountsAsNone) {
  World w(impatient());
  w.now = 1000;
  w.irecv(0, 1, 7, 10);
  for (int me : {0, 1}) {
    w.rail(me, 1 - me, 1)->state = RailState::kConnecting;
    w.rail(me, 1 - me, 1)->up_epoch = 0;
  }
  w.kill(0, 1, 0);
  w.closures();
  wait_seconds(w, 0, 1);
  ASSERT_FALSE(w.ports[0]->events_.empty());
  EXPECT_EQ(w.ports[0]->events_[0].rails_left, 0u);
  EXPECT_EQ(w.ports[0]->peers_failed_, 1) << "the park time is a second";
}

/// At the first contact nothing is lost: there is no hurry.
TEST(Park, NoRailWasUpYet_ParkTimeDoesNotPassWhileOneIsBeingConnected) {
  World w(impatient());
  w.now = 1000;
  w.irecv(0, 1, 7, 10);
  for (int rail : {0, 1}) {
    w.rail(0, 1, rail)->state = rail == 0 ? RailState::kClosed : RailState::kConnecting;
    w.rail(0, 1, rail)->up_epoch = 0;
  }
  w.rail(0, 1, 0)->name.epoch = 1;
  xfer::RailEvent ev;
  ev.name = w.name(0, 1, 0);
  ev.late = true;
  w.engines[0]->on_rail_down(w.rail(0, 1, 0), ev);
  wait_seconds(w, 0, 3);
  EXPECT_EQ(w.ports[0]->peers_failed_, 0);
}

TEST(Park, PeerIsOnlyProbedAndItsRailsAreDown_ErrorAfterTheParkTime) {
  World w(impatient());
  w.up.assign(w.up.size(), false);
  xfer::ProbeResult p;
  EXPECT_EQ(w.engines[0]->improbe(w.comms[0], 1, 7, p), nullptr);
  EXPECT_EQ(p.outcome, Outcome::kOk);
  w.now += 1'100'000'000;
  w.engines[0]->progress(w.now);
  EXPECT_EQ(w.engines[0]->improbe(w.comms[0], 1, 7, p), nullptr);
  EXPECT_EQ(p.outcome, Outcome::kPeerLost);
}

TEST(Park, PeerIsMetWhenItsRailsAreDown_ErrorAfterTheParkTime) {
  World w(impatient());
  w.up.assign(w.up.size(), false);
  const uint64_t t0 = w.now;
  SendReq* s = w.isend(0, 1, 1, pattern(10, 1));
  RecvReq* r = w.irecv(0, 1, 7, 10);
  ASSERT_TRUE(w.run());
  w.engines[0]->progress(t0 + 900'000'000);
  EXPECT_FALSE(s->done || r->done);
  w.now = t0 + 1'100'000'000;
  w.engines[0]->progress(w.now);
  EXPECT_TRUE(s->done && r->done);
  EXPECT_EQ(s->outcome, Outcome::kPeerLost);
  EXPECT_EQ(r->status.outcome, Outcome::kPeerLost);
}

}  // namespace
}  // namespace bfo::test
