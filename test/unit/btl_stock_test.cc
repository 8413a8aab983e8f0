// SPDX-License-Identifier: BSD-3-Clause
//
// btl_stock_test.cc: memory that is registered while messages flow, and what the shared receive queue is
// asked for: control threads do both, and no round of progress waits for them.
#include "btl/verbs/engine/device/stock.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "btl/verbs/engine/base/memory.h"
#include "test/unit/btl_world.h"

namespace bfo::test {
namespace {

using engine::Phase;

constexpr uint64_t kSecond = 1'000'000'000;
constexpr int kForEver = 1 << 30;

engine::Config deferred() {
  engine::Config config = small_config();
  config.control = engine::ControlMode::kDeferred;
  config.send_depth = 128;
  config.receive_first_bytes = 65536;
  return config;
}

/// A World whose memory is registered when the test says so.
struct Slow : World {
  uint64_t longest = 0;  // round, of either process

  Slow() : World(deferred()) { fabric.progress_verbs = 0; }

  static void serve_others(Process& p) {
    while (p.port.addresses().lane().run_one() || p.port.setups().run_one() || p.port.stops().run_one() ||
           p.port.queue_pairs().run_one() || p.port.upkeep().run_one()) {
    }
  }
  void live(uint64_t ms, bool served) {
    for (uint64_t i = 0; i < ms * 10; ++i) {
      test_now() += 100'000;
      fabric.run();
      for (Process* p : {&a, &b}) {
        const uint64_t before = test_now();
        for (int k = 0; k < 33; ++k) p->poll();
        longest = std::max(longest, test_now() - before);
        serve_others(*p);
        if (served) p->port.registrations().run_one();
      }
    }
  }
  /// Hands out what is registered: the next ring needs more.
  static void use_up(Process& p) {
    while (p.device.arena().take_made(4096).address != nullptr) {
    }
    while (p.device.arena().take_made(64).address != nullptr) {
    }
  }
};

class StockOf : public testing::TestWithParam<bool> {};

TEST_P(StockOf, RingsMemoryIsRegisteredForASecond_ProgressNeverWaits) {
  Slow w;
  Process& p = GetParam() ? w.a : w.b;
  Slow::use_up(p);
  w.fabric.block = {{"reg_mr", kSecond}};
  engine::cm_connect(w.a.endpoint);
  w.live(20, false);
  EXPECT_NE(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(p.port.registrations().pending(), 1u) << "one at a time";
  w.live(2'000, true);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.b.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.longest, 0u) << "a round of progress took the time of the verb";
  EXPECT_EQ(w.fabric.progress_verbs, 0);
  ASSERT_TRUE(w.sendi(p, "hello"));
  w.live(1, true);
}

TEST_P(StockOf, MemoryCannotBeRegistered_CountedAndTriedAgain) {
  Slow w;
  Process& p = GetParam() ? w.a : w.b;
  Slow::use_up(p);
  w.fabric.refusals = {{"reg_mr", 1, kForEver, ENOMEM}};
  engine::cm_connect(w.a.endpoint);
  w.live(100, true);
  const auto memory = static_cast<size_t>(engine::Object::kMemory);
  EXPECT_GE(p.port.resources().failures[memory], 2u);
  EXPECT_LT(p.port.resources().failures[memory], 100u) << "with back-off";
  EXPECT_EQ(p.endpoint.shortage().error, ENOMEM);
  w.fabric.refusals.clear();
  w.live(2'000, true);
  EXPECT_EQ(w.a.endpoint.phase, Phase::kUp);
  EXPECT_EQ(w.fabric.progress_verbs, 0);
}

TEST_P(StockOf, PortClosesWhileMemoryIsRegistered_NothingIsLeft) {
  for (const bool registered : {false, true}) {
    Slow w;
    Process& p = GetParam() ? w.a : w.b;
    Slow::use_up(p);
    engine::cm_connect(w.a.endpoint);
    w.live(5, false);
    ASSERT_EQ(p.port.registrations().pending(), 1u);
    EXPECT_TRUE(!registered || p.port.registrations().run_one());
  }
}

INSTANTIATE_TEST_SUITE_P(Role, StockOf, testing::Bool(),
                         [](const auto& role) { return role.param ? "Initiator" : "Responder"; });

/// What a piece that is not there leads to.
TEST(Stock, PieceIsNotThere_MoreIsOnItsWay) {
  Slow w;
  Slow::use_up(w.a);
  engine::Stock& stock = w.a.port.stock();
  EXPECT_EQ(stock.take(size_t{8} << 20, 4096).address, nullptr);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(stock.take(4096, 4096).address, nullptr);
  w.live(1, false);
  EXPECT_EQ(w.a.port.registrations().pending(), 1u);
  w.live(1, true);
  EXPECT_NE(stock.take(size_t{8} << 20).address, nullptr) << "as much as the first one wished";
  EXPECT_EQ(w.fabric.progress_verbs, 0);
}

TEST(Stock, LessThanWished_TheErrorIsToldOnce) {
  Slow w;
  Slow::use_up(w.a);
  engine::Stock& stock = w.a.port.stock();
  w.fabric.refusals = {{"reg_mr", 1, 2, EAGAIN + 1}};
  EXPECT_EQ(stock.take(size_t{4} << 20, 4096).address, nullptr);
  w.live(1, true);
  EXPECT_NE(stock.take(size_t{1} << 20).address, nullptr) << "a quarter of it";
  EXPECT_EQ(stock.take(size_t{4} << 20, 4096).address, nullptr);
  EXPECT_EQ(errno, EAGAIN + 1);
  EXPECT_EQ(stock.take(size_t{4} << 20, 4096).address, nullptr);
  EXPECT_EQ(errno, EAGAIN);
}

/// A device whose memory regions are made by any thread.
engine::VerbsApi region_verbs() {
  engine::VerbsApi api{};
  api.reg_mr = [](ibv_pd*, void* address, size_t length, int) {
    auto* const mr = engine::make<ibv_mr>();
    mr->addr = address;
    mr->length = length;
    return mr;
  };
  api.dereg_mr = [](ibv_mr* mr) {
    engine::unmake(mr);
    return 0;
  };
  return api;
}

/// Threads that send take pieces while control threads register more.
TEST(Stock, ManyThreadsTake_EachHasItsOwn) {
  constexpr size_t kPiece = 20'000;
  constexpr size_t kPieces = 200;
  const engine::VerbsApi api = region_verbs();
  engine::Arena arena;
  arena.open(api, nullptr);
  std::atomic<bool> service_needed{false};
  engine::ControlLane lane;
  lane.open(engine::ControlMode::kThread, 1, &service_needed);
  engine::Stock stock;
  stock.open(arena, lane, service_needed);
  std::atomic<int> at_work{3};
  std::array<std::vector<char*>, 3> taken;
  std::vector<std::thread> threads;
  for (std::vector<char*>& mine : taken) {
    threads.emplace_back([&] {
      while (mine.size() < kPieces) {
        char* const piece = stock.take(kPiece, 4096).address;
        if (piece == nullptr) continue;
        memset(piece, 1, kPiece);
        mine.push_back(piece);
      }
      --at_work;
    });
  }
  while (at_work != 0) {
    if (!service_needed.exchange(false)) continue;
    lane.finish();
    stock.service();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(lane.close(kSecond));
  std::set<char*> all;
  for (const std::vector<char*>& mine : taken) all.insert(mine.begin(), mine.end());
  ASSERT_EQ(all.size(), 3 * kPieces);
  const char* before = nullptr;
  for (const char* piece : all) {
    EXPECT_TRUE(before == nullptr || piece - before >= static_cast<ptrdiff_t>(kPiece));
    before = piece;
  }
  EXPECT_TRUE(arena.close());
}

TEST(Receives, BuffersAreAdded_TheDeviceIsAskedOutsideOfProgress) {
  Slow w;
  engine::cm_connect(w.a.endpoint);
  w.live(10, true);
  w.fabric.block = {{"modify_srq", kSecond}, {"reg_mr", kSecond}, {"dereg_mr", kSecond}};
  engine::Srq& srq = w.b.port.srq();
  const uint32_t first = srq.made();
  for (uint32_t burst = 0; burst < 3 && srq.made() == first && first < srq.depth(); ++burst) {
    for (uint32_t i = 0; i < first - 2; ++i) EXPECT_TRUE(w.sendi(w.a, "burst"));
    w.live(5, true);
  }
  EXPECT_GT(srq.made(), first);
  EXPECT_EQ(w.longest, 0u);
  EXPECT_EQ(w.fabric.progress_verbs, 0);
}

}  // namespace
}  // namespace bfo::test
