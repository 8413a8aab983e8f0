/* SPDX-License-Identifier: BSD-3-Clause
 *
 * many_ranks: every rank talks to rank 0, then to its neighbours in a ring; every word is checked. Says how
 * much memory a process has registered and how much it occupies, and how long the parts took.
 *
 * many_ranks everybody: every rank talks to its neighbours until all rails to them are up, and then to all.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/integration/pinned.h"

enum { WORDS = 512, TURNS = 3 };

static uint64_t out[WORDS];
static uint64_t in[WORDS];
static long wrong;

/* A line of /proc/self/status, in bytes. */
static double status_of(const char* name) {
  char line[256];
  double found = 0;
  FILE* file = fopen("/proc/self/status", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, name, strlen(name)) == 0) found = atof(line + strlen(name)) * 1024;
  if (file != NULL) fclose(file);
  return found;
}

static uint64_t word(int from, int to, int turn, int i) {
  return ((uint64_t)from << 48) ^ ((uint64_t)to << 32) ^ ((uint64_t)turn << 24) ^ (uint64_t)i;
}

static void fill(int from, int to, int turn) {
  for (int i = 0; i < WORDS; ++i) out[i] = word(from, to, turn, i);
}

static void check(int from, int to, int turn) {
  for (int i = 0; i < WORDS; ++i) wrong += in[i] != word(from, to, turn, i);
}

/* All send to rank 0, which answers each. */
static void all_to_one(int rank, int ranks) {
  MPI_Status status;
  if (rank != 0) {
    fill(rank, 0, 0);
    MPI_Sendrecv(out, WORDS, MPI_UINT64_T, 0, 1, in, WORDS, MPI_UINT64_T, 0, 2, MPI_COMM_WORLD, &status);
    check(0, rank, 0);
    return;
  }
  for (int i = 1; i < ranks; ++i) {
    MPI_Recv(in, WORDS, MPI_UINT64_T, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &status);
    check(status.MPI_SOURCE, 0, 0);
    fill(0, status.MPI_SOURCE, 0);
    MPI_Send(out, WORDS, MPI_UINT64_T, status.MPI_SOURCE, 2, MPI_COMM_WORLD);
  }
}

/* All send to the one `distance` behind them. */
static void shift(int rank, int ranks, int distance, int turn) {
  const int to = (rank + distance) % ranks;
  const int from = (rank + ranks - distance) % ranks;
  fill(rank, to, turn);
  MPI_Sendrecv(out, WORDS, MPI_UINT64_T, to, 3, in, WORDS, MPI_UINT64_T, from, 3, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  check(from, rank, turn);
}

static void ring(int rank, int ranks) {
  for (int turn = 1; turn <= TURNS; ++turn) shift(rank, ranks, 1, turn);
}

static int everybody(int rank, int ranks) {
  enum { FIRST = 200, PAUSE_US = 3000 };
  long all_wrong;
  for (int turn = 0; turn < FIRST; ++turn) {
    shift(rank, ranks, 1, turn);
    usleep(PAUSE_US);
  }
  for (int distance = 1; distance < ranks; ++distance) shift(rank, ranks, distance, FIRST);
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("many_ranks: %d ranks to everybody, %ld words wrong\n", ranks, all_wrong);
  MPI_Finalize();
  return wrong != 0;
}

int main(int argc, char** argv) {
  int rank;
  int ranks;
  int provided;
  enum { IDLE, CONNECTED, OCCUPIED, OWN, FIGURES };
  double mine[FIGURES];
  double most[FIGURES];
  double sum[FIGURES];
  double began;
  double met;
  double turned;
  long all_wrong;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc > 1 && strcmp(argv[1], "everybody") == 0) return everybody(rank, ranks);
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  mine[IDLE] = pinned();
  began = MPI_Wtime();
  all_to_one(rank, ranks);
  met = MPI_Wtime();
  ring(rank, ranks);
  turned = MPI_Wtime();
  mine[CONNECTED] = pinned();
  mine[OCCUPIED] = status_of("VmRSS:");
  mine[OWN] = status_of("RssAnon:");
  MPI_Reduce(mine, most, FIGURES, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(mine, sum, FIGURES, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Reduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("many_ranks: %d ranks, %ld words wrong, all to one %.1f s, ring %.1f s\n", ranks, all_wrong,
           met - began, turned - met);
    printf(
        "many_ranks: KiB mean and most: pinned at start %.0f %.0f, at the end %.0f %.0f, resident %.0f %.0f, "
        "anonymous %.0f %.0f\n",
        sum[IDLE] / ranks / 1024, most[IDLE] / 1024, sum[CONNECTED] / ranks / 1024, most[CONNECTED] / 1024,
        sum[OCCUPIED] / ranks / 1024, most[OCCUPIED] / 1024, sum[OWN] / ranks / 1024, most[OWN] / 1024);
  }
  MPI_T_finalize();
  MPI_Finalize();
  return wrong != 0;
}
