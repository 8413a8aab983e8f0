/* SPDX-License-Identifier: BSD-3-Clause
 *
 * rounds: all ranks exchange messages of several sizes in a ring until the time is over; every byte is
 * checked. Says how many rounds were made, how long the worst one took, how long a single MPI call kept
 * its caller, and what that time went into.
 *
 * usage: rounds SECONDS [MOST-BYTES]
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "test/rxe/parts.h"

enum { kSizes = 4, kSlowMs = 20 };
static const int kBytes[kSizes] = {8, 4096, 65536, 1 << 20};

/* What a rank measured. The order is that of the arrays that are reduced. */
struct Figures {
  double longest_round_ms;
  double longest_call_ms;
  double longest_beyond_ms;
};
static struct Figures figures;
static long slow_calls;
static long slow_beyond;     /* calls that took so long without posting */
static struct Parts longest; /* the longest call */
static struct Parts beyond;  /* the longest one by parts_beyond */
static struct Parts slow;    /* all slow ones together */
static struct Parts all;     /* and all calls */

/* An MPI_DOUBLE_INT. */
struct Place {
  double value;
  int rank;
};

static uint64_t word(int from, long round, int size, int i) {
  return ((uint64_t)from << 56) ^ ((uint64_t)round << 28) ^ ((uint64_t)size << 24) ^ (uint64_t)i;
}

static void note_call(const struct Parts* before) {
  struct Parts after;
  struct Parts call = {0};
  parts_read(&after);
  parts_add(&call, before, &after);
  parts_add(&all, before, &after);
  const double ms = call.wall * 1e3;
  if (ms > figures.longest_call_ms) {
    figures.longest_call_ms = ms;
    longest = call;
  }
  const double beyond_ms = parts_beyond(&call) * 1e3;
  if (beyond_ms > figures.longest_beyond_ms) {
    figures.longest_beyond_ms = beyond_ms;
    beyond = call;
  }
  if (beyond_ms > kSlowMs) ++slow_beyond;
  if (ms <= kSlowMs) return;
  ++slow_calls;
  parts_add(&slow, before, &after);
}

/* Waits by testing, so that one call is one pass through the progress of the library. */
static void finish(MPI_Request* request) {
  for (int done = 0; !done;) {
    struct Parts before;
    parts_read(&before);
    MPI_Test(request, &done, MPI_STATUS_IGNORE);
    note_call(&before);
  }
}

static long exchange(uint64_t* out, uint64_t* in, int size, long round, int rank, int ranks) {
  const int left = (rank + ranks - 1) % ranks;
  const int words = kBytes[size] / 8;
  MPI_Request requests[2];
  long wrong = 0;
  for (int i = 0; i < words; ++i) {
    out[i] = word(rank, round, size, i);
    in[i] = ~(uint64_t)0;
  }
  struct Parts before;
  parts_read(&before);
  MPI_Irecv(in, kBytes[size], MPI_BYTE, left, size, MPI_COMM_WORLD, &requests[0]);
  MPI_Isend(out, kBytes[size], MPI_BYTE, (rank + 1) % ranks, size, MPI_COMM_WORLD, &requests[1]);
  note_call(&before);
  finish(&requests[0]);
  finish(&requests[1]);
  for (int i = 0; i < words; ++i) {
    if (in[i] == word(left, round, size, i)) continue;
    if (wrong == 0)
      printf("rounds: rank %d round %ld size %d: word %d is %016llx instead of %016llx\n", rank, round,
             kBytes[size], i, (unsigned long long)in[i], (unsigned long long)word(left, round, size, i));
    wrong += 8;
  }
  return wrong;
}

/* Rank 0 prints the parts of the call that is the longest of all ranks by its `ms`. */
static void report_call(const char* what, struct Parts* call, double ms, int rank) {
  const struct Place mine = {ms, rank};
  struct Place slowest;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
  MPI_Bcast(call, kParts, MPI_DOUBLE, slowest.rank, MPI_COMM_WORLD);
  char text[300];
  parts_print(text, sizeof text, call);
  if (rank == 0) printf("rounds: %s: %s\n", what, text);
}

/* Rank 0 prints the parts of the calls of all ranks together. */
static void report_calls(const char* what, const struct Parts* calls, int rank) {
  struct Parts sum = {0};
  MPI_Reduce(calls, &sum, kParts, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  char text[300];
  parts_print(text, sizeof text, &sum);
  if (rank == 0) printf("rounds: %s: %s\n", what, text);
}

/* The figures of all ranks, from rank 0. */
static void report(long rounds, double seconds, long wrong, int rank) {
  const long counted[3] = {wrong, slow_calls, slow_beyond};
  long total[3];
  struct Figures worst;
  MPI_Reduce(&figures, &worst, sizeof worst / sizeof(double), MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(counted, total, 3, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0)
    printf(
        "rounds: %ld rounds in %.1f s, %ld bytes wrong, longest round %.0f ms, longest call %.0f ms, %ld "
        "calls over %d ms, %ld not by posting\n",
        rounds, seconds, total[0], worst.longest_round_ms, worst.longest_call_ms, total[1], kSlowMs,
        total[2]);
  report_call("the longest call", &longest, figures.longest_call_ms, rank);
  report_call("the longest not by posting", &beyond, figures.longest_beyond_ms, rank);
  report_calls("calls over 20 ms", &slow, rank);
  report_calls("all calls", &all, rank);
}

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? atof(argv[1]) : 0;
  const int most = argc > 2 ? atoi(argv[2]) : kBytes[kSizes - 1];
  uint64_t* out = malloc((size_t)kBytes[kSizes - 1]);
  uint64_t* in = malloc((size_t)kBytes[kSizes - 1]);
  int rank = 0;
  int ranks = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (seconds <= 0 || most < 8 || out == NULL || in == NULL) {
    if (rank == 0)
      fprintf(stderr, "usage: rounds SECONDS [MOST-BYTES], both positive, MOST-BYTES at least 8\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const double began = MPI_Wtime();
  long rounds = 0;
  long wrong = 0;
  for (int more = 1; more;) {
    const double round_began = MPI_Wtime();
    for (int size = 0; size < kSizes && kBytes[size] <= most; ++size)
      wrong += exchange(out, in, size, rounds, rank, ranks);
    more = MPI_Wtime() - began < seconds;
    MPI_Request request;
    MPI_Ibcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
    finish(&request);
    const double ms = (MPI_Wtime() - round_began) * 1e3;
    if (ms > figures.longest_round_ms) figures.longest_round_ms = ms;
    if (++rounds == 2 && rank == 0) {  // the rails are connected
      printf("rounds: begun\n");
      fflush(stdout);
    }
  }
  report(rounds, MPI_Wtime() - began, wrong, rank);
  MPI_Finalize();
  free(out);
  free(in);
  return wrong != 0;
}
