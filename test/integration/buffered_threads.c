/* SPDX-License-Identifier: BSD-3-Clause
 *
 * buffered_threads.c: threads that make buffered sends to their own process and receive them, at the same
 * time; then MPI_Buffer_detach, which waits for every message that the library counts. Prints
 * "buffered_threads: N messages".
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kThreads = 2, kBytes = 64, kRoom = 1 << 20 };
static int g_rounds;

/* A tag of its own for each thread. */
static void* exchange(void* tag) {
  const int mine = *(const int*)tag;
  char out[kBytes], in[kBytes];
  for (int i = 0; i < g_rounds; ++i) {
    MPI_Request request;
    memset(out, i + mine, sizeof out);
    if (i % 2) {
      MPI_Bsend(out, kBytes, MPI_BYTE, 0, mine, MPI_COMM_SELF);
    } else {
      MPI_Ibsend(out, kBytes, MPI_BYTE, 0, mine, MPI_COMM_SELF, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    memset(out, 0, sizeof out);
    MPI_Recv(in, kBytes, MPI_BYTE, 0, mine, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    memset(out, i + mine, sizeof out);
    if (memcmp(in, out, sizeof in) != 0) {
      fprintf(stderr, "buffered_threads: message %d of thread %d is wrong\n", i, mine);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  return NULL;
}

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided != MPI_THREAD_MULTIPLE) {
    fprintf(stderr, "buffered_threads: MPI_THREAD_MULTIPLE is not provided\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  g_rounds = argc > 1 ? atoi(argv[1]) : 1000000;
  int room = kRoom;
  void* const buffer = malloc(kRoom);
  MPI_Buffer_attach(buffer, room);
  pthread_t threads[kThreads];
  int tags[kThreads];
  for (int i = 0; i < kThreads; ++i) {
    tags[i] = i;
    pthread_create(&threads[i], NULL, exchange, &tags[i]);
  }
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  void* back = NULL;
  MPI_Buffer_detach(&back, &room);
  printf("buffered_threads: %d messages%s\n", kThreads * g_rounds,
         back == buffer ? "" : ", another buffer came back");
  free(buffer);
  MPI_Finalize();
  return back == buffer ? 0 : 1;
}
