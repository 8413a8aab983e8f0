/* SPDX-License-Identifier: BSD-3-Clause
 *
 * killed_receiver: rank 0 sends without a pause, messages of as many bytes as the first argument says; rank 1
 * takes them for half a second and kills itself. Rank 0 prints the error class of its last send.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WINDOW = 16, MOST = 65536, SERVED_MS = 500 };

static char data[WINDOW][MOST];

static int send_window(int bytes) {
  MPI_Request requests[WINDOW];
  MPI_Status statuses[WINDOW];
  int rc = MPI_SUCCESS;
  for (int i = 0; i < WINDOW && rc == MPI_SUCCESS; ++i)
    rc = MPI_Isend(data[i], bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &requests[i]);
  return rc != MPI_SUCCESS ? rc : MPI_Waitall(WINDOW, requests, statuses);
}

static void take(void) {
  const double end = MPI_Wtime() + SERVED_MS / 1000.0;
  while (MPI_Wtime() < end) MPI_Recv(data[0], MOST, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  kill(getpid(), SIGKILL);
}

int main(int argc, char** argv) {
  const int bytes = argc > 1 ? atoi(argv[1]) : 8;
  int rank;
  long windows = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (rank == 1) take();
  while (send_window(bytes) == MPI_SUCCESS) ++windows;
  printf("killed_receiver: %ld windows were sent, then an error\n", windows);
  fflush(stdout);
  _exit(0); /* nobody is left to finalize with */
}
