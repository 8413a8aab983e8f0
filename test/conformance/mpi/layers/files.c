/* SPDX-License-Identifier: BSD-3-Clause */
#include "test/conformance/mpi/layers/layers.h"

#include <stdio.h>
#include <stdlib.h>

enum { kRows = 240, kColumns = 300, kMany = 50000 };

/* Columns of a matrix, dealt out to the ranks: strided in the file, and in memory. */
static void columns(const char* path, int collective) {
  const int whole[2] = {kRows, kColumns * ranks}, part[2] = {kRows, kColumns},
            start[2] = {0, kColumns * rank};
  double* mine = malloc(sizeof(double) * kRows * kColumns * 2);
  double* back = calloc(kRows * kColumns * 2, sizeof(double));
  MPI_Datatype in_file, in_memory;
  MPI_File file;
  char what[60];
  MPI_Type_create_subarray(2, whole, part, start, MPI_ORDER_C, MPI_DOUBLE, &in_file);
  MPI_Type_vector(kRows, kColumns, kColumns * 2, MPI_DOUBLE, &in_memory);
  MPI_Type_commit(&in_file);
  MPI_Type_commit(&in_memory);
  for (int i = 0; i < kRows * kColumns * 2; ++i) mine[i] = value(5, rank, i);
  expect(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) ==
             MPI_SUCCESS,
         "open");
  MPI_File_set_view(file, 0, MPI_DOUBLE, in_file, "native", MPI_INFO_NULL);
  (collective ? MPI_File_write_all : MPI_File_write)(file, mine, 1, in_memory, MPI_STATUS_IGNORE);
  MPI_File_sync(file);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_sync(file);
  MPI_File_seek(file, 0, MPI_SEEK_SET);
  (collective ? MPI_File_read_all : MPI_File_read)(file, back, 1, in_memory, MPI_STATUS_IGNORE);
  MPI_File_close(&file);
  int right = 1;
  for (int i = 0; i < kRows * kColumns * 2 - kColumns; ++i)
    right &= back[i] == (i % (kColumns * 2) < kColumns ? mine[i] : 0);
  snprintf(what, sizeof what, "matrix read %s", collective ? "together" : "alone");
  expect(right, what);
  say(what, back, sizeof(double) * kRows * kColumns * 2);
  MPI_Type_free(&in_file);
  MPI_Type_free(&in_memory);
  free(mine);
  free(back);
}

/* Blocks at their places, nonblocking; then in the order of the ranks, collectively. */
static void blocks(const char* path) {
  int* mine = malloc(kMany * sizeof(int));
  int* back = malloc(kMany * sizeof(int));
  const MPI_Offset at = (MPI_Offset)rank * kMany * (MPI_Offset)sizeof(int);
  const MPI_Offset other = (MPI_Offset)((rank + 1) % ranks) * kMany * (MPI_Offset)sizeof(int);
  MPI_File file;
  MPI_Request request;
  for (int i = 0; i < kMany; ++i) mine[i] = value(6, rank, i);
  MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
  MPI_File_iwrite_at(file, at, mine, kMany, MPI_INT, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_File_sync(file);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_sync(file);
  MPI_File_iread_at(file, other, back, kMany, MPI_INT, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  say("blocks read alone", back, kMany * sizeof(int));
  MPI_File_read_at_all(file, other, back, kMany, MPI_INT, MPI_STATUS_IGNORE);
  int right = 1;
  for (int i = 0; i < kMany; ++i) right &= back[i] == value(6, (rank + 1) % ranks, i);
  expect(right, "blocks read together");
  say("blocks read together", back, kMany * sizeof(int));
  MPI_File_close(&file);
  free(mine);
  free(back);
}

void files(const char* folder) {
  char path[3][400];
  for (int i = 0; i < 3; ++i) snprintf(path[i], sizeof path[i], "%s/layers.%d", folder, i);
  columns(path[0], 1);
  columns(path[1], 0);
  blocks(path[2]);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0)
    for (int i = 0; i < 3; ++i) MPI_File_delete(path[i], MPI_INFO_NULL);
}
