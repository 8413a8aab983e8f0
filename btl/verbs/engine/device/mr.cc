// SPDX-License-Identifier: BSD-3-Clause
//
// mr.cc: see mr.h. Chunks are mapped rather than malloc'ed: whole pages, so that fork and madvise never touch
// a neighbour.
#include "btl/verbs/engine/device/mr.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "btl/verbs/engine/base/locked.h"
#include "btl/verbs/engine/base/memory.h"

namespace bfo::engine {
namespace {
constexpr size_t kChunkBytes = size_t{512} << 10;
constexpr size_t kHugeBytes = size_t{2} << 20;
constexpr int kLook = 8;  // chunks that are searched for room
constexpr size_t kPageBytes = 4096;
constexpr size_t kAlign = 64;
constexpr size_t round_up(size_t value, size_t to) {
  return (value + to - 1) / to * to;
}
}  // namespace

struct Chunk {
  Chunk* next;
  char* address;
  size_t bytes;
  size_t used;
  ibv_mr* mr;
};

void* map_pages(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  if (bytes >= kHugeBytes) madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}
void unmap_pages(void* pages, size_t bytes, size_t) {
  munmap(pages, bytes);
}

Chunk* ChunkMaker::make(size_t bytes) const {
  void* memory = api->map_pages(bytes);
  if (memory == nullptr) return nullptr;
  ibv_mr* mr = api->reg_mr(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE | access);
  Chunk* chunk = mr == nullptr ? nullptr : bfo::engine::make<Chunk>();
  if (chunk == nullptr) {
    const int saved = mr == nullptr ? errno : ENOMEM;
    if (mr != nullptr) api->dereg_mr(mr);
    api->unmap_pages(memory, bytes, 0);
    errno = saved;
    return nullptr;
  }
  *chunk = Chunk{nullptr, static_cast<char*>(memory), bytes, 0, mr};
  return chunk;
}

bool ChunkMaker::unmake(Chunk* chunk) const {
  if (api->dereg_mr(chunk->mr) != 0) return false;
  api->unmap_pages(chunk->address, chunk->bytes, chunk->used);
  bfo::engine::unmake(chunk);
  return true;
}

Chunk* ChunkMaker::make_some(size_t wish, size_t least, int* error) const {
  const size_t end = round_up(least, kPageBytes);
  size_t bytes = std::max({end, round_up(wish, kPageBytes), kChunkBytes});
  *error = 0;
  for (;;) {
    Chunk* const chunk = make(bytes);
    if (chunk != nullptr) return chunk;
    *error = errno;
    if (bytes == end) return nullptr;
    bytes = std::max(end, round_up(bytes / 2, kPageBytes));
  }
}

/// Under the lock.
void Arena::link(Chunk* chunk) {
  chunk->next = chunks_;
  chunks_ = chunk;
  pinned_.fetch_add(chunk->bytes, std::memory_order_relaxed);
}

Region Arena::adopt(Chunk* chunk) {
  const Locked locked(mutex_);
  link(chunk);
  chunk->used = chunk->bytes;
  return Region{chunk->address, chunk->mr->lkey};
}

void Arena::disown(Chunk* chunk) {
  const Locked locked(mutex_);
  Chunk** at = &chunks_;
  while (*at != chunk) at = &(*at)->next;
  *at = chunk->next;
  pinned_.fetch_sub(chunk->bytes, std::memory_order_relaxed);
}

/// Under the lock, as cut().
Chunk* Arena::with_room(size_t rounded) const {
  Chunk* chunk = chunks_;
  for (int i = 0; chunk != nullptr && chunk->bytes - chunk->used < rounded; ++i)
    chunk = i < kLook ? chunk->next : nullptr;
  return chunk;
}

Region Arena::cut(Chunk* chunk, size_t rounded) {
  const Region region{chunk->address + chunk->used, chunk->mr->lkey};
  chunk->used += rounded;
  return region;
}

bool Arena::has(size_t bytes) {
  const Locked locked(mutex_);
  return with_room(round_up(bytes, kAlign)) != nullptr;
}

Region Arena::take_made(size_t bytes) {
  const size_t rounded = round_up(bytes, kAlign);
  const Locked locked(mutex_);
  Chunk* const chunk = with_room(rounded);
  return chunk == nullptr ? Region{} : cut(chunk, rounded);
}

void Arena::add(Chunk* chunk) {
  const Locked locked(mutex_);
  link(chunk);
}

Region Arena::take(size_t bytes) {
  const size_t rounded = round_up(bytes, kAlign);
  int error = 0;
  const Locked locked(mutex_);
  Chunk* chunk = with_room(rounded);
  if (chunk == nullptr) {
    chunk = maker_.make_some(rounded, rounded, &error);
    if (chunk == nullptr) {
      errno = error;
      return Region{};
    }
    link(chunk);
  }
  return cut(chunk, rounded);
}

bool Arena::close() {
  bool clean = true;
  while (chunks_ != nullptr) {
    Chunk* chunk = chunks_;
    chunks_ = chunk->next;
    pinned_.fetch_sub(chunk->bytes, std::memory_order_relaxed);
    // A chunk the device still holds may still be written: its pages must not be handed to anybody else.
    if (maker_.unmake(chunk)) continue;
    clean = false;
    unmake(chunk);
  }
  return clean;
}

int access_flags(bool local_write, bool remote_read, bool remote_write, bool remote_atomic) {
  int flags = 0;
  if (remote_read) flags |= IBV_ACCESS_REMOTE_READ;
  // The specification wants local write access wherever a peer may write.
  if (local_write || remote_write || remote_atomic) flags |= IBV_ACCESS_LOCAL_WRITE;
  if (remote_write) flags |= IBV_ACCESS_REMOTE_WRITE;
  if (remote_atomic) flags |= IBV_ACCESS_REMOTE_ATOMIC;
  return flags;
}

}  // namespace bfo::engine
