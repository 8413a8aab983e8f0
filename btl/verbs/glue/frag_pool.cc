// SPDX-License-Identifier: BSD-3-Clause
//
// frag_pool.cc: see frag_pool.h.
#include "btl/verbs/glue/frag_pool.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <utility>

#include "btl/verbs/glue/module.h"

namespace bfo::verbs {
namespace {

constexpr unsigned kGrowBy = 32;  // at most, and never more than there are
constexpr unsigned kGrowFirst = 4;
constexpr uint64_t kGrowRetryNs = 10'000'000;
// A PML may send somewhat longer messages than eager ones without being asked. They stay in their buffers
// until a later completion, up to `signal_interval` of them: those of `large` would be too much for that.
constexpr size_t kMiddleBytes = 18 * 1024;

}  // namespace

/// Fragments that were made together follow it.
struct alignas(VerbsFrag) FragBlock {
  FragBlock* next;
  VerbsFrag* frags() { return reinterpret_cast<VerbsFrag*>(this + 1); }
};

namespace {

size_t stride_of(const FragPool& pool) {
  return pool.buffer_bytes == 0 ? 0 : (pool.buffer_bytes + 63) / 64 * 64 + 64;
}

/// Makes `count` fragments of a block, with buffers in `region`.
void link(FragPool& pool, FragBlock* block, unsigned count, const engine::Region& region) {
  const size_t stride = stride_of(pool);
  block->next = pool.blocks;
  pool.blocks = block;
  for (unsigned i = count; i-- > 0;) {
    VerbsFrag& frag = block->frags()[i];
    OBJ_CONSTRUCT(&frag.base, mca_btl_base_descriptor_t);
    new (&frag.engine) engine::Frag();
    frag.pool = &pool;
    frag.buffer = stride == 0 ? nullptr : region.address + i * stride;
    frag.buffer_lkey = region.lkey;
    frag.next_free = pool.free;
    pool.free = &frag;
  }
  pool.made += count;
}

/// Adds `count` fragments. Under the pool lock. False with errno when there is no memory; EAGAIN: it is being
/// registered. An empty pool does not wait for that, because no fragment can be returned to it meanwhile; but
/// larger ones can stand in for those of `middle`, which is not filled before the first is needed.
bool pool_add(Module& module, FragPool& pool, unsigned count) {
  const size_t stride = stride_of(pool);
  engine::Region region;
  if (stride != 0) {
    region = module.port.stock().take(stride * count, stride);
    if (region.address == nullptr && errno == EAGAIN && pool.made == 0 && &pool != &module.middle)
      region = module.port.device().arena().take(stride * count);
    if (region.address == nullptr) return false;
  }
  auto* block = static_cast<FragBlock*>(calloc(1, sizeof(FragBlock) + count * sizeof(VerbsFrag)));
  if (block == nullptr) return false;
  link(pool, block, count, region);
  return true;
}

}  // namespace

VerbsFrag* spare_get(Module& module) {
  const engine::Guard guard(module.pool_lock);
  FragPool& pool = module.spare;
  if (pool.free == nullptr) {
    const size_t size = sizeof(FragBlock) + sizeof(VerbsFrag) + pool.buffer_bytes;
    auto* const block = static_cast<FragBlock*>(calloc(1, size));
    if (block == nullptr) return nullptr;
    link(pool, block, 1, engine::Region{.address = reinterpret_cast<char*>(block->frags() + 1)});
  }
  return std::exchange(pool.free, pool.free->next_free);
}

bool pool_grow(Module& module, FragPool& pool) {
  unsigned limit = mca_btl_verbs_component.params.free_list_max;
  if (limit == 1) limit = 2;  // see send()
  errno = ENOBUFS;
  if (limit != 0 && pool.made >= limit) return false;
  errno = ENOMEM;
  const uint64_t now = module.port.env().now_ns();
  if (now < pool.retry_ns) return false;
  unsigned count = std::clamp(pool.made, kGrowFirst, kGrowBy);
  if (limit != 0) count = std::min(count, limit - pool.made);
  int error = 0;
  for (; count != 0; count /= 2) {
    if (pool_add(module, pool, count)) return true;
    if (error == 0 || error == EAGAIN) error = errno;
  }
  errno = error;
  if (error == EAGAIN) return false;
  ++module.port.resources().failures[static_cast<size_t>(engine::Object::kMemory)];
  pool.retry_ns = now + kGrowRetryNs;
  return false;
}

void pools_open(Module& module) {
  module.eager.buffer_bytes = module.super.btl_eager_limit > module.super.btl_rndv_eager_limit
                                  ? module.super.btl_eager_limit
                                  : module.super.btl_rndv_eager_limit;
  module.large.buffer_bytes = module.super.btl_max_send_size;
  if (module.large.buffer_bytes > kMiddleBytes) module.middle.buffer_bytes = kMiddleBytes;
  module.rdma.buffer_bytes = 0;
  module.spare.buffer_bytes = module.large.buffer_bytes;
}

engine::StockNeed pools_need(void* ctx) {
  const Module& module = *static_cast<Module*>(ctx);
  engine::StockNeed need;
  for (const FragPool* pool : {&module.eager, &module.large}) {
    if (pool->made != 0) continue;
    need.wish += kGrowFirst * stride_of(*pool);
    need.least += stride_of(*pool);
  }
  return need;
}

bool pools_prepare(void* ctx) {
  Module& module = *static_cast<Module*>(ctx);
  const engine::Guard guard(module.pool_lock);
  for (FragPool* pool : {&module.eager, &module.large, &module.rdma}) {
    if (pool->made == 0 && !pool_grow(module, *pool)) return false;
  }
  return true;
}

void pools_close(Module& module) {
  for (FragPool* pool : {&module.eager, &module.middle, &module.large, &module.rdma, &module.spare}) {
    while (FragBlock* const block = pool->blocks) {
      pool->blocks = block->next;
      free(block);
    }
    *pool = FragPool{};
  }
}

}  // namespace bfo::verbs
