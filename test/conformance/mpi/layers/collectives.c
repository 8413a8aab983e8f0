/* SPDX-License-Identifier: BSD-3-Clause */
#include "test/conformance/mpi/layers/layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kKinds = 13 };
static const char* const kNames[kKinds] = {
    "bcast",     "gather", "scatter",   "allgather", "allgatherv", "alltoall",      "alltoallv",
    "alltoallw", "reduce", "allreduce", "scan",      "exscan",     "reduce_scatter"};

typedef struct {
  int n; /* elements of each rank */
  int p; /* ranks of the other side */
  int root;
  int is_root;
  int* out;
  int* in;
  int* counts; /* n each */
  int* places; /* elements */
  int* bytes;  /* places in bytes */
  MPI_Datatype* types;
} Args;

/* Starts kind `k`; the blocking call leaves MPI_REQUEST_NULL. */
static void call(int k, int blocking, const Args* a, MPI_Datatype strided, MPI_Comm comm, MPI_Request* q) {
  *q = MPI_REQUEST_NULL;
  switch (k) {
    case 0:
      if (a->is_root) memcpy(a->in, a->out, (size_t)a->n * 2 * sizeof(int));
      /* The strided type is received where it was sent from. */
      if (blocking)
        MPI_Bcast(a->in, 1, strided, a->root, comm);
      else
        MPI_Ibcast(a->in, 1, strided, a->root, comm, q);
      break;
    case 1:
      if (blocking)
        MPI_Gather(a->out, a->n, MPI_INT, a->in, a->n, MPI_INT, a->root, comm);
      else
        MPI_Igather(a->out, a->n, MPI_INT, a->in, a->n, MPI_INT, a->root, comm, q);
      break;
    case 2:
      if (blocking)
        MPI_Scatter(a->out, a->n, MPI_INT, a->in, a->n, MPI_INT, a->root, comm);
      else
        MPI_Iscatter(a->out, a->n, MPI_INT, a->in, a->n, MPI_INT, a->root, comm, q);
      break;
    case 3:
      if (blocking)
        MPI_Allgather(a->out, a->n, MPI_INT, a->in, a->n, MPI_INT, comm);
      else
        MPI_Iallgather(a->out, a->n, MPI_INT, a->in, a->n, MPI_INT, comm, q);
      break;
    case 4:
      if (blocking)
        MPI_Allgatherv(a->out, a->n, MPI_INT, a->in, a->counts, a->places, MPI_INT, comm);
      else
        MPI_Iallgatherv(a->out, a->n, MPI_INT, a->in, a->counts, a->places, MPI_INT, comm, q);
      break;
    case 5:
      if (blocking)
        MPI_Alltoall(a->out, a->n, MPI_INT, a->in, a->n, MPI_INT, comm);
      else
        MPI_Ialltoall(a->out, a->n, MPI_INT, a->in, a->n, MPI_INT, comm, q);
      break;
    case 6:
      if (blocking)
        MPI_Alltoallv(a->out, a->counts, a->places, MPI_INT, a->in, a->counts, a->places, MPI_INT, comm);
      else
        MPI_Ialltoallv(a->out, a->counts, a->places, MPI_INT, a->in, a->counts, a->places, MPI_INT, comm, q);
      break;
    case 7:
      if (blocking)
        MPI_Alltoallw(a->out, a->counts, a->bytes, a->types, a->in, a->counts, a->bytes, a->types, comm);
      else
        MPI_Ialltoallw(a->out, a->counts, a->bytes, a->types, a->in, a->counts, a->bytes, a->types, comm, q);
      break;
    case 8:
      if (blocking)
        MPI_Reduce(a->out, a->in, a->n, MPI_INT, MPI_SUM, a->root, comm);
      else
        MPI_Ireduce(a->out, a->in, a->n, MPI_INT, MPI_SUM, a->root, comm, q);
      break;
    case 9:
      if (blocking)
        MPI_Allreduce(a->out, a->in, a->n, MPI_INT, MPI_SUM, comm);
      else
        MPI_Iallreduce(a->out, a->in, a->n, MPI_INT, MPI_SUM, comm, q);
      break;
    case 10:
      if (blocking)
        MPI_Scan(a->out, a->in, a->n, MPI_INT, MPI_SUM, comm);
      else
        MPI_Iscan(a->out, a->in, a->n, MPI_INT, MPI_SUM, comm, q);
      break;
    case 11:
      if (blocking)
        MPI_Exscan(a->out, a->in, a->n, MPI_INT, MPI_SUM, comm);
      else
        MPI_Iexscan(a->out, a->in, a->n, MPI_INT, MPI_SUM, comm, q);
      break;
    default:
      if (blocking)
        MPI_Reduce_scatter(a->out, a->in, a->counts, MPI_INT, MPI_SUM, comm);
      else
        MPI_Ireduce_scatter(a->out, a->in, a->counts, MPI_INT, MPI_SUM, comm, q);
  }
}

