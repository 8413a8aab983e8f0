/* SPDX-License-Identifier: BSD-3-Clause
 *
 * semantics: every point-to-point entry of MPI, checked on two or more ranks against what the standard says:
 * send modes, persistent requests (also inactive ones), probe and matched probe, cancel, wildcards,
 * truncation, freed active requests, handles that outlive their communicator or data type, derived datatypes,
 * self messages, duplicated communicators, ordering, and threads. Prints one line per failed expectation and
 * `semantics: N checks, M failed` at the end; exits 1 when one failed. With the argument "threads" it asks
 * for MPI_THREAD_MULTIPLE and adds the threaded part.
 */
#include "test/integration/semantics.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int g_rank, g_size;
unsigned char* g_out;
unsigned char* g_in;
static int g_checks, g_failed;

const int kSizes[] = {0,      1,      8,      64,     113,     114,     115,    256,   1024,
                      4000,   4096,   12000,  12288,  16384,   32768,   65535,  65536, 65537,
                      100000, 131072, 262144, 500000, 1 << 20, 3000000, 4 << 20};

void expect(int ok, const char* what, const char* file, int line) {
  ++g_checks;
  if (ok) return;
  ++g_failed;
  fprintf(stderr, "rank %d %s:%d: %s\n", g_rank, file, line, what);
}

void fill(unsigned char* p, int n, unsigned seed) {
  unsigned x = seed * 2654435761u + 1;
  for (int i = 0; i < n; ++i) {
    x = x * 1664525u + 1013904223u;
    p[i] = (unsigned char)(x >> 24);
  }
}

int holds(const unsigned char* p, int n, unsigned seed) {
  unsigned x = seed * 2654435761u + 1;
  for (int i = 0; i < n; ++i) {
    x = x * 1664525u + 1013904223u;
    if (p[i] != (unsigned char)(x >> 24)) return 0;
  }
  return 1;
}

int peer_of(int rank) {
  return rank ^ 1;
}

int paired(void) {
  return peer_of(g_rank) < g_size;
}

static void say(const char* what) {
  if (g_rank == 0 && getenv("SEMANTICS_VERBOSE")) fprintf(stderr, "semantics: %s\n", what);
}

static void run_all(int with_threads) {
  static const struct {
    const char* name;
    void (*run)(MPI_Comm);
  } parts[] = {
      {"send_modes", send_modes},
      {"nonblocking", nonblocking},
      {"ordering", ordering},
      {"wildcards", wildcards},
      {"persistent", persistent},
      {"probes", probes},
      {"persistent_buffered", persistent_buffered},
      {"cancelling", cancelling},
      {"truncation", truncation},
      {"freed_active", freed_active},
      {"datatypes", datatypes},
      {"proc_null", proc_null},
      {"lifetimes", lifetimes},
  };
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); ++i) {
    say(parts[i].name);
    parts[i].run(comm);
    MPI_Barrier(comm);
  }
  say("self, communicators, collectives");
  to_self();
  communicators();
  collectives();
  if (with_threads) threads();
  MPI_Comm_free(&comm);
}

/* Prints the sums; how many expectations failed in all. */
static int report(void) {
  int mine[2] = {g_checks, g_failed}, sum[2];
  MPI_Allreduce(mine, sum, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (g_rank == 0) printf("semantics: %d checks, %d failed\n", sum[0], sum[1]);
  return sum[1];
}

int main(int argc, char** argv) {
  const int want = argc > 1 && strcmp(argv[1], "threads") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
  int got = 0;
  MPI_Init_thread(&argc, &argv, want, &got);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_size);
  g_out = malloc(kMaxSize);
  g_in = malloc(kMaxSize);
  const int bsize = 3 * kMaxSize;
  void* bbuf = malloc(bsize);
  MPI_Buffer_attach(bbuf, bsize);
  EXPECT(got >= want);
  run_all(want == MPI_THREAD_MULTIPLE);
  const int failed = report();
  void* detached = NULL;
  int dsize = 0;
  MPI_Buffer_detach(&detached, &dsize);
  free(bbuf);
  free(g_out);
  free(g_in);
  MPI_Finalize();
  return failed ? 1 : 0;
}
