// SPDX-License-Identifier: BSD-3-Clause
//
// The attributes of a queue pair: ibv_modify_qp and ibv_query_qp.
#include <cerrno>
#include <cstring>

#include "contrib/softhca/engine/async.h"
#include "contrib/softhca/engine/cq.h"
#include "contrib/softhca/engine/qp.h"
#include "contrib/softhca/engine/qp_fsm.h"
#include "contrib/softhca/engine/requester.h"
#include "contrib/softhca/fabric/tables.h"

namespace bfo::softhca {
void take_address(const ibv_ah_attr& from, AddressVector& to) {
  to.dlid = from.dlid;
  to.sl = from.sl;
  to.src_path_bits = from.src_path_bits;
  to.static_rate = from.static_rate;
  to.is_global = from.is_global;
  to.port_num = from.port_num;
  to.sgid_index = from.grh.sgid_index;
  to.hop_limit = from.grh.hop_limit;
  to.traffic_class = from.grh.traffic_class;
  to.flow_label = from.grh.flow_label;
  std::memcpy(to.dgid, &from.grh.dgid, sizeof(to.dgid));
}

namespace {

void give_address(const AddressVector& from, ibv_ah_attr& to) {
  to.dlid = from.dlid;
  to.sl = from.sl;
  to.src_path_bits = from.src_path_bits;
  to.static_rate = from.static_rate;
  to.is_global = from.is_global;
  to.port_num = from.port_num;
  to.grh.sgid_index = from.sgid_index;
  to.grh.hop_limit = from.hop_limit;
  to.grh.traffic_class = from.traffic_class;
  to.grh.flow_label = from.flow_label;
  std::memcpy(&to.grh.dgid, from.dgid, sizeof(from.dgid));
}

bool address_is_valid(Fabric& fabric, const ibv_ah_attr& address) {
  return address.port_num >= 1 && address.port_num <= fabric.header().ports && address.sl < 16 &&
         (!address.is_global || address.grh.sgid_index < kMaxGids);
}

/// Range checks of the values that `mask` selects.
bool values_are_valid(Fabric& fabric, const ibv_qp_attr& attr, int mask) {
  if ((mask & IBV_QP_PORT) && (attr.port_num < 1 || attr.port_num > fabric.header().ports)) return false;
  if ((mask & IBV_QP_PKEY_INDEX) && attr.pkey_index >= kPkeysPerPort) return false;
  if ((mask & IBV_QP_AV) && !address_is_valid(fabric, attr.ah_attr)) return false;
  if ((mask & IBV_QP_PATH_MTU) && (attr.path_mtu < IBV_MTU_256 || attr.path_mtu > IBV_MTU_4096)) return false;
  if ((mask & IBV_QP_TIMEOUT) && attr.timeout > 31) return false;
  if ((mask & IBV_QP_RETRY_CNT) && attr.retry_cnt > 7) return false;
  if ((mask & IBV_QP_RNR_RETRY) && attr.rnr_retry > 7) return false;
  if ((mask & IBV_QP_MIN_RNR_TIMER) && attr.min_rnr_timer > 31) return false;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr.max_rd_atomic > kMaxRdAtomic) return false;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr.max_dest_rd_atomic > kMaxRdAtomic) return false;
  if ((mask & IBV_QP_ALT_PATH) &&
      (attr.alt_port_num < 1 || attr.alt_port_num > fabric.header().ports || attr.alt_timeout > 31))
    return false;
  return true;
}

