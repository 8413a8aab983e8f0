// SPDX-License-Identifier: BSD-3-Clause
//
// verbs.cc: the verbs of the simulated devices, see device.h.
#include <arpa/inet.h>
#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <vector>

#include "test/stack/device.h"

namespace bfo::stack {
namespace {

Device& device_of(const ibv_context* c) {
  return *static_cast<Device*>(c->device);
}
Fabric& fabric_of(const ibv_context* c) {
  return *device_of(c).fabric;
}
/// 0, or the errno, which is set, too, with which a verb fails because it was ordered to.
int ordered(const char* verb, const ibv_context* c) {
  const int error = fabric_of(c).order(verb, c);
  if (error != 0) errno = error;
  return error;
}
/// False with errno: the verb that makes something fails now.
bool may(const char* verb, const ibv_context* c) {
  if (ordered(verb, c) != 0) return false;
  errno = fabric_of(c).refused(c);
  if (errno != 0) return false;
  fabric_of(c).slow_verb(c);
  return true;
}
/// Event channels are polled by no system call here, but the engine sets their flags.
int any_descriptor() {
  static const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  return fd;
}

const char* get_device_name(ibv_device* d) {
  return static_cast<Device*>(d)->device_name.c_str();
}
ibv_context* open_device(ibv_device* d) {
  ibv_context* const c = &static_cast<Device*>(d)->context;
  return ordered("open_device", c) != 0 ? nullptr : c;
}
int close_device(ibv_context*) {
  return 0;
}
int query_device(ibv_context* c, ibv_device_attr* a) {
  if (const int error = ordered("query_device", c); error != 0) return error;
  *a = device_of(c).attr;
  return 0;
}
int query_port(ibv_context* c, uint8_t, ibv_port_attr* a) {
  if (const int error = ordered("query_port", c); error != 0) return error;
  const Device& d = device_of(c);
  if (d.dead) return EIO;
  *a = d.port;
  a->pkey_tbl_len = static_cast<uint16_t>(d.pkeys.size());
  return 0;
}
int query_port_speed(ibv_context* c, uint32_t, uint64_t* speed) {
  if (const int error = ordered("query_port_speed", c); error != 0) return error;
  *speed = device_of(c).port_speed;
  return *speed == 0 ? EOPNOTSUPP : 0;
}
uint32_t active_speed_ex(ibv_context* c, uint8_t) {
  return device_of(c).active_speed_ex;
}
int port_received(ibv_context* c, uint8_t, uint64_t* bytes) {
  *bytes = device_of(c).received;
  return *bytes == 0 ? EOPNOTSUPP : 0;
}
int port_losses(ibv_context* c, uint8_t, engine::LossCounters*, engine::LossCounts* counts) {
  *counts = device_of(c).losses;
  return 0;
}
int query_gid(ibv_context* c, uint8_t, int, ibv_gid* gid) {
  if (ordered("query_gid", c) != 0) return -1;
  *gid = ibv_gid{};
  gid->raw[0] = 0xfe;
  return 0;
}
int query_pkey(ibv_context* c, uint8_t, int index, uint16_t* pkey) {
  const std::vector<uint16_t>& table = device_of(c).pkeys;
  if (ordered("query_pkey", c) != 0 || index < 0 || static_cast<size_t>(index) >= table.size()) return -1;
  *pkey = htons(table[static_cast<size_t>(index)]);
  return 0;
}
int get_async_event(ibv_context* c, ibv_async_event* e) {
  Device& d = device_of(c);
  if (d.events.empty()) return -1;
  *e = d.events.front();
  d.events.pop_front();
  return 0;
}
void ack_async_event(ibv_async_event*) {}

/// Pages of ports that are closed: those of the next run. To map them anew would take most of a short run.
std::map<size_t, std::vector<void*>>& pages_left() {
  static std::map<size_t, std::vector<void*>> left;
  return left;
}
void* map_pages(size_t bytes) {
  std::vector<void*>& left = pages_left()[bytes];
  if (left.empty()) return engine::map_pages(bytes);
  void* const pages = left.back();
  left.pop_back();
  return pages;
}
void unmap_pages(void* pages, size_t bytes, size_t used) {
  std::memset(pages, 0, used);
  pages_left()[bytes].push_back(pages);
}

ibv_pd* alloc_pd(ibv_context* c) {
  if (ordered("alloc_pd", c) != 0) return nullptr;
  auto* pd = new ibv_pd{};
  pd->context = c;
  return pd;
}
int dealloc_pd(ibv_pd* pd) {
  delete pd;
  return 0;
}
ibv_mr* reg_mr(ibv_pd* pd, void* address, size_t length, int) {
  if (!may("reg_mr", pd->context)) return nullptr;
  Fabric& f = fabric_of(pd->context);
  auto mr = std::make_unique<ibv_mr>();
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = address;
  mr->length = length;
  mr->lkey = mr->rkey = Fabric::kFirstKey + static_cast<uint32_t>(f.mrs.size());
  f.mrs.push_back(std::move(mr));
  ++f.keys_live;
  return f.mrs.back().get();
}
int dereg_mr(ibv_mr* mr) {
  if (const int error = ordered("dereg_mr", mr->context); error != 0) return error;
  Fabric& f = fabric_of(mr->context);
  --f.keys_live;
  f.mrs[mr->rkey - Fabric::kFirstKey].reset();
  return 0;
}
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  if (!may("create_ah", pd->context)) return nullptr;
  Fabric& f = fabric_of(pd->context);
  if (f.dice.chance(f.traits.ah_fails)) {
    errno = ETIMEDOUT;
    return nullptr;
  }
  auto* ah = new Ah;
  ah->context = pd->context;
  ah->attr = *attr;
  ++f.handles_live;
  return ah;
}
int destroy_ah(ibv_ah* ah) {
  --fabric_of(ah->context).handles_live;
  delete static_cast<Ah*>(ah);
  return 0;
}

ibv_cq* create_cq(ibv_context* c, int entries) {
  if (!may("create_cq", c)) return nullptr;
  Fabric& f = fabric_of(c);
  auto cq = std::make_unique<Cq>();
  cq->context = c;
  cq->cqe = entries;
  cq->number = ++f.cqs_made;
  f.cqs.push_back(std::move(cq));
  return f.cqs.back().get();
}
int destroy_cq(ibv_cq* cq) {
  Fabric& f = fabric_of(cq->context);
  std::erase_if(f.cqs, [cq](const auto& each) { return each.get() == cq; });
  return 0;
}
ibv_comp_channel* create_comp_channel(ibv_context* c) {
  if (ordered("create_comp_channel", c) != 0) return nullptr;
  auto* channel = new Channel;
  channel->context = c;
  channel->fd = any_descriptor();
  return channel;
}
int destroy_comp_channel(ibv_comp_channel* channel) {
  delete static_cast<Channel*>(channel);
  return 0;
}
ibv_cq* create_event_cq(ibv_context* c, int entries, ibv_comp_channel* channel) {
  ibv_cq* const cq = create_cq(c, entries);
  if (cq == nullptr) return nullptr;
  static_cast<Cq*>(cq)->channel = static_cast<Channel*>(channel);
  return cq;
}
bool get_cq_event(ibv_comp_channel* channel) {
  auto& c = *static_cast<Channel*>(channel);
  if (c.events == 0) return false;
  --c.events;
  return true;
}
void ack_cq_events(ibv_cq*, unsigned) {}

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr*) {
  if (!may("create_srq", pd->context)) return nullptr;
  Fabric& f = fabric_of(pd->context);
  auto srq = std::make_unique<Srq>();
  srq->context = pd->context;
  f.srqs.push_back(std::move(srq));
  return f.srqs.back().get();
}
int modify_srq(ibv_srq* srq, ibv_srq_attr* a, int) {
  if (const int error = ordered("modify_srq", srq->context); error != 0) return error;
  static_cast<Srq*>(srq)->limit = a->srq_limit;
  return 0;
}
int destroy_srq(ibv_srq* srq) {
  Fabric& f = fabric_of(srq->context);
  std::erase_if(f.srqs, [srq](const auto& each) { return each.get() == srq; });
  return 0;
}

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  if (!may("create_qp", pd->context)) return nullptr;
  Fabric& f = fabric_of(pd->context);
  auto qp = std::make_unique<Qp>();
  qp->context = pd->context;
  qp->qp_num = Fabric::kFirstQp + static_cast<uint32_t>(f.qps.size());
  qp->qp_type = init->qp_type;
  qp->init = *init;
  qp->send_cq = init->send_cq;
  f.qps.push_back(std::move(qp));
  return f.qps.back().get();
}
int modify_qp(ibv_qp* qp, ibv_qp_attr* a, int mask) {
  auto& q = *static_cast<Qp*>(qp);
  Fabric& f = fabric_of(qp->context);
  if (a->qp_state == IBV_QPS_ERR) {
    if (const int error = ordered("modify_qp", qp->context); error != 0) return error;
    f.called(qp->context);
    if (q.device()->dead) return EIO;
    f.to_error(q);
    return 0;
  }
  if (!may("modify_qp", qp->context)) return errno;
  if (a->qp_state == IBV_QPS_RESET) q.rq.clear();
  if ((mask & IBV_QP_DEST_QPN) != 0) q.attr.dest_qp_num = a->dest_qp_num;
  if ((mask & IBV_QP_AV) != 0) q.attr.ah_attr = a->ah_attr;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) q.attr.pkey_index = a->pkey_index;
  if ((mask & IBV_QP_QKEY) != 0) q.attr.qkey = a->qkey;
  if ((mask & IBV_QP_TIMEOUT) != 0) q.attr.timeout = a->timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) q.attr.retry_cnt = a->retry_cnt;
  q.attr.qp_state = a->qp_state;
  return 0;
}
int query_qp(ibv_qp* qp, ibv_qp_attr* a, int, ibv_qp_init_attr*) {
  *a = static_cast<Qp*>(qp)->attr;
  return 0;
}
int destroy_qp(ibv_qp* qp) {
  if (const int error = ordered("destroy_qp", qp->context); error != 0) return error;
  const Fabric& f = fabric_of(qp->context);
  if (f.traits.fence_fails && f.running && device_of(qp->context).dead) return EIO;
  fabric_of(qp->context).destroy(*static_cast<Qp*>(qp));
  return 0;
}

