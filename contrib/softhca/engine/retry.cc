// SPDX-License-Identifier: BSD-3-Clause
//
// Retransmission of a reliable connection: local ACK timer, RNR timer, sequence NAKs, and giving up.
#include "contrib/softhca/engine/packet_loss.h"
#include "contrib/softhca/engine/psn.h"
#include "contrib/softhca/engine/qp.h"
#include "contrib/softhca/engine/requester.h"
#include "contrib/softhca/engine/wire.h"

namespace bfo::softhca {
namespace {

constexpr uint8_t kRnrForever = 7;

/// IBTA 1.3 table 45, in units of 10 us.
constexpr uint32_t kRnrTable[32] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

uint64_t scaled(Fabric& fabric, uint64_t ns) {
  return fabric.timescale() == 1.0 ? ns : static_cast<uint64_t>(static_cast<double>(ns) * fabric.timescale());
}

bool uses_read_resource(const Wqe& wqe) {
  return wqe.opcode == static_cast<uint8_t>(Opcode::kRead) ||
         wqe.opcode == static_cast<uint8_t>(Opcode::kCmpSwap) ||
         wqe.opcode == static_cast<uint8_t>(Opcode::kFetchAdd);
}

ibv_wc_status status_of(uint8_t answer) {
  if ((answer & kAnswerStatus) != 0) return static_cast<ibv_wc_status>(answer & ~kAnswerStatus);
  if (answer == kAnswerLocalFault) return IBV_WC_LOC_PROT_ERR;
  switch (static_cast<AckSyndrome>(answer)) {
    case AckSyndrome::kInvReq:
      return IBV_WC_REM_INV_REQ_ERR;
    case AckSyndrome::kRemAccess:
      return IBV_WC_REM_ACCESS_ERR;
    case AckSyndrome::kRemOp:
      return IBV_WC_REM_OP_ERR;
    case AckSyndrome::kRnr:
      return IBV_WC_RNR_RETRY_EXC_ERR;
    default:
      return IBV_WC_RETRY_EXC_ERR;
  }
}

}  // namespace

uint64_t rnr_wait_ns(uint8_t index) {
  return uint64_t{kRnrTable[index & 31]} * 10'000;
}

uint64_t ack_timeout_ns(uint8_t exponent) {
  return exponent == 0 ? kNever : uint64_t{4096} << (exponent & 31);
}

void rewind_sends(Fabric& fabric, QpEntry& qp, uint32_t index) {
  for (uint32_t i = index; i != qp.sq_sent; ++i) {
    Wqe& wqe = wqe_at(fabric, qp, i);
    wqe.stage = WqeStage::kPosted;
    if (wqe.attempt < 255) ++wqe.attempt;
    if (uses_read_resource(wqe) && qp.rd_outstanding > 0) --qp.rd_outstanding;
  }
  qp.sq_sent = index;
  if (static_cast<int32_t>(qp.sq_arrived - index) > 0) qp.sq_arrived = index;
  qp.deadline = kNever;
  qp.tx_last_arrival = 0;
}

void fail_send(Fabric& fabric, QpEntry& qp, uint32_t index, ibv_wc_status status, DeferredActions& deferred) {
  // Requests before it were acknowledged by the same answer.
  while (qp.sq_done != index) {
    complete_send(fabric, qp, qp.sq_done, IBV_WC_SUCCESS, deferred);
    ++qp.sq_done;
  }
  complete_send(fabric, qp, index, status, deferred);
  qp.sq_done = index + 1;
  if (static_cast<int32_t>(qp.sq_arrived - qp.sq_done) < 0) qp.sq_arrived = qp.sq_done;
  if (static_cast<int32_t>(qp.sq_sent - qp.sq_done) < 0) qp.sq_sent = qp.sq_done;
  enter_error(fabric, qp, deferred, qp.type != IBV_QPT_RC);
}

bool handle_nak(Fabric& fabric, QpEntry& qp, uint32_t index, DeferredActions& deferred) {
  Wqe& wqe = wqe_at(fabric, qp, index);
  if (wqe.answer == static_cast<uint8_t>(AckSyndrome::kRnr)) {
    if (qp.type != IBV_QPT_RC) {  // nobody tells the sender of a datagram
      wqe.stage = WqeStage::kAnswered;
      return true;
    }
    ++qp.rnr_retries;
    if (qp.attr.rnr_retry != kRnrForever) {
      if (qp.rnr_left == 0) {
        fail_send(fabric, qp, index, IBV_WC_RNR_RETRY_EXC_ERR, deferred);
        return false;
      }
      --qp.rnr_left;
    }
    qp.hold_until = fabric.now() + scaled(fabric, rnr_wait_ns(wqe.rnr_timer));
    rewind_sends(fabric, qp, index);
    return true;
  }
  if (wqe.answer == static_cast<uint8_t>(AckSyndrome::kSeqErr)) {
    ++qp.retries;
    if (qp.retries_left == 0) {
      fail_send(fabric, qp, qp.sq_done, IBV_WC_RETRY_EXC_ERR, deferred);
      return false;
    }
    --qp.retries_left;
    // Of a READ that was executed the response is missing.
    const bool nak = wqe.stage != WqeStage::kExecuted;
    note_loss(fabric, qp.port_index, nak ? LossSign::kSequenceNak : LossSign::kEarlyResponse);
    rewind_sends(fabric, qp, qp.sq_done);
    return true;
  }
  bool silent_service = qp.type != IBV_QPT_RC && wqe.answer < kAnswerLocalFault;
  if (silent_service) {
    wqe.stage = WqeStage::kAnswered;  // a NAK does not exist there
    return true;
  }
  fail_send(fabric, qp, index, status_of(wqe.answer), deferred);
  return false;
}

bool check_timer(Fabric& fabric, QpEntry& qp, uint64_t now, DeferredActions& deferred) {
  if (qp.type != IBV_QPT_RC || qp.hold_until > now) return false;
  // What is still on its way, or answered, needs no timer: the wire here knows that it will arrive.
  const Wqe& oldest = wqe_at(fabric, qp, qp.sq_done);
  bool silent = oldest.stage == WqeStage::kLost || oldest.stage == WqeStage::kExecuted ||
                oldest.stage == WqeStage::kUnanswered;
  if (!silent) return false;
  uint64_t timeout = ack_timeout_ns(qp.attr.timeout);
  if (timeout == kNever) return false;
  if (qp.deadline == kNever) {
    qp.deadline = now + scaled(fabric, timeout);
    return false;
  }
  if (now < qp.deadline) return false;
  ++qp.retries;
  if (qp.retries_left == 0) {
    fail_send(fabric, qp, qp.sq_done, IBV_WC_RETRY_EXC_ERR, deferred);
    return true;
  }
  --qp.retries_left;
  note_loss(fabric, qp.port_index, LossSign::kAckTimeout);
  rewind_sends(fabric, qp, qp.sq_done);
  return true;
}

}  // namespace bfo::softhca