void apply(QpEntry& qp, const ibv_qp_attr& attr, int mask) {
  QpAttributes& a = qp.attr;
  if (mask & IBV_QP_PKEY_INDEX) a.pkey_index = attr.pkey_index;
  if (mask & IBV_QP_PORT) {
    a.port_num = attr.port_num;
    qp.port_index = port_index(qp.node, qp.device, attr.port_num);
  }
  if (mask & IBV_QP_QKEY) a.qkey = attr.qkey;
  if (mask & IBV_QP_ACCESS_FLAGS) a.access = attr.qp_access_flags;
  if (mask & IBV_QP_AV) take_address(attr.ah_attr, a.av);
  if (mask & IBV_QP_PATH_MTU) {
    a.path_mtu = static_cast<uint8_t>(attr.path_mtu);
    qp.mtu = 128u << attr.path_mtu;
  }
  if (mask & IBV_QP_DEST_QPN) a.dest_qpn = attr.dest_qp_num & kPsnMask;
  if (mask & IBV_QP_RQ_PSN) {
    a.rq_psn = attr.rq_psn & kPsnMask;
    qp.expected_psn = a.rq_psn;
  }
  if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) a.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  if (mask & IBV_QP_MIN_RNR_TIMER) a.min_rnr_timer = attr.min_rnr_timer;
  if (mask & IBV_QP_SQ_PSN) {
    a.sq_psn = attr.sq_psn & kPsnMask;
    qp.next_psn = a.sq_psn;
  }
  if (mask & IBV_QP_TIMEOUT) a.timeout = attr.timeout;
  if (mask & IBV_QP_RETRY_CNT) qp.retries_left = a.retry_cnt = attr.retry_cnt;
  if (mask & IBV_QP_RNR_RETRY) qp.rnr_left = a.rnr_retry = attr.rnr_retry;
  if (mask & IBV_QP_MAX_QP_RD_ATOMIC) a.max_rd_atomic = attr.max_rd_atomic;
  if (mask & IBV_QP_ALT_PATH) {
    take_address(attr.alt_ah_attr, a.alt_av);
    a.alt_port_num = attr.alt_port_num;
    a.alt_pkey_index = attr.alt_pkey_index;
    a.alt_timeout = attr.alt_timeout;
  }
  if (mask & IBV_QP_PATH_MIG_STATE) a.path_mig_state = static_cast<uint8_t>(attr.path_mig_state);
}

/// RESET: requests vanish without completion, completions of the queue pair leave the CQs. Holds both locks.
void discard(Fabric& fabric, QpEntry& qp) {
  qp.sq_sent = qp.sq_arrived = qp.sq_done = qp.sq_tail;
  qp.sq_freed.store(qp.sq_tail);
  qp.rq_head.store(qp.rq_tail.load());
  qp.taken.valid.store(0);
  qp.rd_outstanding = 0;
  qp.deadline = kNever;
  qp.hold_until = 0;
  qp.tx_last_arrival = 0;
  qp.expected_psn = qp.next_psn = qp.msn = 0;
  qp.nak_sent = qp.comm_est = qp.last_wqe_raised = qp.partial = qp.drain_raised = 0;
  for (AtomicResult& result : qp.saved) result.valid = 0;
  set_pending(fabric, qp, false);
}

}  // namespace

