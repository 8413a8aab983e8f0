/* SPDX-License-Identifier: BSD-3-Clause
 *
 * dead_peer: rank 1 kills itself while rank 0 waits for it; ranks 0 and 2 must go on. The argument says how
 * rank 0 waits: "send" (a long message nobody takes), "recv", "probe", "mprobe", "iprobe", "improbe" (a
 * message that never comes, the last two in a loop). With "stranger-" before it rank 0 has never talked to
 * rank 1, with "any-" it waits for MPI_ANY_SOURCE, and with "late-" as well rank 2 sends to it long after
 * rank 1 was given up. Rank 0 prints the error class and the seconds it took; a probe must still find a
 * message of the dead rank that had come. The second argument names a file that rank 1 makes before it dies:
 * a stranger is spoken to only then, because a rank that is still leaving MPI_Init answers handshakes.
 */
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Rank 1 has sent this one before it died. */
static const int kLastTag = 2;

/* "late-": what rank 2 sends, so many seconds after the start. */
static const int kLateSeconds = 10;

static const char* name_of(int rc) {
  int class = 0;
  if (rc == MPI_SUCCESS) return "MPI_SUCCESS";
  MPI_Error_class(rc, &class);
  return class == MPI_ERR_OTHER ? "MPI_ERR_OTHER" : "another class";
}

static int wait_by_probe(const char* how, int from) {
  MPI_Message message = MPI_MESSAGE_NULL;
  int flag = 0;
  int rc = MPI_SUCCESS;
  const int improbe = strstr(how, "improbe") != NULL;
  if (strstr(how, "iprobe") == NULL && !improbe) {
    if (strstr(how, "mprobe") != NULL)
      return MPI_Mprobe(from, 0, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    return MPI_Probe(from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  while (rc == MPI_SUCCESS && !flag) {
    rc = improbe ? MPI_Improbe(from, 0, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE)
                 : MPI_Iprobe(from, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  }
  return rc;
}

static void find_last_words(void) {
  int token = 0;
  int rc = MPI_Probe(1, kLastTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rc == MPI_SUCCESS) rc = MPI_Recv(&token, 1, MPI_INT, 1, kLastTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  printf("dead_peer: its last words: %s %d\n", rc == MPI_SUCCESS ? "found" : "LOST", token);
}

static int wait_for_dead(const char* how, char* buffer, int size) {
  if (strstr(how, "send") != NULL) return MPI_Send(buffer, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
  const int from = strstr(how, "any-") != NULL ? MPI_ANY_SOURCE : 1;
  if (strstr(how, "probe") != NULL) return wait_by_probe(how, from);
  return MPI_Recv(buffer, size, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "send";
  const char* mark = argc > 2 ? argv[2] : "dead_peer.mark";
  const int stranger = strncmp(how, "stranger", 8) == 0;
  const int size = 1 << 20;
  int rank = 0;
  int token = 7;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  char* buffer = calloc(1, size);
  if (!stranger && rank < 2) {
    if (rank == 1) MPI_Send(&token, 1, MPI_INT, 0, kLastTag, MPI_COMM_WORLD);
    MPI_Sendrecv_replace(buffer, size, MPI_BYTE, 1 - rank, 1, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  if (rank == 1) {
    close(open(mark, O_CREAT | O_WRONLY, 0600));
    raise(SIGKILL);
  }
  if (rank == 0) {
    while (stranger && access(mark, F_OK) != 0) usleep(1000);
    const double start = MPI_Wtime();
    const int rc = wait_for_dead(how, buffer, size);
    printf("dead_peer: %s ended with %s after %.1f s\n", how, name_of(rc), MPI_Wtime() - start);
    if (!stranger) find_last_words();
    MPI_Send(&token, 1, MPI_INT, 2, 0, MPI_COMM_WORLD);
    MPI_Recv(&token, 1, MPI_INT, 2, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("dead_peer: rank 2 answered %d\n", token);
    fflush(stdout);
  } else {
    if (strstr(how, "late-") != NULL) {
      sleep(kLateSeconds);
      MPI_Send(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    }
    MPI_Recv(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    ++token;
    MPI_Send(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    usleep(300000); /* its last message must be out before it goes without MPI_Finalize */
  }
  /* MPI_Finalize would wait for the dead. */
  _exit(0);
}
