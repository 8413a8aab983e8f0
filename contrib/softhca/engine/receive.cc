// SPDX-License-Identifier: BSD-3-Clause
//
// Receive queues: posting to RQ and SRQ by the owner, taking by whoever delivers a message.
#include "contrib/softhca/engine/receive.h"

#include <cerrno>
#include <cstring>

#include "contrib/softhca/engine/async.h"
#include "contrib/softhca/engine/qp.h"

namespace bfo::softhca {
namespace {

RecvWqe& recv_at(Fabric& fabric, uint64_t ring, uint32_t stride, uint32_t mask, uint32_t index) {
  return *fabric.at<RecvWqe>(ring + uint64_t{index & mask} * stride);
}

void fill(RecvWqe& wqe, const ibv_recv_wr& request) {
  wqe.wr_id = request.wr_id;
  wqe.num_sge = static_cast<uint32_t>(request.num_sge);
  for (int i = 0; i < request.num_sge; ++i) {
    wqe.sge[i] = {request.sg_list[i].addr, request.sg_list[i].length, request.sg_list[i].lkey};
  }
}

void take_from(QpEntry& qp, const RecvWqe& wqe) {
  TakenRecv& taken = qp.taken;
  taken.wr_id = wqe.wr_id;
  taken.num_sge = wqe.num_sge;
  for (uint32_t i = 0; i < wqe.num_sge && i < kMaxSge; ++i) taken.sge[i] = wqe.sge[i];
  // Valid before the queue moves on: a taker that dies here leaves a request that is flushed, not lost.
  taken.valid.store(1, std::memory_order_release);
}

}  // namespace

int post_recv(Fabric& fabric, QpEntry& qp, ibv_recv_wr* list, ibv_recv_wr** bad) {
  int result = 0;
  {
    Guard guard(qp.post_lock, fabric.tag(), fabric);
    if (qp.srq != kNone || qp.state.load(std::memory_order_relaxed) == IBV_QPS_RESET) {
      *bad = list;
      return EINVAL;
    }
    uint32_t tail = qp.rq_tail.load(std::memory_order_relaxed);
    for (; list != nullptr; list = list->next) {
      if (list->num_sge < 0 || static_cast<uint32_t>(list->num_sge) > qp.max_recv_sge) {
        result = EINVAL;
      } else if (tail - qp.rq_head.load(std::memory_order_acquire) >= qp.max_recv_wr) {
        result = ENOMEM;
      }
      if (result != 0) {
        *bad = list;
        break;
      }
      fill(recv_at(fabric, qp.rq_ring, qp.rq_stride, qp.rq_mask, tail), *list);
      qp.rq_tail.store(++tail, std::memory_order_release);
    }
  }
  // Whoever moves the queue pair to ERR sets the state before it looks at the tail, we the other way round.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (qp.state.load(std::memory_order_relaxed) == IBV_QPS_ERR) [[unlikely]] {
    DeferredActions deferred(fabric);
    flush_receives(fabric, qp, deferred);
  }
  return result;
}

int post_srq_recv(Fabric& fabric, SrqEntry& srq, ibv_recv_wr* list, ibv_recv_wr** bad) {
  Guard guard(srq.post_lock, fabric.tag(), fabric);
  if (srq.error.load() != 0) {
    *bad = list;
    return EINVAL;
  }
  uint32_t tail = srq.tail.load(std::memory_order_relaxed);
  for (; list != nullptr; list = list->next) {
    int result = 0;
    if (list->num_sge < 0 || static_cast<uint32_t>(list->num_sge) > srq.max_sge) {
      result = EINVAL;
    } else if (tail - srq.head.load(std::memory_order_acquire) >= srq.max_wr) {
      result = ENOMEM;
    }
    if (result != 0) {
      *bad = list;
      return result;
    }
    fill(recv_at(fabric, srq.ring, srq.stride, srq.mask, tail), *list);
    srq.tail.store(++tail, std::memory_order_release);
  }
  return 0;
}

bool take_recv(Fabric& fabric, QpEntry& qp, DeferredActions& deferred) {
  if (qp.taken.valid.load(std::memory_order_relaxed) != 0) return true;
  if (qp.srq == kNone) {
    uint32_t head = qp.rq_head.load(std::memory_order_relaxed);
    if (head == qp.rq_tail.load(std::memory_order_acquire)) return false;
    take_from(qp, recv_at(fabric, qp.rq_ring, qp.rq_stride, qp.rq_mask, head));
    qp.rq_head.store(head + 1, std::memory_order_release);
    return true;
  }
  SrqEntry& srq = fabric.header().srqs[qp.srq];
  Guard guard(srq.take_lock, fabric.tag(), fabric);
  uint32_t head = srq.head.load(std::memory_order_relaxed);
  uint32_t tail = srq.tail.load(std::memory_order_acquire);
  if (head == tail || srq.error.load() != 0) return false;
  take_from(qp, recv_at(fabric, srq.ring, srq.stride, srq.mask, head));
  srq.head.store(head + 1, std::memory_order_release);
  uint32_t limit = srq.limit.load(std::memory_order_relaxed);
  if (limit != 0 && tail - head - 1 < limit && srq.limit.exchange(0) != 0) [[unlikely]] {
    raise_srq_event(fabric, srq, IBV_EVENT_SRQ_LIMIT_REACHED, deferred);
  }
  return true;
}

}  // namespace bfo::softhca
