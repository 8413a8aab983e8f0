// SPDX-License-Identifier: BSD-3-Clause
//
// frag_pool.h: fragments, and the pools of a module that they come from, one for each size of buffer. A pool
// only ever grows; it is used under the module's pool lock.
#pragma once

#include "btl/verbs/engine/rail/port.h"
#include "btl/verbs/glue/component.h"

/// What the PML passes around for a registration, and sends to peers: eight bytes.
struct mca_btl_base_registration_handle_t {
  uint32_t lkey;
  uint32_t rkey;
};

namespace bfo::verbs {

struct FragBlock;
struct FragPool;
struct Module;

/// A descriptor with what the engine needs to send it. RDMA work uses one without buffer.
struct VerbsFrag {
  mca_btl_base_descriptor_t base;
  mca_btl_base_segment_t segment;
  engine::Frag engine;
  VerbsFrag* next_free;
  FragPool* pool;
  char* buffer;
  uint32_t buffer_lkey;
  bool accounted_inline;  ///< ended for the PML when it was posted: a failure is reported by sendi_failed
  bool scarce;            ///< at most one more was free when it was taken, and the pool could not grow
  /// put and get
  mca_btl_base_registration_handle_t* local_handle;
  mca_btl_base_rdma_completion_fn_t rdma_done;
  void* rdma_context;
  void* rdma_data;
};

/// Fragments of one buffer size, reused last in first out.
struct FragPool {
  VerbsFrag* free;
  size_t buffer_bytes;
  unsigned made;
  uint64_t retry_ns;  ///< it could not grow: not before then again
  FragBlock* blocks;  ///< of which it was made, the last one first
};

/// Makes more fragments: as many as there are, fewer when memory is short. Under the pool lock. False with
/// errno: there is no memory for a single one. The next attempt is made after some time, because each costs
/// several system calls. Fragments are returned to the pool, so only an empty one cannot continue.
bool pool_grow(Module& module, FragPool& pool);

/// A fragment whose buffer no device can read: what is in it has to be copied. nullptr: there is no memory.
VerbsFrag* spare_get(Module& module);

void pools_open(Module& module);
/// What they take.
engine::StockNeed pools_need(void* module);
/// Makes the fragments without which nothing can be sent. False with errno. Progress function only.
bool pools_prepare(void* module);
void pools_close(Module& module);

}  // namespace bfo::verbs
