// SPDX-License-Identifier: BSD-3-Clause
//
// The tables: handing out and taking back slots for queue pairs, queues, regions and open devices.
#include "contrib/softhca/fabric/tables.h"

#include <bit>
#include <cstring>

namespace bfo::softhca {
namespace {

// Slots freed before one is used again: packets to it may be under way. A number comes back when its slot has
// had all generations, that is after 2^16 other queue pairs. In a full table a freed slot is used at once.
constexpr uint32_t kQpReuseDelay = 512;
constexpr uint32_t kQpGenerations = (kPsnMask >> kQpSlotBits) + 1;
static_assert(kQpReuseDelay * kQpGenerations == 1u << 16);
constexpr uint32_t kMrRestBeforeReuse = 256;

void clear_bytes(void* from, size_t bytes) {
  std::memset(from, 0, bytes);
}

}  // namespace

QpEntry* allocate_qp(Fabric& fabric) {
  FabricHeader& h = fabric.header();
  Guard guard(h.registry_lock, fabric.tag(), fabric);
  if (h.qp_fresh == 0) h.qp_fresh = kFirstQp;
  uint32_t slot;
  if (h.qp_free_count > 0 && (h.qp_free_count > kQpReuseDelay || h.qp_fresh >= kMaxQps)) {
    slot = h.qp_free_head;
    h.qp_free_head = h.qps[slot].next_free;
    --h.qp_free_count;
  } else if (h.qp_fresh < kMaxQps && fabric.reserve(&h.qps[h.qp_fresh], sizeof(QpEntry))) {
    slot = h.qp_fresh++;
  } else {
    return nullptr;
  }
  QpEntry& qp = h.qps[slot];
  uint32_t generation = qp.generation + 1;
  clear_bytes(static_cast<void*>(&qp.state), sizeof(QpEntry) - offsetof(QpEntry, state));
  qp.generation = generation;
  qp.process = fabric.process();
  h.processes[qp.process].qps.fetch_add(1);  // before it can be found
  qp.srq = qp.send_cq = qp.recv_cq = kNone;
  qp.deadline = kNever;
  qp.qpn.store((generation % kQpGenerations) << kQpSlotBits | slot, std::memory_order_release);
  return &qp;
}

void free_qp(Fabric& fabric, QpEntry& qp) {
  FabricHeader& h = fabric.header();
  uint64_t sq = qp.sq_ring, rq = qp.rq_ring;
  uint64_t sq_bytes = uint64_t{qp.sq_mask + 1} * qp.sq_stride;
  uint64_t rq_bytes = uint64_t{qp.rq_mask + 1} * qp.rq_stride;
  qp.qpn.store(0, std::memory_order_release);
  fabric.release(sq, sq_bytes);
  fabric.release(rq, rq_bytes);
  qp.sq_ring = qp.rq_ring = 0;
  Guard guard(h.registry_lock, fabric.tag(), fabric);
  uint32_t slot = index_of(fabric, qp);
  qp.next_free = 0;
  if (h.qp_free_count == 0) {
    h.qp_free_head = slot;
  } else {
    h.qps[h.qp_free_tail].next_free = slot;
  }
  h.qp_free_tail = slot;
  ++h.qp_free_count;
  h.processes[qp.process].qps.fetch_sub(1);
}

CqEntry* allocate_cq(Fabric& fabric, uint32_t entries) {
  FabricHeader& h = fabric.header();
  uint32_t capacity = std::bit_ceil(entries);
  uint64_t ring = fabric.allocate(uint64_t{capacity} * kCqeStride);
  if (ring == 0) return nullptr;
  Guard guard(h.registry_lock, fabric.tag(), fabric);
  for (CqEntry& cq : h.cqs) {
    if (!fabric.reserve_slot(h.cqs_used, index_of(fabric, cq), cq)) break;
    if (cq.used.load() != 0) continue;
    clear_bytes(static_cast<void*>(&cq), sizeof(CqEntry));
    cq.process = fabric.process();
    cq.capacity = entries;
    cq.mask = capacity - 1;
    cq.ring = ring;
    cover(h.cqs_used, index_of(fabric, cq));
    cq.used.store(1, std::memory_order_release);
    return &cq;
  }
  guard.unlock();
  fabric.release(ring, uint64_t{capacity} * kCqeStride);
  return nullptr;
}

void free_cq(Fabric& fabric, CqEntry& cq) {
  fabric.release(cq.ring, uint64_t{cq.mask + 1} * kCqeStride);
  cq.ring = 0;
  cq.used.store(0, std::memory_order_release);
}

SrqEntry* allocate_srq(Fabric& fabric, uint32_t max_wr, uint32_t max_sge) {
  FabricHeader& h = fabric.header();
  uint32_t entries = std::bit_ceil(max_wr);
  uint32_t stride = recv_stride(max_sge);
  uint64_t ring = fabric.allocate(uint64_t{entries} * stride);
  if (ring == 0) return nullptr;
  Guard guard(h.registry_lock, fabric.tag(), fabric);
  for (SrqEntry& srq : h.srqs) {
    if (!fabric.reserve_slot(h.srqs_used, index_of(fabric, srq), srq)) break;
    if (srq.used.load() != 0) continue;
    clear_bytes(static_cast<void*>(&srq), sizeof(SrqEntry));
    srq.process = fabric.process();
    srq.max_wr = max_wr;
    srq.max_sge = max_sge;
    srq.ring = ring;
    srq.mask = entries - 1;
    srq.stride = stride;
    cover(h.srqs_used, index_of(fabric, srq));
    srq.used.store(1, std::memory_order_release);
    return &srq;
  }
  guard.unlock();
  fabric.release(ring, uint64_t{entries} * stride);
  return nullptr;
}

void free_srq(Fabric& fabric, SrqEntry& srq) {
  fabric.release(srq.ring, uint64_t{srq.mask + 1} * srq.stride);
  srq.ring = 0;
  srq.used.store(0, std::memory_order_release);
}

MrEntry* allocate_mr(Fabric& fabric) {
  FabricHeader& h = fabric.header();
  Guard guard(h.registry_lock, fabric.tag(), fabric);
  if (h.mr_fresh == 0) h.mr_fresh = 1;
  uint32_t slot;
  if (h.mr_free_count > 0 && (h.mr_free_count > kMrRestBeforeReuse || h.mr_fresh >= kMaxMrs)) {
    slot = h.mr_free_head;
    h.mr_free_head = h.mrs[slot].next_free.load();
    --h.mr_free_count;
  } else if (h.mr_fresh < kMaxMrs && fabric.reserve(&h.mrs[h.mr_fresh], sizeof(MrEntry))) {
    slot = h.mr_fresh++;
  } else {
    return nullptr;
  }
  MrEntry& mr = h.mrs[slot];
  uint32_t generation = mr.generation + 1;
  clear_bytes(static_cast<void*>(&mr), sizeof(MrEntry));
  mr.generation = generation;
  mr.process = fabric.process();
  return &mr;
}

void free_mr(Fabric& fabric, MrEntry& mr) {
  FabricHeader& h = fabric.header();
  mr.key.store(0, std::memory_order_seq_cst);
  Guard guard(h.registry_lock, fabric.tag(), fabric);
  uint32_t slot = index_of(fabric, mr);
  mr.process = kNone;
  mr.next_free.store(0);
  if (h.mr_free_count == 0) {
    h.mr_free_head = slot;
  } else {
    h.mrs[h.mr_free_tail].next_free.store(slot);
  }
  h.mr_free_tail = slot;
  ++h.mr_free_count;
}

namespace {
/// Takes a free slot. It is not visible to other processes yet.
ContextEntry* claim_context(Fabric& fabric) {
  FabricHeader& h = fabric.header();
  Guard guard(h.registry_lock, fabric.tag(), fabric);
  for (ContextEntry& context : h.contexts) {
    if (!fabric.reserve_slot(h.contexts_used, index_of(fabric, context), context)) break;
    if (context.used.load() != kContextFree) continue;
    cover(h.contexts_used, index_of(fabric, context));
    context.process.store(fabric.process());
    context.used.store(kContextClaimed);
    return &context;
  }
  return nullptr;
}
}  // namespace

ContextEntry* allocate_context(Fabric& fabric, uint32_t node, uint32_t device, WakeName wake) {
  ContextEntry* context = claim_context(fabric);
  if (context == nullptr) return nullptr;
  // Under the lock, because another process may be adding an event for the last owner of the slot.
  Guard guard(context->ring_lock, fabric.tag(), fabric);
  context->node.store(node);
  context->device.store(device);
  context->wake = wake;
  context->head.store(0);
  context->tail.store(0);
  context->used.store(kContextOpen, std::memory_order_release);
  return context;
}

void free_context(Fabric& fabric, ContextEntry& context) {
  Guard guard(context.ring_lock, fabric.tag(), fabric);
  context.used.store(kContextFree, std::memory_order_release);
}

}  // namespace bfo::softhca