int modify_qp(Fabric& fabric, QpEntry& qp, const ibv_qp_attr& attr, int mask) {
  DeferredActions deferred(fabric);
  FabricHeader& h = fabric.header();
  if (h.devices_table[qp.port_index / kMaxPortsPerDevice].fatal.load() != 0) return EIO;
  Guard requester(qp.sq_lock, fabric.tag(), fabric);
  uint8_t from = qp.state.load();
  if ((mask & IBV_QP_CUR_STATE) && attr.cur_qp_state != from &&
      !(attr.cur_qp_state == IBV_QPS_RTS && from == IBV_QPS_SQE)) {
    return EINVAL;
  }
  uint8_t to = (mask & IBV_QP_STATE) ? static_cast<uint8_t>(attr.qp_state) : from;
  if (to > IBV_QPS_ERR) return EINVAL;
  if (!transition_allowed(static_cast<ibv_qp_type>(qp.type), static_cast<ibv_qp_state>(from),
                          static_cast<ibv_qp_state>(to), mask) ||
      !values_are_valid(fabric, attr, mask)) {
    return EINVAL;
  }
  if (to == IBV_QPS_ERR) {
    if (from == IBV_QPS_RESET) {
      qp.state.store(IBV_QPS_ERR);
      trace_state(fabric, qp, from, to);
    } else {
      enter_error(fabric, qp, deferred);
    }
    requester.unlock();
    flush_sends(fabric, qp, deferred);
    flush_receives(fabric, qp, deferred);  // takes resp_lock: the barrier against executions in progress
    return 0;
  }
  if (to == IBV_QPS_RESET) {
    qp.state.store(IBV_QPS_RESET, std::memory_order_seq_cst);
    trace_state(fabric, qp, from, to);
    {
      Guard responder(qp.resp_lock, fabric.tag(), fabric);
      discard(fabric, qp);
    }
    uint32_t qpn = qp.qpn.load();
    requester.unlock();
    purge_cq(fabric, h.cqs[qp.send_cq], qpn);
    if (qp.recv_cq != qp.send_cq) purge_cq(fabric, h.cqs[qp.recv_cq], qpn);
    return 0;
  }
  {
    Guard responder(qp.resp_lock, fabric.tag(), fabric);
    apply(qp, attr, mask);
    // An error found by the peer meanwhile wins.
    uint8_t expected = from;
    if (!qp.state.compare_exchange_strong(expected, to, std::memory_order_seq_cst)) return EINVAL;
  }
  if (from != to) trace_state(fabric, qp, from, to);
  if (to == IBV_QPS_SQD) {
    qp.attr.sqd_notify = (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0 && attr.en_sqd_async_notify != 0;
    qp.drain_raised = 0;
  }
  progress_sends(fabric, qp, deferred);
  return 0;
}

void query_qp(Fabric& fabric, QpEntry& qp, ibv_qp_attr& attr) {
  std::memset(&attr, 0, sizeof(attr));
  Guard guard(qp.sq_lock, fabric.tag(), fabric);
  const QpAttributes& a = qp.attr;
  attr.qp_state = attr.cur_qp_state = static_cast<ibv_qp_state>(qp.state.load());
  attr.path_mtu = a.path_mtu == 0 ? IBV_MTU_4096 : static_cast<ibv_mtu>(a.path_mtu);
  attr.path_mig_state = static_cast<ibv_mig_state>(a.path_mig_state);
  attr.qkey = a.qkey;
  attr.rq_psn = a.rq_psn;
  attr.sq_psn = a.sq_psn;
  attr.dest_qp_num = a.dest_qpn;
  attr.qp_access_flags = a.access;
  attr.cap.max_send_wr = qp.max_send_wr;
  attr.cap.max_recv_wr = qp.max_recv_wr;
  attr.cap.max_send_sge = qp.max_send_sge;
  attr.cap.max_recv_sge = qp.max_recv_sge;
  attr.cap.max_inline_data = qp.max_inline;
  give_address(a.av, attr.ah_attr);
  give_address(a.alt_av, attr.alt_ah_attr);
  attr.pkey_index = a.pkey_index;
  attr.alt_pkey_index = a.alt_pkey_index;
  attr.en_sqd_async_notify = a.sqd_notify;
  attr.sq_draining = qp.state.load() == IBV_QPS_SQD && qp.sq_done != qp.sq_sent;
  attr.max_rd_atomic = a.max_rd_atomic;
  attr.max_dest_rd_atomic = a.max_dest_rd_atomic;
  attr.min_rnr_timer = a.min_rnr_timer;
  attr.port_num = a.port_num;
  attr.timeout = a.timeout;
  attr.retry_cnt = a.retry_cnt;
  attr.rnr_retry = a.rnr_retry;
  attr.alt_port_num = a.alt_port_num;
  attr.alt_timeout = a.alt_timeout;
}

}  // namespace bfo::softhca
