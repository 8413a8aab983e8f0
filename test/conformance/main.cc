// SPDX-License-Identifier: BSD-3-Clause
//
// The conformance tests' main: one device stays open, so that the fabric lives from the first test to the
// last.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include "test/conformance/lab.h"
#include "test/conformance/start.h"

int main(int argc, char** argv) {
  std::vector<char*> original(argv, argv + argc + 1);
  testing::InitGoogleTest(&argc, argv);
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  bfo::conformance::enter_fabric(original.data());
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* keep = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  if (keep == nullptr) return 1;
  if (!bfo::conformance::Lab::other_devices()) bfo::conformance::Lab::get().header();
  const int result = RUN_ALL_TESTS();
  bfo::conformance::Lab::get().leave();
  ibv_close_device(keep);
  return result;
}
