/* SPDX-License-Identifier: BSD-3-Clause
 *
 * parked: rank 0 streams messages of 4 MiB to rank 1, four at a time.
 *
 * usage: parked MESSAGES
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kBytes = 4 << 20, kWindow = 4, kStep = 4096 };

static void fill(unsigned char* to, int message) {
  for (int i = 0; i < kBytes; i += kStep) to[i] = (unsigned char)(message * 7 + i / kStep);
}

static long differ(const unsigned char* in, int message) {
  long wrong = 0;
  for (int i = 0; i < kBytes; i += kStep) wrong += in[i] != (unsigned char)(message * 7 + i / kStep);
  return wrong;
}

int main(int argc, char** argv) {
  const int messages = argc > 1 ? atoi(argv[1]) : 100;
  unsigned char* buffers[kWindow];
  MPI_Request requests[kWindow];
  int rank = 0;
  long wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < kWindow; ++i) {
    buffers[i] = calloc(1, kBytes);
    if (!buffers[i]) MPI_Abort(MPI_COMM_WORLD, 2);
  }
  for (int first = 0; rank < 2 && first < messages; first += kWindow) {
    for (int i = 0; i < kWindow; ++i) {
      if (rank == 0) {
        fill(buffers[i], first + i);
        MPI_Isend(buffers[i], kBytes, MPI_BYTE, 1, i, MPI_COMM_WORLD, &requests[i]);
      } else {
        MPI_Irecv(buffers[i], kBytes, MPI_BYTE, 0, i, MPI_COMM_WORLD, &requests[i]);
      }
    }
    MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; rank == 1 && i < kWindow; ++i) wrong += differ(buffers[i], first + i);
  }
  if (rank == 1) printf("parked: %d messages, %ld bytes wrong\n", messages, wrong);
  MPI_Finalize();
  for (int i = 0; i < kWindow; ++i) free(buffers[i]);
  return wrong != 0;
}
