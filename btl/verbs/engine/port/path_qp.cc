// SPDX-License-Identifier: BSD-3-Clause
//
// path_qp.cc: the queue pair over which the administrator of the subnet is asked (path.h), made and destroyed
// by control threads.
#include "btl/verbs/engine/port/path.h"

#include <endian.h>

#include <cerrno>

#include "btl/verbs/engine/base/memory.h"

namespace bfo::engine {
namespace {

constexpr uint32_t kAllSends = (1u << PathRecords::kAtOnce) - 1;
constexpr uint16_t kDefaultPartition = 0xffff;
/// Where the administrator is in its subnet, for a datagram with a global route header.
constexpr uint64_t kAdministratorGuid = 0x0200'0000'0000'0002;

}  // namespace

/// Makes it, or destroys it.
struct PathRecords::QpWork : Command {
  PathRecords* owner = nullptr;
  const VerbsApi* api = nullptr;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  uint8_t port = 1;
  uint16_t pkey_index = 0;  // where the default partition is not in the table
  int pkeys = 0;
  ibv_ah_attr to{};
  AdministratorQp qp;
  bool makes = false;
  int error = 0;
};

namespace {

/// False when the device refused something.
bool destroy(const VerbsApi& api, AdministratorQp* qp) {
  bool clean = true;
  if (qp->qp != nullptr) clean = api.destroy_qp(qp->qp) == 0;
  if (qp->ah != nullptr) clean = api.destroy_ah(qp->ah) == 0 && clean;
  if (qp->cq != nullptr) clean = api.destroy_cq(qp->cq) == 0 && clean;
  *qp = AdministratorQp{};
  return clean;
}

/// To RTS. 0 or errno.
int make_ready(const VerbsApi& api, ibv_qp* qp, uint8_t port, uint16_t pkey_index) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = pkey_index;
  attr.port_num = port;
  attr.qkey = kGsiQkey;
  int rc = api.modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  if (rc != 0) return rc;
  attr = ibv_qp_attr{};
  attr.qp_state = IBV_QPS_RTR;
  rc = api.modify_qp(qp, &attr, IBV_QP_STATE);
  if (rc != 0) return rc;
  attr = ibv_qp_attr{};
  attr.qp_state = IBV_QPS_RTS;
  return api.modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

}  // namespace

void PathRecords::run_work(Command& command) {
  auto& work = static_cast<QpWork&>(command);
  const VerbsApi& api = *work.api;
  if (!work.makes) {
    work.error = destroy(api, &work.qp) ? 0 : EIO;
    return;
  }
  errno = 0;
  work.qp.cq = api.create_cq(work.context, kAtOnce + kReceives);
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_UD;
  init.send_cq = init.recv_cq = work.qp.cq;
  init.sq_sig_all = 1;
  init.cap.max_send_wr = kAtOnce;
  init.cap.max_recv_wr = kReceives;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  if (work.qp.cq != nullptr) work.qp.qp = api.create_qp(work.pd, &init);
  if (work.qp.qp != nullptr) work.qp.ah = api.create_ah(work.pd, &work.to);
  int rc = work.qp.ah != nullptr ? 0 : errno != 0 ? errno : EIO;
  if (rc == 0) {
    // The administrator need not be a member of the partition that messages go in.
    const int index = index_of_pkey(api, work.context, work.port, work.pkeys, kDefaultPartition);
    rc = make_ready(api, work.qp.qp, work.port, index >= 0 ? static_cast<uint16_t>(index) : work.pkey_index);
  }
  work.error = rc;
  if (rc != 0) destroy(api, &work.qp);
}

void PathRecords::end_work(Command& command) {
  auto& work = static_cast<QpWork&>(command);
  PathRecords& self = *work.owner;
  const bool made = work.makes && !work.dropped && work.error == 0;
  const int error = work.error;
  self.qp_ = work.qp;
  const bool failed = work.makes && !work.dropped && error != 0;
  unmake(&work);
  self.stage_ = made ? Stage::kReady : Stage::kNone;
  if (self.port_->finalizing()) return;
  self.port_->need_service();
  if (self.outdated_) return self.end();
  if (failed) {
    PathTrouble trouble;
    trouble.why = PathTrouble::Why::kQueuePair;
    trouble.code = error;
    trouble.manager = self.manager_;
    return self.give_up(trouble, self.port_->env().now_ns());
  }
  if (!made) return;
  self.free_sends_ = kAllSends;
  for (uint32_t i = 0; i < kReceives; ++i) static_cast<void>(self.post_receive(i));
}

void PathRecords::submit(QpWork& work) {
  work.owner = this;
  work.api = &port_->api();
  work.run = run_work;
  work.done = end_work;
  work.droppable = work.makes;
  stage_ = work.makes ? Stage::kMaking : Stage::kEnding;
  port_->upkeep().submit(work, Urgency::kNormal);
}

void PathRecords::begin(uint64_t now) {
  const ibv_port_attr& attr = port_->attr();
  PathTrouble trouble;
  trouble.manager = manager_ = attr.sm_lid;
  made_by_ns_ = now + kMakingNs;
  if (attr.sm_lid == 0) {
    trouble.why = PathTrouble::Why::kNoManager;
    return give_up(trouble, now);
  }
  QpWork* const work = make<QpWork>();
  if (work == nullptr) {
    trouble.why = PathTrouble::Why::kQueuePair;
    trouble.code = ENOMEM;
    return give_up(trouble, now);
  }
  QpSettings settings = port_->settings();
  settings.service_level = attr.sm_sl;
  PortAddress administrator = port_->address();
  administrator.lid = attr.sm_lid;
  administrator.gid.global.interface_id = htobe64(kAdministratorGuid);
  work->to = address_vector(settings, port_->address(), administrator);
  work->context = port_->device().context();
  work->pd = port_->device().pd();
  work->port = settings.port;
  work->pkey_index = settings.pkey_index;
  work->pkeys = attr.pkey_tbl_len;
  work->makes = true;
  outdated_ = false;
  submit(*work);
}

/// What there is of the queue pair goes. The next one has the same buffers, so it begins afterwards.
void PathRecords::end() {
  if (stage_ == Stage::kMaking) {
    outdated_ = true;
    return;
  }
  outdated_ = false;
  if (stage_ != Stage::kReady) return;
  QpWork* const work = make<QpWork>();
  if (work == nullptr) return;  // it goes on serving
  work->qp = qp_;
  qp_ = AdministratorQp{};
  free_sends_ = 0;
  submit(*work);
}

bool PathRecords::open(OwnPort& port, bool wanted) {
  port_ = &port;
  wanted_ = wanted;
  if (!wanted) return true;
  memory_ = port.device().arena().take(size_t{kReceives} * kBufferBytes + size_t{kAtOnce} * kMadBytes);
  return memory_.address != nullptr;
}

bool PathRecords::close() {
  const bool clean = port_ == nullptr || destroy(port_->api(), &qp_);
  while (newest_ != nullptr) {
    Path* const path = newest_;
    newest_ = path->older;
    unmake(path);
  }
  return clean;
}

}  // namespace bfo::engine
