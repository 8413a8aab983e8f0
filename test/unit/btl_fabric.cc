// SPDX-License-Identifier: BSD-3-Clause
//
// btl_fabric.cc: see btl_fabric.h.
#include "test/unit/btl_fabric.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace bfo::test {

using stack::Device;
using stack::Qp;

// ---- descriptors: one count is one event behind them

namespace {
int new_descriptor() {
  const int fd = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) abort();
  return fd;
}
void take_one(int fd) {
  uint64_t one = 0;
  if (read(fd, &one, sizeof one) != sizeof one) abort();
}
}  // namespace

void Witness::wake_events(uint32_t, int fd) {
  const uint64_t one = 1;
  if (write(fd, &one, sizeof one) != sizeof one) abort();
}

// ---- the fabric

TestFabric*& TestFabric::current() {
  static TestFabric* fabric = nullptr;
  return fabric;
}

TestFabric::TestFabric()
    : Fabric(timeline_, self(), {.latency_ns = 0, .jitter_ns = 0, .no_timers = true}, 1) {
  current() = this;
}
TestFabric::~TestFabric() {
  for (const auto& device : devices) ::close(device->context.async_fd);
  current() = nullptr;
}

Device& TestFabric::add_device(const std::string& name) {
  Device& device = *Fabric::add_device(static_cast<uint32_t>(devices.size()), 0);
  device.device_name = name;
  device.attr.vendor_id = 0;
  device.pkeys = usual_pkeys;
  device.port.sm_lid = kManagerLid;
  device.port.sm_sl = 2;
  device.context.async_fd = new_descriptor();
  device.context.ops.post_send = post;
  device.context.ops.post_srq_recv = post_receives;
  return device;
}

int TestFabric::order(const char* verb, const ibv_context* context) {
  static const std::set<std::string_view> kMayBlock = {"query_port", "query_gid",  "query_pkey", "create_cq",
                                                       "reg_mr",     "modify_srq", "create_ah",  "create_qp",
                                                       "modify_qp",  "destroy_qp"};
  progress_verbs += in_progress && kMayBlock.count(verb) != 0;
  if (const auto takes = block.find(verb); takes != block.end()) test_now() += takes->second;
  const auto always = refuse.find(verb);
  int error = always == refuse.end() ? 0 : always->second;
  for (Refusal& refusal : refusals) {
    if (refusal.verb != verb) continue;
    if (refusal.device != nullptr && refusal.device != context->device) continue;
    ++refusal.seen;
    if (refusal.seen < refusal.first || refusal.seen > refusal.last) continue;
    ++refusal.refused;
    error = refusal.error;
  }
  return error;
}

void TestFabric::fail_next(uint32_t qpn, ibv_wc_status status) {
  stack::PacketFault fault;
  fault.what = stack::PacketFault::What::kErrorNow;
  fault.qpn = qpn;
  fault.status = status;
  expect(fault);
}

void TestFabric::drain() {
  while (!timeline_.empty()) timeline_.step();
}
void TestFabric::run() {
  drain();
  for (size_t i = 0; i < qps.size(); ++i) {
    if (!qps[i] || qps[i]->qp_type != IBV_QPT_RC || qps[i]->sq.empty()) continue;
    send_again(*qps[i]);
    drain();
  }
}

std::vector<Qp*> TestFabric::live() const {
  std::vector<Qp*> all;
  for (const auto& qp : qps)
    if (qp) all.push_back(qp.get());
  return all;
}

/// A responder takes packets of a connection only from the LID that it answers to.
bool TestFabric::may_leave(const Qp& qp, const Qp& peer) const {
  if (hold || held.count(qp.qp_num) != 0) return false;
  const ibv_port_attr& port = qp.device()->port;
  if (port.link_layer == IBV_LINK_LAYER_ETHERNET) return true;
  const ibv_ah_attr& way = qp.attr.ah_attr;
  return dead_lids.count(way.dlid) == 0 && (way.src_path_bits >> port.lmc) == 0 &&
         (port.lmc == 0 || peer.attr.ah_attr.dlid == port.lid + way.src_path_bits);
}

int TestFabric::post(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  TestFabric& f = *current();
  auto& q = *static_cast<Qp*>(qp);
  *bad = wr;
  const bool connection = qp->qp_type == IBV_QPT_RC;
  if (connection && f.refuse_post != 0) return std::exchange(f.refuse_post, 0);
  const bool lost = connection && q.attr.qp_state == IBV_QPS_ERR && f.lose_marker;
  if (const int error = lost ? 0 : f.post_send(q, *wr); error != 0) return error;
  if (connection) {
    ++f.posted;
    f.signaled += (wr->send_flags & IBV_SEND_SIGNALED) != 0;
    f.inlined += (wr->send_flags & IBV_SEND_INLINE) != 0;
    f.run();
  }
  f.drain();
  return 0;
}

int TestFabric::post_receives(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr**) {
  ++current()->receive_posts;
  for (; wr != nullptr; wr = wr->next)
    static_cast<stack::Srq*>(srq)->buffers.emplace_back(wr->wr_id, *wr->sg_list);
  current()->run();
  return 0;
}

// ---- datagrams

