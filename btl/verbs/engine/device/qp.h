// SPDX-License-Identifier: BSD-3-Clause
//
// qp.h: one reliable-connection queue pair and its state changes (InfiniBand Architecture Specification vol.
// 1, 10.3 and 11.2.5).
#pragma once

#include <cstdint>

#include "btl/verbs/engine/device/verbs_api.h"

namespace bfo::engine {

struct Endpoint;

/// Where a peer's port is. All addresses in this form travel in the modex and in handshakes.
struct PortAddress {
  uint16_t lid = 0;
  uint8_t link_layer : 4 = 0;  ///< enum: IBV_LINK_LAYER_INFINIBAND, IBV_LINK_LAYER_ETHERNET
  uint8_t gid_type : 4 = 0;    ///< enum GidType: the RoCE version that packets to the GID have
  uint8_t mtu : 4 = 0;         ///< enum ibv_mtu, of the port now
  uint8_t lmc : 4 = 0;  ///< LID mask control: 2^lmc LIDs from `lid` on are the port's, each a path of its own
  uint32_t cm_qpn = 0;  ///< queue pair of the connection manager, the same as long as the process lives
  ibv_gid gid{};
  uint32_t heartbeat_qpn = 0;  ///< answers PING (modex only); 0: none
  uint32_t qkey = 0;           ///< of both (modex only)
};

/// Values every queue pair of a port is made with; from the parameters.
struct QpSettings {
  uint32_t send_depth = 0;    ///< work requests
  uint32_t inline_bytes = 0;  ///< wanted; create() lowers it to what the device can
  uint32_t qkey = 0;          ///< of the datagram queue pairs
  uint16_t pkey_index = 0;
  uint8_t port = 1;
  uint8_t gid_index = 0;
  uint8_t service_level = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  uint8_t timeout = 14;  ///< 4.096 us * 2^timeout
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 1;
  uint8_t max_read = 1;        ///< RDMA reads outstanding, each direction
  bool always_global = false;  ///< use a GRH even in one InfiniBand subnet
};

inline constexpr uint8_t kMaxLmc = 7;

/// How many paths lead from `own` to `to` (InfiniBand Architecture Specification vol. 1, 4.1.3). Path n is
/// from LID own.lid + n to LID to.lid + n: the responder of a connection takes packets only from the LID it
/// answers to. Equal on both sides. 1 on Ethernet and to another subnet.
uint8_t path_count(const PortAddress& own, const PortAddress& to);
/// `to` as path number `path` leads to it.
PortAddress over_path(const PortAddress& to, uint8_t path);

/// The address vector to reach `to` from a port with `settings` over path number `path`: with a GRH on
/// Ethernet, in another subnet, or when asked for.
ibv_ah_attr address_vector(const QpSettings& settings, const PortAddress& own, const PortAddress& to,
                           uint8_t path = 0);

/// One queue pair. Never shared between epochs: a new epoch makes a new one.
class Qp {
 public:
  /// In RESET state. `srq` may be nullptr (no receives). False with errno.
  bool create(const VerbsApi& api, ibv_pd* pd, ibv_cq* send_cq, ibv_cq* recv_cq, ibv_srq* srq,
              const QpSettings& settings);
  /// RESET to INIT. 0 or errno, as all of the following.
  int to_init(const QpSettings& settings);
  /// INIT to RTR to RTS, towards `peer` over path number `path`.
  int to_ready(const QpSettings& settings, const PortAddress& own, const PortAddress& peer, uint8_t path,
               uint32_t peer_qpn, uint32_t peer_psn, uint32_t own_psn);
  /// Any state to ERR: everything posted comes back flushed. Idempotent.
  int to_error();
  /// True when the device says the queue pair is in ERR.
  bool is_error() const;
  /// 0 proves that no access through this queue pair can happen any more; else errno and the queue pair still
  /// exists.
  int destroy();

  bool exists() const { return qp_ != nullptr; }
  ibv_qp* ib() const { return qp_; }
  uint32_t number() const { return number_; }
  uint32_t max_inline() const { return max_inline_; }

 private:
  const VerbsApi* api_ = nullptr;
  ibv_qp* qp_ = nullptr;
  uint32_t number_ = 0;
  uint32_t max_inline_ = 0;
};

/// The smaller of two ibv_mtu values; 0 counts as unknown.
uint8_t common_mtu(uint8_t a, uint8_t b);

}  // namespace bfo::engine
