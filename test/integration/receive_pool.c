/* SPDX-License-Identifier: BSD-3-Clause
 *
 * receive_pool: all ranks send a burst to rank 0, which is outside MPI meanwhile; afterwards a message comes
 * now and then. Says what rank 0 has registered before the burst, after it, and at the end: when that is as
 * little as before, or when the time that the first argument allows (seconds) is over. Every word is checked.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "test/integration/pinned.h"

enum { WORDS = 1024, MESSAGES = 400, ROUND = 50, BURST = 1, TRICKLE = 2, GO_ON = 3 };

static int ranks;

static unsigned word(int from, int message, int i) {
  return (unsigned)from * 1000003u + (unsigned)message * 10007u + (unsigned)i;
}

static void send_all(int rank, int messages, int tag) {
  static unsigned data[MESSAGES][WORDS];
  MPI_Request requests[MESSAGES];
  for (int m = 0; m < messages; ++m) {
    for (int i = 0; i < WORDS; ++i) data[m][i] = word(rank, m, i);
    MPI_Isend(data[m], WORDS, MPI_UNSIGNED, 0, tag, MPI_COMM_WORLD, &requests[m]);
  }
  MPI_Waitall(messages, requests, MPI_STATUSES_IGNORE);
}

/* The number of words that are wrong. */
static long take_all(int messages, int tag) {
  static unsigned data[WORDS];
  long wrong = 0;
  for (int from = 1; from < ranks; ++from) {
    for (int m = 0; m < messages; ++m) {
      MPI_Recv(data, WORDS, MPI_UNSIGNED, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      for (int i = 0; i < WORDS; ++i) wrong += data[i] != word(from, m, i);
    }
  }
  return wrong;
}

static void send(int rank) {
  int go_on = 1;
  send_all(rank, ROUND, TRICKLE);
  MPI_Barrier(MPI_COMM_WORLD);
  send_all(rank, MESSAGES, BURST);
  while (go_on) {
    send_all(rank, 1, TRICKLE);
    MPI_Recv(&go_on, 1, MPI_INT, 0, GO_ON, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

static long take(double patience_s) {
  long wrong = take_all(ROUND, TRICKLE);
  double before;
  double most;
  double end;
  int go_on = 1;
  MPI_Barrier(MPI_COMM_WORLD);
  before = pinned();
  usleep(300000);
  wrong += take_all(MESSAGES, BURST);
  most = pinned();
  end = MPI_Wtime() + patience_s;
  while (go_on) {
    wrong += take_all(1, TRICKLE);
    usleep(2000);
    go_on = pinned() > before && MPI_Wtime() < end;
    for (int to = 1; to < ranks; ++to) MPI_Send(&go_on, 1, MPI_INT, to, GO_ON, MPI_COMM_WORLD);
  }
  printf(
      "receive_pool: %ld words wrong, registered KiB before %.0f, after the burst %.0f, at the end %.0f, "
      "%.1f s\n",
      wrong, before / 1024, most / 1024, pinned() / 1024, MPI_Wtime() - end + patience_s);
  return wrong;
}

int main(int argc, char** argv) {
  int rank;
  int provided;
  long wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  if (rank == 0) {
    wrong = take(argc > 1 ? atof(argv[1]) : 30);
  } else {
    send(rank);
  }
  MPI_T_finalize();
  MPI_Finalize();
  return wrong != 0;
}
