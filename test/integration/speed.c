/* SPDX-License-Identifier: BSD-3-Clause
 *
 * speed BYTES WINDOW SECONDS [PAUSE [IDLE]]: rank 0 sends messages of BYTES to rank 1, WINDOW of them at a
 * time, for so many seconds, with PAUSE milliseconds of work before it posts each. Both sleep IDLE
 * microseconds between two looks at a window; 0: they wait for it. Rank 1 looks at the first and last byte of
 * each. Prints how many windows there were.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMostWindow = 256, kTag = 1, kGoOn = 2 };

static unsigned char value(int window, int i) {
  return (unsigned char)(window * 7 + i + 1);
}

int main(int argc, char** argv) {
  const int bytes = argc > 1 ? atoi(argv[1]) : 0;
  const int width = argc > 2 ? atoi(argv[2]) : 0;
  const double seconds = argc > 3 ? atof(argv[3]) : 0;
  const struct timespec pause = {0, argc > 4 ? atoi(argv[4]) % 1000 * 1000000L : 0};
  const struct timespec idle = {0, argc > 5 ? atoi(argv[5]) % 1000000 * 1000L : 0};
  MPI_Request requests[kMostWindow];
  int rank = 0;
  long wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  unsigned char* data =
      bytes > 0 && width > 0 && width <= kMostWindow ? malloc((size_t)bytes * (size_t)width) : NULL;
  if (!data || rank > 1) MPI_Abort(MPI_COMM_WORLD, 2);
  memset(data, 0, (size_t)bytes * (size_t)width);
  const double end = MPI_Wtime() + seconds;
  int window = 0;
  for (int go = 1; go; ++window) {
    for (int i = 0; i < width; ++i) {
      unsigned char* message = data + (size_t)i * (size_t)bytes;
      if (rank == 0) {
        if (pause.tv_nsec != 0) nanosleep(&pause, NULL);
        message[0] = message[bytes - 1] = value(window, i);
        MPI_Isend(message, bytes, MPI_BYTE, 1, kTag, MPI_COMM_WORLD, &requests[i]);
      } else {
        message[0] = message[bytes - 1] = 0;
        MPI_Irecv(message, bytes, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &requests[i]);
      }
    }
    for (int done = 0; idle.tv_nsec != 0 && !done;) {
      MPI_Testall(width, requests, &done, MPI_STATUSES_IGNORE);
      if (!done) nanosleep(&idle, NULL);
    }
    MPI_Waitall(width, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < width && rank == 1; ++i) {
      const unsigned char* message = data + (size_t)i * (size_t)bytes;
      wrong += message[0] != value(window, i) || message[bytes - 1] != value(window, i);
    }
    go = MPI_Wtime() < end;
    MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  printf("speed: rank %d: %d windows, %ld messages wrong\n", rank, window, wrong);
  MPI_Finalize();
  free(data);
  return wrong != 0;
}
