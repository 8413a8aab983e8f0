/* SPDX-License-Identifier: BSD-3-Clause
 *
 * brief: ranks 0 and 1, 2 and 3, .. play a few rounds of ping-pong and finalize: what is lost is lost near
 * the end. Rank LATE naps for long in MPI_Finalize, as where a process gets a processor late.
 *
 * usage: brief ROUNDS [LATE]
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kBytes = 8000, kNap = 100, kLongNapMs = 500 };

static int late = 0;

/* MPI_Finalize waits for the other processes in naps of 100 us. */
int usleep(unsigned us);
int usleep(unsigned us) {
  struct timespec nap = {us / 1000000, (long)(us % 1000000) * 1000};
  if (late && us == kNap) nap.tv_nsec = kLongNapMs * 1000000L;
  return nanosleep(&nap, NULL);
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 12;
  static unsigned char out[kBytes];
  static unsigned char in[kBytes];
  int rank = 0;
  int size = 0;
  int wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int peer = rank ^ 1;
  for (int round = 0; round < rounds && peer < size; ++round) {
    memset(out, round + rank, kBytes);
    if (rank < peer) MPI_Send(out, kBytes, MPI_BYTE, peer, round, MPI_COMM_WORLD);
    MPI_Recv(in, kBytes, MPI_BYTE, peer, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank > peer) MPI_Send(out, kBytes, MPI_BYTE, peer, round, MPI_COMM_WORLD);
    memset(out, round + peer, kBytes);
    wrong += memcmp(in, out, kBytes) != 0;
  }
  if (wrong) printf("brief: rank %d: %d messages wrong\n", rank, wrong);
  late = argc > 2 && atoi(argv[2]) == rank;
  MPI_Finalize();
  return wrong != 0;
}
