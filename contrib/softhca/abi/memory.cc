// SPDX-License-Identifier: BSD-3-Clause
//
// Protection domains, memory regions and memory windows.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "contrib/softhca/abi/verb_faults.h"
#include "contrib/softhca/abi/objects.h"
#include "contrib/softhca/engine/cq.h"
#include "contrib/softhca/engine/mr.h"
#include "contrib/softhca/fabric/copy.h"
#include "contrib/softhca/fabric/pages.h"
#include "contrib/softhca/fabric/tables.h"

namespace bfo::softhca {
namespace {

constexpr unsigned kNeedLocalWrite = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                  IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;

bool access_is_valid(unsigned access) {
  if ((access & ~kKnownAccess) != 0) return false;
  return (access & kNeedLocalWrite) == 0 || (access & IBV_ACCESS_LOCAL_WRITE) != 0;
}

/// Registering memory that is not there fails on a real HCA, because it cannot be pinned.
bool is_mapped(uint64_t address, uint64_t length) {
  constexpr uint64_t kPage = 4096;
  constexpr uint64_t kChunk = kPage * 4096;
  uint64_t at = address & ~(kPage - 1);
  uint64_t end = (address + length + kPage - 1) & ~(kPage - 1);
  unsigned char residency[4096];
  while (at < end) {
    uint64_t part = end - at < kChunk ? end - at : kChunk;
    if (mincore(reinterpret_cast<void*>(at), part, residency) != 0 && errno == ENOMEM) return false;
    at += part;
  }
  return true;
}

/// What a strict fabric keeps of registered memory. Without it all is allowed, which a sentence says, once.
PageRecord record_if_strict(uint64_t address, uint64_t length, unsigned access) {
  if (!Process::instance().strict_pages() || length == 0) return 0;
  const PageRecord record = record_pages(address, length, (access & IBV_ACCESS_LOCAL_WRITE) != 0);
  static std::atomic<bool> said{false};
  if (record == 0 && !said.exchange(true)) {
    std::fprintf(stderr,
                 "softhca: SOFTHCA_STRICT_PAGES: the pages of registered memory cannot be written down (%s); "
                 "they are not compared\n",
                 strerror(errno));
  }
  return record;
}

uint32_t key_of(Fabric& fabric, const MrEntry& mr) {
  return index_of(fabric, mr) << 8 | (mr.generation & 0xff);
}

ibv_mr* register_region(ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access) {
  if (verb_fails(ControlVerb::kRegMr, pd->context, of_size(length))) return nullptr;
  if (!access_is_valid(access)) {
    errno = EINVAL;
    return nullptr;
  }
  uint64_t start = reinterpret_cast<uint64_t>(address);
  if (start + length < start || !is_mapped(start, length)) {
    errno = EFAULT;
    return nullptr;
  }
  if (is_dead(*of(pd->context))) {
    errno = EIO;
    return nullptr;
  }
  Reservation reserved(pd->context, ObjectKind::kMr);
  if (!reserved.taken()) return nullptr;
  uint64_t pinned = 0;
  if (!pin(fabric(), start, length, pinned)) {
    errno = ENOMEM;
    return nullptr;
  }
  MrEntry* entry = allocate_mr(fabric());
  auto* mr = static_cast<Mr*>(std::calloc(1, sizeof(Mr)));
  if (entry == nullptr || mr == nullptr) {
    unpin(fabric(), pinned);
    if (entry != nullptr) free_mr(fabric(), *entry);
    std::free(mr);
    errno = ENOMEM;
    return nullptr;
  }
  Pd* domain = real_pd(pd);
  entry->pd = domain->number;
  entry->access = access;
  entry->addr = start;
  entry->iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
  entry->length = length;
  entry->pages = record_if_strict(start, length, access);
  uint32_t key = key_of(fabric(), *entry);
  entry->key.store(key, std::memory_order_release);
  mr->entry = entry;
  mr->base.context = pd->context;
  mr->base.pd = pd;
  mr->base.addr = address;
  mr->base.length = length;
  mr->base.handle = index_of(fabric(), *entry);
  mr->base.lkey = mr->base.rkey = key;
  mr->pinned = pinned;
  of(pd)->refs.fetch_add(1);
  reserved.keep();
  return &mr->base;
}

/// After this no access through the key is executed any more. Accesses that had arrived are complete.
void invalidate(MrEntry& entry) {
  Process& process = Process::instance();
  uint32_t key = entry.key.load();
  {
    std::lock_guard<std::mutex> guard(process.objects_mutex());
    for (const auto& [slot, cq] : process.cqs()) settle_payload(fabric(), *cq->entry, key);
  }
  entry.key.store(0, std::memory_order_seq_cst);
  wait_for_copies(fabric(), entry.addr, entry.length);
}

Pd* new_pd(ibv_context* context) {
  if (verb_fails(ControlVerb::kAllocPd, context)) return nullptr;
  Reservation reserved(context, ObjectKind::kPd);
  auto* pd = reserved.taken() ? static_cast<Pd*>(std::calloc(1, sizeof(Pd))) : nullptr;
  if (pd == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  pd->base.context = context;
  pd->number = fabric().header().next_pd.fetch_add(1);
  pd->base.handle = pd->number;
  reserved.keep();
  return pd;
}

}  // namespace

ibv_pd* op_alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  constexpr uint32_t kKnown = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  if (attr->pd == nullptr || (attr->comp_mask & ~kKnown) != 0) {
    errno = EINVAL;
    return nullptr;
  }
  Pd* pd = new_pd(context);
  if (pd == nullptr) return nullptr;
  pd->parent = real_pd(attr->pd);
  pd->parent->refs.fetch_add(1);
  pd->base.handle = pd->parent->base.handle;
  return &pd->base;
}

ibv_td* op_alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
  if (attr->comp_mask != 0) {
    errno = EINVAL;
    return nullptr;
  }
  auto* td = static_cast<ibv_td*>(std::calloc(1, sizeof(ibv_td)));
  if (td != nullptr) td->context = context;
  return td;
}

