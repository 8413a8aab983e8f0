/* SPDX-License-Identifier: BSD-3-Clause
 *
 * buffered.c: buffered sends whose buffer holds one message: each is followed by its receive and by a word of
 * the receiver, so the buffer is free again when the next one starts. Every kind of buffered send, words of
 * several sizes, direct and through a third process. Prints "buffered: N messages, M without buffer".
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBytes = 2 << 20, kWords = 4 };
static const int kWordBytes[kWords] = {0, 8, 300, 8000};
static int g_rank, g_size, g_failed, g_sent;

static void note(int rc) {
  ++g_sent;
  if (rc == MPI_SUCCESS) return;
  int c = 0;
  MPI_Error_class(rc, &c);
  if (c != MPI_ERR_BUFFER) fprintf(stderr, "buffered: error code %d\n", rc);
  ++g_failed;
}

/* The receiver says that it has the message: with a barrier, or with one message. */
static void word(int k, char* w) {
  if (k == 0) {
    MPI_Barrier(MPI_COMM_WORLD);
    return;
  }
  const int n = kWordBytes[k % kWords];
  if (g_rank == 1) MPI_Send(w, n, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
  if (g_rank == 0) MPI_Recv(w, n, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_size);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int rounds = argc > 1 ? atoi(argv[1]) : 300;
  const int bytes = argc > 2 ? atoi(argv[2]) : kBytes;
  const int room = bytes + MPI_BSEND_OVERHEAD + 1024;
  char* data = calloc(1, (size_t)bytes + 1);
  char* buffer = malloc((size_t)room);
  char w[8192] = {0};
  MPI_Buffer_attach(buffer, room);
  MPI_Request persistent;
  MPI_Bsend_init(data, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &persistent);
  for (int i = 0; i < rounds; ++i) {
    int sent = 0;
    if (g_rank == 0) {
      const int before = g_failed;
      MPI_Request rq = MPI_REQUEST_NULL;
      memset(data, i, (size_t)bytes);
      if (i % 3 == 0) note(MPI_Bsend(data, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
      if (i % 3 == 1) {
        note(MPI_Ibsend(data, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &rq));
        if (g_failed == before) MPI_Wait(&rq, MPI_STATUS_IGNORE);
      }
      if (i % 3 == 2) {
        note(MPI_Start(&persistent));
        if (g_failed == before) MPI_Wait(&persistent, MPI_STATUS_IGNORE);
      }
      sent = g_failed == before;
      MPI_Send(&sent, 1, MPI_INT, 1, 3, MPI_COMM_WORLD);
    }
    if (g_rank == 1) {
      MPI_Recv(&sent, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (sent) MPI_Recv(data, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      for (int k = 0; sent && k < bytes; k += 4001)
        if (data[k] != (char)i) MPI_Abort(MPI_COMM_WORLD, 3);
    }
    word(i / 3 % 5, w);
    if (i % 50 == 49 && g_rank == 0) { /* detach waits for what is under way */
      void* b;
      int n;
      MPI_Buffer_detach(&b, &n);
      if (b != buffer || n != room) MPI_Abort(MPI_COMM_WORLD, 4);
      MPI_Buffer_attach(buffer, room);
    }
  }
  MPI_Request_free(&persistent);
  if (g_rank == 0) printf("buffered: %d messages, %d without buffer\n", g_sent, g_failed);
  void* b;
  int n;
  MPI_Buffer_detach(&b, &n);
  MPI_Finalize();
  free(buffer);
  free(data);
  return 0;
}
