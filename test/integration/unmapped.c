/* SPDX-License-Identifier: BSD-3-Clause
 *
 * unmapped: two ranks exchange messages in memory that is unmapped after each of them, and often mapped again
 * at the same address. Says how much the process has registered at most after a buffer was unmapped and a
 * smaller message went, and how many bytes were wrong. With an argument: that library is loaded after the
 * first message, and its munmap() is used from then on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <sys/mman.h>

#include "test/integration/pinned.h"

enum { BYTES = 16 << 20, SMALL = 4 << 20, ROUNDS = 4 };

static int (*give_back)(void*, size_t) = munmap;

static void load(const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  void* const function = handle == NULL ? NULL : dlsym(handle, "munmap");
  if (function == NULL) {
    fprintf(stderr, "unmapped: %s\n", dlerror());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  *(void**)&give_back = function;
}

static unsigned char byte(int round, size_t i) {
  return (unsigned char)(i * 31 + i / 4096 + (size_t)round * 7);
}

static unsigned char* map(size_t size) {
  void* const at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) MPI_Abort(MPI_COMM_WORLD, 1);
  return at;
}

/* One message of rank 0. The number of bytes that are wrong. */
static long exchange(int rank, int round, unsigned char* at, int size) {
  long wrong = 0;
  if (rank == 0) {
    for (int i = 0; i < size; ++i) at[i] = byte(round, (size_t)i);
    MPI_Send(at, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
  } else {
    MPI_Recv(at, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < size; ++i) wrong += at[i] != byte(round, (size_t)i);
  }
  return wrong;
}

/* A message in memory that is unmapped behind it, then one in other memory over all rails: a cache clears
   away what is gone when it registers something. */
static long exchange_and_unmap(int rank, int round) {
  unsigned char* const at = map(BYTES);
  long wrong = exchange(rank, round, at, BYTES);
  give_back(at, BYTES);
  unsigned char* const other = map(SMALL);
  wrong += exchange(rank, round, other, SMALL);
  give_back(other, SMALL);
  return wrong;
}

int main(int argc, char** argv) {
  int provided;
  int rank;
  long wrong = 0;
  double most = 0;
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int round = 0; round < ROUNDS; ++round) {
    if (round == 1 && argc > 1) load(argv[1]);
    wrong += exchange_and_unmap(rank, round);
    /* Until the first message after the library came, nobody looks for it. */
    if (pinned() > most && !(round == 0 && argc > 1)) most = pinned();
  }
  printf("unmapped: rank %d: %ld bytes wrong, %.0f KiB registered at most\n", rank, wrong, most / 1024);
  MPI_Finalize();
  return wrong != 0;
}
