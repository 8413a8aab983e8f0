/* SPDX-License-Identifier: BSD-3-Clause
 *
 * semantics_groups.c: several communicators, collectives over point-to-point messages, threads side by side.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "test/integration/semantics.h"

void communicators(void) {
  for (int round = 0; round < 20; ++round) {
    MPI_Comm dup, half;
    int v = g_rank, w = -1;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_split(dup, g_rank / 2, -g_rank, &half);
    int hr, hs;
    MPI_Comm_rank(half, &hr);
    MPI_Comm_size(half, &hs);
    MPI_Sendrecv(&v, 1, MPI_INT, (hr + 1) % hs, 3, &w, 1, MPI_INT, (hr + hs - 1) % hs, 3, half,
                 MPI_STATUS_IGNORE);
    EXPECT(hs == 1 ? w == g_rank : w / 2 == g_rank / 2);
    if (hs > 1) EXPECT(w != g_rank);
    int sum = 0;
    MPI_Allreduce(&v, &sum, 1, MPI_INT, MPI_SUM, dup);
    EXPECT(sum == g_size * (g_size - 1) / 2);
    MPI_Comm_free(&half);
    MPI_Comm_free(&dup);
  }
}

void collectives(void) {
  const int n = 40000;
  double* x = malloc(n * sizeof(double));
  double* y = malloc(n * sizeof(double));
  for (int i = 0; i < n; ++i) x[i] = g_rank + i;
  MPI_Allreduce(x, y, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  int bad = 0;
  for (int i = 0; i < n; ++i)
    if (y[i] != (double)g_size * i + g_size * (g_size - 1) / 2.0) ++bad;
  EXPECT(bad == 0);
  MPI_Alltoall(x, n / g_size, MPI_DOUBLE, y, n / g_size, MPI_DOUBLE, MPI_COMM_WORLD);
  for (int r = 0; r < g_size; ++r) EXPECT(y[r * (n / g_size)] == r + (double)g_rank * (n / g_size));
  MPI_Bcast(x, n, MPI_DOUBLE, g_size - 1, MPI_COMM_WORLD);
  EXPECT(x[0] == g_size - 1);
  free(x);
  free(y);
}

/* Each thread talks to the same thread of the partner over its own tag. */
static void* thread_main(void* arg) {
  const int me = (int)(long)arg;
  const int peer = peer_of(g_rank);
  unsigned char* out = malloc(200000);
  unsigned char* in = malloc(200000);
  long bad = 0;
  for (int i = 0; i < 150; ++i) {
    const int n = (i * 7919 + me * 13) % (i % 10 ? 2000 : 200000);
    MPI_Request rq[2];
    fill(out, n, g_rank * 100 + me * 10 + i);
    memset(in, 0, n);
    if (i & 1) {
      MPI_Irecv(in, n, MPI_BYTE, peer, 1000 + me, MPI_COMM_WORLD, &rq[0]);
      MPI_Isend(out, n, MPI_BYTE, peer, 1000 + me, MPI_COMM_WORLD, &rq[1]);
      MPI_Waitall(2, rq, MPI_STATUSES_IGNORE);
    } else {
      MPI_Sendrecv(out, n, MPI_BYTE, peer, 1000 + me, in, n, MPI_BYTE, peer, 1000 + me, MPI_COMM_WORLD,
                   MPI_STATUS_IGNORE);
    }
    if (!holds(in, n, peer * 100 + me * 10 + i)) ++bad;
  }
  free(out);
  free(in);
  return (void*)bad;
}

void threads(void) {
  enum { kThreads = 4 };
  pthread_t id[kThreads];
  if (paired()) {
    for (long t = 0; t < kThreads; ++t) pthread_create(&id[t], NULL, thread_main, (void*)t);
    for (int t = 0; t < kThreads; ++t) {
      void* bad = NULL;
      pthread_join(id[t], &bad);
      EXPECT(bad == NULL);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}
