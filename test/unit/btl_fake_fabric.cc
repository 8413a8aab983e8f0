// SPDX-License-Identifier: BSD-3-Clause
//
// btl_fake_fabric.cc: how work requests are posted, executed and completed in the fake fabric.
#include "test/unit/btl_fake_fabric.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "test/unit/btl_fake_verbs.h"

namespace bfo::test {

FakeFabric*& FakeFabric::current() {
  static FakeFabric* fabric = nullptr;
  return fabric;
}

FakeFabric::~FakeFabric() {
  for (auto& device : devices) {
    ::close(device->event_pipe[0]);
    ::close(device->event_pipe[1]);
  }
  current() = nullptr;
}

FakeDevice& FakeFabric::add_device(const std::string& name, uint8_t ports) {
  auto device = std::make_unique<FakeDevice>();
  device->fake_name = name;
  device->context.device = device.get();
  device->context.ops.poll_cq = poll_cq;
  device->context.ops.post_send = post_send;
  device->context.ops.req_notify_cq = req_notify_cq;
  device->context.ops.post_recv = post_recv;
  device->context.ops.post_srq_recv = post_srq_recv;
  if (pipe2(device->event_pipe, O_NONBLOCK) != 0) abort();
  device->context.async_fd = device->event_pipe[0];
  device->attr.phys_port_cnt = ports;
  device->pkeys = usual_pkeys;
  device->attr.max_cqe = 4096;
  device->attr.max_srq_wr = 4096;
  device->attr.max_qp_rd_atom = 16;
  device->attr.max_qp_init_rd_atom = 16;
  for (uint8_t port = 1; port <= ports; ++port) {
    device->ports[port].state = IBV_PORT_ACTIVE;
    device->ports[port].lid = static_cast<uint16_t>(++next_lid);
    device->ports[port].link_layer = IBV_LINK_LAYER_INFINIBAND;
    device->ports[port].active_mtu = IBV_MTU_4096;
    device->ports[port].max_msg_sz = 1u << 30;
    device->ports[port].sm_lid = kManagerLid;
    device->ports[port].sm_sl = 2;
  }
  devices.push_back(std::move(device));
  return *devices.back();
}

int FakeFabric::call(const char* verb, const ibv_context* context) {
  static const std::set<std::string> kMayBlock = {"query_port", "query_gid", "query_pkey",
                                                  "create_cq",  "reg_mr",    "modify_srq"};
  progress_verbs += in_progress && kMayBlock.count(verb) != 0;
  if (const auto takes = block_ns.find(verb); takes != block_ns.end()) fake_now() += takes->second;
  int error = 0;
  for (Refusal& refusal : refusals) {
    if (refusal.verb != verb) continue;
    if (refusal.device != nullptr && refusal.device != context->device) continue;
    ++refusal.seen;
    if (refusal.seen < refusal.first || refusal.seen > refusal.last) continue;
    ++refusal.refused;
    error = refusal.error;
  }
  if (error != 0) errno = error;
  return error;
}

FakeQp* FakeFabric::find(uint32_t qpn) {
  for (auto& qp : qps) {
    if (qp->qp_num == qpn) return qp.get();
  }
  return nullptr;
}

bool FakeFabric::fail(uint32_t qpn, ibv_wc_status status) {
  FakeQp* qp = find(qpn);
  if (qp == nullptr || qp->sq.empty()) return false;
  complete(*qp, qp->sq.front(), status);
  qp->sq.pop_front();
  to_error(*qp);
  return true;
}

void FakeFabric::raise(FakeDevice& device, ibv_event_type type, int port, ibv_qp* qp) {
  ibv_async_event event{};
  event.event_type = type;
  if (qp != nullptr) {
    event.element.qp = qp;
  } else {
    event.element.port_num = port;
  }
  device.events.push_back(event);
  ++device.unread;
  if (write(device.event_pipe[1], "e", 1) != 1) abort();
}

void FakeFabric::run() {
  bool progress = true;
  while (progress) {
    progress = false;
    for (size_t i = 0; i < qps.size(); ++i) progress = run_one(*qps[i]) || progress;
  }
}

void FakeFabric::deliver_raw(FakeQp& qp, const void* data, size_t length, uint32_t source_qpn) {
  if (qp.rq.empty()) return;
  auto [wr_id, sge] = qp.rq.front();
  qp.rq.pop_front();
  memcpy(reinterpret_cast<char*>(sge.addr) + 40, data, length);
  ibv_wc wc{};
  wc.wr_id = wr_id;
  wc.qp_num = qp.qp_num;
  wc.src_qp = source_qpn;
  wc.byte_len = static_cast<uint32_t>(length + 40);
  push(qp.init.recv_cq, wc);
}

void FakeFabric::push(ibv_cq* cq, const ibv_wc& wc) {
  auto* fake = static_cast<FakeCq*>(cq);
  fake->entries.push_back(wc);
  if (fake->entries.size() > static_cast<size_t>(fake->cqe)) overrun = true;
  if (fake->events == nullptr || !fake->armed) return;
  fake->armed = false;
  if (write(fake->events->ends[1], "!", 1) != 1) abort();
}

void FakeFabric::complete(FakeQp& qp, const FakeWork& work, ibv_wc_status status) {
  if (status == IBV_WC_SUCCESS && (work.wr.send_flags & IBV_SEND_SIGNALED) == 0 && !qp.init.sq_sig_all)
    return;
  ibv_wc wc{};
  wc.wr_id = work.wr.wr_id;
  wc.status = status;
  wc.qp_num = qp.qp_num;
  push(qp.init.send_cq, wc);
}

void FakeFabric::to_error(FakeQp& qp) {
  qp.attr.qp_state = IBV_QPS_ERR;
  while (!qp.sq.empty()) {
    complete(qp, qp.sq.front(), IBV_WC_WR_FLUSH_ERR);
    qp.sq.pop_front();
  }
  while (qp.qp_type == IBV_QPT_UD && !qp.rq.empty()) {
    ibv_wc wc{};
    wc.wr_id = qp.rq.front().first;
    wc.status = IBV_WC_WR_FLUSH_ERR;
    wc.qp_num = qp.qp_num;
    qp.rq.pop_front();
    push(qp.init.recv_cq, wc);
  }
  if (qp.init.srq != nullptr && raise_last_receive && !qp.last_receive_raised) {
    qp.last_receive_raised = true;
    raise(*static_cast<FakeDevice*>(qp.context->device), IBV_EVENT_QP_LAST_WQE_REACHED, 0, &qp);
  }
}

bool FakeFabric::run_one(FakeQp& qp) {
  if (qp.qp_type != IBV_QPT_RC || qp.sq.empty() || hold || held.count(qp.qp_num) != 0) return false;
  if (qp.attr.qp_state != IBV_QPS_RTS) return false;
  FakeWork work = qp.sq.front();
  const auto fault = faults.find(qp.qp_num);
  const bool failing = fault != faults.end();
  Fault what = failing ? fault->second : Fault{IBV_WC_SUCCESS, true};
  const bool refused = check_keys && !may_access(work);
  if (refused) what = Fault{IBV_WC_REM_ACCESS_ERR, false};
  if (what.delivered && !execute(qp, work)) return false;
  qp.sq.pop_front();
  complete(qp, work, what.status);
  if (failing) faults.erase(fault);
  if (failing || refused) to_error(qp);
  return true;
}

bool FakeFabric::may_access(const FakeWork& work) const {
  if (work.wr.opcode != IBV_WR_RDMA_WRITE && work.wr.opcode != IBV_WR_RDMA_READ) return true;
  if (work.wr.num_sge == 0) return true;
  const auto found = mrs.find(work.wr.wr.rdma.rkey);
  if (found == mrs.end()) return false;
  const auto start = reinterpret_cast<uint64_t>(found->second->addr);
  const uint64_t at = work.wr.wr.rdma.remote_addr;
  return at >= start && at - start <= found->second->length &&
         work.sge.length <= found->second->length - (at - start);
}

bool FakeFabric::port_up(const FakeQp& qp) const {
  const auto* device = static_cast<const FakeDevice*>(qp.context->device);
  return device->ports[qp.attr.port_num].state == IBV_PORT_ACTIVE;
}

/// A responder takes packets of a connection only from the LID that it answers to.
bool FakeFabric::path_leads(const FakeQp& qp, const FakeQp& peer) const {
  const auto* device = static_cast<const FakeDevice*>(qp.context->device);
  const ibv_port_attr& port = device->ports[qp.attr.port_num];
  if (port.link_layer == IBV_LINK_LAYER_ETHERNET) return true;
  const ibv_ah_attr& way = qp.attr.ah_attr;
  return dead_lids.count(way.dlid) == 0 && (way.src_path_bits >> port.lmc) == 0 &&
         (port.lmc == 0 || peer.attr.ah_attr.dlid == port.lid + way.src_path_bits);
}

bool FakeFabric::execute(FakeQp& qp, const FakeWork& work) {
  FakeQp* peer = find(qp.attr.dest_qp_num);
  if (peer == nullptr || !port_up(qp) || !port_up(*peer) || !path_leads(qp, *peer)) return false;
  if (peer->attr.qp_state != IBV_QPS_RTR && peer->attr.qp_state != IBV_QPS_RTS) return false;
  if (peer->attr.dest_qp_num != qp.qp_num) return false;
  const char* local =
      work.inlined.empty() ? reinterpret_cast<const char*>(work.sge.addr) : work.inlined.data();
  switch (work.wr.opcode) {
    case IBV_WR_RDMA_WRITE:
      if (work.wr.num_sge != 0)
        memcpy(reinterpret_cast<void*>(work.wr.wr.rdma.remote_addr), local, work.sge.length);
      return true;
    case IBV_WR_RDMA_READ:
      memcpy(reinterpret_cast<void*>(work.sge.addr),
             reinterpret_cast<const void*>(work.wr.wr.rdma.remote_addr), work.sge.length);
      return true;
    default:
      return receive(*peer, work, local);
  }
}

bool FakeFabric::receive(FakeQp& peer, const FakeWork& work, const char* local) {
  auto* srq = static_cast<FakeSrq*>(peer.init.srq);
  if (srq == nullptr || srq->wrs.empty()) return false;  // receiver not ready: for ever
  const ibv_recv_wr wr = srq->wrs.front();
  const ibv_sge sge = srq->sges.front();
  srq->wrs.pop_front();
  srq->sges.pop_front();
  if (srq->wrs.size() < srq->limit) {
    srq->limit = 0;
    raise(*static_cast<FakeDevice*>(srq->context->device), IBV_EVENT_SRQ_LIMIT_REACHED);
  }
  if (mrs.count(sge.lkey) == 0) {
    stray = true;
    return false;
  }
  memcpy(reinterpret_cast<void*>(sge.addr), local, work.sge.length);
  ibv_wc wc{};
  wc.wr_id = wr.wr_id;
  wc.qp_num = peer.qp_num;
  wc.byte_len = work.sge.length;
  wc.imm_data = work.wr.imm_data;
  wc.wc_flags = work.wr.opcode == IBV_WR_SEND_WITH_IMM ? unsigned{IBV_WC_WITH_IMM} : 0u;
  push(peer.init.recv_cq, wc);
  return true;
}

int FakeFabric::poll_cq(ibv_cq* cq, int count, ibv_wc* wcs) {
  auto* fake = static_cast<FakeCq*>(cq);
  ++fake->polls;
  if (fake->broken) return -1;
  int n = 0;
  for (; n < count && !fake->entries.empty(); ++n) {
    wcs[n] = fake->entries.front();
    fake->entries.pop_front();
  }
  return n;
}

int FakeFabric::req_notify_cq(ibv_cq* cq, int) {
  static_cast<FakeCq*>(cq)->armed = true;
  return 0;
}

int FakeFabric::post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  auto* fake = static_cast<FakeQp*>(qp);
  FakeFabric& fabric = *current();
  *bad = wr;
  if (qp->qp_type == IBV_QPT_UD) return fabric.post_datagram(*fake, *wr);
  if (fabric.refuse_post != 0) return std::exchange(fabric.refuse_post, 0);
  if (fake->attr.qp_state != IBV_QPS_RTS && fake->attr.qp_state != IBV_QPS_ERR) return EINVAL;
  if (fake->sq.size() >= fake->init.cap.max_send_wr) return ENOMEM;
  FakeWork work;
  work.wr = *wr;
  if (wr->num_sge != 0) work.sge = *wr->sg_list;
  ++fabric.posted;
  if ((wr->send_flags & IBV_SEND_SIGNALED) != 0) ++fabric.signaled;
  if ((wr->send_flags & IBV_SEND_INLINE) != 0) {
    ++fabric.inlined;
    const char* from = reinterpret_cast<const char*>(work.sge.addr);
    work.inlined.assign(from, from + work.sge.length);
  }
  if (fake->attr.qp_state == IBV_QPS_ERR) {
    if (!fabric.lose_marker) fabric.complete(*fake, work, IBV_WC_WR_FLUSH_ERR);
    return 0;
  }
  fake->sq.push_back(work);
  fabric.run();
  return 0;
}

