// SPDX-License-Identifier: BSD-3-Clause
//
// post_poll: posts 8-byte RC sends from one queue pair to another of the same process and polls both
// completions. Run under callgrind with two counts, the difference is the cost of one message in the device.
//
// usage: post_poll MESSAGES
#include <infiniband/verbs.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

int fail(const char* what) {
  std::fprintf(stderr, "post_poll: %s failed\n", what);
  return 1;
}

bool connect(ibv_qp* qp, uint32_t peer, uint16_t lid) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.port_num = 1;
  if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
    return false;
  a = {};
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = IBV_MTU_1024;
  a.dest_qp_num = peer;
  a.max_dest_rd_atomic = 1;
  a.min_rnr_timer = 12;
  a.ah_attr.dlid = lid;
  a.ah_attr.port_num = 1;
  if (ibv_modify_qp(qp, &a,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
    return false;
  a = {};
  a.qp_state = IBV_QPS_RTS;
  a.timeout = 14;
  a.retry_cnt = 7;
  a.rnr_retry = 7;
  a.max_rd_atomic = 1;
  return !ibv_modify_qp(qp, &a,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC);
}

bool poll_one(ibv_cq* cq) {
  ibv_wc wc;
  int n;
  while ((n = ibv_poll_cq(cq, 1, &wc)) == 0) continue;
  return n == 1 && wc.status == IBV_WC_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  const long messages = argc == 2 ? std::atol(argv[1]) : 0;
  if (messages <= 0) {
    std::fprintf(stderr, "usage: post_poll MESSAGES\n");
    return 2;
  }
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  if (!devices || count == 0) return fail("ibv_get_device_list: no device; it");
  ibv_context* context = ibv_open_device(devices[0]);
  ibv_port_attr port;
  if (!context || ibv_query_port(context, 1, &port)) return fail("ibv_open_device");
  ibv_pd* pd = ibv_alloc_pd(context);
  ibv_cq* cq[2] = {ibv_create_cq(context, 64, nullptr, nullptr, 0),
                   ibv_create_cq(context, 64, nullptr, nullptr, 0)};
  alignas(64) static char memory[128];
  ibv_mr* mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  ibv_qp* qp[2] = {};
  for (int i = 0; i < 2 && cq[i]; ++i) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq[i];
    init.qp_type = IBV_QPT_RC;
    init.cap = {32, 32, 1, 1, 64};
    qp[i] = ibv_create_qp(pd, &init);
  }
  if (!mr || !qp[0] || !qp[1]) return fail("creating a queue pair");
  if (!connect(qp[0], qp[1]->qp_num, port.lid) || !connect(qp[1], qp[0]->qp_num, port.lid))
    return fail("ibv_modify_qp");
  for (long i = 0; i < messages; ++i) {
    ibv_sge in{reinterpret_cast<uintptr_t>(memory + 64), 8, mr->lkey};
    ibv_recv_wr receive{1, nullptr, &in, 1};
    ibv_recv_wr* bad_receive;
    if (ibv_post_recv(qp[1], &receive, &bad_receive)) return fail("ibv_post_recv");
    ibv_sge out{reinterpret_cast<uintptr_t>(memory), 8, mr->lkey};
    ibv_send_wr send{};
    send.sg_list = &out;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    ibv_send_wr* bad_send;
    if (ibv_post_send(qp[0], &send, &bad_send)) return fail("ibv_post_send");
    if (!poll_one(cq[0]) || !poll_one(cq[1])) return fail("a completion");
  }
  ibv_destroy_qp(qp[0]);
  ibv_destroy_qp(qp[1]);
  ibv_dereg_mr(mr);
  ibv_destroy_cq(cq[0]);
  ibv_destroy_cq(cq[1]);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  ibv_free_device_list(devices);
  return 0;
}
