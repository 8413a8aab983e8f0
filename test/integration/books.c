/* SPDX-License-Identifier: BSD-3-Clause
 *
 * books: two ranks exchange messages of all protocols, then each prints what the performance variables of the
 * PML say about them, and what it sent itself:
 *
 *   books: rank 0 application 41 sent 20 read 21 resent 0 protocol 7 rails 48 24 24
 *
 * where "rails" is followed by the sum and by the bytes of each rail.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_VALUES 64
#define ROUNDS 10

typedef unsigned long long count_t;

static const char* const names[] = {"bytes_sent", "bytes_read", "bytes_resent", "bytes_protocol",
                                    "rail_bytes"};
enum { SENT, READ, RESENT, PROTOCOL, RAILS, VARIABLES };

static const int sizes[] = {0, 8, 1000, 40000, 1 << 20, 3000001};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static MPI_T_pvar_session session;
static MPI_T_pvar_handle handles[VARIABLES];
static int counts[VARIABLES];

static void fail(const char* what) {
  fprintf(stderr, "books: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void open_variables(void) {
  int provided;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) fail("no MPI_T");
  MPI_T_pvar_session_create(&session);
  for (int i = 0; i < VARIABLES; ++i) {
    char name[64];
    int index;
    snprintf(name, sizeof(name), "pml_bfo_%s", names[i]);
    if (MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index) != MPI_SUCCESS) fail(name);
    if (MPI_T_pvar_handle_alloc(session, index, NULL, &handles[i], &counts[i]) != MPI_SUCCESS) fail(name);
    if (counts[i] < 1 || counts[i] > MAX_VALUES) fail(name);
  }
}

static count_t read_variable(int which, count_t* values) {
  count_t sum = 0;
  if (MPI_T_pvar_read(session, handles[which], values) != MPI_SUCCESS) fail(names[which]);
  for (int i = 0; i < counts[which]; ++i) sum += values[i];
  return sum;
}

/* Both rails are up before anything is counted. */
static void warm_up(int other) {
  char out[1000] = {0};
  char in[1000];
  for (int i = 0; i < 64; ++i) {
    MPI_Sendrecv(out, sizeof(out), MPI_BYTE, other, 9, in, sizeof(in), MPI_BYTE, other, 9, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    usleep(1000);
  }
}

static count_t exchange(int rank, int other) {
  count_t sent = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    MPI_Request requests[2 * SIZES];
    char* in[SIZES];
    char* out[SIZES];
    for (int i = 0; i < SIZES; ++i) {
      in[i] = calloc(1, sizes[i] + 1);
      out[i] = malloc(sizes[i] + 1);
      memset(out[i], 1 + rank + 2 * i + 16 * round, sizes[i]);
      MPI_Irecv(in[i], sizes[i], MPI_BYTE, other, i, MPI_COMM_WORLD, &requests[2 * i]);
      MPI_Isend(out[i], sizes[i], MPI_BYTE, other, i, MPI_COMM_WORLD, &requests[2 * i + 1]);
      sent += sizes[i];
    }
    MPI_Waitall(2 * SIZES, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < SIZES; ++i) {
      memset(out[i], 1 + other + 2 * i + 16 * round, sizes[i]);
      if (memcmp(in[i], out[i], sizes[i]) != 0) fail("wrong bytes");
      free(in[i]);
      free(out[i]);
    }
  }
  return sent;
}

int main(int argc, char** argv) {
  int rank;
  count_t sums[VARIABLES];
  count_t values[MAX_VALUES];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  warm_up(1 - rank);
  open_variables();
  const count_t application = exchange(rank, 1 - rank);
  MPI_Barrier(MPI_COMM_WORLD); /* carries no application bytes */
  /* The last answers may still be on their way to the port. */
  for (int i = 0; i < 1000; ++i) {
    int flag;
    for (int v = 0; v < VARIABLES; ++v) sums[v] = read_variable(v, values);
    if (sums[RAILS] == sums[SENT] + sums[READ] + sums[PROTOCOL]) break;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    usleep(1000);
  }
  char line[2048];
  int used =
      snprintf(line, sizeof(line),
               "books: rank %d application %llu sent %llu read %llu resent %llu protocol %llu rails %llu",
               rank, application, sums[SENT], sums[READ], sums[RESENT], sums[PROTOCOL], sums[RAILS]);
  for (int i = 0; i < counts[RAILS]; ++i)
    used += snprintf(line + used, sizeof(line) - used, " %llu", values[i]);
  puts(line);
  fflush(stdout);
  MPI_T_pvar_session_free(&session);
  MPI_T_finalize();
  MPI_Finalize();
  return 0;
}
