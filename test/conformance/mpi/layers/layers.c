/* SPDX-License-Identifier: BSD-3-Clause
 *
 * layers SECTION.. [FOLDER]: plays collectives, neighbours, one_sided and files (in FOLDER). Exit status 0:
 * all right, 1: something was not, 2: usage.
 */
#include "test/conformance/mpi/layers/layers.h"

#include <stdio.h>
#include <string.h>

int rank, ranks;
static int wrong;

void say(const char* what, const void* data, size_t size) {
  const unsigned char* bytes = data;
  uint64_t sum = 14695981039346656037u;
  uint64_t all[64];
  for (size_t i = 0; i < size; ++i) sum = (sum ^ bytes[i]) * 1099511628211u;
  MPI_Gather(&sum, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  if (rank != 0) return;
  for (int r = 1; r < ranks; ++r) all[0] = (all[0] ^ all[r]) * 1099511628211u + (uint64_t)r;
  printf("layers: %s: %016llx\n", what, (unsigned long long)all[0]);
  fflush(stdout);
}

void expect(int right, const char* what) {
  if (right) return;
  ++wrong;
  fprintf(stderr, "layers: WRONG on rank %d: %s\n", rank, what);
}

int value(int s, int r, int i) {
  return (int)((unsigned)(s * 7919 + r * 104729 + i * 31 + (i >> 9)) & 0xffffff);
}

int main(int argc, char** argv) {
  const char* folder = NULL;
  int all = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int i = 1; i < argc; ++i)
    if (argv[i][0] == '/') folder = argv[i];
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "collectives") == 0) collectives();
    if (strcmp(argv[i], "neighbours") == 0) neighbours();
    if (strcmp(argv[i], "one_sided") == 0) one_sided();
    if (strcmp(argv[i], "files") == 0 && folder != NULL) files(folder);
  }
  MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("layers: end, %d wrong\n", all);
  MPI_Finalize();
  return all != 0;
}
