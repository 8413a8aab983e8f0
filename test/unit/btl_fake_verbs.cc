// SPDX-License-Identifier: BSD-3-Clause
//
// btl_fake_verbs.cc: the verbs that make, change and destroy the objects of the fake fabric.
#include "test/unit/btl_fake_verbs.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace bfo::test {
namespace {

FakeFabric& fabric() {
  return *FakeFabric::current();
}
FakeDevice& device_of(ibv_context* context) {
  return *static_cast<FakeDevice*>(context->device);
}

/// Counts a control verb that may block, and lets it take its time.
void control_verb(uint64_t takes_ns = 0) {
  fabric().progress_verbs += fabric().in_progress;
  fake_now() += takes_ns;
}

// ---- devices

const char* get_device_name(ibv_device* device) {
  return static_cast<FakeDevice*>(device)->fake_name.c_str();
}
ibv_context* open_device(ibv_device* device) {
  ibv_context* context = &static_cast<FakeDevice*>(device)->context;
  return fabric().call("open_device", context) != 0 ? nullptr : context;
}
int close_device(ibv_context*) {
  return 0;
}
int query_device(ibv_context* context, ibv_device_attr* attr) {
  if (const int rc = fabric().call("query_device", context); rc != 0) return rc;
  *attr = device_of(context).attr;
  return 0;
}
int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr) {
  if (const int rc = fabric().call("query_port", context); rc != 0) return rc;
  *attr = device_of(context).ports[port];
  attr->pkey_tbl_len = static_cast<uint16_t>(device_of(context).pkeys.size());
  return 0;
}
int query_port_speed(ibv_context* context, uint32_t, uint64_t* speed) {
  if (const int rc = fabric().call("query_port_speed", context); rc != 0) return rc;
  *speed = device_of(context).port_speed;
  return *speed == 0 ? EOPNOTSUPP : 0;
}
uint32_t active_speed_ex(ibv_context* context, uint8_t) {
  return device_of(context).active_speed_ex;
}
int query_gid(ibv_context* context, uint8_t, int, ibv_gid* gid) {
  if (fabric().call("query_gid", context) != 0) return -1;
  *gid = ibv_gid{};
  gid->raw[0] = 0xfe;
  return 0;
}
int query_pkey(ibv_context* context, uint8_t, int index, uint16_t* pkey) {
  const FakeDevice& device = device_of(context);
  if (fabric().call("query_pkey", context) != 0 || index >= static_cast<int>(device.pkeys.size())) return -1;
  *pkey = htons(device.pkeys[static_cast<size_t>(index)]);
  return 0;
}
int get_async_event(ibv_context* context, ibv_async_event* event) {
  FakeDevice& device = device_of(context);
  char byte;
  if (device.unread == 0) return -1;
  if (read(device.event_pipe[0], &byte, 1) != 1 || device.events.empty()) return -1;
  *event = device.events.front();
  device.events.pop_front();
  --device.unread;
  return 0;
}
void ack_async_event(ibv_async_event*) {}

// ---- memory and addresses

ibv_pd* alloc_pd(ibv_context* context) {
  if (fabric().call("alloc_pd", context) != 0) return nullptr;
  auto* pd = new ibv_pd{};
  pd->context = context;
  return pd;
}
int dealloc_pd(ibv_pd* pd) {
  delete pd;
  return 0;
}
ibv_mr* reg_mr(ibv_pd* pd, void* address, size_t length, int access) {
  if (fabric().call("reg_mr", pd->context) != 0) return nullptr;
  auto* mr = new ibv_mr{};
  mr->pd = pd;
  mr->addr = address;
  mr->length = length;
  mr->lkey = mr->rkey = ++fabric().last_key;
  fabric().mrs[mr->rkey] = mr;
  fabric().accesses[mr->rkey] = access;
  return mr;
}
int dereg_mr(ibv_mr* mr) {
  if (const int rc = fabric().call("dereg_mr", mr->pd->context); rc != 0) return rc;
  fabric().mrs.erase(mr->rkey);
  delete mr;
  return 0;
}
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  control_verb(fabric().block_ah_ns);
  ++fabric().ah_calls;
  fabric().last_ah = *attr;
  fabric().ahs.push_back(*attr);
  if (fabric().call("create_ah", pd->context) != 0) return nullptr;
  if (fabric().refuse_ah != 0) {
    errno = fabric().refuse_ah;
    return nullptr;
  }
  auto* ah = new ibv_ah{};
  fabric().handles.insert(ah);
  fabric().handle_lids[ah] = attr->dlid;
  return ah;
}
int destroy_ah(ibv_ah* ah) {
  fabric().handles.erase(ah);
  fabric().lost_handles.erase(ah);
  fabric().handle_lids.erase(ah);
  delete ah;
  return 0;
}

// ---- completion queues

