/* SPDX-License-Identifier: BSD-3-Clause
 *
 * late_port: all ranks exchange short and long messages in a ring, for as long as a fault file needs to bring
 * up a port that was down when the job began, and then long enough to use it.
 *
 * usage: late_port ROUNDS [SECONDS]     after so many rounds slow ones, until so many seconds have passed
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { kLong = 1 << 20, kShort = 1000, kPauseRounds = 5 };

static unsigned char value(int from, int round, int i) {
  return (unsigned char)(from * 31 + round * 7 + i);
}

static long exchange(unsigned char* out, unsigned char* in, int bytes, int round, int rank, int size) {
  const int right = (rank + 1) % size;
  const int left = (rank + size - 1) % size;
  long wrong = 0;
  for (int i = 0; i < bytes; ++i) out[i] = value(rank, round, i);
  MPI_Sendrecv(out, bytes, MPI_BYTE, right, round, in, bytes, MPI_BYTE, left, round, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  for (int i = 0; i < bytes; ++i) wrong += in[i] != value(left, round, i);
  return wrong;
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 100;
  unsigned char* out = malloc(kLong);
  unsigned char* in = malloc(kLong);
  int rank = 0;
  int size = 0;
  long wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (!out || !in || rounds < 1) MPI_Abort(MPI_COMM_WORLD, 2);
  const double end = argc > 2 ? MPI_Wtime() + atoi(argv[2]) : 0;
  int round = 0;
  for (int go = 1; go; ++round) {
    if (round >= rounds) {
      go = MPI_Wtime() < end;
      MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
      if (!go) break;
      usleep(20000);
    }
    wrong += exchange(out, in, kShort, round, rank, size);
    wrong += exchange(out, in, kLong, round, rank, size);
    if (round % kPauseRounds) continue;
    /* Time for a rail that came back to be connected: polled, as a rank in MPI does. */
    const double until = MPI_Wtime() + 0.02;
    int flag = 0;
    while (MPI_Wtime() < until)
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  }
  printf("late_port: rank %d: %d rounds, %ld bytes wrong\n", rank, round, wrong);
  MPI_Finalize();
  free(out);
  free(in);
  return wrong != 0;
}
