/* SPDX-License-Identifier: BSD-3-Clause */
#include "test/conformance/mpi/layers/layers.h"

#include <stdio.h>
#include <stdlib.h>

enum { kMany = 30000, kSlots = 4, kMostRanks = 64 };
static const size_t kBytes = (size_t)kSlots * kMany * sizeof(int);

/* The window: how it was made, the memory of this rank, and what the displacement of an element at each rank
 * is made of. */
static const char* kind;
static int* memory;
static MPI_Aint base[kMostRanks];
static MPI_Aint unit;

static MPI_Aint at(int target, int element) {
  return base[target] + element * unit;
}

static void tell(const char* what, const void* data, size_t bytes) {
  char name[64];
  snprintf(name, sizeof(name), "%s, window by %s", what, kind);
  say(name, data, bytes);
}

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
  MPI_Put(out, kMany, MPI_INT, next, at(next, 0), kMany, MPI_INT, win);
  MPI_Get(in, kMany, MPI_INT, next, at(next, kMany), kMany, MPI_INT, win);
  for (int r = 0; r < ranks; ++r)
    MPI_Accumulate(out, kMany / 2, MPI_INT, r, at(r, 2 * kMany), kMany / 2, MPI_INT, MPI_SUM, win);
  MPI_Put(out, kMany / 2, MPI_INT, next, at(next, 3 * kMany), 1, strided, win);
  MPI_Win_fence(0, win);
  tell("put by fence", memory, kBytes);
  tell("get by fence", in, kMany * sizeof(int));
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
  MPI_Put(out, kMany, MPI_INT, next, at(next, kMany), kMany, MPI_INT, win);
  MPI_Win_complete(win);
  MPI_Win_wait(win);
  tell("put by post and start", memory, kBytes);
  MPI_Group_free(&to);
  MPI_Group_free(&from);
  MPI_Group_free(&all);
}

static void by_lock(MPI_Win win, const int* out, int* in) {
  int old = 0, sum = 0;
  const int one = 1, next = (rank + 1) % ranks;
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
  fresh();
  slot(0)[0] = 0;
  MPI_Win_unlock(rank, win);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < 20; ++i) {
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    MPI_Fetch_and_op(&one, &old, MPI_INT, 0, at(0, 0), MPI_SUM, win);
    MPI_Win_unlock(0, win);
    sum += old;
  }
  MPI_Win_lock_all(0, win);
  MPI_Put(out, kMany, MPI_INT, next, at(next, 2 * kMany), kMany, MPI_INT, win);
  MPI_Win_flush(next, win);
  MPI_Get(in, kMany, MPI_INT, next, at(next, 2 * kMany), kMany, MPI_INT, win);
  MPI_Win_unlock_all(win);
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  expect(sum == 20 * ranks * (20 * ranks - 1) / 2, "fetch and add of all ranks");
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
  tell("put by lock", memory, kBytes);
  MPI_Win_unlock(rank, win);
  tell("get by lock", in, kMany * sizeof(int));
}

static void use(MPI_Win win) {
  MPI_Datatype strided;
  int* out = malloc(kMany * sizeof(int));
  int* in = malloc(kMany * sizeof(int));
  for (int i = 0; i < kMany; ++i) out[i] = value(4, rank, i);
  MPI_Type_vector(kMany / 2, 1, 2, MPI_INT, &strided);
  MPI_Type_commit(&strided);
  by_fence(win, out, in, strided);
  by_start(win, out);
  by_lock(win, out, in);
  MPI_Type_free(&strided);
  free(out);
  free(in);
}

/* osc sm takes only windows whose memory it allocates: the others show what else there is. */
void one_sided(void) {
  MPI_Win win;
  expect(ranks <= kMostRanks, "at most 64 ranks");
  kind = "allocate";
  unit = 1;
  MPI_Win_allocate((MPI_Aint)kBytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
  use(win);
  MPI_Win_free(&win);

  int* own = malloc(kBytes);
  memory = own;
  kind = "create";
  MPI_Win_create(memory, (MPI_Aint)kBytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  use(win);
  MPI_Win_free(&win);

  kind = "create_dynamic";
  unit = sizeof(int);
  MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  MPI_Win_attach(win, memory, (MPI_Aint)kBytes);
  MPI_Get_address(memory, &base[rank]);
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, base, 1, MPI_AINT, MPI_COMM_WORLD);
  use(win);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_detach(win, memory);
  MPI_Win_free(&win);
  free(own);
}
