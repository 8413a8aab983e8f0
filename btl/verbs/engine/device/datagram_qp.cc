// SPDX-License-Identifier: BSD-3-Clause
//
// datagram_qp.cc: see datagram_qp.h.
#include "btl/verbs/engine/device/datagram_qp.h"

#include <bit>
#include <cerrno>
#include <cstring>

#include "btl/verbs/engine/device/cq.h"

namespace bfo::engine {

bool DatagramQp::open(const VerbsApi& api, ibv_pd* pd, ibv_cq* cq, Arena& arena, const QpSettings& settings) {
  api_ = &api;
  settings_ = settings;
  const size_t receive_bytes = size_t{kReceives} * (kBytes + kGrhBytes);
  const Region region = arena.take(receive_bytes + size_t{kSends} * kBytes);
  if (region.address == nullptr) return false;
  memory_ = region.address;
  send_memory_ = region.address + receive_bytes;
  lkey_ = region.lkey;
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_UD;
  init.send_cq = cq;
  init.recv_cq = cq;
  init.sq_sig_all = 1;
  init.cap.max_send_wr = kSends;
  init.cap.max_recv_wr = kReceives;
  init.cap.max_send_sge = 1;
  init.cap.max_recv_sge = 1;
  qp_ = api.create_qp(pd, &init);
  return qp_ != nullptr && to_ready();
}

bool DatagramQp::to_ready() {
  static_assert(kSends == 32, "free_sends_ has one bit per send buffer");
  free_sends_ = ~uint32_t{0};
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = settings_.pkey_index;
  attr.port_num = settings_.port;
  attr.qkey = settings_.qkey;
  int rc = api_->modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  if (rc == 0) {
    attr = ibv_qp_attr{};
    attr.qp_state = IBV_QPS_RTR;
    rc = api_->modify_qp(qp_, &attr, IBV_QP_STATE);
  }
  if (rc == 0) {
    attr = ibv_qp_attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = 0;
    rc = api_->modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
  }
  if (rc != 0) {
    errno = rc;
    return false;
  }
  for (uint32_t i = 0; i < kReceives; ++i) release(i);
  return true;
}

void DatagramQp::release(uint32_t index) {
  if (suspended_) return;
  ibv_sge sge = {reinterpret_cast<uint64_t>(memory_ + size_t{index} * (kBytes + kGrhBytes)),
                 kBytes + kGrhBytes, lkey_};
  ibv_recv_wr wr{};
  wr.wr_id = work_id(WorkKind::kDatagramReceive, index);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  // A refused receive costs one buffer of many; datagrams may be lost anyway.
  static_cast<void>(ibv_post_recv(qp_, &wr, &bad));
}

bool DatagramQp::send(ibv_ah* ah, uint32_t qpn, uint32_t qkey, const void* data, uint32_t length,
                      uint32_t* used) {
  if (free_sends_ == 0 || length > kBytes) return false;
  const uint32_t index = static_cast<uint32_t>(std::countr_zero(free_sends_));
  char* buffer = send_memory_ + size_t{index} * kBytes;
  memcpy(buffer, data, length);
  ibv_sge sge = {reinterpret_cast<uint64_t>(buffer), length, lkey_};
  ibv_send_wr wr{};
  wr.wr_id = work_id(WorkKind::kDatagramSend, index);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.ud.ah = ah;
  wr.wr.ud.remote_qpn = qpn;
  wr.wr.ud.remote_qkey = qkey;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(qp_, &wr, &bad) != 0) return false;
  free_sends_ &= ~(uint32_t{1} << index);
  if (used != nullptr) *used = index;
  return true;
}

bool DatagramQp::revive() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  const int rc = api_->modify_qp(qp_, &attr, IBV_QP_STATE);
  if (rc != 0) {
    errno = rc;
    return false;
  }
  return to_ready();
}

bool DatagramQp::close() {
  if (qp_ == nullptr) return true;
  const bool clean = api_->destroy_qp(qp_) == 0;
  qp_ = nullptr;
  return clean;
}

}  // namespace bfo::engine