ibv_cq* create_cq(ibv_context* context, int entries) {
  if (fabric().call("create_cq", context) != 0) return nullptr;
  auto cq = std::make_unique<FakeCq>();
  cq->context = context;
  cq->cqe = entries;
  fabric().cqs.push_back(std::move(cq));
  return fabric().cqs.back().get();
}
int destroy_cq(ibv_cq*) {
  return 0;
}
ibv_comp_channel* create_comp_channel(ibv_context* context) {
  if (fabric().refuse_channels) {
    errno = EMFILE;
    return nullptr;
  }
  auto* channel = new FakeChannel;
  if (pipe2(channel->ends, 0) != 0) abort();
  channel->context = context;
  channel->fd = channel->ends[0];
  return channel;
}
int destroy_comp_channel(ibv_comp_channel* channel) {
  auto* fake = static_cast<FakeChannel*>(channel);
  ::close(fake->ends[0]);
  ::close(fake->ends[1]);
  delete fake;
  return 0;
}
ibv_cq* create_event_cq(ibv_context* context, int entries, ibv_comp_channel* channel) {
  ibv_cq* cq = create_cq(context, entries);
  if (cq == nullptr) return nullptr;
  static_cast<FakeCq*>(cq)->events = static_cast<FakeChannel*>(channel);
  return cq;
}
bool get_cq_event(ibv_comp_channel* channel) {
  char byte;
  return read(channel->fd, &byte, 1) == 1;
}
void ack_cq_events(ibv_cq*, unsigned) {}

// ---- receive queues and queue pairs

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr*) {
  if (fabric().call("create_srq", pd->context) != 0) return nullptr;
  auto srq = std::make_unique<FakeSrq>();
  srq->context = pd->context;
  fabric().srqs.push_back(std::move(srq));
  return fabric().srqs.back().get();
}
int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int) {
  if (const int rc = fabric().call("modify_srq", srq->context); rc != 0) return rc;
  static_cast<FakeSrq*>(srq)->limit = attr->srq_limit;
  return 0;
}
int destroy_srq(ibv_srq*) {
  return 0;
}
ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  FakeFabric& f = fabric();
  if (init->qp_type == IBV_QPT_RC) control_verb();
  if (f.call("create_qp", pd->context) != 0) return nullptr;
  if (f.refuse_create != 0 || init->cap.max_inline_data > f.max_inline) {
    errno = f.refuse_create != 0 ? f.refuse_create : EINVAL;
    return nullptr;
  }
  auto qp = std::make_unique<FakeQp>();
  qp->context = pd->context;
  qp->qp_num = ++f.last_qpn;
  qp->qp_type = init->qp_type;
  qp->init = *init;
  f.qps.push_back(std::move(qp));
  return f.qps.back().get();
}
int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  FakeFabric& f = fabric();
  const bool connects = qp->qp_type == IBV_QPT_RC && attr->qp_state == IBV_QPS_RTR;
  control_verb(connects ? f.block_ready_ns : 0);
  if (const int rc = f.call("modify_qp", qp->context); rc != 0) return rc;
  auto& fake = *static_cast<FakeQp*>(qp);
  f.modifications.emplace_back(qp->qp_num, *attr);
  if (attr->qp_state == IBV_QPS_ERR) {
    if (f.refuse_error != 0) return f.refuse_error;
    f.to_error(fake);
    return 0;
  }
  if (attr->qp_state == IBV_QPS_RTR && (mask & IBV_QP_DEST_QPN) != 0)
    fake.attr.dest_qp_num = attr->dest_qp_num;
  if (attr->qp_state == IBV_QPS_RESET) fake.rq.clear();
  if ((mask & IBV_QP_AV) != 0) fake.attr.ah_attr = attr->ah_attr;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) fake.attr.pkey_index = attr->pkey_index;
  if ((mask & IBV_QP_PORT) != 0) fake.attr.port_num = attr->port_num;
  if ((mask & IBV_QP_QKEY) != 0) fake.attr.qkey = attr->qkey;
  fake.attr.qp_state = attr->qp_state;
  f.run();
  return 0;
}
int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr*) {
  *attr = static_cast<FakeQp*>(qp)->attr;
  return 0;
}
/// Nothing of a queue pair that is gone is reported any more.
int destroy_qp(ibv_qp* qp) {
  FakeFabric& f = fabric();
  if (qp->qp_type == IBV_QPT_RC) control_verb(f.block_destroy_ns);
  if (f.refuse_destroy != 0) return f.refuse_destroy;
  for (auto& cq : f.cqs)
    std::erase_if(cq->entries, [qp](const ibv_wc& wc) { return wc.qp_num == qp->qp_num; });
  for (auto& device : f.devices)
    std::erase_if(device->events, [qp](const ibv_async_event& event) { return event.element.qp == qp; });
  std::erase_if(f.qps, [qp](const auto& each) { return each.get() == qp; });
  return 0;
}

uint64_t fake_random() {
  static uint64_t x = 88172645463325252ull;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x;
}

bool fake_secret(uint64_t* bits) {
  if (fabric().refuse_secrets != 0) {
    errno = fabric().refuse_secrets;
    return false;
  }
  *bits = fake_random();
  return true;
}

}  // namespace

const engine::VerbsApi& fake_verbs() {
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
  };
  return api;
}

uint64_t& fake_now() {
  static uint64_t now = 1'000'000'000;
  return now;
}

uint64_t& fake_starved() {
  static uint64_t starved = 0;
  return starved;
}

const engine::Environment& fake_environment() {
  static const engine::Environment environment = {[] { return fake_now(); }, fake_random, fake_secret,
                                                  [] { return fake_starved(); }};
  return environment;
}

}  // namespace bfo::test
