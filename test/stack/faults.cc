// SPDX-License-Identifier: BSD-3-Clause
//
// faults.cc: what goes wrong in the fabric, see device.h.
#include <arpa/inet.h>

#include <algorithm>

#include "pml/bfo/core/wire.h"
#include "test/stack/device.h"

namespace bfo::stack {

void Fabric::set_port(Device& d, bool up) {
  if (d.dead || d.up() == up) return;
  d.port.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  raise(d, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
}

void Fabric::one_way(const Device& from, const Device& to, uint64_t ns) {
  one_way_.push_back(OneWay{&from, &to, time.now() + ns});
}

bool Fabric::fail(const Device& from, const Device& to, ibv_wc_status status) {
  for (const auto& qp : qps) {
    if (!qp || qp->qp_type != IBV_QPT_RC || qp->device() != &from || qp->attr.qp_state != IBV_QPS_RTS)
      continue;
    Qp* const peer = find(qp->attr.dest_qp_num);
    if (peer == nullptr || peer->device() != &to || qp->sq.empty()) continue;
    return fail(qp.get(), status);
  }
  return false;
}

/// What has left and was executed counts as it is; the requester hears an error instead of the answer.
bool Fabric::fail(Qp* qp, ibv_wc_status status) {
  if (qp == nullptr || qp->attr.qp_state != IBV_QPS_RTS || qp->sq.empty()) return false;
  complete(*qp, qp->sq.front(), status);
  qp->sq.pop_front();
  to_error(*qp);
  return true;
}

void Fabric::kill(Device& d) {
  if (d.dead) return;
  d.dead = true;
  raise(d, IBV_EVENT_DEVICE_FATAL);
}

void Fabric::refuse(uint32_t process, uint64_t until, int error) {
  refusals_.push_back(Refusal{process, until, error});
}

void Fabric::overrun(Device& d) {
  for (const auto& cq : cqs) {
    if (cq->context != &d.context || cq->channel != nullptr) continue;
    cq->broken = true;
    cq->entries.clear();
  }
  raise(d, IBV_EVENT_CQ_ERR);
}

// ---- faults of one packet

namespace {
bool of_class(const Wqe& w, uint32_t packets) {
  const bool message = w.opcode == IBV_WR_SEND || w.opcode == IBV_WR_SEND_WITH_IMM;
  const uint32_t tag = message ? ntohl(w.imm) : 0;
  switch (packets) {
    case PacketFault::kAny:
      return message || w.length != 0;
    case PacketFault::kWrite:
      return w.opcode == IBV_WR_RDMA_WRITE && w.length != 0;
    case PacketFault::kRead:
      return w.opcode == IBV_WR_RDMA_READ;
    case PacketFault::kRestart:
      return (tag >= static_cast<uint32_t>(core::MsgType::kRestartNotify) &&
              tag <= static_cast<uint32_t>(core::MsgType::kRecvErr)) ||
             tag == static_cast<uint32_t>(core::MsgType::kSendDone);
    case PacketFault::kData:
      return tag == static_cast<uint32_t>(core::MsgType::kFrag) || (!message && w.length != 0);
    default:
      return tag == packets;
  }
}
bool meant(const PacketFault& f, const Qp& qp, const Wqe& w, const Device* to) {
  if (f.qpn != 0) return f.qpn == qp.qp_num;
  return f.from == qp.device() && f.to == to && of_class(w, f.packets);
}
}  // namespace

/// The fault that this packet is the one for, if any. It happens once.
const PacketFault* Fabric::hit(const Qp& qp, const Wqe& w, const Device* to) {
  for (PacketFault& f : packet_faults_)
    if (f.n != 0 && meant(f, qp, w, to) && --f.n == 0) {
      ++faults_hit;
      return &f;
    }
  return nullptr;
}

/// True: its requester is to hear of an error when it has been executed.
bool Fabric::suffer(Qp& qp, uint64_t number, const PacketFault& f) {
  switch (f.what) {
    case PacketFault::What::kLost:
      qp.lost_from = number;
      return false;
    case PacketFault::What::kUnanswered:
      qp.unanswered_from = number;
      return false;
    case PacketFault::What::kErrorNow:
      qp.lost_from = number;
      fail_soon(qp.qp_num, 1, f.status);
      return false;
    case PacketFault::What::kErrorDone:
      qp.unanswered_from = number;
      return true;
    case PacketFault::What::kHeld:
      qp.lane_ns = std::max(qp.lane_ns, time.now()) + f.ns;
      return false;
    case PacketFault::What::kUnread:
      return false;
  }
  return false;
}

void Fabric::fail_soon(uint32_t number, uint64_t ns, ibv_wc_status status) {
  time.in(
      ns,
      [](void* f, uint64_t a, void*) {
        Fabric& fabric = *static_cast<Fabric*>(f);
        fabric.fail(fabric.find(static_cast<uint32_t>(a)), static_cast<ibv_wc_status>(a >> 32));
      },
      this, uint64_t{status} << 32 | number);
}

}  // namespace bfo::stack
