// SPDX-License-Identifier: BSD-3-Clause
//
// The rig at work: plain verbs calls.
#include "test/conformance/rig.h"

#include <fcntl.h>
#include <poll.h>

#include <chrono>
#include <cstdlib>
#include <sstream>

namespace bfo::conformance {
namespace {

using Clock = std::chrono::steady_clock;

/// The device of the emulator or, on other devices, the one that kDevicesVariable names.
std::string name_of(int index) {
  if (!Lab::other_devices()) return "softhca" + std::to_string(index);
  std::istringstream names(std::getenv(kDevicesVariable));
  std::string name;
  for (int i = 0; i <= index; ++i) std::getline(names, name, ',');
  return name;
}

/// Addresses on Ethernet, where ports have no LID: Side::lid is then an index of this table, plus one.
std::vector<union ibv_gid>& gids() {
  static std::vector<union ibv_gid> table;
  return table;
}

uint16_t lid_for(ibv_context* context, const ibv_port_attr& port) {
  if (port.link_layer != IBV_LINK_LAYER_ETHERNET) return port.lid;
  union ibv_gid gid {};
  ibv_query_gid(context, 1, 0, &gid);
  for (size_t i = 0; i < gids().size(); ++i) {
    if (memcmp(&gids()[i], &gid, sizeof gid) == 0) return static_cast<uint16_t>(i + 1);
  }
  gids().push_back(gid);
  return static_cast<uint16_t>(gids().size());
}

ibv_context* open_device(int index) {
  const std::string wanted = name_of(index);
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i) {
    if (ibv_get_device_name(list[i]) == wanted) context = ibv_open_device(list[i]);
  }
  if (list != nullptr) ibv_free_device_list(list);
  if (context == nullptr) {
    fprintf(stderr, "no device \"%s\": these tests need the software HCA, or %s=DEVICE,DEVICE\n",
            wanted.c_str(), kDevicesVariable);
    std::abort();
  }
  return context;
}

}  // namespace

Side::Side(const SideOptions& options) : buffer(kBufferBytes) {
  context = open_device(options.device);
  fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
  pd = ibv_alloc_pd(context);
  channel = ibv_create_comp_channel(context);
  send_cq = ibv_create_cq(context, options.cqe, this, channel, 0);
  recv_cq = options.one_cq ? send_cq : ibv_create_cq(context, options.cqe, this, channel, 0);
  mr = ibv_reg_mr(pd, buffer.data(), buffer.size(), options.mr_access);
  if (options.srq) {
    ibv_srq_init_attr attr{};
    attr.attr.max_wr = static_cast<uint32_t>(options.recv_wr);
    attr.attr.max_sge = static_cast<uint32_t>(options.sge);
    srq = ibv_create_srq(pd, &attr);
  }
  ibv_qp_init_attr attr{};
  attr.qp_context = this;
  attr.send_cq = send_cq;
  attr.recv_cq = recv_cq;
  attr.srq = srq;
  attr.cap.max_send_wr = static_cast<uint32_t>(options.send_wr);
  attr.cap.max_recv_wr = options.srq ? 0 : static_cast<uint32_t>(options.recv_wr);
  attr.cap.max_send_sge = static_cast<uint32_t>(options.sge);
  attr.cap.max_recv_sge = static_cast<uint32_t>(options.sge);
  attr.cap.max_inline_data = static_cast<uint32_t>(options.inline_bytes);
  attr.qp_type = options.type;
  attr.sq_sig_all = options.sig_all;
  qp = ibv_create_qp(pd, &attr);
  ibv_port_attr port{};
  ibv_query_port(context, 1, &port);
  lid = lid_for(context, port);
  if (qp == nullptr || mr == nullptr || recv_cq == nullptr) {
    fprintf(stderr, "the rig cannot be built: %s\n", strerror(errno));
    std::abort();
  }
  qpn = qp->qp_num;
  qp_access_ = options.qp_access;
}

Side::~Side() {
  while (wait_event(0)) {
  }
  destroy_qp();
  if (srq != nullptr) {
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
  }
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  if (recv_cq != send_cq) {
    EXPECT_EQ(ibv_destroy_cq(recv_cq), 0);
  }
  EXPECT_EQ(ibv_destroy_cq(send_cq), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_close_device(context), 0);
}

void Side::destroy_qp() {
  if (qp != nullptr) {
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
  }
  qp = nullptr;
}

ibv_ah_attr address_of(uint16_t lid) {
  ibv_ah_attr attr{};
  attr.port_num = 1;
  attr.dlid = lid;
  if (lid == 0 || lid > gids().size()) return attr;
  attr.is_global = 1;
  attr.grh.dgid = gids()[lid - 1];
  attr.grh.hop_limit = 64;
  return attr;
}

int Side::to_init() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = qp_access_;
  attr.qkey = 0x1234;
  const int last = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last);
}

