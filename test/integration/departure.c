/* SPDX-License-Identifier: BSD-3-Clause
 *
 * departure: has a message left its process when its send is complete? From Open MPI 5.0 on a process may
 * wait in the runtime, without progress, as soon as a send has returned; what it still holds then does not go
 * out.
 *
 * usage: departure out FILE HOW SIZE FIRST LAST [first]
 *          rank 0 sends n messages of SIZE bytes to rank 1, n from FIRST to LAST, which reads late. When they
 *          are complete rank 0 calls nothing of MPI until rank 1 has them all. HOW: send, isend or start
 *          (persistent). `first`: nothing was sent before, and rank 1 reads at once. FILE has
 *          sizeof(Shared) bytes at least, of zeros.
 *        departure accept     rank 0 says the name of a port, as its first message, and accepts rank 1
 *        departure spawn      the first communication is MPI_Comm_spawn
 *        departure bcast N    rank 0 broadcasts N messages of 200 bytes to a rank that reads late, and then
 *                             accepts it
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kTag = 3, kMost = 1000, kLateUs = 100000, kPatienceUs = 3000000, kStepUs = 200, kFilled = 200 };

typedef struct {
  atomic_int complete; /* rounds whose sends are */
  atomic_int received; /* rounds whose messages are */
} Shared;

static int rank;
static int bad;
static unsigned char* bytes;

/* True: `count` came to `wanted` in time. */
static int reaches(atomic_int* count, int wanted, int limit_us) {
  for (int us = 0; us < limit_us; us += kStepUs) {
    if (atomic_load(count) >= wanted) return 1;
    usleep(kStepUs);
  }
  return atomic_load(count) >= wanted;
}

static unsigned char byte_of(int n, int i, int at) {
  return (unsigned char)(n * 37 + i * 11 + at * 7);
}

/* Message `i` of round `n` is at bytes + i * size. */
static void fill(int n, int size) {
  for (int i = 0; i < n; ++i)
    for (int at = 0; at < size; ++at) bytes[i * size + at] = byte_of(n, i, at);
}

static void send_all(const char* how, int n, int size) {
  static MPI_Request requests[kMost];
  for (int i = 0; i < n; ++i) {
    unsigned char* const from = bytes + i * size;
    if (strcmp(how, "send") == 0) {
      MPI_Send(from, size, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
    } else if (strcmp(how, "isend") == 0) {
      MPI_Isend(from, size, MPI_BYTE, 1, kTag, MPI_COMM_WORLD, &requests[i]);
    } else {
      MPI_Send_init(from, size, MPI_BYTE, 1, kTag, MPI_COMM_WORLD, &requests[i]);
      MPI_Start(&requests[i]);
    }
  }
  if (strcmp(how, "send") == 0) return;
  MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < n; ++i)
    if (requests[i] != MPI_REQUEST_NULL) MPI_Request_free(&requests[i]);
}

static void receive_all(int n, int size) {
  static MPI_Request requests[kMost];
  for (int i = 0; i < n; ++i)
    MPI_Irecv(bytes + i * size, size, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &requests[i]);
  MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
  int wrong = 0;
  for (int i = 0; i < n; ++i)
    for (int at = 0; at < size; ++at) wrong += bytes[i * size + at] != byte_of(n, i, at);
  if (wrong != 0) printf("departure: %d bytes of %d messages WRONG\n", wrong, n);
  bad += wrong != 0;
}

static int out(char** arguments) {
  const char* const how = arguments[1];
  const int size = atoi(arguments[2]);
  const int last = atoi(arguments[4]);
  const int first_contact = arguments[5] != NULL;
  const int file = open(arguments[0], O_RDWR);
  Shared* const shared = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  int left = 0;
  if (shared == MAP_FAILED || last > kMost) return 2;
  bytes = calloc(kMost, size + 1);
  for (int n = atoi(arguments[3]), round = 1; n <= last; ++n, ++round) {
    if (!first_contact) { /* what is under way ends here: with an answer there are two messages */
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 1) {
      if (!first_contact) reaches(&shared->complete, round, kLateUs);
      receive_all(n, size);
      atomic_store(&shared->received, round);
      continue;
    }
    fill(n, size);
    send_all(how, n, size);
    atomic_store(&shared->complete, round);
    if (reaches(&shared->received, round, kPatienceUs)) continue;
    printf("departure: %d sends of %d bytes are complete, and not all has left\n", n, size);
    ++left;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("departure: %d rounds left something behind\n", left);
  return left != 0;
}

/* Both ranks know `port`. */
static void meet(const char* port) {
  MPI_Comm other = MPI_COMM_NULL;
  int value = rank;
  if (rank == 0)
    MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
  else
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
  MPI_Sendrecv_replace(&value, 1, MPI_INT, 0, kTag, 0, kTag, other, MPI_STATUS_IGNORE);
  bad += value != 1 - rank;
  MPI_Comm_disconnect(&other);
}

static int accepted(int filled) {
  char port[MPI_MAX_PORT_NAME] = "";
  char filling[kFilled] = "";
  if (filled != 0) { /* connected; then rank 1 is late */
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) usleep(kLateUs);
  }
  for (int i = 0; i < filled; ++i) MPI_Bcast(filling, kFilled, MPI_BYTE, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    MPI_Open_port(MPI_INFO_NULL, port);
    MPI_Send(port, sizeof port, MPI_CHAR, 1, kTag, MPI_COMM_WORLD);
  } else {
    MPI_Recv(port, sizeof port, MPI_CHAR, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  meet(port);
  if (rank == 0) {
    MPI_Close_port(port);
    puts("departure: met");
  }
  return 0;
}

static int spawned(char* program) {
  char* const arguments[] = {"spawn", NULL};
  MPI_Comm parent = MPI_COMM_NULL;
  MPI_Comm children = MPI_COMM_NULL;
  int value = 1;
  MPI_Comm_get_parent(&parent);
  if (parent != MPI_COMM_NULL) {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_disconnect(&parent);
    return 0;
  }
  MPI_Comm_spawn(program, (char**)arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children,
                 MPI_ERRCODES_IGNORE);
  MPI_Comm_disconnect(&children);
  if (rank == 0) puts("departure: spawned");
  return 0;
}

int main(int argc, char** argv) {
  int result = 2;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc >= 7 && strcmp(argv[1], "out") == 0) result = out(argv + 2);
  if (argc == 2 && strcmp(argv[1], "accept") == 0) result = accepted(0);
  if (argc == 3 && strcmp(argv[1], "bcast") == 0) result = accepted(atoi(argv[2]));
  if (argc == 2 && strcmp(argv[1], "spawn") == 0) result = spawned(argv[0]);
  fflush(stdout);
  MPI_Finalize();
  return result != 0 ? result : bad != 0;
}
