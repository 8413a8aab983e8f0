/* SPDX-License-Identifier: BSD-3-Clause
 *
 * one_sided: two ranks put, get and accumulate in each other's window, and exchange messages between, for
 * ROUNDS rounds. usage: one_sided ROUNDS. Rank 0 says how much was wrong.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kInts = 4096, kTag = 3 };

static int window[3 * kInts]; /* is put, is got, is added to */
static int out[kInts], in[kInts], message[kInts];

static int value(int rank, int round, int i) {
  return rank * 1000003 + round * 7919 + i;
}

static int wrong_in(const int* data, int rank, int round) {
  int wrong = 0;
  for (int i = 0; i < kInts; ++i) wrong += data[i] != value(rank, round, i);
  return wrong;
}

int main(int argc, char** argv) {
  int rank = 0, wrong = 0;
  const int rounds = argc > 1 ? atoi(argv[1]) : 1;
  MPI_Win win;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int other = 1 - rank;
  MPI_Win_create(window, sizeof(window), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < kInts; ++i) {
      out[i] = value(rank, round, i);
      window[kInts + i] = value(rank, -round, i);
    }
    MPI_Win_fence(0, win);
    MPI_Put(out, kInts, MPI_INT, other, 0, kInts, MPI_INT, win);
    MPI_Get(in, kInts, MPI_INT, other, kInts, kInts, MPI_INT, win);
    MPI_Accumulate(&other, 1, MPI_INT, other, 2 * kInts, 1, MPI_INT, MPI_SUM, win);
    MPI_Win_fence(0, win);
    wrong += wrong_in(window, other, round) + wrong_in(in, other, -round);
    wrong += window[2 * kInts] != rank * (round + 1);
    MPI_Sendrecv(out, kInts, MPI_INT, other, kTag, message, kInts, MPI_INT, other, kTag, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    wrong += wrong_in(message, other, round);
  }
  MPI_Win_free(&win);
  int all = 0;
  MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("one_sided: %d rounds, %d wrong\n", rounds, all);
  MPI_Finalize();
  return 0;
}