int Side::to_rtr(uint16_t dlid, uint32_t dest_qpn, uint32_t rq_psn, const LinkOptions& link) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = link.mtu;
  attr.dest_qp_num = dest_qpn;
  attr.rq_psn = rq_psn;
  attr.max_dest_rd_atomic = link.max_dest_rd_atomic;
  attr.min_rnr_timer = link.min_rnr_timer;
  attr.ah_attr = address_of(dlid);
  int mask = IBV_QP_STATE;
  if (qp->qp_type != IBV_QPT_UD) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (qp->qp_type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return ibv_modify_qp(qp, &attr, mask);
}

int Side::to_rts(const LinkOptions& link) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = link.sq_psn;
  attr.timeout = link.timeout;
  attr.retry_cnt = link.retry_cnt;
  attr.rnr_retry = link.rnr_retry;
  attr.max_rd_atomic = link.max_rd_atomic;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (qp->qp_type == IBV_QPT_RC) {
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  return ibv_modify_qp(qp, &attr, mask);
}

int Side::to_state(ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

ibv_qp_state Side::state() const {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  return ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0 ? attr.qp_state : IBV_QPS_UNKNOWN;
}

ibv_sge Side::sge(uint32_t offset, uint32_t length) const {
  return {address(offset), length, mr->lkey};
}

int Side::post_recv(uint64_t wr_id, uint32_t offset, uint32_t length) {
  return post_recv(wr_id, {sge(offset, length)});
}

int Side::post_recv(uint64_t wr_id, const std::vector<ibv_sge>& list) {
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = const_cast<ibv_sge*>(list.data());
  wr.num_sge = static_cast<int>(list.size());
  ibv_recv_wr* bad = nullptr;
  return srq != nullptr ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad);
}

int Side::post_send(ibv_send_wr& wr) const {
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &wr, &bad);
}

int Side::send(uint64_t wr_id, uint32_t offset, uint32_t length, ibv_wr_opcode opcode, const Side* remote,
               uint32_t remote_offset, unsigned flags) {
  ibv_sge list = sge(offset, length);
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &list;
  wr.num_sge = length == 0 ? 0 : 1;
  wr.opcode = opcode;
  wr.send_flags = flags;
  if (remote != nullptr) {
    wr.wr.rdma.remote_addr = remote->address(remote_offset);
    wr.wr.rdma.rkey = remote->mr->rkey;
  }
  return post_send(wr);
}

std::optional<ibv_wc> Side::wait(ibv_cq* cq, int timeout_ms) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  do {
    ibv_wc wc;
    const int n = ibv_poll_cq(cq, 1, &wc);
    if (n == 1) return wc;
    if (n < 0) return {};
  } while (Clock::now() < deadline);
  return {};
}

bool Side::quiet(ibv_cq* cq, int ms) {
  return !wait(cq, ms).has_value();
}

std::optional<ibv_async_event> Side::wait_event(int timeout_ms) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  do {
    pollfd fd{context->async_fd, POLLIN, 0};
    // Time passes for the device in poll_cq, as in any program; short sleeps keep the other side moving.
    ibv_wc none;
    ibv_poll_cq(send_cq, 0, &none);
    if (poll(&fd, 1, timeout_ms == 0 ? 0 : 1) == 1) {
      ibv_async_event event{};
      if (ibv_get_async_event(context, &event) != 0) continue;
      ibv_ack_async_event(&event);
      return event;
    }
  } while (Clock::now() < deadline);
  return {};
}

bool Side::wait_event_of(ibv_event_type type, int timeout_ms) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (Clock::now() < deadline) {
    const auto event = wait_event(20);
    if (event && event->event_type == type) return true;
  }
  return false;
}

Pair::Pair(const SideOptions& a_options, const SideOptions& b_options, const LinkOptions& link)
    : a(a_options), b(b_options) {
  connect(link);
}

Pair::~Pair() {
  // Both ends go before either closes its device: no end may retry into the next test.
  a.destroy_qp();
  b.destroy_qp();
}

void Pair::connect(const LinkOptions& link) {
  EXPECT_EQ(a.to_init(), 0);
  EXPECT_EQ(b.to_init(), 0);
  EXPECT_EQ(a.to_rtr(b.lid, b.qpn, link.sq_psn, link), 0);
  EXPECT_EQ(b.to_rtr(a.lid, a.qpn, link.sq_psn, link), 0);
  EXPECT_EQ(a.to_rts(link), 0);
  EXPECT_EQ(b.to_rts(link), 0);
}

uint8_t look(const volatile uint8_t& byte) {
  return byte;
}

bool is_attempt(const MessageRecord& record, Opcode opcode) {
  // A delayed request is recorded when it leaves and when it arrives; every other one once.
  return record.opcode == opcode && record.verdict != Verdict::kDelayed;
}

void Conformance::SetUp() {
  Lab::get().clear_rules();
  Lab::get().restart_trace();
}

void Conformance::TearDown() {
  Lab::get().clear_rules();
  if (HasFailure()) fputs(Lab::get().trace_text().c_str(), stderr);
}

}  // namespace bfo::conformance
