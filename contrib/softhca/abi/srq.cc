// SPDX-License-Identifier: BSD-3-Clause
//
// Shared receive queues.
#include <cerrno>
#include <new>

#include "contrib/softhca/abi/verb_faults.h"
#include "contrib/softhca/abi/objects.h"
#include "contrib/softhca/engine/receive.h"
#include "contrib/softhca/fabric/tables.h"

namespace bfo::softhca {

static ibv_srq* new_srq(ibv_context* context, ibv_pd* pd, void* user, ibv_srq_attr& attr) {
  if (verb_fails(ControlVerb::kCreateSrq, context)) return nullptr;
  if (attr.max_wr == 0 || attr.max_wr > kMaxQpWr || attr.max_sge > kMaxSge) {
    errno = EINVAL;
    return nullptr;
  }
  uint32_t sges = attr.max_sge == 0 ? 1 : attr.max_sge;
  Reservation reserved(context, ObjectKind::kSrq);
  if (!reserved.taken()) return nullptr;
  SrqEntry* entry = allocate_srq(fabric(), attr.max_wr, sges);
  Srq* srq = entry == nullptr ? nullptr : new (std::nothrow) Srq();
  if (srq == nullptr) {
    if (entry != nullptr) free_srq(fabric(), *entry);
    errno = ENOMEM;
    return nullptr;
  }
  srq->entry = entry;
  srq->context = of(context);
  srq->base.context = context;
  srq->base.srq_context = user;
  srq->base.pd = pd;
  srq->base.handle = index_of(fabric(), *entry);
  pthread_mutex_init(&srq->base.mutex, nullptr);
  pthread_cond_init(&srq->base.cond, nullptr);
  entry->context = index_of(fabric(), *srq->context->entry);
  entry->pd = real_pd(pd)->number;
  attr.max_sge = sges;
  of(pd)->refs.fetch_add(1);
  Process::instance().add(*srq);
  reserved.keep();
  return &srq->base;
}

ibv_srq* op_create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) {
  constexpr uint32_t kKnown = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  bool basic = (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0 || attr->srq_type == IBV_SRQT_BASIC;
  if ((attr->comp_mask & ~kKnown) != 0 || !basic || (attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  return new_srq(context, attr->pd, attr->srq_context, attr->attr);
}

int op_post_srq_recv(ibv_srq* srq, ibv_recv_wr* list, ibv_recv_wr** bad) {
  return post_srq_recv(fabric(), *of(srq)->entry, list, bad);
}

}  // namespace bfo::softhca

using namespace bfo::softhca;

SOFTHCA_EXPORT ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  return new_srq(pd->context, pd, attr->srq_context, attr->attr);
}

SOFTHCA_EXPORT int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  if (int why = verb_fault(ControlVerb::kModifySrq, srq->context)) return why;
  SrqEntry& entry = *of(srq)->entry;
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;
  if ((mask & IBV_SRQ_MAX_WR) != 0) {
    // The ring may be used up to its allocated size; growing beyond needs a new queue.
    if (attr->max_wr == 0 || attr->max_wr > entry.mask + 1) return EINVAL;
    if (entry.tail.load() - entry.head.load() > attr->max_wr) return EINVAL;
    entry.max_wr = attr->max_wr;
  }
  if ((mask & IBV_SRQ_LIMIT) != 0) {
    if (attr->srq_limit > entry.max_wr) return EINVAL;
    entry.limit.store(attr->srq_limit);
  }
  return 0;
}

SOFTHCA_EXPORT int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  if (int why = verb_fault(ControlVerb::kQuerySrq, srq->context)) return why;
  SrqEntry& entry = *of(srq)->entry;
  attr->max_wr = entry.max_wr;
  attr->max_sge = entry.max_sge;
  attr->srq_limit = entry.limit.load();
  return 0;
}

SOFTHCA_EXPORT int ibv_destroy_srq(ibv_srq* base) {
  if (int why = verb_fault(ControlVerb::kDestroySrq, base->context)) return why;
  Srq* srq = of(base);
  if (srq->refs.load() != 0) return EBUSY;
  Process::instance().remove(*srq);
  pthread_mutex_lock(&base->mutex);
  while (base->events_completed != srq->async_delivered) pthread_cond_wait(&base->cond, &base->mutex);
  pthread_mutex_unlock(&base->mutex);
  of(base->pd)->refs.fetch_sub(1);
  free_srq(fabric(), *srq->entry);
  object_destroyed(base->context, ObjectKind::kSrq);
  delete srq;
  return 0;
}
