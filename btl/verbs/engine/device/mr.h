// SPDX-License-Identifier: BSD-3-Clause
//
// mr.h: registered memory. An Arena hands out pieces of large registered chunks for eager buffers and slot
// rings; a UserRegion is one registration of the application's memory, made and dropped by the registration
// cache of the glue.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <pthread.h>

#include "btl/verbs/engine/device/verbs_api.h"

namespace bfo::engine {

/// A piece of registered memory: `address` is usable by the device under `lkey`. address == nullptr: none.
struct Region {
  char* address = nullptr;
  uint32_t lkey = 0;
};

/// Memory of an arena, registered as one.
struct Chunk;

/// What makes chunks: a copy may be used by any thread, also when its arena is gone.
struct ChunkMaker {
  const VerbsApi* api = nullptr;
  ibv_pd* pd = nullptr;
  int access = 0;
  /// `bytes`, a multiple of 4096, of zeroed and registered memory; nullptr with errno. The caller owns it
  /// until an arena adopts it.
  Chunk* make(size_t bytes) const;
  /// A chunk for a piece of `wish` bytes and more of its kind; a smaller one when memory is short, down to
  /// `least`. nullptr when not even that is there. `*error` is the errno of the last refusal, 0 if there was
  /// none.
  Chunk* make_some(size_t wish, size_t least, int* error) const;
  /// Deregisters and unmaps a chunk that no arena has and the device does not use. False when the device
  /// refused: it may still write there, so the memory stays mapped and the caller keeps the chunk.
  bool unmake(Chunk* chunk) const;
};

/// Registered memory, taken in chunks. What take() returned is not given back before close(); an adopted
/// chunk can be. A chunk that cannot be registered is tried again smaller, down to what is needed now. take()
/// by any thread.
class Arena {
 public:
  /// `api` and `pd` must outlive the arena; call close() before freeing `pd`. `access` is added to what the
  /// memory is registered for: optional ibv_access_flags, such as relaxed ordering.
  void open(const VerbsApi& api, ibv_pd* pd, int access = 0) { maker_ = ChunkMaker{&api, pd, access}; }
  /// `bytes` of zeroed memory aligned to 64 bytes, or an empty Region when memory or registrations are
  /// exhausted (errno says why).
  Region take(size_t bytes);
  /// The same from memory that is registered already: no verb. Empty when there is no such piece.
  Region take_made(size_t bytes);
  /// True when take_made(bytes) finds one.
  bool has(size_t bytes);
  /// Takes a chunk that maker() made, to be handed out in pieces.
  void add(Chunk* chunk);
  /// For chunks that are registered elsewhere, because that takes long.
  const ChunkMaker& maker() const { return maker_; }
  /// Takes a chunk that maker() made: all of it, as one piece.
  Region adopt(Chunk* chunk);
  /// The caller owns a chunk that was adopted again, and nobody uses its memory any more. It is not counted
  /// as pinned from now on.
  void disown(Chunk* chunk);
  /// Deregisters and unmaps everything. False when the device refused to deregister a chunk; the memory then
  /// stays mapped.
  bool close();
  /// Bytes registered.
  size_t pinned() const { return pinned_.load(std::memory_order_relaxed); }

 private:
  Chunk* with_room(size_t rounded) const;
  static Region cut(Chunk* chunk, size_t rounded);
  void link(Chunk* chunk);

  ChunkMaker maker_;
  Chunk* chunks_ = nullptr;
  std::atomic<size_t> pinned_{0};
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;  ///< of set-up paths only
};

/// What a peer needs to read or write a registered region, and what this side needs to use it: the BTL's
/// registration handle.
struct RegionKeys {
  uint32_t lkey;
  uint32_t rkey;
};

/// ibv_access_flags for a registration that will be written locally and read or written by peers. A region
/// only read by peers is not registered for local writing, so that read-only memory can be registered.
int access_flags(bool local_write, bool remote_read, bool remote_write, bool remote_atomic);

}  // namespace bfo::engine
