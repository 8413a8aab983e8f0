// SPDX-License-Identifier: BSD-3-Clause
//
// copy_rate: what one memcpy stream of 1 MiB blocks carries on this machine, in 10^6 bytes per second, as one
// JSON line.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

int main() {
  constexpr size_t kBytes = 1 << 20;
  constexpr size_t kBlocks =
      16;  // more than a cache holds, like perftest's buffers are not: both are reported
  std::vector<std::vector<char>> from(kBlocks, std::vector<char>(kBytes, 1));
  std::vector<std::vector<char>> to(kBlocks, std::vector<char>(kBytes, 2));
  std::vector<double> hot, cold;
  unsigned sum = 0;
  for (int r = 0; r < 300; ++r) {
    for (const bool same : {true, false}) {
      const size_t i = same ? 0 : static_cast<size_t>(r) % kBlocks;
      const auto start = std::chrono::steady_clock::now();
      std::memcpy(to[i].data(), from[i].data(), kBytes);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      sum += static_cast<unsigned char>(to[i][static_cast<size_t>(r)]);
      (same ? hot : cold).push_back(kBytes / seconds * 1e-6);
    }
  }
  for (auto* v : {&hot, &cold}) std::sort(v->begin(), v->end());
  std::printf(
      "{\"program\": \"copy_rate\", \"one_block_mbs\": %.0f, \"many_blocks_mbs\": %.0f, \"sum\": %u}\n",
      hot[hot.size() / 2], cold[cold.size() / 2], sum);
  return 0;
}
