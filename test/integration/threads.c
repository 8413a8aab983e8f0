/* SPDX-License-Identifier: BSD-3-Clause
 *
 * threads: every rank exchanges messages with every other one, and counts the threads of its process
 * meanwhile and after a time outside MPI. Prints both and how long the exchange took.
 */
#include <dirent.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kBytes = 200000, kRounds = 3, kLookMicroseconds = 100000, kLooks = 100, kSteadyLooks = 13 };

static int threads(void) {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == NULL) return -1;
  for (struct dirent* entry; (entry = readdir(tasks)) != NULL;) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

/* The number of threads once it has not changed for a while outside MPI, or after ten seconds. On a busy
 * machine a thread begins late, and so ends late. */
static int idle_threads(void) {
  int count = threads();
  for (int look = 0, steady = 0; look < kLooks && steady < kSteadyLooks; ++look) {
    usleep(kLookMicroseconds);
    const int now = threads();
    steady = now == count ? steady + 1 : 0;
    count = now;
  }
  return count;
}

static int wrong(const unsigned char* data, int size, unsigned char value) {
  int count = 0;
  for (int i = 0; i < size; ++i) count += data[i] != value;
  return count;
}

int main(int argc, char** argv) {
  int rank = 0;
  int size = 0;
  int most = 0;
  int bad = 0;
  unsigned char* out = malloc(kBytes);
  unsigned char* in = malloc(kBytes);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  memset(out, rank + 1, kBytes);
  const double start = MPI_Wtime();
  for (int round = 0; round < kRounds; ++round) {
    for (int step = 1; step < size; ++step) {
      const int to = (rank + step) % size;
      const int from = (rank + size - step) % size;
      const int bytes = round == 1 ? kBytes : 8;
      MPI_Request requests[2];
      int done = 0;
      memset(in, 0, kBytes);
      MPI_Irecv(in, bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, &requests[0]);
      MPI_Isend(out, bytes, MPI_BYTE, to, 0, MPI_COMM_WORLD, &requests[1]);
      for (int tests = 0; !done; ++tests) {
        MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);
        if (tests % 256 != 0) continue;
        const int now = threads();
        if (now > most) most = now;
      }
      bad += wrong(in, bytes, (unsigned char)(from + 1));
    }
  }
  const double seconds = MPI_Wtime() - start;
  const int idle = idle_threads();
  printf("threads: rank %d: %d busy, %d idle, %.1f s, %d bytes wrong\n", rank, most, idle, seconds, bad);
  fflush(stdout);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return bad != 0;
}
