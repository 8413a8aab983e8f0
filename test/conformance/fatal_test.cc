// SPDX-License-Identifier: BSD-3-Clause
//
// DEVICE_FATAL: a program of its own, because nothing can be done with that device afterwards.
#include "test/conformance/rig.h"

namespace bfo::conformance {
namespace {

using DeviceFatal = Conformance;

TEST_F(DeviceFatal, EverythingFailsAndClosingWorks) {
  SideOptions other_device;
  other_device.device = 1;
  LinkOptions link;
  link.retry_cnt = 1;
  auto broken = std::make_unique<Pair>(SideOptions{}, link);
  Pair healthy(other_device, link);
  Lab::get().inject("when device=0 do device-fatal");
  EXPECT_TRUE(broken->a.wait_event_of(IBV_EVENT_DEVICE_FATAL));
  EXPECT_TRUE(broken->b.wait_event_of(IBV_EVENT_DEVICE_FATAL));
  EXPECT_FALSE(healthy.a.wait_event(10).has_value()) << "the other device goes on";
  if (broken->a.send(1, 0, 8, IBV_WR_RDMA_WRITE, &broken->b) == 0) {
    const auto wc = broken->a.wait_send();
    ASSERT_TRUE(wc.has_value());
    EXPECT_NE(wc->status, IBV_WC_SUCCESS);
  }
  ASSERT_EQ(healthy.a.send(2, 0, 8, IBV_WR_RDMA_WRITE, &healthy.b), 0);
  EXPECT_WC(healthy.a.wait_send(), IBV_WC_SUCCESS, 2);
  broken.reset();  // destroying and closing must end, whatever it returns
}

}  // namespace
}  // namespace bfo::conformance
