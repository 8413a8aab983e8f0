// SPDX-License-Identifier: BSD-3-Clause
//
// Message sizes: the thresholds are the eager limits of vader (4 KiB), tcp (64 KiB), verbs (12288), the usual
// send limits, and these minus the headers a PML or BTL may subtract.
#include "test/integration/checker/sizes.h"

#include <algorithm>

#include "test/integration/checker/rng.h"

namespace bfo::checker {

Sizes::Sizes(uint64_t seed, uint64_t max_bytes, const std::vector<uint64_t>& around)
    : seed_(seed), max_(max_bytes) {
  sizes_ = {0, 1, 2, 3, 7, 8, 9, 13, 31, 63, 64, 65, 100, 127, 128, 200, 236, 255, 256, 257, 511, 1000, 1337};
  std::vector<uint64_t> thresholds{1024,   2048,   4096,   8192,    12288,   16384,   32768,  65536,
                                   131072, 262144, 524288, 1048576, 2097152, 4194304, 8388608};
  thresholds.insert(thresholds.end(), around.begin(), around.end());
  for (const uint64_t t : thresholds) {
    for (const int d : {-64, -56, -48, -40, -32, -24, -16, -15, -14, -13, -1, 0, 1, 16})
      if (static_cast<int64_t>(t) + d > 0) sizes_.push_back(t + d);
    sizes_.push_back((t + t / 3) | 1);
  }
  std::sort(sizes_.begin(), sizes_.end());
  sizes_.erase(std::unique(sizes_.begin(), sizes_.end()), sizes_.end());
  while (sizes_.back() > max_) sizes_.pop_back();
}

uint64_t Sizes::of(const Stream& s, uint32_t seq, uint64_t cap) const {
  Rng rng(seed_ ^
          permute(uint64_t{s.comm} << 48 | uint64_t{s.source} << 40 | uint64_t{s.dest} << 32 |
                  uint64_t{s.tag} << 24) ^
          seq);
  if (cap == kLarge) return max_ / 2 + rng.below(max_ / 2 + 1);
  cap = std::min(cap, max_);
  const auto end = std::upper_bound(sizes_.begin(), sizes_.end(), cap) - sizes_.begin();
  // One in four is any size: small ones with the same weight as large ones.
  if (rng.one_in(4)) return rng.below((cap >> rng.below(12)) + 1);
  return sizes_[rng.below(static_cast<uint64_t>(end))];
}

std::vector<uint64_t> Sizes::ladder(uint64_t cap) const {
  return {sizes_.begin(), std::upper_bound(sizes_.begin(), sizes_.end(), cap)};
}

}  // namespace bfo::checker