// ---- the data path

int poll_cq(ibv_cq* cq, int count, ibv_wc* wcs) {
  auto& c = *static_cast<Cq*>(cq);
  if (device_of(cq->context).dies_at_call != 0) fabric_of(cq->context).called(cq->context);
  ++c.polls;
  if (c.broken) return -1;
  if (c.entries.empty()) return 0;  // nine of ten
  int n = 0;
  for (; n < count && !c.entries.empty(); ++n) {
    wcs[n] = c.entries.front();
    c.entries.pop_front();
  }
  return n;
}
int req_notify_cq(ibv_cq* cq, int) {
  static_cast<Cq*>(cq)->armed = true;
  return 0;
}
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  *bad = wr;
  return fabric_of(qp->context).post_send(*static_cast<Qp*>(qp), *wr);
}
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr**) {
  fabric_of(qp->context).called(qp->context);
  static_cast<Qp*>(qp)->rq.emplace_back(wr->wr_id, *wr->sg_list);
  return 0;
}
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr**) {
  for (; wr != nullptr; wr = wr->next) static_cast<Srq*>(srq)->buffers.emplace_back(wr->wr_id, *wr->sg_list);
  return 0;
}

}  // namespace

void set_data_path(ibv_context& context) {
  context.ops.poll_cq = poll_cq;
  context.ops.req_notify_cq = req_notify_cq;
  context.ops.post_send = post_send;
  context.ops.post_recv = post_recv;
  context.ops.post_srq_recv = post_srq_recv;
}