int op_dealloc_td(ibv_td* td) {
  std::free(td);
  return 0;
}

int op_advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* list, uint32_t count) {
  return EOPNOTSUPP;  // nothing is paged on demand here
}

ibv_mw* op_alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  if (verb_fails(ControlVerb::kAllocMw, pd->context)) return nullptr;
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
    errno = EINVAL;
    return nullptr;
  }
  auto* mw = static_cast<Mw*>(std::calloc(1, sizeof(Mw)));
  // The entry is shared with other processes: it is taken last, and nothing can fail behind it.
  MrEntry* entry = mw != nullptr ? allocate_mr(fabric()) : nullptr;
  if (entry == nullptr) {
    std::free(mw);
    errno = ENOMEM;
    return nullptr;
  }
  entry->pd = real_pd(pd)->number;
  entry->flags = type == IBV_MW_TYPE_1 ? MrFlags::kWindow : MrFlags::kWindow2;
  mw->entry = entry;
  mw->base.context = pd->context;
  mw->base.pd = pd;
  mw->base.type = type;
  mw->base.rkey = key_of(fabric(), *entry);
  of(pd)->refs.fetch_add(1);
  return &mw->base;
}

int op_dealloc_mw(ibv_mw* base) {
  if (int why = verb_fault(ControlVerb::kDeallocMw, base->context)) return why;
  Mw* mw = of(base);
  invalidate(*mw->entry);
  free_mr(fabric(), *mw->entry);
  of(base->pd)->refs.fetch_sub(1);
  std::free(mw);
  return 0;
}

