// SPDX-License-Identifier: BSD-3-Clause
//
// The queue pair as a whole: changing state, flushing, failing, going away.
#pragma once

#include <infiniband/verbs.h>

#include "contrib/softhca/engine/deferred_actions.h"

namespace bfo::softhca {

inline Wqe& wqe_at(Fabric& fabric, QpEntry& qp, uint32_t index) {
  return *fabric.at<Wqe>(qp.sq_ring + uint64_t{index & qp.sq_mask} * qp.sq_stride);
}

inline QpEntry* find_qp(Fabric& fabric, uint32_t qpn) {
  QpEntry& qp = fabric.header().qps[qp_slot(qpn)];
  return qpn != 0 && qp_slot(qpn) < fabric.header().qp_fresh && qp.qpn.load(std::memory_order_acquire) == qpn
             ? &qp
             : nullptr;
}

/// Requests of others are executed in this state.
inline bool receives(uint8_t state) {
  return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

inline bool is_read(const Wqe& wqe) {
  return wqe.opcode == static_cast<uint8_t>(Opcode::kRead);
}

inline bool is_send(uint8_t opcode) {
  return opcode == static_cast<uint8_t>(Opcode::kSend) || opcode == static_cast<uint8_t>(Opcode::kSendImm) ||
         opcode == static_cast<uint8_t>(Opcode::kSendInv);
}

/// ibv_modify_qp. 0 or an errno; nothing changes on failure. A move to ERR or RESET returns only when no
/// other process is executing anything on this queue pair any more, and none will later (the fence). Owner.
int modify_qp(Fabric& fabric, QpEntry& qp, const ibv_qp_attr& attr, int mask);
void query_qp(Fabric& fabric, QpEntry& qp, ibv_qp_attr& attr);
/// The address of a peer as the fabric stores it. On Ethernet `to.dlid` still has to be found.
void take_address(const ibv_ah_attr& from, AddressVector& to);

/// Takes the queue pair out of service; same barrier. Its completions are purged, its slot is freed. Owner.
void destroy_qp(Fabric& fabric, QpEntry& qp);

/// State becomes ERR; the flush of both queues follows through `deferred`. With `send_only` (UC and UD send
/// errors) it becomes SQE. Any process, also under sq_lock or resp_lock of this queue pair.
void enter_error(Fabric& fabric, QpEntry& qp, DeferredActions& deferred, bool send_only = false);

/// ERR plus an affiliated event. Any process.
void fail_qp(Fabric& fabric, QpEntry& qp, ibv_event_type event, DeferredActions& deferred);

/// Completes everything in the send queue with WR_FLUSH_ERR. No lock held.
void flush_sends(Fabric& fabric, QpEntry& qp, DeferredActions& deferred);
/// Same for the receive queue; with an SRQ raises LAST_WQE_REACHED instead. No lock held.
void flush_receives(Fabric& fabric, QpEntry& qp, DeferredActions& deferred);

/// Writes one completion of the send queue for the request at `index`. Holds sq_lock.
void complete_send(Fabric& fabric, QpEntry& qp, uint32_t index, ibv_wc_status status,
                   DeferredActions& deferred);
/// Writes an error completion for the taken receive request. Holds resp_lock.
void complete_recv_error(Fabric& fabric, QpEntry& qp, ibv_wc_status status, DeferredActions& deferred);

void trace_state(Fabric& fabric, const QpEntry& qp, uint8_t from, uint8_t to);

/// Keeps ProcessEntry::pending in step with whether this queue pair waits for something. Holds sq_lock.
void set_pending(Fabric& fabric, QpEntry& qp, bool pending);

}  // namespace bfo::softhca