const engine::VerbsApi& verbs() {
  static const engine::VerbsApi api = {
      .get_device_list = nullptr,
      .free_device_list = nullptr,
      .get_device_name = get_device_name,
      .open_device = open_device,
      .close_device = close_device,
      .query_device = query_device,
      .query_port = query_port,
      .query_port_speed = query_port_speed,
      .active_speed_ex = active_speed_ex,
      .query_gid = query_gid,
      .query_pkey = query_pkey,
      .alloc_pd = alloc_pd,
      .dealloc_pd = dealloc_pd,
      .reg_mr = reg_mr,
      .dereg_mr = dereg_mr,
      .create_cq = create_cq,
      .destroy_cq = destroy_cq,
      .create_comp_channel = create_comp_channel,
      .destroy_comp_channel = destroy_comp_channel,
      .create_event_cq = create_event_cq,
      .get_cq_event = get_cq_event,
      .ack_cq_events = ack_cq_events,
      .create_srq = create_srq,
      .modify_srq = modify_srq,
      .destroy_srq = destroy_srq,
      .create_qp = create_qp,
      .modify_qp = modify_qp,
      .query_qp = query_qp,
      .destroy_qp = destroy_qp,
      .create_ah = create_ah,
      .destroy_ah = destroy_ah,
      .get_async_event = get_async_event,
      .ack_async_event = ack_async_event,
      .map_pages = map_pages,
      .unmap_pages = unmap_pages,
  };
  return api;
}
const engine::VerbsApi& counting_verbs() {
  static const engine::VerbsApi api = [] {
    engine::VerbsApi a = verbs();
    a.port_received = port_received;
    a.port_losses = port_losses;
    return a;
  }();
  return api;
}

}  // namespace bfo::stack
