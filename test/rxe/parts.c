/* SPDX-License-Identifier: BSD-3-Clause
 *
 * parts.c: see parts.h.
 */
#define _GNU_SOURCE
#include "test/rxe/parts.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

static __thread struct Parts mine;
static struct ibv_context_ops device; /* the same for all: one provider */

static double seconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void parts_read(struct Parts* now) {
  struct rusage usage;
  *now = mine;
  getrusage(RUSAGE_THREAD, &usage);
  now->asleep = (double)usage.ru_nvcsw;
  double began;
  do {  // both clocks at the same moment
    began = seconds(CLOCK_MONOTONIC);
    now->running = seconds(CLOCK_THREAD_CPUTIME_ID);
    now->wall = seconds(CLOCK_MONOTONIC);
  } while (now->wall - began > 1e-3);
}

void parts_add(struct Parts* sum, const struct Parts* before, const struct Parts* after) {
  for (int i = 0; i < kParts; ++i)
    ((double*)sum)[i] += ((const double*)after)[i] - ((const double*)before)[i];
}

double parts_beyond(const struct Parts* parts) {
  const double waiting = parts->wall - parts->running - (parts->post - parts->post_running);
  return parts->wall - parts->post - (parts->asleep == 0 ? waiting : 0);
}

void parts_print(char* text, int size, const struct Parts* parts) {
  static const char* const names[kControlVerbs] = {"modify_qp", "destroy_qp", "create_ah", "reg_mr",
                                                   "dereg_mr"};
  const double waiting = parts->wall - parts->running;
  int at = snprintf(
      text, (size_t)size,
      "%.0f ms: posting %.0f, without a processor %.0f (%.0f of it posting, asleep %.0f times), "
      "the rest %.0f",
      1e3 * parts->wall, 1e3 * parts->post_running, 1e3 * waiting, 1e3 * (parts->post - parts->post_running),
      parts->asleep, 1e3 * (parts->running - parts->post_running));
  for (int i = 0; i < kControlVerbs; ++i) {
    if (parts->calls[i] > 0 && at < size)
      at += snprintf(text + at, (size_t)(size - at), "; %.0f times %s in %.0f", parts->calls[i], names[i],
                     1e3 * parts->control[i]);
  }
}

/* ---- data path ---- */
static int timed_post_send(struct ibv_qp* qp, struct ibv_send_wr* wr, struct ibv_send_wr** bad) {
  const double began = seconds(CLOCK_MONOTONIC);
  const double ran = seconds(CLOCK_THREAD_CPUTIME_ID);
  const int result = device.post_send(qp, wr, bad);
  mine.post_running += seconds(CLOCK_THREAD_CPUTIME_ID) - ran;
  mine.post += seconds(CLOCK_MONOTONIC) - began;
  return result;
}

/* The verb of libibverbs that this program's own hides. */
static void* real(const char* name) {
  return dlsym(RTLD_NEXT, name);
}

struct ibv_context* ibv_open_device(struct ibv_device* which) {
  static struct ibv_context* (*open_device)(struct ibv_device*);
  if (open_device == NULL) *(void**)&open_device = real("ibv_open_device");
  struct ibv_context* context = open_device(which);
  if (context == NULL) return NULL;
  device = context->ops;
  context->ops.post_send = timed_post_send;
  return context;
}

/* ---- control verbs: those that a round of progress could be tempted to call ---- */
int ibv_modify_qp(struct ibv_qp* qp, struct ibv_qp_attr* attr, int mask) {
  static int (*verb)(struct ibv_qp*, struct ibv_qp_attr*, int);
  if (verb == NULL) *(void**)&verb = real("ibv_modify_qp");
  const double began = seconds(CLOCK_MONOTONIC);
  const int result = verb(qp, attr, mask);
  mine.control[kModifyQp] += seconds(CLOCK_MONOTONIC) - began;
  ++mine.calls[kModifyQp];
  return result;
}

int ibv_destroy_qp(struct ibv_qp* qp) {
  static int (*verb)(struct ibv_qp*);
  if (verb == NULL) *(void**)&verb = real("ibv_destroy_qp");
  const double began = seconds(CLOCK_MONOTONIC);
  const int result = verb(qp);
  mine.control[kDestroyQp] += seconds(CLOCK_MONOTONIC) - began;
  ++mine.calls[kDestroyQp];
  return result;
}

struct ibv_ah* ibv_create_ah(struct ibv_pd* pd, struct ibv_ah_attr* attr) {
  static struct ibv_ah* (*verb)(struct ibv_pd*, struct ibv_ah_attr*);
  if (verb == NULL) *(void**)&verb = real("ibv_create_ah");
  const double began = seconds(CLOCK_MONOTONIC);
  struct ibv_ah* const result = verb(pd, attr);
  mine.control[kCreateAh] += seconds(CLOCK_MONOTONIC) - began;
  ++mine.calls[kCreateAh];
  return result;
}

struct ibv_mr* ibv_reg_mr_iova2(struct ibv_pd* pd, void* address, size_t length, uint64_t iova,
                                unsigned int access) {
  static struct ibv_mr* (*verb)(struct ibv_pd*, void*, size_t, uint64_t, unsigned int);
  if (verb == NULL) *(void**)&verb = real("ibv_reg_mr_iova2");
  const double began = seconds(CLOCK_MONOTONIC);
  struct ibv_mr* const result = verb(pd, address, length, iova, access);
  mine.control[kRegisterMemory] += seconds(CLOCK_MONOTONIC) - began;
  ++mine.calls[kRegisterMemory];
  return result;
}

int ibv_dereg_mr(struct ibv_mr* mr) {
  static int (*verb)(struct ibv_mr*);
  if (verb == NULL) *(void**)&verb = real("ibv_dereg_mr");
  const double began = seconds(CLOCK_MONOTONIC);
  const int result = verb(mr);
  mine.control[kDeregisterMemory] += seconds(CLOCK_MONOTONIC) - began;
  ++mine.calls[kDeregisterMemory];
  return result;
}
