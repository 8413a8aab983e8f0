/* SPDX-License-Identifier: BSD-3-Clause
 *
 * busy_peer: ranks 0 and 2 compute outside MPI for as many seconds as the argument says, while rank 1 waits
 * for them. Rank 0 has never talked to it, rank 2 has. Each must take the message sent to it, unchanged, when
 * it comes back to MPI, and answer.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { kBytes = 8000, kData = 1, kHello = 2 };

static void compute(int seconds) {
  const time_t end = time(NULL) + seconds;
  while (time(NULL) <= end) usleep(100000);
}

static int answer(int seconds) {
  unsigned char data[kBytes];
  int sum = 0;
  compute(seconds);
  MPI_Recv(data, kBytes, MPI_BYTE, 1, kData, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int i = 0; i < kBytes; ++i) sum += data[i] != (unsigned char)(i * 7);
  MPI_Send(&sum, 1, MPI_INT, 1, kData, MPI_COMM_WORLD);
  return sum;
}

static int ask(void) {
  unsigned char data[kBytes];
  int wrong[2] = {-1, -1};
  MPI_Request requests[4];
  for (int i = 0; i < kBytes; ++i) data[i] = (unsigned char)(i * 7);
  usleep(500000); /* both compute by now */
  for (int i = 0; i < 2; ++i) {
    MPI_Irecv(&wrong[i], 1, MPI_INT, 2 * i, kData, MPI_COMM_WORLD, &requests[i]);
    MPI_Isend(data, kBytes, MPI_BYTE, 2 * i, kData, MPI_COMM_WORLD, &requests[2 + i]);
  }
  MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
  if (wrong[0] == 0 && wrong[1] == 0) printf("busy_peer: both peers answered\n");
  return wrong[0] != 0 || wrong[1] != 0;
}

int main(int argc, char** argv) {
  const int seconds = argc > 1 ? atoi(argv[1]) : 8;
  int rank = 0;
  int token = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) {
    MPI_Sendrecv_replace(&token, 1, MPI_INT, 3 - rank, kHello, 3 - rank, kHello, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
  }
  const int wrong = rank == 1 ? ask() : answer(seconds);
  MPI_Finalize();
  return wrong != 0;
}
