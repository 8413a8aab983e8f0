/* SPDX-License-Identifier: BSD-3-Clause
 *
 * late_write: rank 0 sends long messages; rank 1 uses each buffer for something else as soon as its receive
 * is complete, says so with a message of kSaid bytes, and looks at the buffer again after the answer and at
 * the end. A byte that changed was written by a receive that was over. A fault file that holds one write
 * until the message of kSaid bytes has gone out decides when that happens.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kBytes = 256 * 1024, kRounds = 40, kSaid = 3000, kData = 1, kTalk = 2, kPauseUs = 10000 };

static unsigned char sent_byte(int round, int i) {
  return (unsigned char)(round * 7 + i % 251);
}

/* What the application has in the buffer of a round once that was received. */
static unsigned char own_byte(int round) {
  return (unsigned char)(round ^ 0xa5);
}

static void send_all(void) {
  unsigned char* data = malloc(kBytes);
  unsigned char talk[kSaid];
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kBytes; ++i) data[i] = sent_byte(round, i);
    MPI_Send(data, kBytes, MPI_BYTE, 1, kData, MPI_COMM_WORLD);
    MPI_Recv(talk, kSaid, MPI_BYTE, 1, kTalk, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(talk, 1, MPI_BYTE, 1, kTalk, MPI_COMM_WORLD);
    usleep(kPauseUs); /* the second rail is not up at once */
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

static int changed(const unsigned char* buffer, int round) {
  int count = 0;
  for (int i = 0; i < kBytes; ++i) count += buffer[i] != own_byte(round);
  if (count != 0)
    printf("late_write: %d bytes of the buffer of message %d changed after its receive\n", count, round);
  return count;
}

static int receive_all(void) {
  unsigned char* const buffers = malloc((size_t)kRounds * kBytes);
  unsigned char talk[kSaid];
  int wrong = 0;
  int late = 0;
  double longest = 0;
  memset(talk, 0x5a, sizeof talk);
  for (int round = 0; round < kRounds; ++round) {
    unsigned char* const buffer = buffers + (size_t)round * kBytes;
    memset(buffer, 0, kBytes);
    const double start = MPI_Wtime();
    MPI_Recv(buffer, kBytes, MPI_BYTE, 0, kData, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (MPI_Wtime() - start > longest) longest = MPI_Wtime() - start;
    for (int i = 0; i < kBytes; ++i) wrong += buffer[i] != sent_byte(round, i);
    memset(buffer, own_byte(round), kBytes);
    MPI_Send(talk, kSaid, MPI_BYTE, 0, kTalk, MPI_COMM_WORLD);
    MPI_Recv(talk, 1, MPI_BYTE, 0, kTalk, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  usleep(20 * kPauseUs);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int round = 0; round < kRounds; ++round) late += changed(buffers + (size_t)round * kBytes, round) != 0;
  printf("late_write: %d wrong bytes, %d buffers changed, longest receive %d ms\n", wrong, late,
         (int)(1000 * longest));
  return wrong != 0 || late != 0;
}

int main(int argc, char** argv) {
  int rank = 0;
  int bad = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) send_all();
  if (rank == 1) bad = receive_all();
  fflush(stdout);
  MPI_Finalize();
  return bad;
}
