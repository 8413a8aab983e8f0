// SPDX-License-Identifier: BSD-3-Clause
//
// What the responder does because a rule says so: requests that fail there, writes that come late.
#include <infiniband/verbs.h>

#include "contrib/softhca/engine/mr.h"
#include "contrib/softhca/engine/psn.h"
#include "contrib/softhca/engine/qp.h"
#include "contrib/softhca/engine/receive.h"
#include "contrib/softhca/engine/responder.h"
#include "contrib/softhca/fabric/copy.h"

namespace bfo::softhca {

Response respond_failure(Fabric& fabric, QpEntry& src, const Wqe& wqe, uint32_t dst_qpn, uint8_t status,
                         DeferredActions& deferred) {
  Response response;
  QpEntry* found = find_qp(fabric, dst_qpn);
  if (found == nullptr || !fabric.alive(found->process)) return response;
  QpEntry& dst = *found;
  Guard guard(dst.resp_lock, fabric.tag(), fabric);
  if (dst.qpn.load() != dst_qpn || !receives(dst.state.load()) || dst.type != src.type) return response;
  switch (status) {
    case IBV_WC_LOC_LEN_ERR:
      response.reply = Reply::kInvReq;
      break;
    case IBV_WC_LOC_ACCESS_ERR:
      response.reply = Reply::kRemAccess;
      break;
    default:
      response.reply = Reply::kRemOp;
  }
  bool takes = is_send(wqe.opcode) || wqe.opcode == static_cast<uint8_t>(Opcode::kWriteImm);
  if (takes && take_recv(fabric, dst, deferred)) {
    complete_recv_error(fabric, dst, static_cast<ibv_wc_status>(status), deferred);
    enter_error(fabric, dst, deferred);
  } else {
    fail_qp(fabric, dst, status == IBV_WC_LOC_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR,
            deferred);
  }
  return response;
}

bool respond_late(Fabric& fabric, const LateWrite& held, DeferredActions& deferred) {
  QpEntry* found = find_qp(fabric, held.dst_qpn);
  if (found == nullptr || !fabric.alive(found->process, true)) return false;
  QpEntry& dst = *found;
  Guard guard(dst.resp_lock, fabric.tag(), fabric);
  if (dst.qpn.load() != held.dst_qpn || !receives(dst.state.load())) return false;
  if (dst.type == IBV_QPT_RC && psn_distance(held.psn, dst.expected_psn) != 0) return false;
  if ((dst.attr.access & IBV_ACCESS_REMOTE_WRITE) == 0) return false;
  KeyUser user{dst.pd, dst.process, held.dst_qpn};
  uint64_t target = 0;
  if (!translate(fabric, held.rkey, user, held.remote_addr, held.length, IBV_ACCESS_REMOTE_WRITE, target)) {
    fail_qp(fabric, dst, IBV_EVENT_QP_ACCESS_ERR, deferred);
    return false;
  }
  Sge there{target, held.length, held.rkey};
  Sge here{reinterpret_cast<uint64_t>(fabric.at<char>(held.data)), held.length, 0};
  CopyResult copied;
  {
    Copy copy(fabric, dst.process, &there, 1, held.length);
    bool still =
        translate(fabric, held.rkey, user, held.remote_addr, held.length, IBV_ACCESS_REMOTE_WRITE, target);
    copied = still ? copy.put(&here, 1) : CopyResult::kRemoteFault;
  }
  if (!dst.resp_lock.commit(fabric.tag())) {
    guard.abandon();
    return false;
  }
  if (copied != CopyResult::kDone) return false;
  count_received(dst, held.psn, held.packets, held.length);
  return true;
}

}  // namespace bfo::softhca
