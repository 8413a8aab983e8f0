/* SPDX-License-Identifier: BSD-3-Clause
 *
 * first_contact: rank 0 speaks to rank 1 for the first time after it has spoken to rank 2 for a while, during
 * which a fault file takes one of its ports away. Rank 1 waits for anybody, so that nothing but rank 0 begins
 * the conversation. Prints how long the first message took.
 */
#include <mpi.h>
#include <stdio.h>

enum { kBytes = 8000, kTimes = 20 };

static int wrong(const unsigned char* data) {
  int sum = 0;
  for (int i = 0; i < kBytes; ++i) sum += data[i] != (unsigned char)(i * 7);
  return sum;
}

int main(int argc, char** argv) {
  unsigned char data[kBytes];
  int rank = 0;
  int bad = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    for (int i = 0; i < kBytes; ++i) data[i] = (unsigned char)(i * 7);
    for (int i = 0; i < kTimes; ++i)
      MPI_Sendrecv_replace(data, kBytes, MPI_BYTE, 2, 0, 2, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    const double start = MPI_Wtime();
    MPI_Sendrecv_replace(data, kBytes, MPI_BYTE, 1, 0, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("first_contact: answered after %.1f s\n", MPI_Wtime() - start);
    bad = wrong(data);
  } else {
    for (int i = 0; i < (rank == 2 ? kTimes : 1); ++i) {
      MPI_Recv(data, kBytes, MPI_BYTE, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      bad += wrong(data);
      MPI_Send(data, kBytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
  }
  MPI_Finalize();
  return bad != 0;
}
