/* SPDX-License-Identifier: BSD-3-Clause
 *
 * sleeper: ranks exchange a few messages, so that their first connections are being made. Then one of them
 * stays away from MPI for a while, which is no fault of any rail, and the job ends.
 *
 * usage: sleeper RANK SECONDS BYTES
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void stay_away(int seconds) {
  const time_t end = time(NULL) + seconds;
  while (time(NULL) <= end) usleep(100000);
}

int main(int argc, char** argv) {
  const int who = argc > 1 ? atoi(argv[1]) : 0;
  const int seconds = argc > 2 ? atoi(argv[2]) : 3;
  const int bytes = argc > 3 ? atoi(argv[3]) : 8;
  char* out = calloc((size_t)bytes, 1);
  char* in = calloc((size_t)bytes, 1);
  int rank = 0;
  int size = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (!out || !in || size < 2) MPI_Abort(MPI_COMM_WORLD, 2);
  const int right = (rank + 1) % size;
  const int left = (rank + size - 1) % size;
  MPI_Sendrecv(out, bytes, MPI_BYTE, right, 0, in, bytes, MPI_BYTE, left, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  if (rank == who) stay_away(seconds);
  MPI_Sendrecv(out, bytes, MPI_BYTE, right, 0, in, bytes, MPI_BYTE, left, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  MPI_Finalize();
  free(out);
  free(in);
  return 0;
}
