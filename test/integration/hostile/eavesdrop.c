// SPDX-License-Identifier: BSD-3-Clause
//
// eavesdrop.c: preloaded into the ranks of hostile_test. Writes down what somebody who listens to the fabric
// would know: every datagram that is sent, and where the datagram queue pairs are, with their Q_Keys. One
// record each, appended to $BFO_EAVESDROP, which the hostile program (hostile.cc) reads.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/integration/hostile/record.h"

static int file = -1;
static int (*real_post_send)(struct ibv_qp*, struct ibv_send_wr*, struct ibv_send_wr**);

static void* real(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found != NULL) return found;
  fprintf(stderr, "eavesdrop: no %s\n", name);
  _exit(3);
}

static void note(const struct Record* record) {
  const char* path = getenv("BFO_EAVESDROP");
  if (path == NULL) return;
  if (file < 0) file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (file >= 0 && write(file, record, sizeof *record) != (ssize_t)sizeof *record) _exit(3);
}

static int heard(struct ibv_qp* qp, struct ibv_send_wr* wr, struct ibv_send_wr** bad) {
  if (qp->qp_type == IBV_QPT_UD && wr->num_sge == 1 && wr->sg_list[0].length <= kRecordBytes) {
    struct Record record = {.qpn = wr->wr.ud.remote_qpn, .qkey = wr->wr.ud.remote_qkey};
    record.length = wr->sg_list[0].length;
    memcpy(record.bytes, (const void*)(uintptr_t)wr->sg_list[0].addr, record.length);
    note(&record);
  }
  return real_post_send(qp, wr, bad);
}

int ibv_modify_qp(struct ibv_qp* qp, struct ibv_qp_attr* attr, int mask) {
  int (*modify)(struct ibv_qp*, struct ibv_qp_attr*, int);
  *(void**)&modify = real("ibv_modify_qp");
  int rc = modify(qp, attr, mask);
  if (rc != 0 || qp->qp_type != IBV_QPT_UD || !(mask & IBV_QP_QKEY)) return rc;
  if (qp->context->ops.post_send != heard) {
    real_post_send = qp->context->ops.post_send;
    qp->context->ops.post_send = heard;
  }
  struct ibv_port_attr port;
  if (ibv_query_port(qp->context, attr->port_num, &port) != 0) return rc;
  struct Record record = {.qpn = qp->qp_num, .qkey = attr->qkey, .lid = port.lid};
  snprintf(record.device, sizeof record.device, "%s", qp->context->device->name);
  note(&record);
  return rc;
}
