// SPDX-License-Identifier: BSD-3-Clause
//
// window_stream.h: more messages from rank 0 to rank 1 than there are numbers, while some message hangs on
// its rail; for the tests of the sequence window.
#pragma once

#include <gtest/gtest.h>

#include "test/unit/fake_world.h"
#include "test/unit/pattern.h"

namespace bfo::test {

inline constexpr int kHalfWay = 57'000;    ///< the old number is ahead of what the receiver expects then
inline constexpr int kOnceRound = 66'000;  ///< more messages than there are numbers
inline constexpr size_t kAll = 16'384;     ///< kSeqWindow, for the eye

inline std::vector<uint8_t> content(int i) {
  std::vector<uint8_t> d(4);
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
  /// The oldest message of that type from `from` under way arrives, and keeps its place on the rail: no
  /// acknowledgement. What is before it arrives and ends.
  void hold_front(int from, core::MsgType type) {
    while (w.flights[held].from != from || w.flights[held].tag != static_cast<uint8_t>(type)) w.take(held);
    w.arrive(w.flights[held]);
    ++held;
  }
  void hold_front() { hold_front(0, core::MsgType::kMatch); }
  void suspect(int rail) {
    xfer::RailEvent ev;
    ev.name = w.name(0, 1, rail);
    w.engines[0]->on_rail_suspect(w.rail(0, 1, rail), ev);
  }
  void kill(int rail) {
    held = 0;
    w.kill(0, 1, rail);
  }
  /// What was sent and not received yet is received now, in order.
  void receive() {
    for (; received < sent; ++received) {
      RecvReq* const r = w.irecv(1, 0, 1, 4);
      ASSERT_TRUE(r->done) << received;
      ASSERT_EQ(r->data, content(received)) << received;
    }
  }
  /// Every message was received once, in order.
  void expect_all_received() {
    ASSERT_NO_FATAL_FAILURE(receive());
    EXPECT_FALSE(w.irecv(1, 0, 1, 4)->done);
    EXPECT_EQ(w.engines[1]->counters().malformed, 0u);
  }

  World& w;
  size_t held = 0;
  int sent = 0;
  int received = 0;
};

/// A message longer than a rail takes at once, to rank 1, under another tag than the stream's.
inline constexpr size_t kLong = 5000;
inline constexpr int kLongTag = 2;
inline std::vector<uint8_t> long_content(int i) {
  return pattern(kLong, static_cast<unsigned>(i));
}

inline void expect_long(World& w, SendReq* send, RecvReq* recv, int i) {
  ASSERT_TRUE(w.run());
  ASSERT_TRUE(send->done && recv->done);
  EXPECT_EQ(send->outcome, Outcome::kOk);
  EXPECT_EQ(recv->data, long_content(i));
}

inline World::Options protocol(int i) {
  World::Options o;
  o.get = i == 1;
  o.put = i == 2;
  return o;
}

}  // namespace bfo::test
