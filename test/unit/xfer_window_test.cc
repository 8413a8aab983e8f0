// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_window_test.cc: the sequence window against what the sender itself does not know yet (H5). A message
// arrives on one rail and its acknowledgement stays away, while other rails carry what follows. When the
// rail dies the message is sent again: its number must still be one the receiver takes for the past.
//
// H1..H23: contrib/doc/hazards.md
#include <gtest/gtest.h>

#include <algorithm>

#include "test/unit/window_stream.h"

namespace bfo::test {
namespace {

TEST(Window, AcknowledgementStaysAway_OldMessageIsNotTakenForANewOne) {
  World w({});
  Stream s(w);
  w.isend(0, 1, 1, content(s.sent++));
  s.hold_front();
  s.suspect(w.flights[0].rail);
  s.send(kHalfWay);
  EXPECT_FALSE(w.sends.back()->done) << "past the window of a message that may be sent again";
  EXPECT_LE(static_cast<size_t>(s.sent), kAll + 1);
  s.wait();
  EXPECT_FALSE(w.sends.back()->done) << "nothing has changed";
  s.kill(w.flights[0].rail);
  ASSERT_TRUE(w.run());
  s.wait();
  ASSERT_TRUE(w.sends.back()->done) << "a dead rail holds nothing";
  ASSERT_EQ(s.send(kOnceRound), kOnceRound);
  s.expect_all_received();
  EXPECT_EQ(w.engines[1]->counters().duplicates, 1u);
}

/// The copy that is sent again is as old as the message: it may die with its rail too.
TEST(Window, CopyIsNotAcknowledgedEither_ItHoldsTheWindowToo) {
  World::Options o;
  o.rails = 3;
  World w(o);
  Stream s(w);
  w.isend(0, 1, 1, content(s.sent++));
  s.hold_front();
  const int first = w.flights[0].rail;
  s.suspect(first);
  s.send(9000);  // past one stop of the window, where it takes notice of what is under way
  s.kill(first);
  s.hold_front();
  const int second = w.flights[0].rail;
  s.suspect(second);
  while (w.closures()) s.settle();
  s.settle();
  s.wait();
  s.send(kHalfWay);
  EXPECT_FALSE(w.sends.back()->done) << "past the window of the copy";
  EXPECT_LE(static_cast<size_t>(s.sent), kAll + 1);
  s.kill(second);
  ASSERT_TRUE(w.run());
  s.wait();
  ASSERT_TRUE(w.sends.back()->done);
  ASSERT_EQ(s.send(kOnceRound), kOnceRound);
  s.expect_all_received();
}

/// The same with the number inherited by the next communicator of that context id.
TEST(Window, CommunicatorMadeAgain_StillWaitsForTheOldMessage) {
  World w({});
  Stream s(w);
  auto* a0 = w.add_comm(0, 9);
  auto* a1 = w.add_comm(1, 9);
  w.isend(0, 1, 1, content(-1), xfer::SendMode::kStandard, a0);
  s.hold_front();
  s.suspect(w.flights[0].rail);
  ASSERT_TRUE(w.irecv(1, 0, 1, 4, a1)->done);
  w.engines[0]->comm_del(a0);
  w.engines[1]->comm_del(a1);
  w.comms[0] = w.add_comm(0, 9);
  w.comms[1] = w.add_comm(1, 9);
  s.send(kHalfWay);
  EXPECT_FALSE(w.sends.back()->done);
  EXPECT_LE(static_cast<size_t>(s.sent), kAll);
  s.kill(w.flights[0].rail);
  ASSERT_TRUE(w.run());
  s.wait();
  ASSERT_EQ(s.send(kOnceRound), kOnceRound);
  s.expect_all_received();
}

/// Nothing is held up while acknowledgements come, whichever rail they come from.
TEST(Window, AcknowledgementsCome_NobodyWaits) {
  World::Options o;
  o.rails = 3;
  World w(o);
  Stream s(w);
  for (int stretch = 1; stretch <= 6; ++stretch) {
    ASSERT_EQ(s.send(stretch * 11'000), stretch * 11'000);
    ASSERT_TRUE(w.sends.back()->done);
    s.suspect(w.engines[0]->port().world_.peer(0, 1)->choice.preferred()->index);  // the next rail's turn
    if (stretch == 3) {
      w.kill(0, 1, 0);
      ASSERT_TRUE(w.run());
      w.revive(0, 1, 0);
    }
  }
  s.expect_all_received();
}

/// Who waits for a window when the peer is given up, and who comes later, end like every other request.
TEST(Window, PeerIsGivenUpWhileShut_NobodyWaits) {
  World w({});
  Stream s(w);
  w.isend(0, 1, 1, content(s.sent++));
  s.hold_front();
  s.suspect(w.flights[0].rail);
  s.send(kHalfWay);
  SendReq* const stalled = w.sends.back().get();
  ASSERT_FALSE(stalled->done);
  w.engines[0]->peer_lost(w.peer(0, 1));
  EXPECT_TRUE(stalled->done);
  EXPECT_EQ(stalled->outcome, Outcome::kPeerLost);
  for (size_t size : {size_t{4}, kAll}) {
    SendReq* const later = w.isend(0, 1, 1, std::vector<uint8_t>(size));
    EXPECT_TRUE(later->done) << size;
    EXPECT_EQ(later->outcome, Outcome::kPeerLost);
  }
  s.kill(0);
  s.kill(1);
  ASSERT_TRUE(w.run());
  EXPECT_EQ(w.engines[0]->unfinished(), 0u);
}

/// Whatever rail carried something has died and is back.
void kill_both(World& w, Stream& s) {
  for (int rail = 0; rail < 2; ++rail) {
    s.kill(rail);
    ASSERT_TRUE(w.run());
    w.revive(0, 1, rail);
    ASSERT_TRUE(w.run());
  }
}

/// A long message waits for its receive while more messages than there are numbers pass: its header, said
/// again, is not one of them (H5), whatever became of the message meanwhile.
enum class Became { kUnmatched, kHeld, kMatched };
void header_again_when_old(const World::Options& o, Became fate) {
  World w(o);
  Stream s(w);
  SendReq* const big = w.isend(0, 1, kLongTag, long_content(1));
  s.settle();
  ASSERT_EQ(s.send(kHalfWay), kHalfWay) << "nobody waits for a receive that is not posted";
  ASSERT_FALSE(big->done);
  xfer::Unexpected<FakePort>* held = nullptr;
  RecvReq* recv = nullptr;
  if (fate == Became::kHeld) {
    xfer::ProbeResult found;
    held = w.engines[1]->improbe(w.comms[1], 0, kLongTag, found);
    ASSERT_NE(held, nullptr);
  }
  if (fate == Became::kMatched) recv = w.irecv(1, 0, kLongTag, kLong);  // its answer dies with the rail
  ASSERT_NO_FATAL_FAILURE(kill_both(w, s));
  EXPECT_EQ(big->done, fate == Became::kMatched);
  ASSERT_EQ(s.send(kOnceRound), kOnceRound);
  ASSERT_NO_FATAL_FAILURE(s.expect_all_received());
  if (fate == Became::kUnmatched) recv = w.irecv(1, 0, kLongTag, kLong);
  if (fate == Became::kHeld) {
    w.recvs.push_back(std::make_unique<RecvReq>());
    recv = w.recvs.back().get();
    recv->data.resize(kLong);
    w.engines[1]->imrecv(held, recv, kLong);
  }
  ASSERT_NO_FATAL_FAILURE(expect_long(w, big, recv, 1));
  EXPECT_EQ(w.engines[0]->unfinished() + w.engines[1]->unfinished(), 0u);
  EXPECT_EQ(w.engines[0]->counters().malformed, 0u);
}

TEST(Window, UnmatchedRendezvousIsSaidAgain_ItsOldNumberIsNotANewOne) {
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    header_again_when_old(protocol(i), Became::kUnmatched);
  }
}
TEST(Window, RendezvousHeldByAProbeIsSaidAgain_ItsOldNumberIsNotANewOne) {
  header_again_when_old(protocol(1), Became::kHeld);
}
TEST(Window, AnswerOfAnOldRendezvousIsLost_ItIsGivenAgain) {
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    header_again_when_old(protocol(i), Became::kMatched);
  }
}

/// Its second copy does not hold the window either: the peer may take its time to close the dead epoch.
TEST(Window, OldRendezvousIsSaidAgainBeforeThePeerHasClosed_NobodyWaits) {
  World w({});
  Stream s(w);
  SendReq* const big = w.isend(0, 1, kLongTag, long_content(1));
  s.settle();
  ASSERT_EQ(s.send(20'000), 20'000);
  w.hold_close = true;
  s.kill(0);
  ASSERT_EQ(w.pending_close.size(), 1u);
  w.engines[0]->on_rail_closed(w.rail(0, 1, 0), w.pending_close.front().ev, FenceResult::kFenced, 0);
  const auto headers = [&] { return w.delivered[static_cast<uint8_t>(core::MsgType::kRndv)]; };
  const uint64_t before = headers();
  s.wait();
  ASSERT_EQ(headers(), before + 1);
  EXPECT_EQ(s.send(30'000), 30'000);
  w.hold_close = false;
  ASSERT_TRUE(w.run());
  s.wait();
  ASSERT_EQ(s.send(kOnceRound), kOnceRound);
  ASSERT_NO_FATAL_FAILURE(s.expect_all_received());
  ASSERT_NO_FATAL_FAILURE(expect_long(w, big, w.irecv(1, 0, kLongTag, kLong), 1));
}

/// The receiver is done with it and has freed the communicator, and its answer is still on the way.
TEST(Window, OldRendezvousOfAFreedCommunicator_IsAnsweredNotParked) {
  World w({});
  Stream s(w);
  SendReq* const big = w.isend(0, 1, kLongTag, long_content(1));
  s.settle();
  ASSERT_EQ(s.send(kHalfWay), kHalfWay);
  for (int i = 0; i < kHalfWay; ++i) ASSERT_TRUE(w.irecv(1, 0, 1, 4)->done) << i;
  RecvReq* const recv = w.irecv(1, 0, kLongTag, 16);  // truncated: the answer is NACK
  ASSERT_TRUE(recv->done);
  ASSERT_FALSE(w.flights.empty());
  const int answered_on = w.flights.front().rail;
  w.engines[1]->comm_del(w.comms[1]);
  s.kill(1 - answered_on);  // the header is said again, before the answer arrives
  while (w.closures()) w.engines[0]->progress(w.now += 2'000'000);
  while (w.first_of(0, 1, answered_on) != static_cast<size_t>(-1)) w.take(w.first_of(0, 1, answered_on));
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(big->done);
  w.engines[0]->comm_del(w.comms[0]);
  w.comms[0] = w.add_comm(0, 0);
  w.comms[1] = w.add_comm(1, 0);
  const int before = s.sent;
  ASSERT_EQ(s.send(kOnceRound), kOnceRound);
  for (int i = before; i < s.sent; ++i) {
    RecvReq* const r = w.irecv(1, 0, 1, 4);
    ASSERT_TRUE(r->done) << i;
    ASSERT_EQ(r->data, content(i)) << i;
  }
  EXPECT_EQ(w.engines[1]->counters().malformed, 0u);
}

/// Nor is the header of a young message taken for an old one that has the same number and still waits.
TEST(Window, YoungRendezvousIsSaidAgain_OldMessageWithItsNumberIsAnother) {
  for (bool old_is_long : {false, true}) {
    SCOPED_TRACE(old_is_long);
    World w({});
    Stream s(w);
    constexpr int kOldTag = 3;
    SendReq* const old = w.isend(0, 1, kOldTag, old_is_long ? long_content(7) : content(7));  // number 0
    s.settle();
    ASSERT_EQ(s.send(65'535), 65'535);
    SendReq* const big = w.isend(0, 1, kLongTag, long_content(1));  // number 0 again
    s.settle();
    ASSERT_NO_FATAL_FAILURE(kill_both(w, s));
    EXPECT_FALSE(big->done) << "no receive has matched it";
    ASSERT_NO_FATAL_FAILURE(s.expect_all_received());
    ASSERT_NO_FATAL_FAILURE(expect_long(w, big, w.irecv(1, 0, kLongTag, kLong), 1));
    RecvReq* const last = w.irecv(1, 0, kOldTag, old->data.size());
    ASSERT_TRUE(w.run());
    ASSERT_TRUE(last->done && old->done);
    EXPECT_EQ(last->data, old->data);
    EXPECT_EQ(w.engines[1]->counters().malformed, 0u);
  }
}

/// What was known of the message that had the request before is not known of the next one: taken for known,
/// it would be looked up by its name, not found, and answered as received.
TEST(Window, RequestOfAnOldRendezvousIsUsedAgain_ItsNewMessageIsNew) {
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    World w(protocol(i));
    Stream s(w);
    SendReq* const big = w.isend(0, 1, kLongTag, long_content(1));
    s.settle();
    ASSERT_EQ(s.send(20'000), 20'000);
    ASSERT_TRUE(big->xfer.rndv->known) << "the receiver has confirmed its number";
    ASSERT_NO_FATAL_FAILURE(expect_long(w, big, w.irecv(1, 0, kLongTag, kLong), 1));
    big->data = long_content(2);
    w.restart_send(big, 0, 1, kLongTag);
    ASSERT_TRUE(w.run());
    EXPECT_FALSE(big->done) << "no receive has matched it";
    ASSERT_NO_FATAL_FAILURE(expect_long(w, big, w.irecv(1, 0, kLongTag, kLong), 2));
    ASSERT_NO_FATAL_FAILURE(s.expect_all_received());
  }
}

/// A short message that comes again as a rendezvous, because the rail that is left carries less at once, is
/// as known as its number.
TEST(Window, OldEagerMessageComesAgainAsARendezvous_ItIsKnown) {
  World::Options o;
  o.sendi = false;
  World w(o);
  Stream s(w);
  w.rail(0, 1, 1)->limits.eager_limit = w.rail(0, 1, 1)->limits.rndv_eager_limit = 64;
  const std::vector<uint8_t> text(200, 0x2a);
  SendReq* const first = w.isend(0, 1, kLongTag, text);
  s.hold_front();
  ASSERT_EQ(w.flights[0].rail, 0);
  s.suspect(0);
  ASSERT_EQ(s.send(9000), 9000);
  s.kill(0);
  const auto again = std::find_if(w.flights.begin(), w.flights.end(), [](const Flight& f) {
    return f.tag == static_cast<uint8_t>(core::MsgType::kRndv);
  });
  ASSERT_NE(again, w.flights.end());
  core::RndvHdr h{};
  ASSERT_TRUE(core::decode(core::MsgType::kRndv, core::Bytes{again->bytes.data(), again->bytes.size()}, h));
  EXPECT_TRUE(h.match.flags & core::kFlagKnown);
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(first->done);
  EXPECT_EQ(first->outcome, Outcome::kOk);
  EXPECT_EQ(w.irecv(1, 0, kLongTag, text.size())->data, text);
  EXPECT_FALSE(w.irecv(1, 0, kLongTag, text.size())->done) << "received twice";
  ASSERT_NO_FATAL_FAILURE(s.expect_all_received());
}

/// A flag that nobody set: the sender alone pays for its name, whatever else it says.
TEST(Window, ForgedFlag_HurtsNobodyElse) {
  for (uint16_t ctx : {0, 77}) {
    SCOPED_TRACE(ctx);
    World w({});
    Stream s(w);
    SendReq* const big = w.isend(0, 1, kLongTag, long_content(1));
    s.settle();
    s.send(3);
    for (uint64_t name : {big->xfer.rndv->name.value, Name(200, 3, kFirstRound).value, uint64_t{0}}) {
      for (uint16_t seq : {0, 1, 4, 5, 40000}) {
        core::RndvHdr h{};
        h.match = core::MatchHdr{
            static_cast<uint8_t>(core::MsgType::kRndv), core::kFlagKnown, ctx, 0, kLongTag, seq};
        h.length = name == big->xfer.rndv->name.value && seq == 0 ? 4000 : kLong;  // not what it said before
        h.sender = name;
        w.engines[1]->on_message(w.rail(1, 0, 0), 1, h.match.type, &h, sizeof h);
        s.settle();
      }
    }
    EXPECT_FALSE(big->done);
    if (ctx != 0) {
      xfer::Comm<FakePort>* const c = w.add_comm(1, ctx);
      EXPECT_EQ(w.engines[1]->queue_lengths(c, 0).unexpected, 0u) << "kept for later";
    }
    ASSERT_NO_FATAL_FAILURE(expect_long(w, big, w.irecv(1, 0, kLongTag, kLong), 1));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(w.irecv(1, 0, 1, 4)->data, content(i));
    EXPECT_EQ(s.send(10), 10);
    for (int i = 3; i < 10; ++i) EXPECT_EQ(w.irecv(1, 0, 1, 4)->data, content(i));
  }
}

}  // namespace
}  // namespace bfo::test
