// SPDX-License-Identifier: BSD-3-Clause
//
// The responder: what the receiving HCA does with one request. Executed by the requester's process.
#pragma once

#include "contrib/softhca/engine/deferred_actions.h"
#include "contrib/softhca/engine/psn.h"

namespace bfo::softhca {

/// How a request ended at the responder.
enum class Reply : uint8_t {
  kAck,
  kRnr,
  kSeqErr,
  kInvReq,
  kRemAccess,
  kRemOp,
  kSilent,      ///< no answer: the queue pair does not exist, has another peer or does not receive
  kLocalFault,  ///< the requester's own memory is not mapped: nothing was sent
};

struct Response {
  Reply reply = Reply::kSilent;
  bool replay = false;    ///< executed before, only answered again
  uint8_t rnr_timer = 0;  ///< Rnr: index in the RNR timer table
  uint32_t packets = 0;
};

/// A request is executed: the next one is expected, and the counters of the queue pair rise. Holds its
/// resp_lock.
inline void count_received(QpEntry& dst, uint32_t psn, uint32_t packets, uint32_t length, bool read = false) {
  dst.expected_psn = psn_add(psn, packets);
  dst.nak_sent = 0;
  ++dst.msn;
  ++dst.rx_messages;
  dst.rx_packets += read ? 1 : packets;  // one packet asks for it, and `packets` answer
  dst.response_packets_out += read ? packets : 0;
  dst.rx_bytes += length;
}

/// Executes `wqe` of queue pair `src` at queue pair `dst_qpn` behind port `dst_port`. `local` are the
/// requester's segments (virtual addresses). With `cut` less than the length only that many leading bytes are
/// placed, nothing is completed, and the reply is Silent. Holds sq_lock of `src`.
Response respond(Fabric& fabric, QpEntry& src, Wqe& wqe, uint32_t dst_qpn, uint32_t dst_port,
                 const Sge* local, uint32_t local_count, uint64_t cut, DeferredActions& deferred);

/// The responder fails to execute the request with local `status`: completion or event there, the matching
/// NAK back. For fault rules. Holds sq_lock of `src`.
Response respond_failure(Fabric& fabric, QpEntry& src, const Wqe& wqe, uint32_t dst_qpn, uint8_t status,
                         DeferredActions& deferred);

/// The RDMA part alone, for late writes: places `length` bytes from `data` at the responder if its queue pair
/// still accepts `psn`. Holds no lock.
bool respond_late(Fabric& fabric, const LateWrite& held, DeferredActions& deferred);

}  // namespace bfo::softhca
