// SPDX-License-Identifier: BSD-3-Clause
//
// The extended queue pair: wr_start, the wr_* builders, wr_complete. Requests are collected and posted as one
// list, all or none.
#include <cerrno>
#include <cstring>

#include "contrib/softhca/abi/objects.h"
#include "contrib/softhca/engine/qp.h"

namespace bfo::softhca {
namespace {

void wr_start(ibv_qp_ex* base) {
  Qp* qp = of(base);
  qp->building.lock();
  qp->batch.clear();
  qp->batch_sges.clear();
  qp->batch_inline.clear();
  qp->batch_error = 0;
}

ibv_send_wr& begin(ibv_qp_ex* base, ibv_wr_opcode opcode) {
  Qp* qp = of(base);
  ibv_send_wr& request = qp->batch.emplace_back();
  qp->batch_sges.emplace_back();
  qp->batch_inline.emplace_back();
  request.wr_id = base->wr_id;
  request.opcode = opcode;
  request.send_flags = base->wr_flags;
  return request;
}

void remote(ibv_send_wr& request, uint32_t rkey, uint64_t address) {
  request.wr.rdma.rkey = rkey;
  request.wr.rdma.remote_addr = address;
}

void wr_send(ibv_qp_ex* qp) {
  begin(qp, IBV_WR_SEND);
}
void wr_send_imm(ibv_qp_ex* qp, __be32 imm) {
  begin(qp, IBV_WR_SEND_WITH_IMM).imm_data = imm;
}
void wr_send_inv(ibv_qp_ex* qp, uint32_t rkey) {
  begin(qp, IBV_WR_SEND_WITH_INV).invalidate_rkey = rkey;
}
void wr_rdma_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  remote(begin(qp, IBV_WR_RDMA_WRITE), rkey, address);
}
void wr_rdma_write_imm(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, __be32 imm) {
  ibv_send_wr& request = begin(qp, IBV_WR_RDMA_WRITE_WITH_IMM);
  remote(request, rkey, address);
  request.imm_data = imm;
}
void wr_rdma_read(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  remote(begin(qp, IBV_WR_RDMA_READ), rkey, address);
}
void wr_atomic_cmp_swp(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t compare, uint64_t swap) {
  ibv_send_wr& request = begin(qp, IBV_WR_ATOMIC_CMP_AND_SWP);
  request.wr.atomic.remote_addr = address;
  request.wr.atomic.rkey = rkey;
  request.wr.atomic.compare_add = compare;
  request.wr.atomic.swap = swap;
}
void wr_atomic_fetch_add(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t add) {
  ibv_send_wr& request = begin(qp, IBV_WR_ATOMIC_FETCH_AND_ADD);
  request.wr.atomic.remote_addr = address;
  request.wr.atomic.rkey = rkey;
  request.wr.atomic.compare_add = add;
}
void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* info) {
  ibv_send_wr& request = begin(qp, IBV_WR_BIND_MW);
  request.bind_mw.mw = mw;
  request.bind_mw.rkey = rkey;
  request.bind_mw.bind_info = *info;
}
void wr_local_inv(ibv_qp_ex* qp, uint32_t rkey) {
  begin(qp, IBV_WR_LOCAL_INV).invalidate_rkey = rkey;
}

void wr_set_ud_addr(ibv_qp_ex* base, ibv_ah* ah, uint32_t qpn, uint32_t qkey) {
  ibv_send_wr& request = of(base)->batch.back();
  request.wr.ud.ah = ah;
  request.wr.ud.remote_qpn = qpn;
  request.wr.ud.remote_qkey = qkey;
}

void wr_set_sge_list(ibv_qp_ex* base, size_t count, const ibv_sge* list) {
  Qp* qp = of(base);
  if (count > qp->entry->max_send_sge) qp->batch_error = EINVAL;
  qp->batch_sges.back().assign(list, list + count);
}

void wr_set_sge(ibv_qp_ex* base, uint32_t lkey, uint64_t address, uint32_t length) {
  ibv_sge sge{address, length, lkey};
  wr_set_sge_list(base, 1, &sge);
}