int TestFabric::copies(const Qp& qp, const ibv_send_wr& wr) {
  const auto* const bytes = reinterpret_cast<const char*>(wr.sg_list->addr);
  const auto& target = wr.wr.ud;
  datagrams.emplace_back(bytes, wr.sg_list->length);
  if (drop_datagrams > 0) {
    --drop_datagrams;
    return 0;
  }
  if (target.remote_qpn == 1) {
    if (qp.device()->up()) ask_administrator(*find(qp.qp_num), datagrams.back());
    return 0;
  }
  if (deaf.count(qp.qp_num) != 0 || deaf.count(target.remote_qpn) != 0) return 0;
  if (lost_handles.count(target.ah) != 0) return 0;
  if (dead_lids.count(static_cast<const stack::Ah*>(target.ah)->attr.dlid) != 0) return 0;
  const Qp* const peer = find(target.remote_qpn);
  if (peer == nullptr || !qp.device()->up() || !peer->device()->up()) return 0;
  const auto partition = [](const Qp& of) {
    const std::vector<uint16_t>& table = of.device()->pkeys;
    return of.attr.pkey_index < table.size() ? table[of.attr.pkey_index] : 0;
  };
  const bool wrong_qkey = peer->attr.qkey != target.remote_qkey;
  const bool wrong_pkey = !wrong_qkey && partition(qp) != partition(*peer);
  wrong_qkeys += wrong_qkey;
  wrong_pkeys += wrong_pkey;
  if (wrong_qkey || wrong_pkey) return 0;
  return duplicate_datagrams ? 2 : 1;
}

/// Offsets are those of a MAD of subnet administration, and of the PathRecord in it.
void TestFabric::ask_administrator(Qp& qp, const std::string& request) {
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
  receive_datagram(qp, mad.data(), mad.size(), source_qpn);
}

// ---- verbs: those of the devices, with what a test watches

namespace {

TestFabric& fabric() {
  return *TestFabric::current();
}

int get_async_event(ibv_context* context, ibv_async_event* event) {
  if (stack::verbs().get_async_event(context, event) != 0) return -1;
  take_one(context->async_fd);
  return 0;
}
ibv_comp_channel* create_comp_channel(ibv_context* context) {
  ibv_comp_channel* const channel = stack::verbs().create_comp_channel(context);
  if (channel != nullptr) channel->fd = new_descriptor();
  return channel;
}
int destroy_comp_channel(ibv_comp_channel* channel) {
  ::close(channel->fd);
  return stack::verbs().destroy_comp_channel(channel);
}
bool get_cq_event(ibv_comp_channel* channel) {
  if (!stack::verbs().get_cq_event(channel)) return false;
  take_one(channel->fd);
  return true;
}
ibv_mr* reg_mr(ibv_pd* pd, void* address, size_t length, int access) {
  ibv_mr* const mr = stack::verbs().reg_mr(pd, address, length, access);
  if (mr != nullptr) fabric().accesses[mr->rkey] = access;
  return mr;
}
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  ++fabric().ah_calls;
  fabric().ahs.push_back(*attr);
  ibv_ah* const ah = stack::verbs().create_ah(pd, attr);
  if (ah != nullptr) fabric().handles.insert(ah);
  return ah;
}
int destroy_ah(ibv_ah* ah) {
  fabric().handles.erase(ah);
  fabric().lost_handles.erase(ah);
  return stack::verbs().destroy_ah(ah);
}
ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  if (init->cap.max_inline_data > fabric().max_inline) {
    errno = EINVAL;
    return nullptr;
  }
  return stack::verbs().create_qp(pd, init);
}
int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  TestFabric& f = fabric();
  const bool stops = attr->qp_state == IBV_QPS_ERR;
  int error = stops ? f.order("stop_qp", qp->context) : 0;
  if (qp->qp_type == IBV_QPT_RC && attr->qp_state == IBV_QPS_RTR) error = f.order("ready_qp", qp->context);
  if (error == 0) error = stack::verbs().modify_qp(qp, attr, mask);
  if (error != 0) return error;
  f.modifications.emplace_back(qp->qp_num, *attr);
  f.run();
  return 0;
}

uint64_t next_random() {
  static uint64_t x = 88172645463325252ull;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x;
}
bool draw_secret(uint64_t* bits) {
  if (fabric().refuse_secrets != 0) {
    errno = fabric().refuse_secrets;
    return false;
  }
  *bits = next_random();
  return true;
}

}  // namespace

const engine::VerbsApi& test_verbs() {
  static const engine::VerbsApi api = [] {
    engine::VerbsApi verbs = stack::counting_verbs();
    verbs.get_async_event = get_async_event;
    verbs.create_comp_channel = create_comp_channel;
    verbs.destroy_comp_channel = destroy_comp_channel;
    verbs.get_cq_event = get_cq_event;
    verbs.reg_mr = reg_mr;
    verbs.create_ah = create_ah;
    verbs.destroy_ah = destroy_ah;
    verbs.create_qp = create_qp;
    verbs.modify_qp = modify_qp;
    verbs.map_pages = engine::map_pages;
    verbs.unmap_pages = engine::unmap_pages;
    return verbs;
  }();
  return api;
}

uint64_t& test_now() {
  static uint64_t now = 1'000'000'000;
  return now;
}

uint64_t& test_starved() {
  static uint64_t starved = 0;
  return starved;
}

const engine::Environment& test_environment() {
  static const engine::Environment environment = {[] { return test_now(); }, next_random, draw_secret,
                                                  [] { return test_starved(); }};
  return environment;
}

}  // namespace bfo::test
