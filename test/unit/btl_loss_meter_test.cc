// SPDX-License-Identifier: BSD-3-Clause
//
// btl_loss_meter_test.cc: when a port loses packets, and when that was an accident.
#include "btl/verbs/engine/port/loss_meter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace bfo::test {
namespace {

using engine::LossCount;
using engine::LossMeter;
using Word = engine::LossMeter::Word;
using Words = std::vector<std::string>;

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint32_t kLimit = 1000;  // per million

/// A port with 100,000 packets a second, looked at each second.
struct Metered {
  LossMeter meter;
  LossCount count{0, 0, true};
  uint64_t now = kSecond;
  Words words;
  uint64_t per_second = 100'000;

  explicit Metered(uint32_t limit = kLimit) {
    meter.set_limit(limit);
    meter.take(count, now);
  }
  void look() {
    const Word word = meter.take(count, now);
    if (word == Word::kLossy || word == Word::kWell)
      words.push_back((word == Word::kLossy ? "lossy " : "well ") + std::to_string(now / kSecond - 1));
  }
  /// Loses that part, in millionths.
  void run(int seconds, uint64_t per_million) {
    for (int i = 0; i < seconds; ++i) {
      now += kSecond;
      count.packets += per_second;
      count.signs += per_second * per_million / 1'000'000;
      look();
    }
  }
};

TEST(LossMeter, OnePercent_IsToldAfterThreeSeconds) {
  for (const uint64_t loss : {uint64_t{1'000}, uint64_t{10'000}, uint64_t{50'000}, uint64_t{500'000}}) {
    Metered port;
    port.run(10, loss);
    EXPECT_EQ(port.words, Words{"lossy 3"}) << loss;
    EXPECT_TRUE(port.meter.lossy());
  }
}

TEST(LossMeter, TellsOfTheTermsThatProveIt) {
  Metered port;
  port.run(5, 0);
  port.run(3, 10'000);
  ASSERT_EQ(port.words, Words{"lossy 8"});
  EXPECT_EQ(port.meter.signs(), 3000u);
  EXPECT_EQ(port.meter.packets(), 300'000u);
  EXPECT_EQ(port.meter.since_ns(), 6 * kSecond);
}

TEST(LossMeter, LessThanTheLimit_IsNotTold) {
  Metered port;
  port.run(1000, 900);
  EXPECT_EQ(port.words, Words{});
}

TEST(LossMeter, OneTimeLossOfAnySize_IsNotTold) {
  for (const uint64_t signs : {1u, 7u, 8u, 1000u, 100'000u}) {
    Metered port;
    port.run(3, 0);
    port.count.signs += signs;
    port.run(100, 0);
    EXPECT_EQ(port.words, Words{}) << signs;
  }
}

/// A burst that lies in two terms is still one.
TEST(LossMeter, BurstInTwoTerms_IsNotTold) {
  Metered port;
  port.run(3, 0);
  port.run(2, 500'000);
  port.run(50, 0);
  EXPECT_EQ(port.words, Words{});
}

/// A single packet now and then on a port that hardly moves anything: the term waits until it can tell.
TEST(LossMeter, FewPackets_AreGatheredUntilTheyTell) {
  Metered port;
  port.per_second = 100;
  port.run(7, 10'000);
  EXPECT_EQ(port.words, Words{}) << "one lost packet a second proves little";
  port.run(20, 10'000);
  EXPECT_EQ(port.words, Words{"lossy 24"});
  Metered clean;
  clean.per_second = 100;
  clean.count.signs = 1;
  clean.run(300, 0);
  EXPECT_EQ(clean.words, Words{});
}

TEST(LossMeter, SquareWaveShorterThanTheProof_IsNotTold) {
  Metered port;
  for (int i = 0; i < 50; ++i) {
    port.run(2, 50'000);
    port.run(1, 0);
  }
  EXPECT_EQ(port.words, Words{});
}

TEST(LossMeter, LongSquareWave_IsOneEpisode) {
  Metered port;
  for (int i = 0; i < 20; ++i) {
    port.run(5, 10'000);
    port.run(5, 0);
  }
  EXPECT_EQ(port.words, Words{"lossy 3"});
  port.run(20, 0);
  EXPECT_EQ(port.words, (Words{"lossy 3", "well 205"}));
}

TEST(LossMeter, BadTermOfAnEpisode_HasItsNumbers) {
  Metered port;
  port.run(3, 10'000);
  ASSERT_TRUE(port.meter.lossy());
  port.run(4, 0);
  port.count.packets += 200'000;
  port.count.signs += 600;
  port.now += 2 * kSecond;
  EXPECT_EQ(port.meter.take(port.count, port.now), Word::kStill);
  EXPECT_EQ(port.meter.signs(), 600u);
  EXPECT_EQ(port.meter.packets(), 200'000u);
  EXPECT_EQ(port.meter.since_ns(), port.now - 2 * kSecond);
  port.run(10, 0);
  EXPECT_EQ(port.words, (Words{"lossy 3", "well 19"}));
  EXPECT_EQ(port.meter.packets(), 1'000'000u);
}

/// Another process has told of it.
TEST(LossMeter, EpisodeThatIsTakenOver_EndsOnce) {
  Metered port;
  port.meter.begin(true);
  port.look();
  port.run(5, 10'000);
  EXPECT_EQ(port.words, Words{});
  port.run(20, 0);
  EXPECT_EQ(port.words, Words{"well 15"});
}

/// Between a quarter of the limit and the limit nothing changes.
TEST(LossMeter, LossAroundTheLimit_DoesNotFlutter) {
  Metered port;
  for (int i = 0; i < 100; ++i) {
    port.run(4, 1100);
    port.run(20, 900);
  }
  EXPECT_EQ(port.words, Words{"lossy 3"});
}

TEST(LossMeter, EachEpisode_IsToldOnce) {
  Metered port;
  for (int i = 0; i < 3; ++i) {
    port.run(20, 10'000);
    port.run(20, 0);
  }
  EXPECT_EQ(port.words, (Words{"lossy 3", "well 30", "lossy 43", "well 70", "lossy 83", "well 110"}));
}

TEST(LossMeter, CounterThatGoesBack_StartsAnew) {
  Metered port;
  port.count = {1u << 31, uint64_t{1} << 32, true};
  port.run(5, 0);
  for (int i = 0; i < 20; ++i) {
    port.run(2, 10'000);
    port.count = {5, 100, true};  // the driver was loaded anew, or the number went round
    port.run(1, 0);
  }
  EXPECT_EQ(port.words, Words{});
  port.run(3, 10'000);
  EXPECT_EQ(port.words.size(), 1u);
}

/// One of 32 bits that has reached its end, or that of a function which counts none.
TEST(LossMeter, PacketsThatAreNotCounted_ProveNothing) {
  for (const uint64_t counted : {0u, 5u}) {
    Metered port;
    port.run(2, 10'000);
    for (int i = 0; i < 20; ++i) {
      port.now += kSecond;
      port.count.packets += counted;
      port.count.signs += 8;
      port.look();
    }
    EXPECT_EQ(port.words, Words{}) << counted;
    port.run(3, 10'000);
    EXPECT_EQ(port.words, Words{"lossy 25"}) << counted;
  }
}

TEST(LossMeter, CounterThatCannotBeReadNow_ProvesNothing) {
  Metered port;
  for (int i = 0; i < 20; ++i) {
    port.run(2, 50'000);
    port.count.known = false;
    port.look();
    port.count.known = true;
    port.now += kSecond;
    port.look();
  }
  EXPECT_EQ(port.words, Words{});
}

TEST(LossMeter, LooksThatComeTooSoon_AreOneTerm) {
  Metered port;
  for (int i = 0; i < 20; ++i) {  // in two seconds
    port.now += kSecond / 10;
    port.count.packets += 10'000;
    port.count.signs += 100;
    port.look();
  }
  EXPECT_EQ(port.words, Words{});
}

TEST(LossMeter, NumbersOfAnySize_DoNotOverflow) {
  Metered port(1'000'000);
  port.count = {uint64_t{1} << 62, uint64_t{1} << 62, true};
  port.look();
  for (int i = 0; i < 3; ++i) {
    port.now += kSecond;
    port.count.packets += uint64_t{1} << 50;
    port.look();
  }
  EXPECT_EQ(port.words, Words{}) << "not one of them was lost";
}

}  // namespace
}  // namespace bfo::test
