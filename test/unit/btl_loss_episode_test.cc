// SPDX-License-Identifier: BSD-3-Clause
//
// btl_loss_episode_test.cc: what is told of a port that loses packets, by which process of a host, and when.
#include "btl/verbs/glue/loss_episode.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "btl/verbs/engine/port/loss_meter.h"

namespace bfo::test {
namespace {

using engine::LossMeter;
using engine::LossStage;
using engine::PortLoss;
using verbs::LossEpisode;
using Words = std::vector<std::string>;

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kKey = 7;

/// A process as it reads a port of its host.
struct Reader {
  Claims claims;
  LossMeter meter;
  LossEpisode episode;
};

/// A host, and what its processes tell: "a lossy 103" at second 103.
class Host : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_), nullptr);
    a.claims.open(folder_, 0);
    b.claims.open(folder_, 1);
    ASSERT_TRUE(a.claims.shared() && b.claims.shared());
    for (Reader* reader : {&a, &b}) reader->meter.set_limit(1000);
    take_over(a);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  /// `reader` reads from now on.
  void take_over(Reader& reader) {
    reader.meter.begin(reader.episode.begin(reader.claims, kKey));
    reader.meter.take(count, now);
    reads = &reader;
  }
  /// With so many lost packets a second.
  void run(int seconds, uint64_t lost) {
    for (int i = 0; i < seconds; ++i) {
      now += kSecond;
      count.packets += 100'000;
      count.signs += lost;
      look(*reads, reads->meter.take(count, now));
    }
  }
  Reader a;
  Reader b;
  Reader* reads = nullptr;
  uint64_t now = 100 * kSecond;
  Words told;
  PortLoss last{};

 private:
  /// As the port does it.
  void look(Reader& reader, LossMeter::Word word) {
    if (word == LossMeter::Word::kNone && !reader.meter.lossy()) return;
    PortLoss loss{LossStage::kGoesOn, false, 0, 0, 0, now};
    if (word == LossMeter::Word::kLossy) loss.stage = LossStage::kBegins;
    if (word == LossMeter::Word::kWell) loss.stage = LossStage::kIsOver;
    if (word != LossMeter::Word::kNone) {
      loss.signs = reader.meter.signs();
      loss.packets = reader.meter.packets();
    }
    const LossEpisode::Word said = reader.episode.hear(reader.claims, kKey, loss);
    if (said == LossEpisode::Word::kNone) return;
    last = loss;
    told.push_back(std::string(&reader == &a ? "a" : "b") +
                   (said == LossEpisode::Word::kLossy ? " lossy " : " well ") +
                   std::to_string(now / kSecond));
  }
  engine::LossCount count{0, 0, true};
  char folder_[32] = "/tmp/bfo-episode-XXXXXX";
};

TEST_F(Host, Episode_IsToldAndItsEnd) {
  run(5, 0);
  run(20, 1000);
  run(20, 0);
  EXPECT_EQ(told, (Words{"a lossy 108", "a well 135"}));
}

/// What began while it was too early to tell is no less lossy for that.
TEST_F(Host, EpisodeThatComesBackSoon_IsToldWhenItLasts) {
  run(20, 1000);
  run(12, 0);
  ASSERT_EQ(told, (Words{"a lossy 103", "a well 130"}));
  run(30, 5000);
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told.back(), "a lossy 139") << "ten seconds after it went on last, at 129";
  EXPECT_EQ(last.signs, 5000u);
  EXPECT_EQ(last.packets, 100'000u) << "of the term that has just ended";
  run(12, 0);
  EXPECT_EQ(told.size(), 4u);
  EXPECT_EQ(told.back(), "a well 172");
}

TEST_F(Host, EpisodeThatComesBackSoon_IsNotToldInAGoodTerm) {
  run(20, 1000);
  run(12, 0);
  run(4, 1000);
  run(5, 0);
  run(3, 50);  // neither good nor bad
  EXPECT_EQ(told.size(), 2u) << "since 139 it could have been told";
  run(1, 1000);
  EXPECT_EQ(told.size(), 3u);
  EXPECT_EQ(last.signs, 1000u);
}

TEST_F(Host, ShortEpisodesThatComeBackSoon_AreToldEverMoreSeldom) {
  run(4, 1000);
  for (int i = 0; i < 20; ++i) {
    run(10, 0);
    run(3, 1000);
  }
  EXPECT_EQ(told, (Words{"a lossy 103", "a well 114", "a lossy 130", "a well 140", "a lossy 169",
                         "a well 179", "a lossy 221", "a well 231", "a lossy 312", "a well 322"}));
}

/// It is always away when it could see the end.
TEST_F(Host, ReaderChanges_TheNextOneTellsTheEnd) {
  run(5, 1000);
  ASSERT_EQ(told, Words{"a lossy 103"});
  take_over(b);
  run(5, 1000);
  EXPECT_EQ(told.size(), 1u) << "it is told already";
  run(12, 0);
  EXPECT_EQ(told, (Words{"a lossy 103", "b well 120"}));
  take_over(a);
  run(12, 0);
  EXPECT_EQ(told.size(), 2u) << "that is told, too";
  run(20, 1000);
  EXPECT_EQ(told.size(), 3u);
  EXPECT_EQ(told.back(), "a lossy 137");
}

TEST_F(Host, ReaderChangesAfterTheEnd_NothingIsToldAgain) {
  run(5, 1000);
  take_over(b);
  run(20, 0);
  ASSERT_EQ(told, (Words{"a lossy 103", "b well 115"}));
  take_over(a);
  run(20, 0);
  take_over(b);
  run(20, 0);
  EXPECT_EQ(told.size(), 2u);
}

/// A process whose last reading comes late, when another one reads already.
TEST_F(Host, TwoFindItOver_OneSaysSo) {
  run(5, 1000);
  ASSERT_TRUE(b.episode.begin(b.claims, kKey));
  const PortLoss over{LossStage::kIsOver, false, 1, 1'000'000, kSecond, now};
  EXPECT_EQ(a.episode.hear(a.claims, kKey, over), LossEpisode::Word::kWell);
  EXPECT_EQ(b.episode.hear(b.claims, kKey, over), LossEpisode::Word::kNone);
}

/// Where there is no room to share anything, each episode is told once all the same.
TEST(LossEpisode, WithoutATable_IsToldOnce) {
  Claims claims;
  LossEpisode episode;
  PortLoss loss{LossStage::kBegins, false, 3000, 300'000, kSecond, kSecond};
  EXPECT_EQ(episode.hear(claims, kKey, loss), LossEpisode::Word::kLossy);
  loss.stage = LossStage::kGoesOn;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(episode.hear(claims, kKey, loss), LossEpisode::Word::kNone);
  loss.stage = LossStage::kIsOver;
  EXPECT_EQ(episode.hear(claims, kKey, loss), LossEpisode::Word::kWell);
  EXPECT_EQ(episode.hear(claims, kKey, loss), LossEpisode::Word::kNone);
}

}  // namespace
}  // namespace bfo::test
