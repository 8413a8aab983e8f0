/* SPDX-License-Identifier: BSD-3-Clause */
#include "test/conformance/mpi/layers/layers.h"

#include <stdlib.h>

enum { kMany = 30000, kSlots = 4 };

static int* memory;

static int* slot(int s) {
  return memory + (size_t)s * kMany;
}

static void fresh(void) {
  for (int i = 0; i < kSlots * kMany; ++i) memory[i] = value(3, rank, i);
}

/* Slot 0 is put, 1 is got, 2 accumulated by all, 3 put with strides. */
static void by_fence(MPI_Win win, const int* out, int* in, MPI_Datatype strided) {
  const int next = (rank + 1) % ranks;
  fresh();
  MPI_Win_fence(0, win);
  MPI_Put(out, kMany, MPI_INT, next, 0, kMany, MPI_INT, win);
  MPI_Get(in, kMany, MPI_INT, next, kMany, kMany, MPI_INT, win);
  for (int r = 0; r < ranks; ++r)
    MPI_Accumulate(out, kMany / 2, MPI_INT, r, 2 * kMany, kMany / 2, MPI_INT, MPI_SUM, win);
  MPI_Put(out, kMany / 2, MPI_INT, next, 3 * kMany, 1, strided, win);
  MPI_Win_fence(0, win);
  say("put by fence", memory, (size_t)kSlots * kMany * sizeof(int));
  say("get by fence", in, kMany * sizeof(int));
}

static void by_start(MPI_Win win, const int* out) {
  MPI_Group all, to, from;
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, 1, &next, &to);
  MPI_Group_incl(all, 1, &before, &from);
  fresh();
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_post(from, 0, win);
  MPI_Win_start(to, 0, win);
  MPI_Put(out, kMany, MPI_INT, next, kMany, kMany, MPI_INT, win);
  MPI_Win_complete(win);
  MPI_Win_wait(win);
  say("put by post and start", memory, (size_t)kSlots * kMany * sizeof(int));
  MPI_Group_free(&to);
  MPI_Group_free(&from);
  MPI_Group_free(&all);
}

static void by_lock(MPI_Win win, const int* out, int* in) {
  int old = 0, sum = 0;
  const int one = 1;
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
  fresh();
  slot(0)[0] = 0;
  MPI_Win_unlock(rank, win);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < 20; ++i) {
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    MPI_Fetch_and_op(&one, &old, MPI_INT, 0, 0, MPI_SUM, win);
    MPI_Win_unlock(0, win);
    sum += old;
  }
  MPI_Win_lock_all(0, win);
  MPI_Put(out, kMany, MPI_INT, (rank + 1) % ranks, 2 * kMany, kMany, MPI_INT, win);
  MPI_Win_flush((rank + 1) % ranks, win);
  MPI_Get(in, kMany, MPI_INT, (rank + 1) % ranks, 2 * kMany, kMany, MPI_INT, win);
  MPI_Win_unlock_all(win);
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  expect(sum == 20 * ranks * (20 * ranks - 1) / 2, "fetch and add of all ranks");
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
  say("put by lock", memory, (size_t)kSlots * kMany * sizeof(int));
  MPI_Win_unlock(rank, win);
  say("get by lock", in, kMany * sizeof(int));
}

void one_sided(void) {
  MPI_Win win;
  MPI_Datatype strided;
  int* out = malloc(kMany * sizeof(int));
  int* in = malloc(kMany * sizeof(int));
  for (int i = 0; i < kMany; ++i) out[i] = value(4, rank, i);
  MPI_Type_vector(kMany / 2, 1, 2, MPI_INT, &strided);
  MPI_Type_commit(&strided);
  MPI_Win_allocate((MPI_Aint)kSlots * kMany * (MPI_Aint)sizeof(int), sizeof(int), MPI_INFO_NULL,
                   MPI_COMM_WORLD, &memory, &win);
  by_fence(win, out, in, strided);
  by_start(win, out);
  by_lock(win, out, in);
  MPI_Win_free(&win);
  MPI_Type_free(&strided);
  free(out);
  free(in);
}
