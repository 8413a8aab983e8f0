// SPDX-License-Identifier: BSD-3-Clause
//
// no_modex.c: preloaded into the ranks of component_test. The BTL cannot publish its addresses, and at the
// end one line says how many completion queues it made and destroyed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int made;
static int destroyed;

static void* real(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found != NULL) return found;
  fprintf(stderr, "no modex: no %s\n", name);
  _exit(3);
}

int PMIx_Put(int scope, const char* key, void* value);
int PMIx_Put(int scope, const char* key, void* value) {
  if (strstr(key, "btl.verbs") != NULL) return -1;
  int (*put)(int, const char*, void*);
  *(void**)&put = real("PMIx_Put");
  return put(scope, key, value);
}

struct ibv_cq* ibv_create_cq(struct ibv_context* context, int cqe, void* ctx,
                             struct ibv_comp_channel* channel, int vector) {
  struct ibv_cq* (*create)(struct ibv_context*, int, void*, struct ibv_comp_channel*, int);
  *(void**)&create = real("ibv_create_cq");
  struct ibv_cq* cq = create(context, cqe, ctx, channel, vector);
  made += cq != NULL;
  return cq;
}

int ibv_destroy_cq(struct ibv_cq* cq) {
  int (*destroy)(struct ibv_cq*);
  *(void**)&destroy = real("ibv_destroy_cq");
  const int rc = destroy(cq);
  destroyed += rc == 0;
  return rc;
}

__attribute__((destructor)) static void report(void) {
  if (made != 0) fprintf(stderr, "completion queues made %d, destroyed %d\n", made, destroyed);
}
