/* SPDX-License-Identifier: BSD-3-Clause
 *
 * deep_type.c: messages of a type that is nested more deeply than the component has room for without
 * allocating, while malloc() refuses just that allocation. A receive ends with MPI_ERR_NO_MEM, a send goes on
 * when there is memory again, and both are right afterwards. Two ranks. Prints "deep_type: ok, N allocations
 * refused".
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  kLevels = 9,
  kStackBytes =
      192, /* of 12 levels, twice those that are stored inline (LoopStack in pml/bfo/glue/layout.h) */
  kShort = 1,
  kLong = 700
};

static volatile int g_refuse;
static int g_refused;

/* This program's malloc() is that of every library it loads. */
void* __libc_malloc(size_t size);
void* malloc(size_t size) {
  if (g_refuse > 0 && size == kStackBytes) {
    --g_refuse;
    ++g_refused;
    return NULL;
  }
  return __libc_malloc(size);
}

static int g_rank;

static void fail(const char* what, int count) {
  fprintf(stderr, "deep_type: rank %d, %d elements: %s\n", g_rank, count, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Two of the level below with a gap, and an int: no two levels melt into one. */
static MPI_Datatype deep(void) {
  MPI_Datatype type;
  MPI_Type_dup(MPI_SHORT, &type);
  for (int level = 0; level < kLevels; ++level) {
    MPI_Datatype pair, next;
    MPI_Aint lb, extent;
    MPI_Type_get_extent(type, &lb, &extent);
    MPI_Type_create_hvector(level % 2 == 0 ? 3 : 2, 1, extent + 6, type, &pair);
    MPI_Type_get_extent(pair, &lb, &extent);
    const int lengths[] = {1, 1};
    const MPI_Aint places[] = {0, extent + 6};
    const MPI_Datatype types[] = {pair, MPI_SHORT};
    MPI_Type_create_struct(2, lengths, places, types, &next);
    MPI_Type_free(&pair);
    MPI_Type_free(&type);
    type = next;
  }
  MPI_Type_commit(&type);
  return type;
}

static int class_of(int code) {
  int kind = code;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &kind);
  return kind;
}

/* Rank 1 sends `count` elements, whose data are `bytes`, in one piece or as they lie. Returns the receive's
 * class. */
static int pass(MPI_Datatype type, int count, char* memory, char* bytes, int size, int strided,
                int refuse_send, int refuse_receive) {
  int code = MPI_SUCCESS;
  MPI_Barrier(MPI_COMM_WORLD);
  if (g_rank == 1) {
    g_refuse = refuse_send;
    if (strided)
      MPI_Send(memory, count, type, 0, 7, MPI_COMM_WORLD);
    else
      MPI_Send(bytes, size, MPI_BYTE, 0, 7, MPI_COMM_WORLD);
  } else {
    MPI_Status status;
    g_refuse = refuse_receive;
    code = MPI_Recv(memory, count, type, 1, 7, MPI_COMM_WORLD, &status);
    g_refuse = 0;
    if (status.MPI_SOURCE != 1 || status.MPI_TAG != 7) fail("wrong status", count);
  }
  g_refuse = 0;
  return class_of(code);
}

static void check(MPI_Datatype type, int count, char* memory, const char* bytes, int size) {
  char* packed = malloc((size_t)size);
  int position = 0;
  MPI_Pack(memory, count, type, packed, size, &position, MPI_COMM_SELF);
  if (memcmp(packed, bytes, (size_t)size) != 0) fail("wrong bytes", count);
  free(packed);
}

static void play(MPI_Datatype type, int count) {
  MPI_Aint lb, extent;
  int size;
  MPI_Type_get_extent(type, &lb, &extent);
  MPI_Type_size(type, &size);
  size *= count;
  const size_t span = (size_t)extent * (size_t)count;
  char* memory = calloc(1, span);
  char* bytes = malloc((size_t)size);
  int position = 0;
  for (int i = 0; i < size; ++i) bytes[i] = (char)(i * 31 + i / 256);
  if (g_rank == 1) MPI_Unpack(bytes, size, &position, memory, count, type, MPI_COMM_SELF);

  if (pass(type, count, memory, bytes, size, 0, 0, 1) != (g_rank == 0 ? MPI_ERR_NO_MEM : MPI_SUCCESS))
    fail("the receive did not end with MPI_ERR_NO_MEM", count);
  if (g_rank == 0) memset(memory, 0, span);
  if (pass(type, count, memory, bytes, size, 0, 0, 0) != MPI_SUCCESS) fail("failed with memory", count);
  if (g_rank == 0) check(type, count, memory, bytes, size);
  if (g_rank == 0) memset(memory, 0, span);
  if (pass(type, count, memory, bytes, size, 1, 3, 0) != MPI_SUCCESS)
    fail("a send found memory too late", count);
  if (g_rank == 0) check(type, count, memory, bytes, size);
  free(memory);
  free(bytes);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Datatype type = deep();
  play(type, kShort);
  play(type, kLong);
  MPI_Type_free(&type);
  int mine = g_refused, least = 0, all = 0;
  MPI_Allreduce(&mine, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (least == 0) fail("no allocation of the component was refused", 0);
  if (g_rank == 0) printf("deep_type: ok, %d allocations refused\n", all);
  MPI_Finalize();
  return 0;
}
