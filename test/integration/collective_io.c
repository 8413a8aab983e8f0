/* SPDX-License-Identifier: BSD-3-Clause
 *
 * collective_io.c: collective MPI-IO of interleaved file views. The layers that do it send large strided
 * messages, also to their own process. Usage: collective_io FILE. Prints "collective_io: ok".
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kBlocks = 4096, kBlock = 16 };

static int g_rank;

static void check(int rc, const char* what) {
  if (rc == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int n = 0;
  MPI_Error_string(rc, text, &n);
  fprintf(stderr, "collective_io: rank %d: %s: %s\n", g_rank, what, text);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static int value(int rank, int i) {
  return rank * 1000003 + i;
}

/* Writes and reads; the elements lie in memory every `spread`-th. */
static void round_trip(const char* path, int spread) {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int n = kBlocks * kBlock;
  int* data = malloc(sizeof(int) * (size_t)n * (size_t)spread);
  if (data == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Datatype in_file, in_memory;
  MPI_Type_vector(kBlocks, kBlock, kBlock * size, MPI_INT, &in_file);
  MPI_Type_vector(n, 1, spread, MPI_INT, &in_memory);
  MPI_Type_commit(&in_file);
  MPI_Type_commit(&in_memory);
  MPI_File file;
  check(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                      MPI_INFO_NULL, &file),
        "open");
  check(MPI_File_set_view(file, (MPI_Offset)sizeof(int) * kBlock * g_rank, MPI_INT, in_file, "native",
                          MPI_INFO_NULL),
        "set view");
  for (int i = 0; i < n; ++i) data[(size_t)i * (size_t)spread] = value(g_rank, i);
  check(MPI_File_write_at_all(file, 0, data, 1, in_memory, MPI_STATUS_IGNORE), "collective write");
  for (int i = 0; i < n; ++i) data[(size_t)i * (size_t)spread] = -1;
  check(MPI_File_read_at_all(file, 0, data, 1, in_memory, MPI_STATUS_IGNORE), "collective read");
  for (int i = 0; i < n; ++i) {
    if (data[(size_t)i * (size_t)spread] == value(g_rank, i)) continue;
    fprintf(stderr, "collective_io: rank %d: element %d is %d\n", g_rank, i,
            data[(size_t)i * (size_t)spread]);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  check(MPI_File_close(&file), "close");
  MPI_Type_free(&in_file);
  MPI_Type_free(&in_memory);
  free(data);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  if (argc != 2) MPI_Abort(MPI_COMM_WORLD, 2);
  round_trip(argv[1], 1);
  round_trip(argv[1], 2);
  if (g_rank == 0) printf("collective_io: ok\n");
  MPI_Finalize();
  return 0;
}
