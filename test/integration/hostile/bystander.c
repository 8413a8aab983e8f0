// SPDX-License-Identifier: BSD-3-Clause
//
// bystander.c: the job that hostile_test attacks: `bystander SECONDS`. Two ranks exchange messages of all
// sizes and look at every byte, for that long. Says what it did, what memory it has gained since it was
// warm, and what its connection manager has dropped.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kMost = 1 << 20, kSizes = 12 };
static const int sizes[kSizes] = {1, 8, 255, 256, 4000, 12288, 12289, 65536, 100000, 262144, 524288, kMost};

static unsigned char pattern(int rank, unsigned round, int i) {
  return (unsigned char)(i * 131 + i / 251 + (int)(round * 29) + rank * 97);
}

static long resident_kib(void) {
  long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
  if (file != NULL) fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

enum { kMostDrops = 16 };
static MPI_T_pvar_session session;
static MPI_T_pvar_handle handles[kMostDrops];
static char names[kMostDrops][64];
static int drops;

/// A counter tells what was added since its handle was made.
static void count_drops(void) {
  int count = 0;
  MPI_T_pvar_session_create(&session);
  MPI_T_pvar_get_num(&count);
  for (int i = 0; i < count && drops < kMostDrops; ++i) {
    char name[64];
    int length = sizeof name, verbosity, class, bind, readonly, continuous, atomic, n;
    MPI_Datatype type;
    if (MPI_T_pvar_get_info(i, name, &length, &verbosity, &class, &type, NULL, NULL, NULL, &bind, &readonly,
                            &continuous, &atomic) != MPI_SUCCESS ||
        strncmp(name, "btl_verbs_dropped_", 18) != 0)
      continue;
    if (MPI_T_pvar_handle_alloc(session, i, NULL, &handles[drops], &n) == MPI_SUCCESS)
      snprintf(names[drops++], sizeof names[0], "%s", name + 18);
  }
}

static void print_drops(int rank) {
  char line[1000] = "";
  for (int i = 0; i < drops; ++i) {
    unsigned long long value = 0;
    MPI_T_pvar_read(session, handles[i], &value);
    MPI_T_pvar_handle_free(session, &handles[i]);
    const size_t used = strlen(line);
    snprintf(line + used, sizeof line - used, " %s=%llu", names[i], value);
  }
  MPI_T_pvar_session_free(&session);
  printf("bystander %d: dropped%s\n", rank, line);
}

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? atof(argv[1]) : 5;
  int rank = 0, provided = 0;
  MPI_Init(&argc, &argv);
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  count_drops();
  unsigned char* out = malloc(kMost);
  unsigned char* in = malloc(kMost);
  if (out == NULL || in == NULL) MPI_Abort(MPI_COMM_WORLD, 3);
  unsigned long long messages = 0, bytes = 0, wrong = 0;
  const double start = MPI_Wtime();
  long settled_kib = 0;
  int more = 1;
  for (unsigned round = 0; more; ++round) {
    const int size = sizes[round % kSizes];
    for (int i = 0; i < size; ++i) out[i] = pattern(rank, round, i);
    memset(in, 0xee, kMost);
    MPI_Sendrecv(out, size, MPI_BYTE, 1 - rank, 7, in, size, MPI_BYTE, 1 - rank, 7, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int i = 0; i < size; ++i) wrong += in[i] != pattern(1 - rank, round, i);
    ++messages;
    bytes += (unsigned long long)size;
    const double past = MPI_Wtime() - start;
    // By then all buffers, caches and the queues of both rails are there.
    if (settled_kib == 0 && past > 0.6 * seconds && round >= 4 * kSizes) settled_kib = resident_kib();
    more = past < seconds || round < 8 * kSizes;
    MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  const long grown_kib = resident_kib() - settled_kib;
  print_drops(rank);
  printf("bystander %d: %llu messages, %llu bytes, %llu wrong, memory %ld KiB, grown by %ld KiB\n", rank,
         messages, bytes, wrong, settled_kib, grown_kib);
  free(out);
  free(in);
  MPI_T_finalize();
  MPI_Finalize();
  return wrong == 0 ? 0 : 2;
}
