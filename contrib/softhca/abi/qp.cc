// SPDX-License-Identifier: BSD-3-Clause
//
// Queue pairs: creating, changing, destroying, posting.
#include "contrib/softhca/engine/qp.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <new>

#include "contrib/softhca/abi/verb_faults.h"
#include "contrib/softhca/abi/objects.h"
#include "contrib/softhca/engine/receive.h"
#include "contrib/softhca/fabric/gids.h"
#include "contrib/softhca/fabric/tables.h"

namespace bfo::softhca {
namespace {

bool caps_are_valid(const ibv_qp_cap& cap, bool has_srq) {
  if (cap.max_send_wr > kMaxQpWr || cap.max_send_sge > kMaxSge || cap.max_inline_data > kMaxInline)
    return false;
  return has_srq || (cap.max_recv_wr <= kMaxQpWr && cap.max_recv_sge <= kMaxSge);
}

uint32_t at_least_one(uint32_t value) {
  return value == 0 ? 1 : value;
}

/// The queue pair in the fabric, in RESET; nullptr with errno.
QpEntry* new_entry(Context& context, ibv_pd* pd, const ibv_qp_init_attr_ex& attr) {
  QpEntry* entry = allocate_qp(fabric());
  if (entry == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  const ibv_qp_cap& cap = attr.cap;
  bool has_srq = attr.srq != nullptr;
  entry->type = static_cast<uint8_t>(attr.qp_type);
  entry->sig_all = attr.sq_sig_all != 0;
  entry->node = static_cast<uint8_t>(fabric().node());
  entry->device = static_cast<uint8_t>(context.device);
  entry->port_index = port_index(fabric().node(), context.device, 1);
  entry->context = index_of(fabric(), *context.entry);
  entry->pd = real_pd(pd)->number;
  entry->send_cq = index_of(fabric(), *of(attr.send_cq)->entry);
  entry->recv_cq = index_of(fabric(), *of(attr.recv_cq)->entry);
  entry->srq = has_srq ? index_of(fabric(), *of(attr.srq)->entry) : kNone;
  entry->mtu = 4096;
  entry->max_send_wr = at_least_one(cap.max_send_wr);
  entry->max_send_sge = at_least_one(cap.max_send_sge);
  entry->max_recv_wr = has_srq ? 0 : at_least_one(cap.max_recv_wr);
  entry->max_recv_sge = has_srq ? 0 : at_least_one(cap.max_recv_sge);
  entry->sq_stride = send_stride(entry->max_send_sge, cap.max_inline_data);
  entry->max_inline = entry->sq_stride - static_cast<uint32_t>(offsetof(Wqe, sge));
  if (entry->max_inline > kMaxInline) entry->max_inline = kMaxInline;
  entry->sq_mask = std::bit_ceil(entry->max_send_wr) - 1;
  entry->sq_ring = fabric().allocate(uint64_t{entry->sq_mask + 1} * entry->sq_stride);
  if (!has_srq) {
    entry->rq_stride = recv_stride(entry->max_recv_sge);
    entry->rq_mask = std::bit_ceil(entry->max_recv_wr) - 1;
    entry->rq_ring = fabric().allocate(uint64_t{entry->rq_mask + 1} * entry->rq_stride);
  }
  if (entry->sq_ring == 0 || (!has_srq && entry->rq_ring == 0)) {
    free_qp(fabric(), *entry);
    errno = ENOMEM;
    return nullptr;
  }
  return entry;
}

Qp* new_qp(ibv_context* context, ibv_pd* pd, ibv_qp_init_attr_ex& attr) {
  if (verb_fails(ControlVerb::kCreateQp, context, of_type(attr.qp_type))) return nullptr;
  bool known = attr.qp_type == IBV_QPT_RC || attr.qp_type == IBV_QPT_UC || attr.qp_type == IBV_QPT_UD;
  if (!known || pd == nullptr || attr.send_cq == nullptr || attr.recv_cq == nullptr ||
      !caps_are_valid(attr.cap, attr.srq != nullptr)) {
    errno = known ? EINVAL : EOPNOTSUPP;
    return nullptr;
  }
  if (is_dead(*of(context))) {
    errno = EIO;
    return nullptr;
  }
  Reservation reserved(context, ObjectKind::kQp);
  if (!reserved.taken()) return nullptr;
  QpEntry* entry = new_entry(*of(context), pd, attr);
  if (entry == nullptr) return nullptr;
  Qp* qp = new (std::nothrow) Qp();
  if (qp == nullptr) {
    free_qp(fabric(), *entry);
    errno = ENOMEM;
    return nullptr;
  }
  qp->entry = entry;
  qp->context = of(context);
  ibv_qp& base = *qp->basic();
  base.context = context;
  base.qp_context = attr.qp_context;
  base.pd = pd;
  base.send_cq = attr.send_cq;
  base.recv_cq = attr.recv_cq;
  base.srq = attr.srq;
  base.handle = index_of(fabric(), *entry);
  base.qp_num = entry->qpn.load();
  base.state = IBV_QPS_RESET;
  base.qp_type = attr.qp_type;
  pthread_mutex_init(&base.mutex, nullptr);
  pthread_cond_init(&base.cond, nullptr);
  of(pd)->refs.fetch_add(1);
  of(attr.send_cq)->refs.fetch_add(1);
  of(attr.recv_cq)->refs.fetch_add(1);
  if (attr.srq != nullptr) of(attr.srq)->refs.fetch_add(1);
  attr.cap.max_send_wr = entry->max_send_wr;
  attr.cap.max_recv_wr = entry->max_recv_wr;
  attr.cap.max_send_sge = entry->max_send_sge;
  attr.cap.max_recv_sge = entry->max_recv_sge;
  attr.cap.max_inline_data = entry->max_inline;
  Process::instance().add(*qp);
  reserved.keep();
  return qp;
}

/// The call that is to change `qp`, for the fault rules.
VerbCall modifying(Qp& qp, const ibv_qp_attr& attr, int mask) {
  VerbCall call = of_qp(qp.basic());
  if (qp.entry->attr.port_num != 0) call.port = qp.entry->attr.port_num;
  if ((mask & IBV_QP_PORT) != 0) call.port = attr.port_num;
  // The number comes from the application and need not be a state.
  const auto state = static_cast<uint32_t>(attr.qp_state);
  if ((mask & IBV_QP_STATE) != 0 && state < 8) call.state_mask = static_cast<uint8_t>(1u << state);
  if ((mask & IBV_QP_AV) != 0)
    aim(call, qp.basic()->context, call.port, address_of(qp.basic()->context, attr.ah_attr));
  return call;
}

}  // namespace

ibv_qp* op_create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  constexpr uint32_t kKnownMask =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  constexpr uint64_t kRcOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                              IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                              IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                              IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
                              IBV_QP_EX_WITH_SEND_WITH_INV;
  constexpr uint64_t kUcOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                              IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV |
                              IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;
  constexpr uint64_t kUdOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  bool create_flags = (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attr->create_flags != 0;
  bool has_ops = (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  uint64_t ops = attr->qp_type == IBV_QPT_RC ? kRcOps : attr->qp_type == IBV_QPT_UC ? kUcOps : kUdOps;
  if ((attr->comp_mask & ~kKnownMask) != 0 || create_flags ||
      (has_ops && (attr->send_ops_flags & ~ops) != 0)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0) {
    errno = EINVAL;
    return nullptr;
  }
  Qp* qp = new_qp(context, attr->pd, *attr);
  if (qp == nullptr) return nullptr;
  if (has_ops) set_qp_ex_functions(*qp, attr->send_ops_flags);
  return qp->basic();
}

bool resolve_ud(const ibv_send_wr& request, Destination& destination) {
  if (request.wr.ud.ah == nullptr) return false;
  destination.qpn = request.wr.ud.remote_qpn;
  destination.qkey = request.wr.ud.remote_qkey;
  destination.av = of(request.wr.ud.ah)->av;
  return true;
}

int op_post_send(ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad) {
  Process& process = Process::instance();
  int result = post_send(process.fabric(), *of(qp)->entry, list, bad, resolve_ud);
  process.kick();
  return result;
}

int op_post_recv(ibv_qp* qp, ibv_recv_wr* list, ibv_recv_wr** bad) {
  return post_recv(fabric(), *of(qp)->entry, list, bad);
}

}  // namespace bfo::softhca

using namespace bfo::softhca;

SOFTHCA_EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  ibv_qp_init_attr_ex extended{};
  extended.qp_context = attr->qp_context;
  extended.send_cq = attr->send_cq;
  extended.recv_cq = attr->recv_cq;
  extended.srq = attr->srq;
  extended.cap = attr->cap;
  extended.qp_type = attr->qp_type;
  extended.sq_sig_all = attr->sq_sig_all;
  Qp* qp = new_qp(pd->context, pd, extended);
  if (qp == nullptr) return nullptr;
  attr->cap = extended.cap;
  return qp->basic();
}

SOFTHCA_EXPORT ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  return of(qp)->send_ops != 0 ? &of(qp)->base : nullptr;
}

