/* SPDX-License-Identifier: BSD-3-Clause
 *
 * refused.c: windows of messages of one size to and from every other process, each size by another protocol.
 * With few send fragments the BTL refuses most requests for one; every message must arrive all the same.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kWindow = 48, kRounds = 4, kMost = 100000 };
static const int kSizes[] = {8, 600, 4000, 16384, kMost};

static unsigned char byte_of(int from, int k, int i) {
  return (unsigned char)(from * 31 + k * 7 + i);
}

int main(int argc, char** argv) {
  int me, n, wrong = 0, messages = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  unsigned char* out = malloc((size_t)kWindow * kMost);
  unsigned char* in = malloc((size_t)n * kWindow * kMost);
  MPI_Request* requests = malloc(sizeof(MPI_Request) * 2 * (size_t)n * kWindow);
  for (int k = 0; k < kWindow; ++k)
    for (int i = 0; i < kMost; ++i) out[(size_t)k * kMost + i] = byte_of(me, k, i);
  for (unsigned s = 0; s < sizeof kSizes / sizeof kSizes[0]; ++s) {
    for (int round = 0; round < kRounds; ++round) {
      int r = 0;
      memset(in, 0, (size_t)n * kWindow * kMost);
      for (int p = 0; p < n; ++p)
        for (int k = 0; p != me && k < kWindow; ++k)
          MPI_Irecv(in + ((size_t)p * kWindow + k) * kMost, kSizes[s], MPI_BYTE, p, k, MPI_COMM_WORLD,
                    &requests[r++]);
      for (int k = 0; k < kWindow; ++k)
        for (int p = 0; p < n; ++p)
          if (p != me)
            MPI_Isend(out + (size_t)k * kMost, kSizes[s], MPI_BYTE, p, k, MPI_COMM_WORLD, &requests[r++]);
      MPI_Waitall(r, requests, MPI_STATUSES_IGNORE);
      messages += r / 2;
      for (int p = 0; p < n; ++p)
        for (int k = 0; p != me && k < kWindow; ++k)
          for (int i = 0; i < kSizes[s]; ++i)
            wrong += in[((size_t)p * kWindow + k) * kMost + i] != byte_of(p, k, i);
    }
  }
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (me == 0)
    printf(wrong == 0 ? "refused: ok, %d messages\n" : "refused: %d messages, wrong bytes\n", messages);
  MPI_Finalize();
  return wrong != 0;
}