/* All kinds with `n` elements; the nonblocking ones all at once. */
static void with_size(int n, int blocking, MPI_Comm comm) {
  Args a[kKinds];
  MPI_Request requests[kKinds];
  MPI_Datatype strided;
  int p, me;
  char what[80];
  MPI_Comm_size(comm, &p);
  MPI_Comm_rank(comm, &me);
  MPI_Type_vector(n, 1, 2, MPI_INT, &strided);
  MPI_Type_commit(&strided);
  const size_t room = ((size_t)n * (size_t)p + (size_t)n) * 2;
  for (int k = 0; k < kKinds; ++k) {
    a[k] = (Args){n, p, p - 1, me == p - 1, NULL, NULL, NULL, NULL, NULL, NULL};
    a[k].out = malloc(room * sizeof(int));
    a[k].in = malloc(room * sizeof(int));
    a[k].counts = malloc((size_t)p * sizeof(int));
    a[k].places = malloc((size_t)p * sizeof(int));
    a[k].bytes = malloc((size_t)p * sizeof(int));
    a[k].types = malloc((size_t)p * sizeof(MPI_Datatype));
    for (size_t i = 0; i < room; ++i) {
      a[k].out[i] = value(k, me, (int)i);
      a[k].in[i] = -5;
    }
    for (int r = 0; r < p; ++r) {
      a[k].counts[r] = n;
      a[k].places[r] = r * n;
      a[k].bytes[r] = r * n * (int)sizeof(int);
      a[k].types[r] = MPI_INT;
    }
    call(k, blocking, &a[k], strided, comm, &requests[k]);
  }
  MPI_Waitall(kKinds, requests, MPI_STATUSES_IGNORE);
  for (int k = 0; k < kKinds; ++k) {
    snprintf(what, sizeof what, "%s%s of %d", blocking ? "" : "i", kNames[k], n);
    say(what, a[k].in, room * sizeof(int));
    free(a[k].out), free(a[k].in), free(a[k].counts), free(a[k].places), free(a[k].bytes), free(a[k].types);
  }
  MPI_Type_free(&strided);
}

/* An intercommunicator, what goes across it, and what it becomes. */
static void across(void) {
  MPI_Comm half, inter, merged;
  enum { kMany = 50000 };
  int* out = malloc(kMany * sizeof(int));
  int* in = calloc(kMany, sizeof(int));
  MPI_Request request;
  int n;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 9, &inter);
  for (int i = 0; i < kMany; ++i) out[i] = value(99, rank, i);
  MPI_Allreduce(out, in, kMany, MPI_INT, MPI_SUM, inter);
  say("allreduce across", in, kMany * sizeof(int));
  MPI_Iallreduce(out, in, kMany, MPI_INT, MPI_MAX, inter, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  say("iallreduce across", in, kMany * sizeof(int));
  MPI_Bcast(rank == 0 ? out : in, kMany, MPI_INT, rank % 2 ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL, inter);
  say("bcast across", in, kMany * sizeof(int));
  MPI_Intercomm_merge(inter, rank % 2 == 0, &merged);
  MPI_Comm_size(merged, &n);
  expect(n == ranks, "ranks of the merged communicator");
  with_size(777, 1, merged);
  MPI_Comm_free(&merged);
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
  free(out);
  free(in);
}

void collectives(void) {
  static const int sizes[] = {1, 1023, 40000};
  MPI_Request request;
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s) {
    with_size(sizes[s], 1, MPI_COMM_WORLD);
    with_size(sizes[s], 0, MPI_COMM_WORLD);
  }
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  if (ranks > 1) across();
}
