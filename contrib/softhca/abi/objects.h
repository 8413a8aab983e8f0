// SPDX-License-Identifier: BSD-3-Clause
//
// The objects a program holds: each starts with the struct libibverbs declares and adds where it lives in the
// fabric.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "contrib/softhca/abi/process.h"
#include "contrib/softhca/abi/verbs_api.h"
#include "contrib/softhca/engine/requester.h"
#include "contrib/softhca/fabric/layout.h"

namespace bfo::softhca {

struct Context {
  verbs_context verbs;  ///< its last member is the ibv_context programs see
  uint32_t device;
  ContextEntry* entry;
  int wake_fd;  ///< write end of the pipe behind async_fd
  std::atomic<int> refs;
};

struct Pd {
  ibv_pd base;
  uint32_t number;
  Pd* parent;  ///< of a parent domain
  std::atomic<int> refs;
  std::atomic<int> imports;
};

struct Mr {
  ibv_mr base;
  MrEntry* entry;
  uint64_t pinned;  ///< bytes booked as registered
};

struct Mw {
  ibv_mw base;
  MrEntry* entry;
};

struct Channel {
  ibv_comp_channel base;
  int wake_fd;
  WakeName wake;
  std::mutex mutex;
  std::vector<Cq*> cqs;
  size_t turn;
};

struct Cq {
  ibv_cq_ex base;  ///< starts like ibv_cq
  CqEntry* entry;
  Channel* channel;
  Context* context;
  unsigned empties;
  uint32_t comp_delivered, async_delivered;
  uint64_t wc_flags;
  std::atomic<int> refs;
  Pd* parent;
  CqeEntry current;  ///< extended polling
  ibv_cq* basic() { return reinterpret_cast<ibv_cq*>(&base); }
};

struct Srq {
  ibv_srq base;
  SrqEntry* entry;
  Context* context;
  uint32_t async_delivered;
  std::atomic<int> refs;
};

struct Qp {
  ibv_qp_ex base;
  QpEntry* entry;
  Context* context;
  uint32_t async_delivered;
  uint64_t send_ops;
  /// requests between wr_start and wr_complete
  std::mutex building;
  std::vector<ibv_send_wr> batch;
  std::vector<std::vector<ibv_sge>> batch_sges;
  std::vector<std::vector<uint8_t>> batch_inline;
  int batch_error;
  ibv_qp* basic() { return &base.qp_base; }
};

struct Ah {
  ibv_ah base;
  AddressVector av;
};

inline Context* of(ibv_context* context) {
  return reinterpret_cast<Context*>(verbs_get_ctx(context));
}
inline Pd* of(ibv_pd* pd) {
  return reinterpret_cast<Pd*>(pd);
}
inline Cq* of(ibv_cq* cq) {
  return reinterpret_cast<Cq*>(cq);
}
inline Cq* of(ibv_cq_ex* cq) {
  return reinterpret_cast<Cq*>(cq);
}
inline Qp* of(ibv_qp* qp) {
  return reinterpret_cast<Qp*>(qp);
}
inline Qp* of(ibv_qp_ex* qp) {
  return reinterpret_cast<Qp*>(qp);
}
inline Srq* of(ibv_srq* srq) {
  return reinterpret_cast<Srq*>(srq);
}
inline Mr* of(ibv_mr* mr) {
  return reinterpret_cast<Mr*>(mr);
}
inline Mw* of(ibv_mw* mw) {
  return reinterpret_cast<Mw*>(mw);
}
inline Ah* of(ibv_ah* ah) {
  return reinterpret_cast<Ah*>(ah);
}
inline Channel* of(ibv_comp_channel* channel) {
  return reinterpret_cast<Channel*>(channel);
}

inline Fabric& fabric() {
  return Process::instance().fabric();
}

/// After DEVICE_FATAL nothing can be created or changed on the device, only destroyed.
inline bool is_dead(const Context& context) {
  uint32_t index = fabric().node() * kMaxDevices + context.device;
  return fabric().header().devices_table[index].fatal.load() != 0;
}

/// Protection domain a parent domain stands for.
inline Pd* real_pd(ibv_pd* pd) {
  Pd* p = of(pd);
  return p->parent != nullptr ? p->parent : p;
}

/// Address handle attributes -> what the engine uses. On Ethernet the GID tells the port, by whose LID the
/// fabric knows it.
AddressVector address_of(ibv_context* context, const ibv_ah_attr& attr);

/// The port exists, the GID index too, and an address on Ethernet names a GID.
bool is_address(const ibv_ah_attr& attr);
/// The errno with which the verbs refuse an address: EINVAL when it is none; of RoCE also ENETUNREACH when
/// the two GIDs are not of one kind, and ETIMEDOUT when nobody of the subnet has the destination's. Else 0.
int address_fault(ibv_context* context, const ibv_ah_attr& attr);

/// --- entries of the operation tables, each in the file named after its object ---
int op_poll_cq(ibv_cq* cq, int count, ibv_wc* wc);
int op_req_notify_cq(ibv_cq* cq, int solicited_only);
int op_post_send(ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad);
int op_post_recv(ibv_qp* qp, ibv_recv_wr* list, ibv_recv_wr** bad);
int op_post_srq_recv(ibv_srq* srq, ibv_recv_wr* list, ibv_recv_wr** bad);
ibv_mw* op_alloc_mw(ibv_pd* pd, ibv_mw_type type);
int op_dealloc_mw(ibv_mw* mw);
int op_bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
int op_query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t bytes);
int op_query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                       size_t bytes);
int op_query_rt_values(ibv_context* context, ibv_values_ex* values);
ibv_cq_ex* op_create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);
ibv_qp* op_create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr);
ibv_srq* op_create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr);
ibv_pd* op_alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr);
ibv_td* op_alloc_td(ibv_context* context, ibv_td_init_attr* attr);
int op_dealloc_td(ibv_td* td);
int op_advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* list, uint32_t count);

/// Fills the wr_* functions of an extended queue pair.
void set_qp_ex_functions(Qp& qp, uint64_t send_ops);
/// Turns the address handle of a UD request into what the engine needs.
bool resolve_ud(const ibv_send_wr& request, Destination& destination);

}  // namespace bfo::softhca