uint16_t FakeFabric::partition_of(const FakeQp& qp) const {
  const auto& pkeys = static_cast<const FakeDevice*>(qp.context->device)->pkeys;
  return qp.attr.pkey_index < pkeys.size() ? pkeys[qp.attr.pkey_index] : 0;
}

int FakeFabric::post_datagram(FakeQp& qp, const ibv_send_wr& wr) {
  FakeWork work;
  work.wr = wr;
  complete(qp, work, IBV_WC_SUCCESS);
  const auto* data = reinterpret_cast<const char*>(wr.sg_list->addr);
  packets.emplace_back(data, wr.sg_list->length);
  if (drop_datagrams > 0) {
    --drop_datagrams;
    return 0;
  }
  if (wr.wr.ud.remote_qpn == 1) {
    if (port_up(qp)) ask_administrator(qp, packets.back());
    return 0;
  }
  if (deaf.count(qp.qp_num) != 0 || deaf.count(wr.wr.ud.remote_qpn) != 0) return 0;
  FakeQp* peer = find(wr.wr.ud.remote_qpn);
  if (peer == nullptr || !port_up(qp) || !port_up(*peer)) return 0;
  if (lost_handles.count(wr.wr.ud.ah) != 0 || dead_lids.count(handle_lids[wr.wr.ud.ah]) != 0) return 0;
  if (peer->attr.qkey != wr.wr.ud.remote_qkey) {
    ++wrong_qkeys;
    return 0;
  }
  if (partition_of(qp) != partition_of(*peer)) {
    ++wrong_pkeys;
    return 0;
  }
  deliver_raw(*peer, data, wr.sg_list->length);
  if (duplicate_datagrams) deliver_raw(*peer, data, wr.sg_list->length);
  return 0;
}

