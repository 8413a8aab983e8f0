// SPDX-License-Identifier: BSD-3-Clause
//
// The tables of the software HCA under threads: whoever finds a slot in use finds it complete.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <map>
#include <memory>
#include <bit>
#include <set>
#include <thread>
#include <vector>

#include "contrib/softhca/engine/async.h"
#include "contrib/softhca/engine/topology_faults.h"
#include "contrib/softhca/fabric/limits.h"
#include "contrib/softhca/fabric/report.h"
#include "contrib/softhca/fabric/tables.h"
#include "contrib/softhca/fault/link_speed.h"

namespace bfo::softhca {
namespace {

constexpr uint32_t kDevice = 1, kOtherDevice = 0;
constexpr int kOpens = 100'000;

/// A thread that does one thing over and over until the end of the scope.
class Meanwhile {
 public:
  template <class F>
  explicit Meanwhile(F&& step)
      : thread_([this, step] {
          while (!stop_.load()) step();
        }) {}
  ~Meanwhile() {
    stop_.store(true);
    thread_.join();
  }
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class Tables : public testing::Test {
 protected:
  void SetUp() override {
    fabric_ = Fabric::anonymous(FabricConfig{}, 0);
    ASSERT_NE(fabric_, nullptr);
  }
  void port_event(uint32_t device) {
    DeferredActions deferred(*fabric_);
    raise_port_event(*fabric_, 0, device, 1, IBV_EVENT_PORT_ERR, deferred);
  }
  uint32_t events_of(ContextEntry& context) {
    AsyncRecord record;
    uint32_t events = 0;
    while (take_event(*fabric_, context, record)) ++events;
    return events;
  }
  std::unique_ptr<Fabric> fabric_;
};

TEST_F(Tables, ObjectsOfAProcessThatLeft_CountNoMore) {
  fabric_->header().devices_table[kDevice].limit[static_cast<unsigned>(ObjectKind::kQp)].store(1 + 3);
  {
    const std::unique_ptr<Fabric> other = Fabric::share(*fabric_, 0);
    ASSERT_NE(other, nullptr);
    EXPECT_TRUE(take_object(*other, kDevice, ObjectKind::kQp));
    EXPECT_TRUE(take_object(*fabric_, kDevice, ObjectKind::kQp));
    EXPECT_TRUE(take_object(*other, kDevice, ObjectKind::kQp));
    EXPECT_FALSE(take_object(*fabric_, kDevice, ObjectKind::kQp)) << "three on the device, whoever has them";
    EXPECT_TRUE(take_object(*fabric_, kOtherDevice, ObjectKind::kQp));
    EXPECT_EQ(object_count(*fabric_, 0, kDevice, ObjectKind::kQp), 3u);
  }
  EXPECT_EQ(object_count(*fabric_, 0, kDevice, ObjectKind::kQp), 1u);
  EXPECT_TRUE(take_object(*fabric_, kDevice, ObjectKind::kQp));
}

TEST_F(Tables, LastPlaceOfADevice_GoesToExactlyOneThread) {
  fabric_->header().devices_table[kDevice].limit[static_cast<unsigned>(ObjectKind::kMr)].store(1 + 1);
  std::atomic<uint32_t> inside{0};
  std::atomic<bool> crowded{false};
  const auto come_and_go = [&] {
    if (!take_object(*fabric_, kDevice, ObjectKind::kMr)) return false;
    if (inside.fetch_add(1) != 0) crowded.store(true);
    inside.fetch_sub(1);
    give_object(*fabric_, kDevice, ObjectKind::kMr);
    return true;
  };
  {
    const Meanwhile second(come_and_go);
    for (int i = 0; i < kOpens; ++i) come_and_go();
  }
  EXPECT_FALSE(crowded.load());
  EXPECT_TRUE(come_and_go());
}

/// 64 processes that all have two queue pairs to each other over each of two rails, and two for datagrams.
constexpr uint32_t kAllToAll = 128 * 2 * (2 * 127 + 2);
constexpr uint32_t kMulticastQpn = 0xffffff;

TEST_F(Tables, QueuePairs_SufficeFor128ProcessesThatAllSpeak) {
  std::set<uint32_t> numbers;
  while (const QpEntry* qp = allocate_qp(*fabric_)) numbers.insert(qp->qpn.load());
  EXPECT_GE(numbers.size(), kAllToAll);
  EXPECT_EQ(numbers.size(), object_limit(*fabric_, 0, kDevice, ObjectKind::kQp));
  EXPECT_GT(*numbers.begin(), 1u) << "0 and 1 are special";
  EXPECT_LT(*numbers.rbegin(), kMulticastQpn);
}

TEST_F(Tables, QueuePairOfAFullTable_HasNewNumbersAndNeverThatOfMulticast) {
  QpEntry* last = nullptr;
  while (QpEntry* qp = allocate_qp(*fabric_)) last = qp;
  ASSERT_NE(last, nullptr);
  std::set<uint32_t> numbers{last->qpn.load()};
  for (int life = 0; life < 1000; ++life) {
    const uint32_t before = last->qpn.load();
    free_qp(*fabric_, *last);
    ASSERT_EQ(allocate_qp(*fabric_), last);
    ASSERT_NE(last->qpn.load(), before);
    numbers.insert(last->qpn.load());
  }
  EXPECT_GE(numbers.size(), (1u << 24) / std::bit_ceil(object_limit(*fabric_, 0, kDevice, ObjectKind::kQp)));
  EXPECT_LT(*numbers.rbegin(), kMulticastQpn);
}

/// A packet that was under way to a queue pair must not find another one with its number.
TEST_F(Tables, NumberOfAQueuePair_RestsForManyOthers) {
  constexpr uint32_t kRest = 1u << 16;
  std::map<uint32_t, uint32_t> last_seen;
  for (uint32_t i = 0; i < 3 * kRest; ++i) {
    QpEntry* qp = allocate_qp(*fabric_);
    ASSERT_NE(qp, nullptr);
    const auto [entry, fresh] = last_seen.try_emplace(qp->qpn.load(), i);
    ASSERT_TRUE(fresh || i - entry->second >= kRest) << "queue pair " << i << " after " << i - entry->second;
    entry->second = i;
    free_qp(*fabric_, *qp);
  }
  EXPECT_LE(fabric_->header().qp_fresh.load(), 1024u) << "memory of queue pairs that come and go";
}

TEST_F(Tables, ReportOfFewQueuePairs_TakesNoMemoryForTheOthers) {
  ASSERT_NE(allocate_qp(*fabric_), nullptr);
  EXPECT_NE(counters_json(fabric_->header(), "test", "test", false), "");
  constexpr uintptr_t kPage = 4096;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(fabric_->header().qps) & ~(kPage - 1);
  std::vector<unsigned char> pages(sizeof(FabricHeader::qps) / kPage);
  ASSERT_EQ(mincore(reinterpret_cast<void*>(begin), pages.size() * kPage, pages.data()), 0);
  size_t used = 0;
  for (const unsigned char page : pages) used += page & 1;
  EXPECT_LE(used, 100u) << "of " << pages.size() << " pages";
}

TEST_F(Tables, OpenDevice_GetsTheEventsOfItsPort) {
  ContextEntry* context = allocate_context(*fabric_, 0, kDevice, 0);
  ASSERT_NE(context, nullptr);
  port_event(kOtherDevice);
  EXPECT_EQ(events_of(*context), 0u);
  port_event(kDevice);
  EXPECT_EQ(events_of(*context), 1u);
  free_context(*fabric_, *context);
  port_event(kDevice);
  EXPECT_EQ(events_of(*context), 0u);
}

TEST_F(Tables, OtherSpeedOfALink_IsAnEventOfItsDevice) {
  ContextEntry* context = allocate_context(*fabric_, 0, kDevice, 0);
  ContextEntry* other = allocate_context(*fabric_, 0, kOtherDevice, 0);
  ASSERT_NE(context, nullptr);
  ASSERT_NE(other, nullptr);
  LinkSpeed slow;
  ASSERT_TRUE(read_link_speed("10G", slow));
  const auto speed = [&](const LinkSpeed& to) {
    DeferredActions deferred(*fabric_);
    Decision decision;
    decision.kind = ActionKind::kSetSpeed;
    decision.device = kDevice;
    decision.value64 = pack(to);
    act_on_topology(*fabric_, decision, deferred);
  };
  speed(LinkSpeed{});
  EXPECT_EQ(events_of(*context), 0u) << "all links begin with it";
  speed(slow);
  AsyncRecord record{};
  ASSERT_TRUE(take_event(*fabric_, *context, record));
  EXPECT_EQ(record.type, kDeviceSpeedChange);
  EXPECT_EQ(events_of(*context), 0u);
  EXPECT_EQ(events_of(*other), 0u);
  EXPECT_NE(counters_json(fabric_->header(), "t", "t", false).find("\"speed\":\"4xSDR\""), std::string::npos);
  speed(slow);
  EXPECT_EQ(events_of(*context), 0u);
}

TEST_F(Tables, DeviceBeingOpened_GetsNoEventOfAnotherDevice) {
  Meanwhile events([this] { port_event(kOtherDevice); });
  uint32_t strange = 0;
  for (int i = 0; i < kOpens; ++i) {
    ContextEntry* context = allocate_context(*fabric_, 0, kDevice, 0);
    ASSERT_NE(context, nullptr);
    strange += events_of(*context);
    free_context(*fabric_, *context);
  }
  EXPECT_EQ(strange, 0u);
}

}  // namespace
}  // namespace bfo::softhca
