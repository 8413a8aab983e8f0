// SPDX-License-Identifier: BSD-3-Clause
//
// The requester: the send queue of a queue pair, from posting to completion.
#include "contrib/softhca/engine/requester.h"

#include <cerrno>
#include <cstring>

#include "contrib/softhca/engine/async.h"
#include "contrib/softhca/engine/psn.h"
#include "contrib/softhca/engine/qp.h"
#include "contrib/softhca/engine/window.h"
#include "contrib/softhca/engine/wire.h"

namespace bfo::softhca {
namespace {

constexpr uint32_t kUdMtu = 4096;

struct OpInfo {
  uint8_t opcode;
  uint8_t wc_opcode;
  bool rc, uc, ud;
};

/// Indexed by ibv_wr_opcode.
constexpr OpInfo kOps[] = {
    {static_cast<uint8_t>(Opcode::kWrite), IBV_WC_RDMA_WRITE, true, true, false},
    {static_cast<uint8_t>(Opcode::kWriteImm), IBV_WC_RDMA_WRITE, true, true, false},
    {static_cast<uint8_t>(Opcode::kSend), IBV_WC_SEND, true, true, true},
    {static_cast<uint8_t>(Opcode::kSendImm), IBV_WC_SEND, true, true, true},
    {static_cast<uint8_t>(Opcode::kRead), IBV_WC_RDMA_READ, true, false, false},
    {static_cast<uint8_t>(Opcode::kCmpSwap), IBV_WC_COMP_SWAP, true, false, false},
    {static_cast<uint8_t>(Opcode::kFetchAdd), IBV_WC_FETCH_ADD, true, false, false},
    {kOpLocalInv, IBV_WC_LOCAL_INV, true, true, false},
    {kOpBindMw, IBV_WC_BIND_MW, true, true, false},
    {static_cast<uint8_t>(Opcode::kSendInv), IBV_WC_SEND, true, true, false},
};

bool uses_read_resource(const Wqe& wqe) {
  return wqe.opcode == static_cast<uint8_t>(Opcode::kRead) ||
         wqe.opcode == static_cast<uint8_t>(Opcode::kCmpSwap) ||
         wqe.opcode == static_cast<uint8_t>(Opcode::kFetchAdd);
}

bool is_local(const Wqe& wqe) {
  return wqe.opcode >= kOpBindMw;
}

/// Turns one ibv_send_wr into the request at `wqe`. 0 or an errno.
int fill(QpEntry& qp, Wqe& wqe, const ibv_send_wr& request, Resolve resolve) {
  if (static_cast<unsigned>(request.opcode) >= sizeof(kOps) / sizeof(kOps[0])) return EINVAL;
  const OpInfo& op = kOps[request.opcode];
  if (qp.type == IBV_QPT_RC ? !op.rc : qp.type == IBV_QPT_UC ? !op.uc : !op.ud) return EINVAL;
  if (request.num_sge < 0 || static_cast<uint32_t>(request.num_sge) > qp.max_send_sge) return EINVAL;
  // Every field is written: the slot holds an older request.
  wqe.wr_id = request.wr_id;
  wqe.opcode = op.opcode;
  wqe.wc_opcode = op.wc_opcode;
  wqe.flags = static_cast<uint8_t>(request.send_flags | (qp.sig_all != 0 ? IBV_SEND_SIGNALED : 0));
  wqe.num_sge = static_cast<uint8_t>(request.num_sge);
  wqe.imm = request.imm_data;
  wqe.stage = WqeStage::kPosted;
  wqe.attempt = wqe.answer = wqe.note = 0;
  wqe.held = 0;
  wqe.has_grh = 0;
  wqe.sl = qp.attr.av.sl;
  uint64_t length = 0;
  for (int i = 0; i < request.num_sge; ++i) length += request.sg_list[i].length;
  if ((request.send_flags & IBV_SEND_INLINE) != 0) {
    if (length > qp.max_inline || uses_read_resource(wqe)) return EINVAL;
    uint8_t* out = reinterpret_cast<uint8_t*>(wqe.sge);
    for (int i = 0; i < request.num_sge; ++i) {
      if (request.sg_list[i].length == 0) continue;
      std::memcpy(out, reinterpret_cast<const void*>(request.sg_list[i].addr), request.sg_list[i].length);
      out += request.sg_list[i].length;
    }
  } else {
    for (int i = 0; i < request.num_sge; ++i) {
      wqe.sge[i] = {request.sg_list[i].addr, request.sg_list[i].length, request.sg_list[i].lkey};
    }
  }
  wqe.length = length > kMaxMessage ? kMaxMessage + 1 : static_cast<uint32_t>(length);
  if (qp.type == IBV_QPT_UD) {
    Destination to;
    if (resolve == nullptr || !resolve(request, to)) return EINVAL;
    wqe.dst_qpn = to.qpn & kPsnMask;
    wqe.qkey = to.qkey;
    wqe.dlid = to.av.dlid;
    wqe.sl = to.av.sl;
    wqe.src_path_bits = to.av.src_path_bits;
    wqe.has_grh = to.av.is_global;
    wqe.sgid_index = to.av.sgid_index;
    wqe.hop_class = static_cast<uint32_t>(to.av.hop_limit) << 8 | to.av.traffic_class;
    std::memcpy(wqe.dgid, to.av.dgid, sizeof(wqe.dgid));
    return 0;
  }
  if (op.opcode == static_cast<uint8_t>(Opcode::kCmpSwap) ||
      op.opcode == static_cast<uint8_t>(Opcode::kFetchAdd)) {
    wqe.remote_addr = request.wr.atomic.remote_addr;
    wqe.rkey = request.wr.atomic.rkey;
    wqe.compare_add = request.wr.atomic.compare_add;
    wqe.swap = request.wr.atomic.swap;
    wqe.length = 8;
  } else if (op.opcode == kOpBindMw) {
    return fill_bind(wqe, request);
  } else {
    wqe.remote_addr = request.wr.rdma.remote_addr;
    wqe.rkey = request.wr.rdma.rkey;
  }
  return 0;
}

/// May the request at the transmit cursor go out now?
bool may_transmit(Fabric& fabric, QpEntry& qp, const Wqe& wqe) {
  if (qp.hold_until != 0) {
    if (fabric.now() < qp.hold_until) return false;
    qp.hold_until = 0;
  }
  if ((wqe.flags & IBV_SEND_FENCE) != 0 && qp.rd_outstanding != 0) return false;
  // With an initiator depth of 0 it goes out, to fail.
  uint32_t depth = qp.attr.max_rd_atomic;
  return !uses_read_resource(wqe) || depth == 0 || qp.rd_outstanding < depth;
}

/// The request at sq_done has succeeded.
void retire(Fabric& fabric, QpEntry& qp, Wqe& wqe, DeferredActions& deferred) {
  if (uses_read_resource(wqe) && qp.rd_outstanding > 0) --qp.rd_outstanding;
  complete_send(fabric, qp, qp.sq_done, IBV_WC_SUCCESS, deferred);
  ++qp.sq_done;
  qp.retries_left = qp.attr.retry_cnt;
  qp.rnr_left = qp.attr.rnr_retry;
  qp.deadline = kNever;
}

/// Does a later answer that has arrived acknowledge the executed request at sq_done too?
bool covered_by_later(QpEntry& qp, Fabric& fabric, uint64_t now) {
  for (uint32_t i = qp.sq_done + 1; i != qp.sq_arrived; ++i) {
    const Wqe& next = wqe_at(fabric, qp, i);
    if (next.stage == WqeStage::kAnswered && next.complete_at <= now) return true;
    if (next.stage == WqeStage::kRefused && next.complete_at <= now && next.answer < kAnswerLocalFault &&
        next.answer != static_cast<uint8_t>(AckSyndrome::kSeqErr))
      return true;
    if (next.stage == WqeStage::kLost || next.stage == WqeStage::kUnanswered) return false;
  }
  return false;
}

/// Completions, in order. True when something changed; may move the queue pair to an error state.
bool collect_answers(Fabric& fabric, QpEntry& qp, DeferredActions& deferred) {
  bool moved = false;
  while (qp.sq_done != qp.sq_arrived) {
    Wqe& wqe = wqe_at(fabric, qp, qp.sq_done);
    bool reliable = qp.type == IBV_QPT_RC;
    bool due = wqe.complete_at == 0 || wqe.complete_at <= fabric.now();
    if (wqe.stage == WqeStage::kRefused) {
      if (!due) return moved;
      handle_nak(fabric, qp, qp.sq_done, deferred);
      return true;
    }
    if (wqe.stage == WqeStage::kAnswered && due) {
      retire(fabric, qp, wqe, deferred);
      moved = true;
      continue;
    }
    if (!reliable && wqe.stage != WqeStage::kAnswered) {
      retire(fabric, qp, wqe, deferred);
      moved = true;
      continue;
    }
    if (wqe.stage == WqeStage::kExecuted && covered_by_later(qp, fabric, fabric.now())) {
      if (uses_read_resource(wqe)) {
        // Its data never came, and a later answer proves it: retransmit without waiting for the timer.
        wqe.answer = static_cast<uint8_t>(AckSyndrome::kSeqErr);
        handle_nak(fabric, qp, qp.sq_done, deferred);
        return true;
      }
      retire(fabric, qp, wqe, deferred);
      moved = true;
      continue;
    }
    // A sequence NAK or an error NAK further on arrives while this one still waits.
    for (uint32_t i = qp.sq_done + 1; i != qp.sq_arrived; ++i) {
      const Wqe& next = wqe_at(fabric, qp, i);
      if (next.stage == WqeStage::kRefused && next.answer == static_cast<uint8_t>(AckSyndrome::kSeqErr) &&
          (next.complete_at == 0 || next.complete_at <= fabric.now())) {
        handle_nak(fabric, qp, i, deferred);
        return true;
      }
    }
    return moved;
  }
  return moved;
}

/// Local operations take effect when they reach the head of the queue.
void run_local(Fabric& fabric, QpEntry& qp, Wqe& wqe) {
  ibv_wc_status status = perform_local(fabric, qp, wqe);
  wqe.complete_at = 0;
  wqe.stage = status == IBV_WC_SUCCESS ? WqeStage::kAnswered : WqeStage::kRefused;
  wqe.answer = static_cast<uint8_t>(kAnswerStatus | status);
}

bool transmit_next(Fabric& fabric, QpEntry& qp, DeferredActions& deferred) {
  Wqe& wqe = wqe_at(fabric, qp, qp.sq_sent);
  if (!may_transmit(fabric, qp, wqe)) return false;
  wqe.complete_at = wqe.arrive_at = 0;
  if (is_local(wqe)) {
    if (qp.sq_done != qp.sq_sent) return false;
    run_local(fabric, qp, wqe);
    ++qp.sq_sent;
    qp.sq_arrived = qp.sq_sent;
    return true;
  }
  uint32_t limit = qp.type == IBV_QPT_UD ? kUdMtu : kMaxMessage >> 1;
  if (wqe.attempt == 0) {
    wqe.psn = qp.next_psn;
    wqe.packets = packets_of(wqe.length, qp.mtu == 0 ? kUdMtu : qp.mtu);
    qp.next_psn = psn_add(qp.next_psn, wqe.packets);
    ++qp.tx_messages;
    qp.tx_bytes += wqe.length;
  }
  if (uses_read_resource(wqe)) ++qp.rd_outstanding;
  ++qp.sq_sent;
  if (wqe.length > limit) {
    wqe.stage = WqeStage::kRefused;
    wqe.answer = kAnswerStatus | IBV_WC_LOC_LEN_ERR;
    return true;
  }
  if (uses_read_resource(wqe) && qp.attr.max_rd_atomic == 0) {
    wqe.stage = WqeStage::kRefused;
    wqe.answer = kAnswerStatus | IBV_WC_LOC_QP_OP_ERR;
    return true;
  }
  transmit(fabric, qp, wqe, deferred);
  return true;
}

bool deliver_arrived(Fabric& fabric, QpEntry& qp, DeferredActions& deferred) {
  bool moved = false;
  while (qp.sq_arrived != qp.sq_sent) {
    Wqe& wqe = wqe_at(fabric, qp, qp.sq_arrived);
    if (wqe.stage == WqeStage::kFlying) {
      if (wqe.arrive_at != 0 && fabric.now() < wqe.arrive_at) return moved;
      arrive(fabric, qp, wqe, deferred);
    }
    ++qp.sq_arrived;
    moved = true;
    // A NAK turns the stream around at once; what would arrive behind it is dropped there anyway.
    if (wqe.stage == WqeStage::kRefused && wqe.complete_at == 0) return true;
  }
  return moved;
}

void raise_drained(Fabric& fabric, QpEntry& qp, DeferredActions& deferred) {
  if (qp.drain_raised != 0 || qp.sq_done != qp.sq_sent) return;
  qp.drain_raised = 1;
  if (qp.attr.sqd_notify != 0) raise_qp_event(fabric, qp, IBV_EVENT_SQ_DRAINED, deferred);
}

uint64_t next_event(Fabric& fabric, QpEntry& qp) {
  uint64_t next = qp.deadline;
  if (qp.hold_until != 0 && qp.hold_until < next) next = qp.hold_until;
  if (qp.sq_arrived != qp.sq_sent) {
    const Wqe& wqe = wqe_at(fabric, qp, qp.sq_arrived);
    if (wqe.arrive_at < next) next = wqe.arrive_at;
  }
  if (qp.sq_done != qp.sq_arrived) {
    const Wqe& wqe = wqe_at(fabric, qp, qp.sq_done);
    bool answered = wqe.stage == WqeStage::kAnswered || wqe.stage == WqeStage::kRefused;
    if (answered && wqe.complete_at < next) next = wqe.complete_at;
  }
  return next;
}

}  // namespace

void progress_sends(Fabric& fabric, QpEntry& qp, DeferredActions& deferred) {
  for (;;) {
    uint8_t state = qp.state.load(std::memory_order_relaxed);
    if (state != IBV_QPS_RTS && state != IBV_QPS_SQD) break;
    bool moved = false;
    if (qp.sq_sent != qp.sq_tail && state == IBV_QPS_RTS) moved = transmit_next(fabric, qp, deferred);
    if (qp.sq_arrived != qp.sq_sent) moved |= deliver_arrived(fabric, qp, deferred);
    if (qp.sq_done != qp.sq_arrived) moved |= collect_answers(fabric, qp, deferred);
    // After an RNR NAK nothing goes out for a while. Leave even if that while is over already: a receiver
    // that is never ready would keep us here, and what is posted next waits for the lock.
    if (qp.hold_until != 0) [[unlikely]]
      break;
    if (!moved && qp.sq_done != qp.sq_sent) [[unlikely]]
      moved = check_timer(fabric, qp, fabric.now(), deferred);
    if (!moved) break;
  }
  uint8_t state = qp.state.load(std::memory_order_relaxed);
  if (state == IBV_QPS_SQD) [[unlikely]]
    raise_drained(fabric, qp, deferred);
  bool waits = (state == IBV_QPS_RTS && qp.sq_done != qp.sq_tail) ||
               (state == IBV_QPS_SQD && qp.sq_done != qp.sq_sent);
  set_pending(fabric, qp, waits);
}

int post_send(Fabric& fabric, QpEntry& qp, ibv_send_wr* list, ibv_send_wr** bad, Resolve resolve) {
  DeferredActions deferred(fabric);
  int result = 0;
  bool flush = false;
  {
    Guard guard(qp.sq_lock, fabric.tag(), fabric);
    uint8_t state = qp.state.load(std::memory_order_relaxed);
    if (state < IBV_QPS_RTS) {
      *bad = list;
      return EINVAL;
    }
    for (; list != nullptr; list = list->next) {
      bool full = qp.sq_tail - qp.sq_freed.load(std::memory_order_acquire) >= qp.max_send_wr;
      result = full ? ENOMEM : fill(qp, wqe_at(fabric, qp, qp.sq_tail), *list, resolve);
      if (result != 0) {
        *bad = list;
        break;
      }
      ++qp.sq_tail;
      if (list->next == nullptr) break;
    }
    progress_sends(fabric, qp, deferred);
    state = qp.state.load(std::memory_order_seq_cst);
    flush = state == IBV_QPS_ERR || state == IBV_QPS_SQE;
  }
  if (flush) [[unlikely]]
    flush_sends(fabric, qp, deferred);
  return result;
}

uint64_t progress_pending(Fabric& fabric, const uint32_t* qps, uint32_t count) {
  uint64_t next = kNever;
  for (uint32_t i = 0; i < count; ++i) {
    QpEntry& qp = fabric.header().qps[qps[i]];
    if (qp.sq_pending == 0) continue;
    DeferredActions deferred(fabric);
    if (!qp.sq_lock.try_acquire(fabric.tag())) {
      next = 0;
      continue;
    }
    if (qp.qpn.load() != 0 && qp.process == fabric.process() && qp.sq_pending != 0) {
      progress_sends(fabric, qp, deferred);
      if (qp.sq_pending != 0) {
        uint64_t at = next_event(fabric, qp);
        if (at < next) next = at;
      }
    }
    qp.sq_lock.release();
  }
  return next;
}

}  // namespace bfo::softhca
