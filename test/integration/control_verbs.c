// SPDX-License-Identifier: BSD-3-Clause
//
// control_verbs.c: preloaded into the ranks of control_test. Counts the control verbs that may block between
// MPI_Init and MPI_Finalize, and those of them that the application's thread had to wait for: the progress
// function must call none. And those that end a queue pair after a port of this process was lost; the first
// one after each loss may not be on a thread that was made after it: to make a thread takes longer than they
// do.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_int running;
static atomic_int calls;
static atomic_int in_progress;
static atomic_int losses; /* of a port */
static atomic_int ended;  /* losses after which a queue pair was ended */
static atomic_int ends;
static atomic_int late_ends;
static __thread int made_after; /* so many losses, this thread */

static void* real(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found != NULL) return found;
  fprintf(stderr, "control verbs: no %s\n", name);
  _exit(3);
}

static void count(void) {
  if (!atomic_load(&running)) return;
  atomic_fetch_add(&calls, 1);
  if (gettid() == getpid()) atomic_fetch_add(&in_progress, 1);
}

static void count_end(void) {
  const int lost = atomic_load(&losses);
  if (!atomic_load(&running) || lost == 0) return;
  atomic_fetch_add(&ends, 1);
  if (atomic_exchange(&ended, lost) != lost && made_after >= lost) atomic_fetch_add(&late_ends, 1);
}

struct beginning {
  void* (*main)(void*);
  void* argument;
  int losses;
};

static void* begin(void* given) {
  struct beginning beginning = *(struct beginning*)given;
  free(given);
  made_after = beginning.losses;
  return beginning.main(beginning.argument);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*main)(void*),
                   void* argument) {
  int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  *(void**)&create = real("pthread_create");
  struct beginning* beginning = malloc(sizeof *beginning);
  if (beginning == NULL) return EAGAIN;
  *beginning = (struct beginning){main, argument, atomic_load(&losses)};
  int rc = create(thread, attributes, begin, beginning);
  if (rc != 0) free(beginning);
  return rc;
}

int ibv_get_async_event(struct ibv_context* context, struct ibv_async_event* event) {
  int (*get)(struct ibv_context*, struct ibv_async_event*);
  *(void**)&get = real("ibv_get_async_event");
  int rc = get(context, event);
  if (rc == 0 && event->event_type == IBV_EVENT_PORT_ERR) atomic_fetch_add(&losses, 1);
  return rc;
}

struct ibv_ah* ibv_create_ah(struct ibv_pd* pd, struct ibv_ah_attr* attr) {
  count();
  struct ibv_ah* (*create)(struct ibv_pd*, struct ibv_ah_attr*);
  *(void**)&create = real("ibv_create_ah");
  return create(pd, attr);
}

int ibv_destroy_qp(struct ibv_qp* qp) {
  count();
  if (qp->qp_type == IBV_QPT_RC) count_end();
  int (*destroy)(struct ibv_qp*);
  *(void**)&destroy = real("ibv_destroy_qp");
  return destroy(qp);
}

struct ibv_qp* ibv_create_qp(struct ibv_pd* pd, struct ibv_qp_init_attr* init) {
  if (init->qp_type == IBV_QPT_RC) count();
  struct ibv_qp* (*create)(struct ibv_pd*, struct ibv_qp_init_attr*);
  *(void**)&create = real("ibv_create_qp");
  return create(pd, init);
}

int ibv_modify_qp(struct ibv_qp* qp, struct ibv_qp_attr* attr, int mask) {
  if (qp->qp_type == IBV_QPT_RC) {
    count();
    if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_ERR) count_end();
  }
  int (*modify)(struct ibv_qp*, struct ibv_qp_attr*, int);
  *(void**)&modify = real("ibv_modify_qp");
  return modify(qp, attr, mask);
}

int ibv_modify_srq(struct ibv_srq* srq, struct ibv_srq_attr* attr, int mask) {
  count();
  int (*modify)(struct ibv_srq*, struct ibv_srq_attr*, int);
  *(void**)&modify = real("ibv_modify_srq");
  return modify(srq, attr, mask);
}

/* A peer may read or write what is the application's: the rest is the component's own memory. */
static void count_region(unsigned access) {
  if ((access & ~(unsigned)IBV_ACCESS_RELAXED_ORDERING) == IBV_ACCESS_LOCAL_WRITE) count();
}

#undef ibv_reg_mr
struct ibv_mr* ibv_reg_mr(struct ibv_pd* pd, void* address, size_t length, int access) {
  count_region((unsigned)access);
  struct ibv_mr* (*go)(struct ibv_pd*, void*, size_t, int);
  *(void**)&go = real("ibv_reg_mr");
  return go(pd, address, length, access);
}

struct ibv_mr* ibv_reg_mr_iova2(struct ibv_pd* pd, void* address, size_t length, uint64_t iova,
                                unsigned int access) {
  count_region(access);
  struct ibv_mr* (*go)(struct ibv_pd*, void*, size_t, uint64_t, unsigned int);
  *(void**)&go = real("ibv_reg_mr_iova2");
  return go(pd, address, length, iova, access);
}

int MPI_Init_thread(int* argc, char*** argv, int wanted, int* got) {
  int rc = PMPI_Init_thread(argc, argv, wanted, got);
  atomic_store(&running, 1);
  return rc;
}

int MPI_Init(int* argc, char*** argv) {
  int rc = PMPI_Init(argc, argv);
  atomic_store(&running, 1);
  return rc;
}

int MPI_Finalize(void) {
  atomic_store(&running, 0);
  fprintf(stderr, "control verbs: %d calls, %d in progress, %d ends, %d late\n", atomic_load(&calls),
          atomic_load(&in_progress), atomic_load(&ends), atomic_load(&late_ends));
  return PMPI_Finalize();
}
