// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_sample_test.cc: MATCHes that are timed, in streams of them, while the rails tell the end of their work
// late.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "test/unit/fake_world.h"
#include "test/unit/pattern.h"

namespace bfo::test {
namespace {

constexpr size_t kBytes = 8000;
constexpr int kRails = 2;

World::Options eager() {
  World::Options o;
  o.rails = kRails;
  o.eager = 12'000;
  o.config.short_limit = 256;
  return o;
}

/// Rank 0 sends to rank 1, `window` messages at a time, over rails that move so many Mbit/s.
struct Stream {
  Stream(std::array<uint64_t, kRails> mbits, int messages) : rates(mbits), window(messages) {
    w.ended_every = 64;
    w.now = 1'000'000;  // 0 stands for a message that is not timed
  }
  xfer::Rail<FakePort>& rail(int r) { return *w.rail(0, 1, r); }
  bool empty(int r) const { return w.first_of(0, 1, r) == static_cast<size_t>(-1); }
  void post() {
    std::array<bool, kRails> was{};
    for (int r = 0; r < kRails; ++r) was[static_cast<size_t>(r)] = empty(r);
    for (; sent - ended < window; ++sent) {
      w.irecv(1, 0, 1, kBytes);
      w.isend(0, 1, 1, pattern(kBytes, 1));
    }
    for (int r = 0; r < kRails; ++r)
      if (was[static_cast<size_t>(r)]) free_at[static_cast<size_t>(r)] = w.now;
  }
  /// The message that ends first does.
  void end() {
    int first = -1;
    std::array<uint64_t, kRails> at{};
    for (int r = 0; r < kRails; ++r) {
      const auto i = static_cast<size_t>(r);
      at[i] = free_at[i] + kBytes * 8000 / rates[i];
      if (!empty(r) && (first < 0 || at[i] < at[static_cast<size_t>(first)])) first = r;
    }
    ASSERT_GE(first, 0);
    const auto i = static_cast<size_t>(first);
    w.now = free_at[i] = std::max(w.now, at[i]);
    w.engines[0]->turn();
    w.take(w.first_of(0, 1, first));
    ++ended;
  }
  void move(int messages) {
    for (int k = 0; k < messages; ++k) {
      post();
      end();
    }
  }
  /// Messages under way over a rail that have a record, because they are timed.
  int timed(int r) const {
    return static_cast<int>(std::count_if(w.flights.begin(), w.flights.end(), [r](const Flight& f) {
      return f.from == 0 && f.rail == r && f.frag != nullptr;
    }));
  }

  std::array<uint64_t, kRails> rates;
  std::array<uint64_t, kRails> free_at{};
  int window;
  int sent = 0;
  int ended = 0;
  World w{eager()};
};

TEST(Sample, SlowRailInAStream_IsFoundAndLeft) {
  for (const int window : {1, 4, 40}) {
    for (const int slow : {0, 1}) {
      SCOPED_TRACE(std::to_string(window) + ", rail " + std::to_string(slow));
      Stream s(slow == 0 ? std::array<uint64_t, 2>{800, 8000} : std::array<uint64_t, 2>{8000, 800}, window);
      s.move(2000);
      EXPECT_TRUE(s.rail(0).peer->choice.uneven());
      EXPECT_FALSE(s.rail(0).peer->choice.swift(s.rail(slow)));
      EXPECT_TRUE(s.rail(0).peer->choice.swift(s.rail(1 - slow)));
      EXPECT_NEAR(static_cast<double>(s.rail(slow).goodput.moves()), 800, 100);
    }
  }
}

/// Half of the first window, and then only what is timed: at a hundredth of the rate one more window would
/// take as long as a hundred of them.
TEST(Sample, RailOfAHundredthFromTheStart_IsLeftAfterTheFirstWindow) {
  for (const int slow : {0, 1}) {
    SCOPED_TRACE(slow);
    Stream s(slow == 0 ? std::array<uint64_t, 2>{80, 8000} : std::array<uint64_t, 2>{8000, 80}, 64);
    s.post();
    while (s.ended < 64) s.end();
    int over = 0;
    for (int window = 0; window < 10; ++window) {
      s.post();
      over += static_cast<int>(std::count_if(s.w.flights.begin(), s.w.flights.end(), [slow](const Flight& f) {
        return f.from == 0 && f.rail == slow;
      }));
      while (s.ended < s.sent) s.end();
    }
    EXPECT_LE(over, 10 * 64 / 8);
  }
}

TEST(Sample, EvenRailsInAStream_BothAreUsed) {
  for (const int window : {4, 40}) {
    SCOPED_TRACE(window);
    Stream s({8000, 8000}, window);
    s.move(2000);
    EXPECT_FALSE(s.rail(0).peer->choice.uneven());
    for (const int r : {0, 1}) EXPECT_NEAR(static_cast<double>(s.rail(r).goodput.moves()), 8000, 800);
  }
}

/// Nothing would be known of several: each begins where another one ends.
TEST(Sample, OneIsUnderWayOnARailAtATime) {
  Stream s({8000, 80}, 64);
  int most = 0;
  for (int k = 0; k < 3000; ++k) {
    s.move(1);
    for (const int r : {0, 1}) {
      most = std::max(most, s.timed(r));
      ASSERT_EQ(s.rail(r).samples_out, s.timed(r));
    }
  }
  EXPECT_EQ(most, 2) << "one whose end is known, and the one behind it";
}

TEST(Sample, ItIsLost_AnotherOneIsTimed) {
  Stream s({8000, 80}, 64);
  while (s.timed(1) == 0) s.move(1);
  s.w.kill(0, 1, 1);
  EXPECT_EQ(s.rail(1).samples_out, 0);
  ASSERT_TRUE(s.w.run());
  s.ended = s.sent;
  s.w.revive(0, 1, 1);
  s.move(2000);
  EXPECT_FALSE(s.rail(0).peer->choice.swift(s.rail(1))) << "it seems slow";
  s.move(6000);
  EXPECT_TRUE(s.rail(0).peer->choice.uneven());
  EXPECT_FALSE(s.rail(0).peer->choice.swift(s.rail(1)));
}

}  // namespace
}  // namespace bfo::test
