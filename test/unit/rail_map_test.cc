// SPDX-License-Identifier: BSD-3-Clause
//
// rail_map_test.cc: finding rails, also while one is being added.
#include "pml/bfo/glue/rail_map.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace bfo::glue {
namespace {

const void* endpoint(const std::vector<char>& memory, size_t i) {
  return &memory[16 * i];
}

TEST(RailMap, ManyRails_EachIsFoundAndTheForgottenOnesAreNot) {
  constexpr size_t kRails = 1000;
  const std::vector<char> memory(16 * kRails);
  std::vector<Rail> rails(kRails);
  RailMap map;
  EXPECT_EQ(map.find(endpoint(memory, 0)), nullptr);
  for (size_t i = 0; i < kRails; ++i) map.insert(endpoint(memory, i), &rails[i]);
  for (size_t i = 0; i < kRails; i += 3) map.forget(endpoint(memory, i));
  for (size_t i = 0; i < kRails; ++i)
    EXPECT_EQ(map.find(endpoint(memory, i)), i % 3 == 0 ? nullptr : &rails[i]) << i;
  map.insert(endpoint(memory, 3), &rails[7]);
  EXPECT_EQ(map.find(endpoint(memory, 3)), &rails[7]);
}

// As a BTL and its PML do it: the state changes first and is then told; who adds the rail reads it first.
TEST(RailMap, StateChangesWhileTheRailIsAdded_TheChangeFindsTheRail) {
  opal_set_using_threads(true);
  char endpoint = 0;
  Rail rail;
  RailMap map;
  std::atomic<bool> read{false};
  std::atomic<bool> changed{false};
  Rail* told = nullptr;
  std::thread progress([&] {
    while (!read) std::this_thread::yield();
    changed = true;
    told = map.find(&endpoint);
  });
  {
    const RailMap::Adding adding(map);
    EXPECT_FALSE(changed);
    read = true;
    while (!changed) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // lets a find() that does not wait return
    map.insert(&endpoint, &rail);
  }
  progress.join();
  opal_set_using_threads(false);
  EXPECT_EQ(told, &rail);
}

}  // namespace
}  // namespace bfo::glue
