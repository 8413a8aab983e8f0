// SPDX-License-Identifier: BSD-3-Clause
//
// The heap of the fabric: power-of-two blocks for queue rings and held payloads. Blocks come back zeroed.
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "contrib/softhca/fabric/fabric.h"

namespace bfo::softhca {
namespace {

constexpr uint64_t kSmallest = 4096;  // a page

uint32_t class_of(uint64_t bytes) {
  uint64_t size = std::bit_ceil(bytes < kSmallest ? kSmallest : bytes);
  return static_cast<uint32_t>(std::countr_zero(size));
}

}  // namespace

uint64_t Fabric::allocate(uint64_t bytes) {
  uint32_t index = class_of(bytes);
  if (index >= kHeapClasses) return 0;
  uint64_t size = uint64_t{1} << index;
  HeapState& heap = header_->heap;
  Guard guard(heap.lock, tag(), *this);
  uint64_t block = heap.free[index];
  if (block != 0) {
    if (!reserve(at<void>(block), size)) return 0;
    heap.free[index] = *at<uint64_t>(block);
    *at<uint64_t>(block) = 0;
    return block;
  }
  if (heap.bump + size > header_->header_bytes + kHeapBytes) return 0;
  block = heap.bump;
  if (!reserve(at<void>(block), size)) return 0;
  heap.bump += size;
  return block;
}

void Fabric::release(uint64_t offset, uint64_t bytes) {
  if (offset == 0) return;
  uint32_t index = class_of(bytes);
  uint64_t size = uint64_t{1} << index;
  // Give the pages back, but the first, which the list needs; what is read from them next is zero. Anonymous
  // test fabrics just clear.
  std::memset(at<char>(offset), 0, kSmallest);
  if (size > kSmallest && madvise(at<char>(offset + kSmallest), size - kSmallest, MADV_REMOVE) != 0)
    std::memset(at<char>(offset + kSmallest), 0, size - kSmallest);
  if (slot_ != kNone) {
    std::atomic<uint64_t>& room = self().room;
    room.fetch_sub(std::min(size, room.load()));
  }
  HeapState& heap = header_->heap;
  Guard guard(heap.lock, tag(), *this);
  *at<uint64_t>(offset) = heap.free[index];
  heap.free[index] = offset;
}

}  // namespace bfo::softhca