int op_bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  if (mw->type != IBV_MW_TYPE_1) return EINVAL;
  ibv_send_wr request{};
  ibv_send_wr* bad = nullptr;
  request.wr_id = bind->wr_id;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = bind->send_flags;
  request.bind_mw.mw = mw;
  request.bind_mw.bind_info = bind->bind_info;
  request.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  int result = op_post_send(qp, &request, &bad);
  if (result == 0) mw->rkey = request.bind_mw.rkey;
  return result;
}

}  // namespace bfo::softhca

using namespace bfo::softhca;

SOFTHCA_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) {
  Pd* pd = new_pd(context);
  return pd == nullptr ? nullptr : &pd->base;
}

SOFTHCA_EXPORT int ibv_dealloc_pd(ibv_pd* base) {
  if (int why = verb_fault(ControlVerb::kDeallocPd, base->context)) return why;
  Pd* pd = of(base);
  if (pd->refs.load() != 0) return EBUSY;
  if (pd->parent != nullptr) pd->parent->refs.fetch_sub(1);
  object_destroyed(base->context, ObjectKind::kPd);
  std::free(pd);
  return 0;
}

SOFTHCA_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length, int access) {
  return register_region(pd, address, length, reinterpret_cast<uint64_t>(address),
                         static_cast<unsigned>(access));
}

SOFTHCA_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, size_t length, uint64_t iova, int access) {
  return register_region(pd, address, length, iova, static_cast<unsigned>(access));
}

SOFTHCA_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t iova,
                                        unsigned access) {
  return register_region(pd, address, length, iova, access);
}

SOFTHCA_EXPORT int ibv_dereg_mr(ibv_mr* base) {
  if (int why = verb_fault(ControlVerb::kDeregMr, base->context, of_size(base->length))) return why;
  Mr* mr = of(base);
  invalidate(*mr->entry);
  forget_pages(mr->entry->pages);
  free_mr(fabric(), *mr->entry);
  unpin(fabric(), mr->pinned);
  object_destroyed(base->context, ObjectKind::kMr);
  of(base->pd)->refs.fetch_sub(1);
  std::free(mr);
  return 0;
}

SOFTHCA_EXPORT int ibv_rereg_mr(ibv_mr* base, int flags, ibv_pd* pd, void* address, size_t length,
                                int access) {
  constexpr int kKnown =
      IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  if (verb_fails(ControlVerb::kReregMr, base->context, of_size(length))) return IBV_REREG_MR_ERR_CMD;
  Mr* mr = of(base);
  bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  uint64_t start = reinterpret_cast<uint64_t>(address);
  if ((flags & ~kKnown) != 0 || flags == 0 || ((flags & IBV_REREG_MR_CHANGE_PD) != 0 && pd == nullptr) ||
      ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 && !access_is_valid(static_cast<unsigned>(access))) ||
      (moves && (length == 0 || start + length < start))) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  if (moves && !is_mapped(start, length)) {
    errno = EFAULT;
    return IBV_REREG_MR_ERR_CMD;
  }
  uint64_t pinned = 0;
  if (moves && !pin(fabric(), start, length, pinned)) {
    errno = ENOMEM;
    return IBV_REREG_MR_ERR_CMD;
  }
  MrEntry& entry = *mr->entry;
  invalidate(entry);
  if (moves) {
    unpin(fabric(), mr->pinned);
    mr->pinned = pinned;
    entry.addr = entry.iova = start;
    entry.length = length;
    forget_pages(entry.pages);
    entry.pages = record_if_strict(start, length, entry.access);
    base->addr = address;
    base->length = length;
  }
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) {
    of(base->pd)->refs.fetch_sub(1);
    of(pd)->refs.fetch_add(1);
    entry.pd = real_pd(pd)->number;
    base->pd = pd;
  }
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) entry.access = static_cast<uint32_t>(access);
  // The key survives a change of rights alone, as on real devices.
  if (flags != IBV_REREG_MR_CHANGE_ACCESS) ++entry.generation;
  uint32_t key = key_of(fabric(), entry);
  base->lkey = base->rkey = key;
  entry.key.store(key, std::memory_order_release);
  return 0;
}