void append_inline(Qp& qp, const void* address, size_t length) {
  std::vector<uint8_t>& data = qp.batch_inline.back();
  const uint8_t* from = static_cast<const uint8_t*>(address);
  data.insert(data.end(), from, from + length);
  if (data.size() > qp.entry->max_inline) qp.batch_error = EINVAL;
  qp.batch.back().send_flags |= IBV_SEND_INLINE;
}

void wr_set_inline_data(ibv_qp_ex* base, void* address, size_t length) {
  append_inline(*of(base), address, length);
}

void wr_set_inline_data_list(ibv_qp_ex* base, size_t count, const ibv_data_buf* list) {
  for (size_t i = 0; i < count; ++i) append_inline(*of(base), list[i].addr, list[i].length);
}

int wr_complete(ibv_qp_ex* base) {
  Qp* qp = of(base);
  int result = qp->batch_error;
  QpEntry& entry = *qp->entry;
  size_t count = qp->batch.size();
  if (result == 0 && entry.state.load() < IBV_QPS_RTS) result = EINVAL;
  if (result == 0 && entry.sq_tail - entry.sq_freed.load() + count > entry.max_send_wr) result = ENOMEM;
  if (result == 0 && count > 0) {
    for (size_t i = 0; i < count; ++i) {
      ibv_send_wr& request = qp->batch[i];
      std::vector<ibv_sge>& sges = qp->batch_sges[i];
      if (!qp->batch_inline[i].empty()) {
        sges.assign(1, {reinterpret_cast<uint64_t>(qp->batch_inline[i].data()),
                        static_cast<uint32_t>(qp->batch_inline[i].size()), 0});
      }
      request.sg_list = sges.data();
      request.num_sge = static_cast<int>(sges.size());
      request.next = i + 1 < count ? &qp->batch[i + 1] : nullptr;
    }
    ibv_send_wr* bad = nullptr;
    result = op_post_send(&base->qp_base, qp->batch.data(), &bad);
  }
  qp->building.unlock();
  return result;
}

void wr_abort(ibv_qp_ex* base) {
  of(base)->building.unlock();
}

}  // namespace

void set_qp_ex_functions(Qp& qp, uint64_t send_ops) {
  qp.send_ops = send_ops | uint64_t{1} << 63;  // not zero even when no operation was asked for
  ibv_qp_ex& base = qp.base;
  base.wr_start = wr_start;
  base.wr_complete = wr_complete;
  base.wr_abort = wr_abort;
  if (qp.entry->type == IBV_QPT_UD) base.wr_set_ud_addr = wr_set_ud_addr;
  base.wr_set_sge = wr_set_sge;
  base.wr_set_sge_list = wr_set_sge_list;
  base.wr_set_inline_data = wr_set_inline_data;
  base.wr_set_inline_data_list = wr_set_inline_data_list;
  if (send_ops & IBV_QP_EX_WITH_SEND) base.wr_send = wr_send;
  if (send_ops & IBV_QP_EX_WITH_SEND_WITH_IMM) base.wr_send_imm = wr_send_imm;
  if (send_ops & IBV_QP_EX_WITH_SEND_WITH_INV) base.wr_send_inv = wr_send_inv;
  if (send_ops & IBV_QP_EX_WITH_RDMA_WRITE) base.wr_rdma_write = wr_rdma_write;
  if (send_ops & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM) base.wr_rdma_write_imm = wr_rdma_write_imm;
  if (send_ops & IBV_QP_EX_WITH_RDMA_READ) base.wr_rdma_read = wr_rdma_read;
  if (send_ops & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP) base.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
  if (send_ops & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD) base.wr_atomic_fetch_add = wr_atomic_fetch_add;
  if (send_ops & IBV_QP_EX_WITH_BIND_MW) base.wr_bind_mw = wr_bind_mw;
  if (send_ops & IBV_QP_EX_WITH_LOCAL_INV) base.wr_local_inv = wr_local_inv;
}

}  // namespace bfo::softhca
