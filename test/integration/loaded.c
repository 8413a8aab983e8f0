/* SPDX-License-Identifier: BSD-3-Clause
 *
 * loaded SECONDS: pairs of ranks exchange short and long messages for so long and check every word of them.
 * Then each rank prints what it found, and what the performance variables of the PML say:
 *
 *   loaded: rank 0 rounds 812 wrong 0 failovers 0 suspicions 3 rails 2
 *
 * where "rails" is the number of rails that carried bytes.
 */
#include <inttypes.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_VALUES 64
#define SHORT_ROUNDS 20

static const int words[] = {1, 16, 500, 1500, 9000, 40000, 200000};
enum { SIZES = sizeof(words) / sizeof(words[0]) };

static const char* const names[] = {"pml_bfo_failovers", "pml_bfo_suspicions", "pml_bfo_rail_bytes"};
enum { FAILOVERS, SUSPICIONS, RAILS, VARIABLES };

static MPI_T_pvar_session session;
static MPI_T_pvar_handle handles[VARIABLES];
static int counts[VARIABLES];
static uint64_t wrong;

static void fail(const char* what) {
  fprintf(stderr, "loaded: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* What word `i` of a message is: different for each sender, round and size. */
static uint64_t word(int sender, long round, int size, int i) {
  const uint64_t x =
      ((uint64_t)sender << 56) ^ ((uint64_t)size << 48) ^ ((uint64_t)round << 20) ^ (uint64_t)i;
  return (x + 1) * 0x9e3779b97f4a7c15u;
}

static void fill(uint64_t* out, int rank, long round, int size) {
  for (int i = 0; i < words[size]; ++i) out[i] = word(rank, round, size, i);
}

static void check(const uint64_t* in, int sender, long round, int size) {
  for (int i = 0; i < words[size]; ++i) wrong += in[i] != word(sender, round, size, i);
}

/* All sizes at once, both ways. */
static void exchange(int rank, int other, long round, uint64_t** out, uint64_t** in) {
  MPI_Request requests[2 * SIZES];
  for (int i = 0; i < SIZES; ++i) {
    fill(out[i], rank, round, i);
    for (int k = 0; k < words[i]; ++k) in[i][k] = 0;
    MPI_Irecv(in[i], words[i], MPI_UINT64_T, other, i, MPI_COMM_WORLD, &requests[2 * i]);
    MPI_Isend(out[i], words[i], MPI_UINT64_T, other, i, MPI_COMM_WORLD, &requests[2 * i + 1]);
  }
  MPI_Waitall(2 * SIZES, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < SIZES; ++i) check(in[i], other, round, i);
}

/* Short messages one after the other: each waits for the other process. */
static void ping_pong(int rank, int other, long round) {
  for (int i = 0; i < SHORT_ROUNDS; ++i) {
    const uint64_t out = word(rank, round, SIZES, i);
    uint64_t in = 0;
    MPI_Sendrecv(&out, 1, MPI_UINT64_T, other, SIZES, &in, 1, MPI_UINT64_T, other, SIZES, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    wrong += in != word(other, round, SIZES, i);
  }
}

/* A counter counts from when its handle was made: before the first message. */
static void open_variables(void) {
  int provided;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) fail("no MPI_T");
  MPI_T_pvar_session_create(&session);
  for (int i = 0; i < VARIABLES; ++i) {
    int index;
    if (MPI_T_pvar_get_index(names[i], MPI_T_PVAR_CLASS_COUNTER, &index) != MPI_SUCCESS) fail(names[i]);
    if (MPI_T_pvar_handle_alloc(session, index, NULL, &handles[i], &counts[i]) != MPI_SUCCESS) fail(names[i]);
    if (counts[i] > MAX_VALUES) fail(names[i]);
  }
}

/* The value of a performance variable, and how many of its parts are not 0. */
static unsigned long long variable(int which, int* parts) {
  unsigned long long values[MAX_VALUES] = {0};
  unsigned long long sum = 0;
  if (MPI_T_pvar_read(session, handles[which], values) != MPI_SUCCESS) fail(names[which]);
  *parts = 0;
  for (int i = 0; i < counts[which]; ++i) {
    sum += values[i];
    *parts += values[i] != 0;
  }
  return sum;
}

static void report(int rank, long rounds) {
  int parts;
  int rails;
  const unsigned long long failovers = variable(FAILOVERS, &parts);
  const unsigned long long suspicions = variable(SUSPICIONS, &parts);
  variable(RAILS, &rails);
  printf("loaded: rank %d rounds %ld wrong %" PRIu64 " failovers %llu suspicions %llu rails %d\n", rank,
         rounds, wrong, failovers, suspicions, rails);
  fflush(stdout);
  MPI_T_pvar_session_free(&session);
  MPI_T_finalize();
}

int main(int argc, char** argv) {
  int rank;
  int size;
  uint64_t* out[SIZES];
  uint64_t* in[SIZES];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 2 || size % 2 != 0) fail("usage: mpirun -np EVEN loaded SECONDS");
  open_variables();
  const double end = MPI_Wtime() + atof(argv[1]);
  const int other = rank ^ 1;
  for (int i = 0; i < SIZES; ++i) {
    out[i] = malloc((size_t)words[i] * sizeof(uint64_t));
    in[i] = malloc((size_t)words[i] * sizeof(uint64_t));
    if (out[i] == NULL || in[i] == NULL) fail("no memory");
  }
  long round = 0;
  int on = 1;
  for (; on != 0; ++round) {
    exchange(rank, other, round, out, in);
    ping_pong(rank, other, round);
    on = MPI_Wtime() < end;
    MPI_Bcast(&on, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  report(rank, round);
  for (int i = 0; i < SIZES; ++i) {
    free(out[i]);
    free(in[i]);
  }
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
