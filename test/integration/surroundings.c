/* SPDX-License-Identifier: BSD-3-Clause
 *
 * surroundings.c: messages of all protocols round a ring while something else happens in the processes. Tags
 * are MPI_TAG_UB and the ones below it.
 *
 * Usage: surroundings ROUNDS [WHAT]
 * - alarm: SIGALRM a thousand times a second in each process, without SA_RESTART
 * - profile: SIGPROF, the same, as a profiler does it
 * - children: a process forks, and runs a command, with messages in flight; the child writes over the buffers
 * - stopped: the last rank is stopped for 3 s (SIGSTOP), as by a debugger or a batch system
 *
 * Rank 0 prints "surroundings: N rounds, M wrong".
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kSizes = 6, kLongest = 3000000 };
static const int kBytes[kSizes] = {8, 600, 5000, 20000, 100000, kLongest};

static int g_rank, g_ranks, g_tag;
static unsigned char* g_out;
static unsigned char* g_in;
static volatile sig_atomic_t g_ticks;

static void tick(int signal) {
  (void)signal;
  ++g_ticks;
}

static void start_timer(int which, int signal) {
  struct sigaction action = {.sa_handler = tick};
  sigaction(signal, &action, NULL);
  struct itimerval every = {{0, 1000}, {0, 1000}};
  setitimer(which, &every, NULL);
}

/* A child stops this process after 0.3 s, and lets it go on after 3 s more. */
static void stop_later(void) {
  const pid_t me = getpid();
  if (fork() != 0) return;
  usleep(300000);
  kill(me, SIGSTOP);
  sleep(3);
  kill(me, SIGCONT);
  _exit(0);
}

static unsigned char value(long round, int size, int rank) {
  return (unsigned char)(round * 7 + size * 3 + rank);
}

/* The child has copies of the buffers; what it writes must not get into a message. */
static int fork_meanwhile(int bytes) {
  const pid_t child = fork();
  if (child == 0) {
    memset(g_out, 1, (size_t)bytes);
    memset(g_in, 2, (size_t)bytes);
    _exit(0);
  }
  int status = 0;
  const int ran = system("true");
  return child < 0 || ran != 0 || waitpid(child, &status, 0) != child || status != 0;
}

static long exchange(long round, int size, int with_children) {
  const int bytes = kBytes[size], to = (g_rank + 1) % g_ranks, from = (g_rank + g_ranks - 1) % g_ranks;
  const int tag = g_tag - (int)(round % 3);
  long wrong = 0;
  MPI_Request requests[2];
  memset(g_out, value(round, size, g_rank), (size_t)bytes);
  memset(g_in, 0xee, (size_t)bytes);
  MPI_Irecv(g_in, bytes, MPI_BYTE, from, tag, MPI_COMM_WORLD, &requests[0]);
  MPI_Isend(g_out, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &requests[1]);
  if (with_children && round % 5 == 0) wrong += fork_meanwhile(bytes);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < bytes; ++i) wrong += g_in[i] != value(round, size, from);
  return wrong;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_ranks);
  const long rounds = argc > 1 ? atol(argv[1]) : 20;
  const char* const what = argc > 2 ? argv[2] : "";
  g_out = malloc(kLongest);
  g_in = malloc(kLongest);
  int* highest;
  int found;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &highest, &found);
  g_tag = *highest;
  const int alarms = strcmp(what, "alarm") == 0, profile = strcmp(what, "profile") == 0;
  if (alarms) start_timer(ITIMER_REAL, SIGALRM);
  if (profile) start_timer(ITIMER_PROF, SIGPROF);
  const int stopped = strcmp(what, "stopped") == 0;
  if (stopped && g_rank == g_ranks - 1) stop_later();
  const double start = MPI_Wtime();

  long wrong = 0, all = 0;
  for (long round = 0; round < rounds; ++round)
    for (int size = 0; size < kSizes; ++size) wrong += exchange(round, size, strcmp(what, "children") == 0);
  /* The others are still at it when the last rank is stopped, and when it goes on. */
  for (int go = stopped; go != 0;) {
    wrong += exchange(1, 3, 0);
    go = MPI_Wtime() - start < 4;
    MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  if ((alarms || profile) && g_ticks == 0) ++wrong;
  MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  /* The output is written without a signal: the C library drops what a write that was interrupted had left.
   */
  const struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &never, NULL);
  setitimer(ITIMER_PROF, &never, NULL);
  if (g_rank == 0) printf("surroundings: %ld rounds, %ld wrong\n", rounds, all);
  free(g_out);
  free(g_in);
  MPI_Finalize();
  return 0;
}
