// SPDX-License-Identifier: BSD-3-Clause
//
// The queue pair as a whole: flushing, failing, going away. (Attributes: qp_attributes.cc.)
#include "contrib/softhca/engine/qp.h"

#include "contrib/softhca/engine/async.h"
#include "contrib/softhca/engine/cq.h"
#include "contrib/softhca/engine/receive.h"
#include "contrib/softhca/engine/requester.h"
#include "contrib/softhca/engine/topology_faults.h"
#include "contrib/softhca/fabric/tables.h"

namespace bfo::softhca {
namespace {

constexpr uint16_t kVendorFlushed = 0xf5;

void trace_complete(Fabric& fabric, const QpEntry& qp, uint64_t wr_id, uint8_t status, bool send) {
  FabricHeader& h = fabric.header();
  if (!enabled(h.trace)) return;
  MessageRecord record{};
  record.time_ns = fabric.now();
  record.opcode = Opcode::kComplete;
  record.syndrome = status;
  record.node = qp.node;
  record.device = qp.device;
  record.port = qp.attr.port_num;
  record.src_qpn = qp.qpn.load();
  record.message_ordinal = wr_id;
  record.direction = send ? Direction::kTx : Direction::kRx;
  record.pid = fabric.pid();
  record.rule = 0xff;
  append(h.trace, record);
}

}  // namespace

void trace_state(Fabric& fabric, const QpEntry& qp, uint8_t from, uint8_t to) {
  FabricHeader& h = fabric.header();
  if (!enabled(h.trace)) return;
  MessageRecord record{};
  record.time_ns = fabric.now();
  record.opcode = Opcode::kState;
  record.psn = from;
  record.length = to;
  record.node = qp.node;
  record.device = qp.device;
  record.port = qp.attr.port_num;
  record.src_qpn = qp.qpn.load();
  record.dst_qpn = qp.attr.dest_qpn;
  record.pid = fabric.pid();
  record.rule = 0xff;
  append(h.trace, record);
}

void set_pending(Fabric& fabric, QpEntry& qp, bool pending) {
  if ((qp.sq_pending != 0) == pending) return;
  qp.sq_pending = pending ? 1 : 0;
  std::atomic<uint32_t>& count = fabric.header().processes[qp.process].pending;
  if (pending) {
    count.fetch_add(1);
  } else {
    count.fetch_sub(1);
  }
}

void complete_send(Fabric& fabric, QpEntry& qp, uint32_t index, ibv_wc_status status,
                   DeferredActions& deferred) {
  Wqe& wqe = wqe_at(fabric, qp, index);
  if (status != IBV_WC_SUCCESS) [[unlikely]] {
    ++qp.errors;
    trace_complete(fabric, qp, wqe.wr_id, status, true);
  } else if ((wqe.flags & IBV_SEND_SIGNALED) == 0) {
    return;
  }
  CqePush push(fabric, fabric.header().cqs[qp.send_cq], deferred);
  CqeEntry* entry = push.entry();
  if (entry == nullptr) return;
  entry->status = status;
  entry->opcode = wqe.wc_opcode;
  entry->flags = CqeFlags::kSend;
  entry->wr_id = wqe.wr_id;
  entry->byte_len = wqe.length;
  entry->qpn = qp.qpn.load(std::memory_order_relaxed);
  entry->wqe = index + 1;
  entry->vendor_err = status == IBV_WC_WR_FLUSH_ERR ? kVendorFlushed : static_cast<uint16_t>(status);
  push.commit(status != IBV_WC_SUCCESS);
}

void complete_recv_error(Fabric& fabric, QpEntry& qp, ibv_wc_status status, DeferredActions& deferred) {
  if (qp.taken.valid.load(std::memory_order_acquire) == 0) return;
  trace_complete(fabric, qp, qp.taken.wr_id, status, false);
  CqePush push(fabric, fabric.header().cqs[qp.recv_cq], deferred);
  if (CqeEntry* entry = push.entry()) {
    entry->status = status;
    entry->opcode = IBV_WC_RECV;
    entry->flags = 0;
    entry->wr_id = qp.taken.wr_id;
    entry->qpn = qp.qpn.load(std::memory_order_relaxed);
    entry->vendor_err = status == IBV_WC_WR_FLUSH_ERR ? kVendorFlushed : static_cast<uint16_t>(status);
    push.commit(true);
  }
  qp.taken.valid.store(0, std::memory_order_release);
}

void flush_sends(Fabric& fabric, QpEntry& qp, DeferredActions& deferred) {
  Guard guard(qp.sq_lock, fabric.tag(), fabric);
  uint8_t state = qp.state.load();
  if (state != IBV_QPS_ERR && state != IBV_QPS_SQE) return;
  while (qp.sq_done != qp.sq_tail) {
    complete_send(fabric, qp, qp.sq_done, IBV_WC_WR_FLUSH_ERR, deferred);
    ++qp.sq_done;
  }
  qp.sq_sent = qp.sq_arrived = qp.sq_tail;
  qp.rd_outstanding = 0;
  qp.deadline = kNever;
  qp.hold_until = 0;
  set_pending(fabric, qp, false);
}

void flush_receives(Fabric& fabric, QpEntry& qp, DeferredActions& deferred) {
  Guard guard(qp.resp_lock, fabric.tag(), fabric);
  if (qp.state.load() != IBV_QPS_ERR) return;
  complete_recv_error(fabric, qp, IBV_WC_WR_FLUSH_ERR, deferred);
  if (qp.srq != kNone) {
    if (qp.last_wqe_raised == 0) {
      qp.last_wqe_raised = 1;
      raise_qp_event(fabric, qp, IBV_EVENT_QP_LAST_WQE_REACHED, deferred);
    }
    return;
  }
  while (take_recv(fabric, qp, deferred)) complete_recv_error(fabric, qp, IBV_WC_WR_FLUSH_ERR, deferred);
}

void enter_error(Fabric& fabric, QpEntry& qp, DeferredActions& deferred, bool send_only) {
  uint8_t target = send_only ? IBV_QPS_SQE : IBV_QPS_ERR;
  uint8_t state = qp.state.load();
  do {
    if (state == IBV_QPS_RESET || state == IBV_QPS_ERR || state == target) return;
  } while (!qp.state.compare_exchange_weak(state, target, std::memory_order_seq_cst));
  trace_state(fabric, qp, state, target);
  deferred.flush_qp(qp.qpn.load());
}

void fail_qp(Fabric& fabric, QpEntry& qp, ibv_event_type event, DeferredActions& deferred) {
  enter_error(fabric, qp, deferred);
  raise_qp_event(fabric, qp, event, deferred);
}

void destroy_qp(Fabric& fabric, QpEntry& qp) {
  FabricHeader& h = fabric.header();
  uint32_t qpn = qp.qpn.load();
  trace_state(fabric, qp, qp.state.load(), IBV_QPS_RESET);
  qp.state.store(IBV_QPS_RESET, std::memory_order_seq_cst);
  {
    Guard requester(qp.sq_lock, fabric.tag(), fabric);
    set_pending(fabric, qp, false);
    qp.sq_done = qp.sq_sent = qp.sq_arrived = qp.sq_tail;
    // The barrier: whoever executes something here holds this lock, and checks the state after taking it.
    Guard responder(qp.resp_lock, fabric.tag(), fabric);
    qp.qpn.store(0, std::memory_order_seq_cst);
  }
  purge_cq(fabric, h.cqs[qp.send_cq], qpn);
  if (qp.recv_cq != qp.send_cq) purge_cq(fabric, h.cqs[qp.recv_cq], qpn);
  PortEntry& port = h.ports_table[qp.port_index];
  port.tx_messages += qp.tx_messages;
  port.tx_packets += qp.tx_packets + qp.response_packets_out;
  port.tx_bytes += qp.tx_bytes;
  port.rx_messages += qp.rx_messages;
  port.rx_packets += qp.rx_packets + qp.response_packets_in;
  port.rx_bytes += qp.rx_bytes;
  port.retries += qp.retries;
  port.rnr_retries += qp.rnr_retries;
  port.errors += qp.errors;
  free_qp(fabric, qp);
}

void DeferredActions::run() {
  // Actions may add more; index loop on purpose.
  for (size_t i = 0; i < items_.size(); ++i) {
    Item item = items_[i];
    switch (item.kind) {
      case Kind::kFlushQp:
        if (QpEntry* qp = find_qp(fabric_, item.object)) {
          flush_sends(fabric_, *qp, *this);
          flush_receives(fabric_, *qp, *this);
        }
        break;
      case Kind::kFailCq:
        softhca::fail_cq(fabric_, fabric_.header().cqs[item.object], *this);
        break;
      case Kind::kWake:
        fabric_.wake(item.object, item.pipe);
        break;
      case Kind::kAct:
        act_on_topology(fabric_, item.decision, *this);
        break;
    }
  }
  items_.clear();
  any_ = false;
}

}  // namespace bfo::softhca
