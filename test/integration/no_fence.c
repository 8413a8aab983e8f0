// SPDX-License-Identifier: BSD-3-Clause
//
// no_fence.c: takes the BTL's fence away, for a test that must notice. Preloaded before libibverbs, it leaves
// every queue pair that the BTL closes or destroys as it is and posts nothing on it any more, so that late
// work still lands. With BFO_SLOW_FENCE in the environment the fence is there and only slow: a queue pair
// that was closed goes on until it is destroyed, as on devices that take their time to notice (H2).
//
// H1..H23: contrib/doc/hazards.md
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdlib.h>

enum { kQps = 4096 };
static struct ibv_qp* closed[kQps];
static int (*post)(struct ibv_qp*, struct ibv_send_wr*, struct ibv_send_wr**);

static int is_closed(const struct ibv_qp* qp) {
  for (uint32_t i = 0; i < kQps; ++i)
    if (closed[i] == qp) return 1;
  return 0;
}

static int post_unless_closed(struct ibv_qp* qp, struct ibv_send_wr* wr, struct ibv_send_wr** bad) {
  return is_closed(qp) ? 0 : post(qp, wr, bad);
}

static void close_qp(struct ibv_qp* qp) {
  static uint32_t count;
  if (is_closed(qp) || count == kQps) return;
  closed[count++] = qp;
  if (qp->context->ops.post_send != post_unless_closed) {
    post = qp->context->ops.post_send;
    qp->context->ops.post_send = post_unless_closed;
  }
}

int ibv_destroy_qp(struct ibv_qp* qp) {
  static int (*next)(struct ibv_qp*);
  if (!getenv("BFO_SLOW_FENCE")) {
    close_qp(qp);
    return 0;
  }
  for (uint32_t i = 0; i < kQps; ++i)
    if (closed[i] == qp) closed[i] = NULL;  // its address may be used again
  if (!next) *(void**)&next = dlsym(RTLD_NEXT, "ibv_destroy_qp");
  return next(qp);
}

int ibv_modify_qp(struct ibv_qp* qp, struct ibv_qp_attr* attr, int mask) {
  static int (*next)(struct ibv_qp*, struct ibv_qp_attr*, int);
  if (!next) *(void**)&next = dlsym(RTLD_NEXT, "ibv_modify_qp");
  if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_ERR) {
    close_qp(qp);
    return 0;
  }
  return next(qp, attr, mask);
}
