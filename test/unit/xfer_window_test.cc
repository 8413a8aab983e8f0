// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_window_test.cc: the sequence window against what the sender itself does not know yet (H5). A message
// arrives on one rail and its acknowledgement stays away, while other rails carry what follows. When the
// rail dies the message is sent again: its number must still be one the receiver takes for the past.
#include <gtest/gtest.h>

#include "test/unit/fake_port.h"

namespace bfo::test {
namespace {

constexpr int kHalfWay = 57'000;      ///< the old number is ahead of what the receiver expects then
constexpr int kOnceRound = 66'000;    ///< more messages than there are numbers
constexpr std::size_t kAll = 16'384;  ///< kSeqWindow, for the eye

std::vector<std::uint8_t> content(int i) {
  std::vector<std::uint8_t> d(4);
  std::memcpy(d.data(), &i, 4);
  return d;
}

/// Rank 0 sends numbered messages to rank 1, and some of them are held: executed, not acknowledged.
struct Stream {
  explicit Stream(World& world) : w(world) {}

  /// What is under way arrives and ends, but the held ones.
  void settle() {
    while (w.flights.size() > held) w.take(held);
  }
  /// Time passes: whoever waits asks again.
  void wait() {
    for (int i = 0; i < 8; ++i) {
      for (auto& e : w.engines) e->progress(w.now += 2'000'000);
      settle();
    }
  }
  /// Sends until `total` were sent, or until one waits. The number sent.
  int send(int total) {
    while (sent < total) {
      w.isend(0, 1, 1, content(sent++));
      settle();
      if (!w.sends.back()->done) return sent;
    }
    return sent;
  }
  /// The oldest MATCH under way arrives, and keeps its place on the rail: no acknowledgement.
  void hold_front() {
    while (w.flights[held].tag != static_cast<std::uint8_t>(core::MsgType::kMatch)) w.take(held);
    w.arrive(w.flights[held]);
    ++held;
  }
  void suspect(int rail) {
    xfer::RailEvent ev;
    ev.name = w.name(0, 1, rail);
    w.engines[0]->on_rail_suspect(w.rail(0, 1, rail), ev);
  }
  void kill(int rail) {
    held = 0;
    w.kill(0, 1, rail);
  }
  /// Every message was received once, in order.
  void expect_all_received() {
    for (int i = 0; i < sent; ++i) {
      RecvReq* const r = w.irecv(1, 0, 1, 4);
      ASSERT_TRUE(r->done) << i;
      ASSERT_EQ(r->data, content(i)) << i;
    }
    EXPECT_FALSE(w.irecv(1, 0, 1, 4)->done);
    EXPECT_EQ(w.engines[1]->counters().malformed, 0u);
  }

  World& w;
  std::size_t held = 0;
  int sent = 0;
};

TEST(Window, AcknowledgementStaysAway_OldMessageIsNotTakenForANewOne) {
  World w({});
  Stream s(w);
  w.isend(0, 1, 1, content(s.sent++));
  s.hold_front();
  s.suspect(w.flights[0].rail);
  s.send(kHalfWay);
  EXPECT_FALSE(w.sends.back()->done) << "past the window of a message that may be sent again";
  EXPECT_LE(static_cast<std::size_t>(s.sent), kAll + 1);
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
  EXPECT_LE(static_cast<std::size_t>(s.sent), kAll + 1);
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
  EXPECT_LE(static_cast<std::size_t>(s.sent), kAll);
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
    s.suspect(w.engines[0]->port().world_.peer(0, 1)->home->index);  // the next rail's turn
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
  for (std::size_t size : {std::size_t{4}, kAll}) {
    SendReq* const later = w.isend(0, 1, 1, std::vector<std::uint8_t>(size));
    EXPECT_TRUE(later->done) << size;
    EXPECT_EQ(later->outcome, Outcome::kPeerLost);
  }
  s.kill(0);
  s.kill(1);
  ASSERT_TRUE(w.run());
  EXPECT_EQ(w.engines[0]->unfinished(), 0u);
}

}  // namespace
}  // namespace bfo::test
