// SPDX-License-Identifier: BSD-3-Clause
//
// qp.cc: see qp.h.
#include "btl/verbs/engine/device/qp.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace bfo::engine {

uint8_t common_mtu(uint8_t a, uint8_t b) {
  if (a == 0) return b;
  if (b == 0) return a;
  return std::min(a, b);
}

uint8_t path_count(const PortAddress& own, const PortAddress& to) {
  const bool one_subnet = own.link_layer != IBV_LINK_LAYER_ETHERNET &&
                          own.gid.global.subnet_prefix == to.gid.global.subnet_prefix;
  return one_subnet ? static_cast<uint8_t>(1u << std::min<unsigned>(own.lmc, to.lmc)) : uint8_t{1};
}

PortAddress over_path(const PortAddress& to, uint8_t path) {
  PortAddress address = to;
  address.lid = static_cast<uint16_t>(to.lid + path);
  return address;
}

ibv_ah_attr address_vector(const QpSettings& settings, const PortAddress& own, const PortAddress& to,
                           uint8_t path) {
  ibv_ah_attr ah{};
  ah.dlid = over_path(to, path).lid;
  ah.src_path_bits = path;
  ah.sl = settings.service_level;
  ah.port_num = settings.port;
  const bool ethernet = own.link_layer == IBV_LINK_LAYER_ETHERNET;
  const bool other_subnet = own.gid.global.subnet_prefix != to.gid.global.subnet_prefix;
  if (ethernet || other_subnet || settings.always_global) {
    ah.is_global = 1;
    ah.grh.dgid = to.gid;
    ah.grh.sgid_index = settings.gid_index;
    ah.grh.hop_limit = settings.hop_limit;
    ah.grh.traffic_class = settings.traffic_class;
  }
  return ah;
}

bool Qp::create(const VerbsApi& api, ibv_pd* pd, ibv_cq* send_cq, ibv_cq* recv_cq, ibv_srq* srq,
                const QpSettings& settings) {
  api_ = &api;
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = send_cq;
  init.recv_cq = recv_cq;
  init.srq = srq;
  init.sq_sig_all = 0;
  init.cap.max_send_wr = settings.send_depth;
  init.cap.max_send_sge = 1;
  init.cap.max_inline_data = settings.inline_bytes;
  if (srq == nullptr) {
    init.cap.max_recv_wr = 1;
    init.cap.max_recv_sge = 1;
  }
  for (;;) {
    ibv_qp_init_attr attempt = init;
    qp_ = api.create_qp(pd, &attempt);
    if (qp_ != nullptr) {
      number_ = qp_->qp_num;
      max_inline_ = std::min(attempt.cap.max_inline_data, settings.inline_bytes);
      return true;
    }
    if (init.cap.max_inline_data == 0) return false;
    // No attribute of a device says how much inline data it takes: ask for less until it succeeds.
    init.cap.max_inline_data = init.cap.max_inline_data >= 32 ? init.cap.max_inline_data / 2 : 0;
  }
}

int Qp::to_init(const QpSettings& settings) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = settings.pkey_index;
  attr.port_num = settings.port;
  attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  return api_->modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int Qp::to_ready(const QpSettings& settings, const PortAddress& own, const PortAddress& peer, uint8_t path,
                 uint32_t peer_qpn, uint32_t peer_psn, uint32_t own_psn) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.ah_attr = address_vector(settings, own, peer, path);
  attr.path_mtu = static_cast<ibv_mtu>(common_mtu(own.mtu, peer.mtu));
  attr.dest_qp_num = peer_qpn;
  attr.rq_psn = peer_psn;
  attr.max_dest_rd_atomic = settings.max_read;
  attr.min_rnr_timer = settings.min_rnr_timer;
  const int rc = api_->modify_qp(qp_, &attr,
                                 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (rc != 0) return rc;
  ibv_qp_attr rts{};
  rts.qp_state = IBV_QPS_RTS;
  rts.timeout = settings.timeout;
  rts.retry_cnt = settings.retry_count;
  rts.rnr_retry = settings.rnr_retry;
  rts.sq_psn = own_psn;
  rts.max_rd_atomic = settings.max_read;
  return api_->modify_qp(qp_, &rts,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC);
}

int Qp::to_error() {
  if (qp_ == nullptr) return 0;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  return api_->modify_qp(qp_, &attr, IBV_QP_STATE);
}

bool Qp::is_error() const {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  return api_->query_qp(qp_, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR;
}

int Qp::destroy() {
  if (qp_ == nullptr) return 0;
  const int rc = api_->destroy_qp(qp_);
  if (rc == 0) qp_ = nullptr;
  return rc;
}

}  // namespace bfo::engine
