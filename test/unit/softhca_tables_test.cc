// SPDX-License-Identifier: BSD-3-Clause
//
// The tables of the software HCA under threads: whoever finds a slot in use finds it complete.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "contrib/softhca/engine/async.h"
#include "contrib/softhca/fabric/limits.h"
#include "contrib/softhca/fabric/tables.h"

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
  fabric_->header().devices_table[kDevice].limit[static_cast<unsigned>(ObjectKind::Qp)].store(1 + 3);
  {
    const std::unique_ptr<Fabric> other = Fabric::share(*fabric_, 0);
    ASSERT_NE(other, nullptr);
    EXPECT_TRUE(take_object(*other, kDevice, ObjectKind::Qp));
    EXPECT_TRUE(take_object(*fabric_, kDevice, ObjectKind::Qp));
    EXPECT_TRUE(take_object(*other, kDevice, ObjectKind::Qp));
    EXPECT_FALSE(take_object(*fabric_, kDevice, ObjectKind::Qp)) << "three on the device, whoever has them";
    EXPECT_TRUE(take_object(*fabric_, kOtherDevice, ObjectKind::Qp));
    EXPECT_EQ(object_count(*fabric_, 0, kDevice, ObjectKind::Qp), 3u);
  }
  EXPECT_EQ(object_count(*fabric_, 0, kDevice, ObjectKind::Qp), 1u);
  EXPECT_TRUE(take_object(*fabric_, kDevice, ObjectKind::Qp));
}

TEST_F(Tables, LastPlaceOfADevice_GoesToExactlyOneThread) {
  fabric_->header().devices_table[kDevice].limit[static_cast<unsigned>(ObjectKind::Mr)].store(1 + 1);
  std::atomic<uint32_t> inside{0};
  std::atomic<bool> crowded{false};
  const auto come_and_go = [&] {
    if (!take_object(*fabric_, kDevice, ObjectKind::Mr)) return false;
    if (inside.fetch_add(1) != 0) crowded.store(true);
    inside.fetch_sub(1);
    give_object(*fabric_, kDevice, ObjectKind::Mr);
    return true;
  };
  {
    const Meanwhile second(come_and_go);
    for (int i = 0; i < kOpens; ++i) come_and_go();
  }
  EXPECT_FALSE(crowded.load());
  EXPECT_TRUE(come_and_go());
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