SOFTHCA_EXPORT int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  if (verb_faults_armed()) {
    if (int why = verb_fault(ControlVerb::kModifyQp, qp->context, modifying(*of(qp), *attr, mask)))
      return why;
  }
  ibv_qp_attr known = *attr;
  if ((mask & IBV_QP_AV) != 0 && is_ethernet(fabric().header())) {
    if (int why = address_fault(qp->context, attr->ah_attr)) return why;
    known.ah_attr.dlid = address_of(qp->context, attr->ah_attr).dlid;
  }
  int result = modify_qp(fabric(), *of(qp)->entry, known, mask);
  if (result == 0 && (mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
  Process::instance().kick();
  return result;
}

SOFTHCA_EXPORT int ibv_query_qp(ibv_qp* base, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  if (int why = verb_fault(ControlVerb::kQueryQp, base->context, of_qp(base))) return why;
  query_qp(fabric(), *of(base)->entry, *attr);
  base->state = attr->qp_state;
  std::memset(init, 0, sizeof(*init));
  init->qp_context = base->qp_context;
  init->send_cq = base->send_cq;
  init->recv_cq = base->recv_cq;
  init->srq = base->srq;
  init->cap = attr->cap;
  init->qp_type = base->qp_type;
  init->sq_sig_all = of(base)->entry->sig_all;
  return 0;
}

SOFTHCA_EXPORT int ibv_destroy_qp(ibv_qp* base) {
  if (int why = verb_fault(ControlVerb::kDestroyQp, base->context, of_qp(base))) return why;
  Qp* qp = of(base);
  Process::instance().remove(*qp);
  destroy_qp(fabric(), *qp->entry);
  pthread_mutex_lock(&base->mutex);
  while (base->events_completed != qp->async_delivered) pthread_cond_wait(&base->cond, &base->mutex);
  pthread_mutex_unlock(&base->mutex);
  of(base->pd)->refs.fetch_sub(1);
  of(base->send_cq)->refs.fetch_sub(1);
  of(base->recv_cq)->refs.fetch_sub(1);
  if (base->srq != nullptr) of(base->srq)->refs.fetch_sub(1);
  object_destroyed(base->context, ObjectKind::kQp);
  delete qp;
  return 0;
}

SOFTHCA_EXPORT int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode op, uint32_t flags) {
  return 0;
}

SOFTHCA_EXPORT int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  return ece->vendor_id == 0 ? 0 : EOPNOTSUPP;
}

SOFTHCA_EXPORT int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  std::memset(ece, 0, sizeof(*ece));
  return 0;
}