/// Offsets are those of a MAD of subnet administration, and of the PathRecord in it.
void FakeFabric::ask_administrator(FakeQp& qp, const std::string& request) {
  constexpr uint32_t kQkey = 0x80010000;
  if (qp.attr.qkey != kQkey) {
    ++wrong_qkeys;
    return;
  }
  administrator.requests.push_back(request);
  if (administrator.silent > 0) {
    --administrator.silent;
    return;
  }
  std::string mad = request;
  const auto byte = [&mad](size_t at) { return static_cast<uint8_t>(mad[at]); };
  const int path = (byte(98) << 8 | byte(99)) << 16 | byte(96) << 8 | byte(97);
  const auto level = administrator.level.find(path);
  mad[3] = '\x81';
  mad[4] = static_cast<char>(administrator.status >> 8);
  mad[5] = static_cast<char>(administrator.status);
  mad[109] = level == administrator.level.end() ? '\0' : static_cast<char>(level->second);
  uint32_t source_qpn = 1;
  if (administrator.spoil) administrator.spoil(mad, source_qpn);
  deliver_raw(qp, mad.data(), mad.size(), source_qpn);
}

int FakeFabric::post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr**) {
  static_cast<FakeQp*>(qp)->rq.emplace_back(wr->wr_id, *wr->sg_list);
  return 0;
}

int FakeFabric::post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr**) {
  auto* fake = static_cast<FakeSrq*>(srq);
  ++current()->receive_posts;
  for (; wr != nullptr; wr = wr->next) {
    fake->wrs.push_back(*wr);
    fake->sges.push_back(*wr->sg_list);
  }
  current()->run();
  return 0;
}

}  // namespace bfo::test
