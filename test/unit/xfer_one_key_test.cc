// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_one_key_test.cc: a message that is read over one rail has one key, and its buffers are registered for
// that rail only; what needs other rails after all gets their keys and registrations.
//
// P1..P8: contrib/doc/design.md
#include <gtest/gtest.h>

#include "test/unit/failover_steps.h"
#include "test/unit/pattern.h"

namespace bfo::test {
namespace {

constexpr size_t kMebibyte = 1 << 20;
constexpr unsigned kFirst = 1, kSecond = 2, kBoth = 3;  ///< rails, one bit each

/// Rails that read, the second is preferred.
World::Options reads(int rails = 2) {
  World::Options o;
  o.rails = rails;
  o.get = true;
  o.rdma_frag = o.rdma_limit = 2 << 20;
  o.preferred_key = 1;
  o.config.short_limit = 256;
  return o;
}

/// A message of `n` bytes, matched, its READ under way. What its RGET brought.
struct Message {
  SendReq* s;
  RecvReq* r;
  unsigned keys = 0;
};
Message begin(World& w, size_t n) {
  Message m{w.isend(0, 1, 1, pattern(n, 1)), w.irecv(1, 0, 1, n)};
  EXPECT_TRUE(until(w, MsgType::kRget));
  core::RgetHdr h{};
  EXPECT_TRUE(core::decode_rget(core::Bytes{w.flights[0].bytes.data(), w.flights[0].bytes.size()}, h));
  m.keys = h.n_keys;
  w.take();
  return m;
}
void end(World& w, const Message& m) {
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(m.s->done && m.r->done);
  EXPECT_EQ(m.r->data, m.s->data);
  expect_clean(w);
}
unsigned keys(World& w, size_t n) {
  const Message m = begin(w, n);
  end(w, m);
  return m.keys;
}
/// Messages go by until the sender knows that the rail keeps up.
void settle(World& w, unsigned rails = 2) {
  EXPECT_EQ(keys(w, 50000), rails) << "it is not known at first";
  for (int i = 0; i < 100; ++i)
    if (keys(w, 50000) == 1) return;
  FAIL() << "the sender never knows";
}
unsigned registered(const auto* request) {
  return request->xfer.rndv->reg.rails & kBoth;
}

TEST(OneKey, RailKeepsUp_AMessageOfAtMostAMebibyteHasOneKey) {
  World w(reads());
  ASSERT_NO_FATAL_FAILURE(settle(w));
  EXPECT_EQ(keys(w, 16384), 1u);
  EXPECT_EQ(keys(w, kMebibyte), 1u);
  EXPECT_EQ(keys(w, kMebibyte + 1), 2u) << "P4: more would be at risk";
  const Message m = begin(w, 65536);
  EXPECT_EQ(registered(m.s), kSecond);
  EXPECT_EQ(registered(m.r), kSecond);
  end(w, m);
}

TEST(OneKey, ReadIsLost_ANewRoundHasAllKeys) {
  World w(reads());
  ASSERT_NO_FATAL_FAILURE(settle(w));
  const Message m = begin(w, 65536);
  ASSERT_EQ(m.keys, 1u);
  ASSERT_EQ(w.flights[0].kind, Flight::Kind::kGet);
  w.kill(0, 1, 1);
  end(w, m);
  EXPECT_EQ(w.engines[0]->counters().restarts, 1u);
  EXPECT_EQ(w.engines[1]->counters().bytes_resent, 65536u);
  EXPECT_EQ(keys(w, 50000), 1u) << "of the rail that is left";
  w.revive(0, 1, 1);
  ASSERT_TRUE(w.run());
  EXPECT_EQ(keys(w, 50000), 2u) << "the rails have changed";
}

/// until(), where the engines may have to take turns first.
bool steps_until(World& w, MsgType t) {
  for (int i = 0; i < 10000; ++i) {
    if (!w.flights.empty() && w.flights[0].tag == static_cast<uint8_t>(t)) return true;
    if (w.run(1)) return false;
  }
  return false;
}

/// Even if another message has told meanwhile, while the header waited, that a rail keeps up.
TEST(OneKey, NewRound_HasAllKeysWhateverIsKnown) {
  World w(reads(3));
  ASSERT_NO_FATAL_FAILURE(settle(w, 3));
  const Message m = begin(w, 65536);
  ASSERT_EQ(m.keys, 1u);
  ASSERT_EQ(w.flights[0].kind, Flight::Kind::kGet);
  w.kill(0, 1, w.flights[0].rail);
  ASSERT_TRUE(steps_until(w, MsgType::kRestartAck));
  const int capacity = std::exchange(w.options.capacity, 0);
  w.take();
  ASSERT_TRUE(w.flights.empty()) << "the header has to wait";
  w.rail(0, 1, 0)->peer->choice.set_keeps_up(true);
  w.options.capacity = capacity;
  ASSERT_TRUE(steps_until(w, MsgType::kRget));
  core::RgetHdr h{};
  ASSERT_TRUE(core::decode_rget(core::Bytes{w.flights[0].bytes.data(), w.flights[0].bytes.size()}, h));
  EXPECT_EQ(h.n_keys, 2u);
  end(w, m);
}

TEST(OneKey, HeaderIsLost_TheNextOneHasTheKeyOfTheRailThatIsLeft) {
  World w(reads());
  ASSERT_NO_FATAL_FAILURE(settle(w));
  const Message m{w.isend(0, 1, 1, pattern(65536, 1)), w.irecv(1, 0, 1, 65536)};
  ASSERT_EQ(w.flights[0].rail, 1);
  w.kill(0, 1, 1);
  end(w, m);
}

TEST(OneKey, ReadsAreLate_TheSenderIsTold) {
  World w(reads());
  ASSERT_NO_FATAL_FAILURE(settle(w));
  const Message late = begin(w, 50000);
  for (int i = 0; i < 2; ++i) w.engines[1]->turn();
  end(w, late);
  EXPECT_EQ(keys(w, 50000), 2u);
}

/// The receiver knows before the sender does: it has all keys, and a registration for one of them.
TEST(OneKey, ReadIsLostAndThereIsAnotherKey_TheOtherRailIsRegisteredThen) {
  World w(reads());
  ASSERT_NO_FATAL_FAILURE(settle(w));
  w.rail(0, 1, 1)->peer->choice.set_keeps_up(false);
  const Message m = begin(w, 65536);
  ASSERT_EQ(m.keys, 2u);
  EXPECT_EQ(registered(m.s), kBoth);
  EXPECT_EQ(registered(m.r), kSecond);
  w.hold_close = true;
  w.kill(0, 1, 1);
  EXPECT_EQ(registered(m.r), kBoth);
  w.hold_close = false;
  for (const World::Close& c : w.pending_close)
    for (const int rank : {0, 1}) close_half(w, c, rank, FenceResult::kFenced);
  w.pending_close.clear();
  end(w, m);
  EXPECT_EQ(w.engines[1]->counters().restarts, 0u);
}

/// The device of the rail that is left registers nothing.
TEST(OneKey, OtherRailCannotRegister_TheRestIsCopied) {
  for (const int side : {0, 1}) {
    World w(reads());
    ASSERT_NO_FATAL_FAILURE(settle(w));
    w.ports[side]->unregistered_ = 0;
    for (const bool told : {true, false}) {
      w.rail(0, 1, 1)->peer->choice.set_keeps_up(told);
      const Message m = begin(w, 65536);
      ASSERT_EQ(w.flights[0].kind, Flight::Kind::kGet);
      w.kill(0, 1, 1);
      end(w, m);
      w.revive(0, 1, 1);
      ASSERT_TRUE(w.run());
      while (w.rail(1, 0, 1)->late != 0) keys(w, 50000);
    }
  }
}

TEST(OneKey, PreferredRailCannotRegister_TheOtherHasTheKey) {
  World w(reads());
  ASSERT_NO_FATAL_FAILURE(settle(w));
  w.ports[0]->unregistered_ = 1;
  const Message m = begin(w, 65536);
  EXPECT_EQ(m.keys, 1u);
  EXPECT_EQ(registered(m.s), kFirst);
  EXPECT_EQ(w.flights[0].rail, 0);
  end(w, m);
}

/// The header of a message waits for room, and the READs of another one for that of the rail that has its
/// key.
TEST(OneKey, DeviceRefusesToRegister_ItIsAskedOncePerMessage) {
  World w(reads());
  ASSERT_NO_FATAL_FAILURE(settle(w));
  for (const int rank : {0, 1}) w.ports[rank]->unregistered_ = 1;
  const int capacity = std::exchange(w.options.capacity, 0);
  const SendReq* const s = w.isend(0, 1, 1, pattern(2 * kMebibyte, 1));
  for (int i = 0; i < 20; ++i) w.engines[0]->progress(w.now += 1'000'000);
  EXPECT_EQ(w.ports[0]->refused_registrations_, 1);
  w.options.capacity = 1;
  const RecvReq* const r = w.irecv(1, 0, 1, 2 * kMebibyte);
  ASSERT_TRUE(w.run());
  EXPECT_TRUE(s->done && r->done);
  EXPECT_EQ(w.ports[0]->refused_registrations_, 1);
  EXPECT_LE(w.ports[1]->refused_registrations_, 1);
  w.options.capacity = capacity;
  expect_clean(w);
}

/// The receiver's device of the rail that has the only key registers nothing more; another one does.
TEST(OneKey, ReceiverCannotRegisterWithTheRail_OneMessageIsCopiedAndTheOthersAreRead) {
  World w(reads());
  ASSERT_NO_FATAL_FAILURE(settle(w));
  w.ports[1]->unregistered_ = 1;
  const uint64_t read = w.engines[1]->counters().bytes_read;
  EXPECT_EQ(keys(w, 50000), 1u) << "the sender does not know yet";
  EXPECT_EQ(w.engines[1]->counters().bytes_read, read) << "copied";
  for (int i = 1; i <= 6; ++i) {
    EXPECT_EQ(keys(w, 50000), 2u);
    EXPECT_EQ(w.engines[1]->counters().bytes_read, read + 50000u * i);
  }
  EXPECT_EQ(w.engines[0]->counters().restarts, 0u);
}

/// With one rail nothing else can take the header, so that it is full does not turn it into a copy.
TEST(OneKey, OnlyRailIsFull_TheHeaderWaitsForIt) {
  for (const size_t n : {size_t{50000}, 3 * kMebibyte}) {
    World w(reads(1));
    const int capacity = std::exchange(w.options.capacity, 0);
    const SendReq* const s = w.isend(0, 1, 1, pattern(n, 1));
    const RecvReq* const r = w.irecv(1, 0, 1, n);
    for (int i = 0; i < 5; ++i) w.engines[0]->progress(w.now += 1'000'000);
    EXPECT_TRUE(w.flights.empty());
    w.options.capacity = capacity;
    ASSERT_TRUE(w.run());
    EXPECT_TRUE(s->done && r->done);
    EXPECT_EQ(r->data, s->data);
    EXPECT_EQ(count(w, MsgType::kRndv), 0u) << n;
    EXPECT_EQ(count(w, MsgType::kRget), 1u) << n;
    EXPECT_EQ(w.engines[1]->counters().bytes_read, n);
    expect_clean(w);
  }
}

/// The rail of short messages cannot get: the header goes over it with the key of the other one.
TEST(OneKey, PreferredRailCannotGet_TheOtherHasTheKey) {
  World w(reads());
  ASSERT_NO_FATAL_FAILURE(settle(w));
  w.rail(0, 1, 1)->limits.get_limit = 0;
  ASSERT_EQ(reader_of(w.rail(0, 1, 1)->peer->choice, 50000, false), w.rail(0, 1, 1));
  const Message m = begin(w, 50000);
  EXPECT_EQ(m.keys, 1u);
  EXPECT_EQ(registered(m.s), kFirst);
  end(w, m);
  EXPECT_EQ(count(w, MsgType::kRndv), 0u);
}

TEST(OneKey, OnlyRailCannotRegister_ItIsCopied) {
  for (const int side : {0, 1}) {
    World w(reads(1));
    w.ports[side]->unregistered_ = 0;
    const SendReq* const s = w.isend(0, 1, 1, pattern(50000, 1));
    const RecvReq* const r = w.irecv(1, 0, 1, 50000);
    ASSERT_TRUE(w.run());
    EXPECT_TRUE(s->done && r->done);
    EXPECT_EQ(r->data, s->data);
    EXPECT_EQ(w.engines[1]->counters().bytes_read, 0u);
    expect_clean(w);
  }
}

/// A failover is no time to register the buffers of messages that do not need the other rails.
TEST(OneKey, AnotherRailDies_NothingMoreIsRegistered) {
  World w(reads());
  ASSERT_NO_FATAL_FAILURE(settle(w));
  const Message m = begin(w, 65536);
  ASSERT_EQ(m.keys, 1u);
  const World::Close c = cut(w, 0);
  for (const int rank : {0, 1}) close_half(w, c, rank, FenceResult::kFenced);
  for (auto& e : w.engines) e->progress(w.now += 1000);
  w.hold_close = false;
  EXPECT_EQ(registered(m.s), kSecond);
  EXPECT_EQ(registered(m.r), kSecond);
  end(w, m);
  EXPECT_EQ(w.engines[0]->counters().restarts, 0u);
}

TEST(OneKey, RailOfTheHeaderHasDied_FinDoesNotSayThatItKeepsUp) {
  World w(reads(3));
  ASSERT_NO_FATAL_FAILURE(settle(w, 3));
  w.rail(0, 1, 1)->peer->choice.set_keeps_up(false);
  const Message m = begin(w, 65536);
  ASSERT_EQ(m.keys, 3u);
  ASSERT_EQ(w.flights[0].kind, Flight::Kind::kGet);
  w.kill(0, 1, w.flights[0].rail);
  end(w, m);
  EXPECT_EQ(keys(w, 50000), 2u) << "nobody knows whether another one does";
}

TEST(OneKey, PreferredRailHasNoRoom_AllKeysGoOverTheOther) {
  World w(reads());
  ASSERT_NO_FATAL_FAILURE(settle(w));
  w.options.capacity = 1;
  w.isend(0, 1, 2, pattern(8, 2));
  ASSERT_EQ(w.flights[0].rail, 1);
  const Message m = begin(w, 50000);
  EXPECT_EQ(m.keys, 2u);
  EXPECT_EQ(registered(m.s), kBoth);
  end(w, m);
}

/// What this side suspects the peer may find well, and has found faster than the other: it chooses.
TEST(OneKey, SenderSuspectsTheRailThatThePeerFoundFast_BothHaveAKey) {
  World w(reads());
  settle(w);
  auto& rail = *w.rail(0, 1, 0);
  xfer::RailEvent ev;
  ev.name = rail.name;
  w.engines[0]->on_rail_suspect(&rail, ev);
  EXPECT_EQ(keys(w, 50000), 1u) << "they are even";
  w.engines[0]->on_rail_up(&rail, ev);
  rail.peer->choice.follow(&rail);
  w.engines[0]->on_rail_suspect(&rail, ev);
  EXPECT_EQ(keys(w, 50000), 2u);
}

}  // namespace
}  // namespace bfo::test
